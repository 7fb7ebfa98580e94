"""A job in a real container, from the job file to the log: what it was granted, and that its secret is nowhere."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import docker
import docker.errors
import pytest

from fairlead.errors import Conflict
from fairlead.terminal_link import CommandLink, Streams
from fairlead.tunnel_link import connect_tunnel
from fairlead_schemas.wire.terminal import CommandExit, StartCommand
from tests.agent.runtimes.docker.python_image import PYTHON, ensure_python_image
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.docker, pytest.mark.slow]
SECRET = "fl-7f3a-very-secret-word"
#: What the job prints, so that the search below is known to find things.
PRINTED = "fl-printed-by-the-job"
CODE = f"""
import hashlib, os
content = open("/run/secrets/hf-token").read()
print("{PRINTED}", hashlib.sha256(content.encode()).hexdigest(), content in str(os.environ))
open("/ckpt/step", "w").write("5")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StackCluster]:
    """One node that makes containers and has a secret and a place for volumes."""
    if os.getuid() != 0:
        pytest.skip("mounting: only root may mount (run the tests as root)")
    for name in ("secrets/vision", "volumes"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "secrets").chmod(0o700)
    (tmp_path / "secrets/vision/hf-token").write_text(SECRET)
    grants = {"FAIRLEAD_SECRETS": str(tmp_path / "secrets"), "FAIRLEAD_VOLUMES": str(tmp_path / "volumes")}
    made = StackCluster(tmp_path / "data", nodes=1, environment=grants, runtime="docker")
    try:
        made.start()
        yield made
    finally:
        made.stop()


def found(base: Path, word: str) -> set[str]:
    """First parts of the paths of all files below that hold a word."""
    files = [path for path in base.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.relative_to(base).parts[0] for path in files if word.encode() in path.read_bytes()}


def test_a_secret_reaches_the_program_and_nothing_else(cluster: StackCluster, tmp_path: Path) -> None:
    """No byte of it in the log, the output, the journal, the warehouse, what services print, or the engine's answers, while
    what the job prints is found in all that carries output."""
    job = cluster.client.submit(
        {
            "name": "reader",
            "project": "vision",
            "image": ensure_python_image(),
            "command": [PYTHON, "-I", "-S", "-c", CODE],
            "secrets": ["hf-token"],
            "volumes": [{"name": "ckpt", "mountPath": "/ckpt", "create": True}],
            "resources": {"cpu": "1", "memory": "256Mi"},
        }
    )
    inspected: list[str] = []
    client = docker.APIClient(version="auto")

    def ended() -> bool:
        for container in client.containers(
            all=True, filters={"label": [f"fairlead.job={job.id}", "fairlead.node=sim-1"]}
        ):
            with contextlib.suppress(docker.errors.NotFound):  # it was removed meanwhile
                inspected.append(json.dumps(container) + json.dumps(client.inspect_container(container["Id"])))
        return cluster.client.job(job.id).state in ("succeeded", "failed", "cancelled")

    cluster.until(ended, "the job has ended")
    told = cluster.client.job(job.id)
    assert told.state == "succeeded", (told, cluster.logs())
    assert (tmp_path / "volumes/vision/ckpt/step").read_text() == "5"
    cluster.until(lambda: bool(found(tmp_path / "data", PRINTED)), "its output is stored")
    assert inspected and not any(SECRET in answer for answer in inspected)
    cluster.stop()  # all of it is on the disk now
    assert {"nats", "agent-sim-1"} <= found(tmp_path / "data", PRINTED)
    assert found(tmp_path / "data", SECRET) == set()


def test_a_volume_without_a_grant_fails_with_its_name(cluster: StackCluster) -> None:
    """The user gets the volume's name and the admin's remedy."""
    job = cluster.client.submit(
        {"image": ensure_python_image(), "command": ["x"], "volumes": ["datasets:/data"], "retries": {"max": 0}}
    )
    cluster.until(lambda: "FAIRLEAD_MOUNTS" in str(list(cluster.client.events(job=job.id))), "the reason is in the log")


SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 8765))
while True:
    connection, _ = server.accept()
    connection.sendall(b"from inside")
    connection.close()
"""

#: Prints that it is another process of the container whose first one is SERVER.
INSIDE = """
import os, sys
print(os.getpid() > 1, "8765" in open("/proc/1/cmdline").read(), any("NATS" in name for name in os.environ))
os.write(2, b"err")
sys.exit(6)
"""


def test_a_port_inside_a_container_is_reached_over_a_tunnel_alone(cluster: StackCluster) -> None:
    """On loopback of the container's own network, which no port of the node leads to."""
    job = cluster.client.submit(
        {
            "image": ensure_python_image(),
            "command": [PYTHON, "-I", "-S", "-c", SERVER],
            "resources": {"cpu": "1", "memory": "256Mi"},
        }
    ).id
    cluster.until(lambda: cluster.client.job(job).state == "running", "the container runs")
    heard: list[bytes] = []

    def reached() -> bool:
        with connect_tunnel(cluster.client.open_tunnel(job, 8765)) as connection:
            heard.append(connection.recv(100))
        return True

    cluster.until(reached, "the program listens")
    assert heard == [b"from inside"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 8765), timeout=2)
    with pytest.raises(Conflict, match="no process of the run listens on port 4222"):
        cluster.client.open_tunnel(job, 4222)
    out, end = shown_by(cluster, job, [PYTHON, "-c", INSIDE])
    assert (out, end) == (b"True True False\n", CommandExit(code=6))
    cluster.client.cancel(job)


def shown_by(cluster: StackCluster, job: str, argv: list[str]) -> tuple[bytes, CommandExit | None]:
    """Run a command inside a job; return its stdout, and how it ended."""
    (out, into), null = os.pipe(), os.open(os.devnull, os.O_RDWR)
    link = CommandLink(StartCommand(argv=argv), Streams(null, into, null))
    end = asyncio.run(link.run(cluster.client.open_terminal(job)))
    os.close(into)
    with os.fdopen(out, "rb") as file:
        return file.read(), end
