"""A local cluster on damaged data: `up` ends with the words and what to type, typing it helps, nothing is lost unseen."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from fairlead.commands.audit_options import new_bus
from fairlead.stack import state
from fairlead_bus.main import with_bus
from fairlead_bus.port import Bus
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import encode_commit
from fairlead_schemas.wire.lifecycle import END_STATES
from tests.cli.command_line_stack import CommandLineStack
from tests.kit.eventually import eventually
from tests.schemas.examples import COMMIT

pytestmark = [pytest.mark.nats, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CommandLineStack]:
    there = CommandLineStack(tmp_path)
    there.up()
    for _ in range(4):
        there.ok("submit", "--wait", "--timeout", "60s", "--", "true")
    yield there
    there.run("down", "--jobs")


def stream(cluster: CommandLineStack, name: str) -> Path:
    """The directory of a stream in the server's store."""
    (found,) = (cluster.data / "nats" / "store").rglob(f"streams/{name}")
    return found


def flip_in_the_middle(folder: Path) -> None:
    """One bit of the block file, and no index, as after a kill: the server drops the stream's end."""
    (block,) = (folder / "msgs").glob("*.blk")
    held = bytearray(block.read_bytes())
    held[len(held) // 2] ^= 1
    block.write_bytes(held)
    for index in folder.rglob("index.db"):
        index.unlink()


@contextlib.contextmanager
def bus_killed(cluster: CommandLineStack) -> Iterator[None]:
    """Kill the server; its supervisor, suspended meanwhile, starts it again afterwards."""
    there = state.load(cluster.data)
    assert there is not None
    os.kill(there.supervisor.pid, signal.SIGSTOP)
    try:
        os.kill(cluster.process("nats").pid, signal.SIGKILL)
        time.sleep(0.2)
        yield
    finally:
        os.kill(there.supervisor.pid, signal.SIGCONT)


def submit_raw(cluster: CommandLineStack) -> httpx.Response:
    there = state.load(cluster.data)
    assert there is not None
    return httpx.post(f"{there.url}/v1/jobs", json={"command": ["true"]}, timeout=30)


def wait_for(cluster: CommandLineStack, status: int) -> httpx.Response:
    """Submit until the answer has this status."""

    def answered() -> list[httpx.Response]:
        answer = submit_raw(cluster)
        return [answer] if answer.status_code == status else []

    return eventually(answered, f"a submit is answered with {status}", not_yet=(httpx.HTTPError,), look_s=0.1)[0]


def test_lost_commands_are_refused_until_accepted_running_and_stopped(cluster: CommandLineStack) -> None:
    """A server that comes back without the end of CMD: 503 with the remedy, never a 202; once accepted, a running
    cluster continues by itself. The same on stopped data: `up` ends with the remedy, and works once the loss is
    accepted."""
    with bus_killed(cluster):
        flip_in_the_middle(stream(cluster, "CMD"))
    problem = wait_for(cluster, 503).json()
    while problem["type"] != "urn:fairlead:problem:commands_lost":  # away at first
        problem = wait_for(cluster, 503).json()
    assert "`fairlead audit commands --accept-loss" in problem["hint"]
    found = {one["what"]: one for one in msgspec.json.decode(cluster.run("doctor", "-o", "json").stdout)}
    assert found["commands_lost"]["verdict"] == "bad"
    assert "stream CMD has lost sequence" in found["commands_lost"]["found"]
    lost = cluster.run("audit", "commands")
    assert lost.returncode == 1 and lost.stdout.startswith("DAMAGED: stream CMD has lost sequence")
    assert cluster.run("audit", "verify").returncode == 1
    assert cluster.ok("audit", "commands", "--accept-loss").startswith("accepted:")
    assert "nothing was changed" in cluster.ok("audit", "commands", "--accept-loss")
    wait_for(cluster, 201)
    assert cluster.ok("submit", "--wait", "--timeout", "60s", "--", "true")

    cluster.ok("down")
    flip_in_the_middle(stream(cluster, "CMD"))
    refused = cluster.run("up", "--detach", "--port", "0", "--nodes", "2")
    assert refused.returncode == 1
    assert "error: stream CMD has lost sequence" in refused.stderr
    assert "fairlead audit commands --accept-loss" in refused.stderr
    assert "stream CMD has lost" in cluster.run("doctor").stdout
    cluster.ok("audit", "commands", "--accept-loss")
    cluster.up()
    assert cluster.ok("submit", "--wait", "--timeout", "60s", "--", "true")
    jobs = msgspec.json.decode(cluster.ok("jobs", "-o", "json"))["items"]
    assert {job["state"] for job in jobs} <= END_STATES
    assert cluster.ok("audit", "verify").startswith("ok:")


@pytest.mark.parametrize("damage", ["block removed", "end dropped", "stream gone"])
def test_up_on_a_damaged_log_names_it_and_a_restore_works(
    cluster: CommandLineStack, tmp_path: Path, damage: str
) -> None:
    """`up` ends at once with the sequence and the commands; `audit restore` from an export makes a log that a cluster starts
    on, with every job and with new ones."""
    cluster.ok("audit", "export", str(tmp_path / "export"))
    cluster.ok("down")
    log = stream(cluster, "LOG")
    if damage == "block removed":
        for block in (log / "msgs").glob("*.blk"):
            block.unlink()
    elif damage == "end dropped":
        flip_in_the_middle(log)
    else:
        for path in sorted(log.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        log.rmdir()
    refused = cluster.run("up", "--detach", "--port", "0", "--nodes", "2")
    assert refused.returncode == 1
    assert "error: log sequence" in refused.stderr
    assert "fairlead audit verify" in refused.stderr and "fairlead audit restore" in refused.stderr
    found = {one["what"]: one for one in msgspec.json.decode(cluster.run("doctor", "-o", "json").stdout)}
    assert "fairlead audit restore" in found["log_damaged"]["fix"]

    new = tmp_path / "new"
    cluster.ok("audit", "restore", str(tmp_path / "export"), "--data", str(new))
    restored = CommandLineStack(new)
    try:
        restored.up("--data", str(new))  # with sign-on, where no row of the former owner is left
        assert len(msgspec.json.decode(restored.ok("jobs", "-o", "json"))["items"]) == 4
        assert restored.ok("submit", "--wait", "--timeout", "60s", "--", "true")
        assert restored.ok("audit", "verify").startswith("ok:")
    finally:
        restored.run("down", "--jobs")


def test_up_on_a_log_of_another_format_advises_no_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is damaged, and a restore would be refused like the log itself: the version that wrote it, or an empty directory."""
    # Set by `new_bus` for the server that it starts; undone after the test.
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", "")
    older = encode_commit(COMMIT).replace(b'"v":2', b'"v":1', 1)
    there = CommandLineStack(tmp_path / "older")

    async def fill(bus: Bus) -> None:
        await bus.ensure()
        await bus.append(subjects.LOG, subjects.log(COMMIT.writer), older)

    with new_bus(there.data, "") as url:
        with_bus(url, "test", fill)
    refused = there.run("up", "--detach", "--port", "0", "--nodes", "2")
    assert refused.returncode == 1
    assert (
        "error: log sequence 1: the log has format 1, this version of Fairlead reads format 2 alone" in refused.stderr
    )
    assert "`fairlead up --data NEW` starts an empty cluster" in refused.stderr
    assert "restore" not in refused.stderr
    found = {one["what"]: one for one in msgspec.json.decode(there.run("doctor", "-o", "json").stdout)}
    assert (found["log_format"]["verdict"], "log_damaged" in found) == ("bad", False)


def test_a_log_with_a_new_creation_time_simply_goes_on(cluster: CommandLineStack) -> None:
    """meta.inf is gone, the commits are whole: every service starts, telemetry keeps its warehouse, snapshots count."""
    cluster.ok("down")
    (stream(cluster, "LOG") / "meta.inf").unlink()
    cluster.up()
    assert cluster.ok("submit", "--wait", "--timeout", "60s", "--", "true")
    counted = cluster.ok("sql", "SELECT count(*) FROM jobs", "-o", "json")
    assert "5" in counted
    assert "folding the log instead" not in (cluster.data / "logs" / "gateway.log").read_text()
