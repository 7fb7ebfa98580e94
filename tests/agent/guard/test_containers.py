"""The guard over real containers: through the engine, and without it."""

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from fairlead_agent.core.lease import NEVER_NS, Lease
from fairlead_agent.guard.policy import Work
from fairlead_agent.guard.work import SOCKET, Containers, socket_of
from tests.agent.runtimes.docker.image import ensure_image
from tests.kit.eventually import eventually

pytestmark = pytest.mark.docker

LEASE = Lease("boot", f"n{uuid.uuid4().hex[:8]}", uuid.uuid4().hex, "docker", 0, 1, 1, 1)


@pytest.fixture
def containers() -> Iterator[Callable[..., str]]:
    """Makes containers as the agent labels them; they go with the test."""
    api, made = docker.APIClient(version="auto"), list[str]()

    def make(job: str, *, lease: Lease = LEASE, env: tuple[str, ...] = ()) -> str:
        labels = {
            "fairlead.node": lease.node,
            "fairlead.incarnation": lease.incarnation,
            "fairlead.job": job,
            "fairlead.attempt": "1",
            "fairlead.rank": "0",
        }
        own = [f"FAIRLEAD_NODE={lease.node}", f"FAIRLEAD_JOB={job}", "FAIRLEAD_ATTEMPT=1", "FAIRLEAD_RANK=0"]
        created = api.create_container(
            ensure_image(),
            ["sh", "-c", "trap 'exit 7' TERM; echo ready; sleep 600 & wait"],
            labels=labels,
            environment=[*own, *env],
            network_disabled=True,
        )["Id"]
        made.append(created)
        api.start(created)
        return created

    yield make
    for each in made:
        api.remove_container(each, force=True)


def code(container: str) -> int:
    """Return the exit code."""
    return int(docker.APIClient(version="auto").wait(container, timeout=60)["StatusCode"])


def logs(container: str) -> bytes:
    """Return the output."""
    return bytes(docker.APIClient(version="auto").logs(container))


@pytest.mark.parametrize("socket", [SOCKET, "/nowhere/docker.sock"], ids=["by the engine", "by cgroups"])
def test_containers_are_found_and_ended(containers: Callable[..., str], socket: str) -> None:
    """This node's, with their job's own settings; TERM, then KILL; another node's are not seen."""
    first, second = containers("7"), containers("8", env=("FAIRLEAD_STOP_AFTER=never",))
    other = containers("9", lease=LEASE._replace(node="other", incarnation="other"))
    found = Containers(socket)
    wanted = [Work("7.1.0"), Work("8.1.0", NEVER_NS)]
    eventually(
        lambda: sorted(found.look(LEASE)) == wanted, "both are found", within_s=60, logs=lambda: str(found.look(LEASE))
    )
    eventually(lambda: b"ready" in logs(first), "its trap is set", within_s=60)
    found.send("7.1.0", signal.SIGTERM)
    assert code(first) == 7
    found.send("8.1.0", signal.SIGKILL)
    assert code(second) == 128 + 9
    found.send("9.1.0", signal.SIGKILL)
    assert [c["Id"] for c in docker.APIClient(version="auto").containers(filters={"id": other})] == [other]


def test_an_engine_with_invalid_answers_is_ignored(tmp_path: Path) -> None:
    """For any answer: no exception, and no container."""
    assert Containers(str(tmp_path)).look(LEASE) == []
    assert socket_of("unix:///run/user/1/docker.sock") == "/run/user/1/docker.sock"
    assert socket_of("") == socket_of("tcp://10.0.0.1:2375") == SOCKET
