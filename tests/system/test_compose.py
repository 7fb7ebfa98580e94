"""compose.yaml unchanged, with base images made on this machine: a job over HTTP, every process with its own key. Needs
docker-compose or the Compose plugin, and an engine whose containers can have a network of their own."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import httpx
import pytest
from docker.errors import DockerException

from fairlead.stack.nats_server import free_port
from tests.kit import base_images
from tests.kit.eventually import eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
UNTIL_S, BUILD_S = 90.0, 900.0


def compose_program() -> list[str]:
    """The words that run Compose here; none where there is none."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    return []


def why_not() -> str:
    """Return the reason why it cannot run here; "" if it can."""
    if not compose_program():
        return "compose: neither docker-compose nor the Compose plugin (apt install docker-compose)"
    client = docker.APIClient(version="auto")
    try:
        client.remove_network(client.create_network(f"fairlead-probe-{secrets.token_hex(4)}")["Id"])
    except DockerException as error:
        return f"compose: this engine makes no networks: {str(error)[:120]}"
    return ""


class Composed:
    """The installation under a project name of its own."""

    def __init__(self) -> None:
        self.project = f"fairlead-test-{secrets.token_hex(4)}"
        self.port = free_port()
        images = base_images.ensure(ROOT / ".venv" / "base-image-wheels")
        self.environment = {
            **os.environ,
            **images,
            "HTTP_PORT": str(self.port),
            "TAG": "test",
            "BUILD_NETWORK": "none",  # the wheels lie in the base image
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }
        self.url = f"http://127.0.0.1:{self.port}"

    def compose(self, *words: str, timeout_s: float = UNTIL_S) -> str:
        done = subprocess.run(
            [*compose_program(), "-p", self.project, *words],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{words}: {(done.stdout + done.stderr)[-3000:]}"
        return done.stdout

    def get(self, path: str) -> dict:
        answer = httpx.get(self.url + path, timeout=UNTIL_S)
        answer.raise_for_status()
        return answer.json()

    def submit(self, body: dict[str, object]) -> str:
        """The job's id. Where it is not decided in time (202), it is asked for again by the same key."""
        key = {"Idempotency-Key": secrets.token_hex(8)}
        eventually(lambda: self._submitted(body, key) != "", "the job is accepted", within_s=UNTIL_S)
        return self._submitted(body, key)

    def _submitted(self, body: dict[str, object], key: dict[str, str]) -> str:
        answer = httpx.post(f"{self.url}/v1/jobs", json=body, headers=key, timeout=UNTIL_S)
        assert answer.status_code in (200, 201, 202), answer.text
        return str(answer.json().get("id", ""))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def logs() -> str:
            return self.compose("logs", "--tail=15")[-6000:]

        eventually(condition, what, within_s=UNTIL_S, not_yet=(httpx.HTTPError, KeyError), look_s=0.2, logs=logs)


@pytest.fixture(scope="module")
def composed() -> Iterator[Composed]:
    if reason := why_not():
        pytest.skip(reason)
    made = Composed()
    try:
        made.compose("build", timeout_s=BUILD_S)
        made.compose("up", "-d")
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "5")  # images stay, so that the next build has little to do


def test_a_job_runs_in_it(composed: Composed) -> None:
    """Submitted over HTTP, run by the node, its output read back, and the explainer and SQL answer; no subject is
    refused."""
    composed.until(
        lambda: [node["id"] for node in composed.get("/v1/nodes")["items"]] == ["sim-1"], "the node has joined"
    )
    body = {
        "command": ["sh", "-c", "echo from a container"],
        "resources": {"cpu": "1", "memory": "64Mi", "nvidia.com/gpu": 1},
    }
    job = composed.submit(body)
    composed.until(lambda: composed.get(f"/v1/jobs/{job}")["state"] == "succeeded", "the job has succeeded")
    output = httpx.get(f"{composed.url}/v1/jobs/{job}/logs", params={"follow": "false"}, timeout=UNTIL_S).text
    assert output == "from a container\n"
    too_big = {"command": ["true"], "resources": {"nvidia.com/gpu": 8, "cpu": "1"}, "nodes": 2}
    waits = composed.submit(too_big)
    composed.until(lambda: bool(composed.get(f"/v1/jobs/{waits}/why")["reason"]["message"]), "why is answered")
    rows = httpx.post(f"{composed.url}/v1/sql", json={"query": "select count(*) from jobs"}, timeout=UNTIL_S)
    assert rows.status_code == 200, rows.text
    logs = composed.compose("logs")
    assert [line for line in logs.splitlines() if "refuses this client" in line or "Traceback" in line] == []


def test_each_container_has_its_own_key_and_no_more(composed: Composed) -> None:
    """A file that its user alone can read; no capabilities; no other service's key in sight."""
    client = docker.APIClient(version="auto")
    publics: set[str] = set()
    services = (
        "queue",
        "placer",
        "access",
        "telemetry",
        "explainer",
        "gateway",
        "notifier",
        "past",
        "appproxy",
        "storage",
        "agent",
    )
    for service in services:
        [container] = client.containers(
            filters={
                "label": [f"com.docker.compose.project={composed.project}", f"com.docker.compose.service={service}"]
            }
        )
        said = looked_into(client, container["Id"])
        assert "-rw-------    1 10001    10001" in said, said
        publics.update(word for word in said.replace(".", " ").split() if word.startswith("U") and len(word) == 56)
        assert "/keys: No such file" in said
        host = client.inspect_container(container["Id"])["HostConfig"]
        assert (host["CapDrop"], host["Privileged"]) == (["ALL"], False)
    assert len(publics) == len(services)


def looked_into(client: docker.APIClient, container: str) -> str:
    """Return what a look into a container prints; the engine loses the output of one of hundreds."""
    look = ["sh", "-c", "ls -ln /run/fairlead; cat /run/fairlead/key.nk; ls /keys /bus"]

    def printed() -> str:
        said = client.exec_start(client.exec_create(container, look)["Id"]).decode()
        return said if "/keys: No such file" in said and "-rw-------" in said else ""

    return str(eventually(printed, "the look has its output"))


def test_a_revoked_node_sends_nothing_more(composed: Composed) -> None:
    """As an admin does it: `fairlead credentials revoke`, then a reload of the server; the agent ends and restarts in
    vain."""
    composed.compose(
        "run", "--rm", "--entrypoint", "fairlead", "keys", "credentials", "revoke", "sim-1", "--dir", "/bus"
    )
    composed.compose("kill", "-s", "HUP", "nats")
    composed.until(lambda: "does not know the key" in composed.compose("logs", "agent"), "the agent was sent away")
