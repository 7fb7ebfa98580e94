"""One job in containers on two machines: each has a network and a Docker engine of its own, and its gangs' containers are on its network."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.runtimes.docker import own_engine
from tests.agent.runtimes.docker.own_engine import OwnEngine
from tests.system.mpi_image import IMAGE, archive
from tests.system.over_hosts import NODES
from tests.system.two_hosts import TwoHosts

pytestmark = [pytest.mark.nats, pytest.mark.docker, pytest.mark.hosts, pytest.mark.mpi, pytest.mark.slow]
if reason := own_engine.missing():
    pytestmark.append(pytest.mark.skip(reason=reason))

SOURCE = Path(__file__).with_name("allreduce.c")
GANG: dict[str, Any] = {"image": IMAGE, "nodes": 2, "processesPerNode": 2}


class TwoEngines(TwoHosts):
    """Two hosts whose agents make containers, each by the engine of its host."""

    def __init__(self, data: Path, image: bytes) -> None:
        super().__init__(data)
        self._image = image
        self._engines = ExitStack()
        self.engines: dict[str, OwnEngine] = {}

    def start_agent(self, node: str) -> None:
        if node not in self.engines:
            engine = self._engines.enter_context(OwnEngine(live_restore=False, within=self.hosts[node].name))
            repository, _, tag = IMAGE.partition(":")
            engine.client.import_image_from_data(self._image, repository=repository, tag=tag)
            self.engines[node] = engine
        super().start_agent(node)

    def of(self, node: str) -> dict[str, str]:
        return {
            **super().of(node),
            "FAIRLEAD_RUNTIME": "docker",
            "FAIRLEAD_GANG_NETWORK": "host",
            "DOCKER_HOST": f"unix://{self.engines[node].socket}",
        }

    def __exit__(self, *error: object) -> None:
        for name in [name for name in self.processes if name.startswith("agent-")]:
            process = self.processes.pop(name)
            process.kill()
            process.wait()
        self._engines.close()
        super().__exit__(*error)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoEngines]:
    """Two nodes, shared by this file; their image holds the all-reduce, compiled."""
    mpicc = shutil.which("mpicc")
    assert mpicc is not None
    program = tmp_path_factory.mktemp("mpi") / "allreduce"
    subprocess.run([mpicc, "-o", str(program), str(SOURCE)], check=True)
    with TwoEngines(tmp_path_factory.mktemp("engines"), archive(program)) as cluster:
        yield cluster


def sums(cluster: TwoEngines, job: str) -> list[str]:
    """Return the sums that the ranks print, sorted."""
    return sorted(line for line in cluster.fairlead("logs", job).splitlines() if "sum" in line)


def test_mpirun_in_a_container_reduces_with_ranks_in_another_machines(cluster: TwoEngines) -> None:
    """Four ranks, two on each machine; no ssh in the image, nothing set up, no word about networks in the job file."""
    job = cluster.submit({"command": ["mpirun", "/solve"], **GANG})
    ended = cluster.ended(job)
    assert (ended["state"], ended["exit_code"]) == ("succeeded", 0), cluster.fairlead("logs", job) + cluster.logs()
    said = sums(cluster, job)
    assert [line.partition(" on ")[0] for line in said] == [f"[rank {rank}] rank {rank} of 4" for rank in range(4)]
    assert [line.partition(": ")[0][-1] for line in said] == ["a", "a", "b", "b"]
    assert all("sum 6," in line for line in said)


def test_a_job_on_one_node_has_a_network_of_its_own(cluster: TwoEngines) -> None:
    """It sees none of its node's interfaces, whatever its node allows to gangs."""
    seen = {}
    for name, nodes in (("alone", 1), ("gang", 2)):
        job = cluster.submit({"command": ["cat", "/proc/net/dev"], "image": IMAGE, "nodes": nodes})
        assert cluster.ended(job)["state"] == "succeeded", cluster.fairlead("logs", job) + cluster.logs()
        seen[name] = "eth0" in cluster.fairlead("logs", job)
    assert seen == {"alone": False, "gang": True}


def test_a_killed_rank_ends_all_and_the_next_attempt_succeeds(cluster: TwoEngines) -> None:
    """kill -9 of one rank in the second machine's container, while all run."""
    job = cluster.submit({"command": ["mpirun", "/solve", "stay"], "retries": {"max": 1}, **GANG})
    cluster.until(lambda: len(sums(cluster, job)) == 4, "every rank has begun")
    [container] = cluster.engines["b"].client.containers()
    # As the host numbers them: the engine's own list of what runs in the container.
    processes = cluster.engines["b"].client.top(container["Id"])["Processes"]
    ranks = [int(process[1]) for process in processes if process[-1].startswith("/solve")]
    assert len(ranks) == 2, processes
    os.kill(ranks[0], signal.SIGKILL)
    ended = cluster.ended(job)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), cluster.logs()
    assert len(sums(cluster, job)) == 4
    assert [each for node in NODES for each in cluster.engines[node].client.containers()] == []
