"""The whole of it on this machine: `up`, jobs, `down`, `up` again on the same data; and the demo."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fairlead.client import Client
from fairlead.client.settings import owner_token
from fairlead.stack import state
from tests.cli.command_line_stack import CommandLineStack
from tests.kit.eventually import eventually
from tests.kit.nats_server import NatsServer

pytestmark = [pytest.mark.nats, pytest.mark.slow]

#: Exit code of a command that nobody answers.
UNREACHABLE = 6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[CommandLineStack]:
    there = CommandLineStack(tmp_path)
    yield there
    there.run("down", "--jobs")


def test_jobs_survive_down_and_up(cluster: CommandLineStack) -> None:
    """After `down` and `up` on the same data every job is there still; the running one was left alone and is
    taken up again, ends with its own exit code, and ran once; the log verifies before and after."""
    cluster.up()
    assert cluster.run("submit", "--wait", "--", "sh", "-c", "echo hello; exit 3").returncode == 3
    assert cluster.ok("logs", "last") == "hello\n"
    gate = cluster.data / "gate"
    running = cluster.ok(
        "submit", "--", "sh", "-c", f"echo once >> {cluster.data}/runs; until [ -e {gate} ]; do sleep 0.1; done; exit 7"
    ).strip()
    _until_state(cluster, running, "running")
    assert "1 still running, left alone" in cluster.ok("down")
    assert state.load(cluster.data) is None
    assert cluster.ok("audit", "verify").startswith("ok:")

    cluster.up()
    gate.touch()
    assert cluster.run("wait", running, "--timeout", "60s").returncode == 7
    assert (cluster.data / "runs").read_text() == "once\n"
    page = msgspec.json.decode(cluster.ok("jobs", "-o", "json"))
    assert {job["id"]: (job["state"], job["exit_code"]) for job in page["items"]} == {
        "1": ("failed", 3),
        running: ("failed", 7),
    }
    assert cluster.ok("replay", "--check").count("equal") >= 2
    assert cluster.ok("audit", "verify").startswith("ok:")


def test_killed_processes_come_back(cluster: CommandLineStack) -> None:
    """kill -9 of every service, of all nodes' agents at once and of the bus: each comes back, new jobs run, and the runs of
    both nodes lived on, were taken up again, and ran once."""
    cluster.up()
    gate, marks = cluster.data / "gate", cluster.data / "marks"
    script = f"echo $FAIRLEAD_NODE >> {marks}; until [ -e {gate} ]; do sleep 0.1; done; exit 7"
    running = [cluster.ok("submit", "--gpus", "8", "--", "sh", "-c", script).strip() for _ in range(2)]
    eventually(lambda: marks.exists() and len(marks.read_text().split()) == 2, "both run", look_s=0.1)
    for name in ("queue", "placer", "gateway", "agents", "nats"):
        os.kill(cluster.process(name).pid, signal.SIGKILL)
    eventually(lambda: cluster.run("queues").returncode != UNREACHABLE, "the gateway is back", look_s=0.2)
    assert cluster.ok("submit", "--wait", "--timeout", "60s", "--", "true").strip().isdecimal()
    gate.touch()
    assert [cluster.run("wait", job, "--timeout", "60s").returncode for job in running] == [7, 7]
    assert sorted(marks.read_text().split()) == ["sim-1", "sim-2"]


def test_a_second_stack_on_the_same_data_is_refused(cluster: CommandLineStack) -> None:
    """`up` where one runs already is a conflict that names the one that runs."""
    cluster.up()
    ran = cluster.run("up", "--port", "0")
    assert ran.returncode == 5
    assert "a stack already runs" in ran.stderr


def test_killed_services_come_back_on_an_external_server(cluster: CommandLineStack, fresh_nats: NatsServer) -> None:
    """With NATS_URL set only the server is external: services are supervised all the same."""
    cluster.env |= {"NATS_URL": fresh_nats.url, "FAIRLEAD_NATS_MONITOR": fresh_nats.monitor}
    cluster.up()
    before = cluster.process("queue")
    os.kill(before.pid, signal.SIGKILL)
    assert cluster.ok("submit", "--wait", "--timeout", "60s", "--", "true").strip().isdecimal()
    assert cluster.process("queue") != before


def test_of_two_at_once_one_is_refused(cluster: CommandLineStack) -> None:
    """Two `up` on one data directory at the same moment: one cluster comes of it, and the other says why not."""
    both = [cluster.start("up", "--port", "0", "--nodes", "1") for _ in range(2)]
    there = _ready(cluster)
    refused = next(one for one in both if one.pid != there.supervisor.pid)
    assert refused.wait(60) == 5
    assert state.load(cluster.data) == there
    assert cluster.ok("down")
    assert [one.wait(60) for one in both if one is not refused] == [0]


def test_processes_of_a_killed_supervisor_are_taken_over(cluster: CommandLineStack) -> None:
    """kill -9 of the supervisor leaves its processes; the next `up` ends them and starts new ones, with all jobs."""
    cluster.up()
    job = cluster.ok("submit", "--wait", "--", "true").strip()
    there = state.load(cluster.data)
    assert there is not None
    os.kill(there.supervisor.pid, signal.SIGKILL)
    cluster.up()
    assert not any(state.lives(process) for process in there.processes)
    assert msgspec.json.decode(cluster.ok("show", job, "-o", "json"))["state"] == "succeeded"


def test_down_with_jobs_ends_them(cluster: CommandLineStack) -> None:
    """`down --jobs` cancels what runs, and the log says so."""
    cluster.up()
    job = cluster.ok("submit", "--", "sleep", "600").strip()
    _until_state(cluster, job, "running")
    assert "1 ended" in cluster.ok("down", "--jobs")
    cluster.up()
    assert msgspec.json.decode(cluster.ok("show", job, "-o", "json"))["state"] == "cancelled"


def test_an_agent_that_refuses_to_start_is_named_and_its_node_given_nothing(cluster: CommandLineStack) -> None:
    """Of two nodes one has a damaged journal: `up` says so with the command to type, doctor too; work goes to the other node,
    and the node joins as soon as its journal is out of the way."""
    cluster.up()
    cluster.ok("down")
    journal = cluster.data / "agent-sim-2" / "journal"
    data = bytearray(journal.read_bytes())
    data[len(data) // 3] ^= 1
    journal.write_bytes(data)

    said = cluster.ok("up", "--detach", "--port", "0", "--nodes", "2")
    assert "sim-2 takes no work, its agent refuses to start" in said
    assert "checksum differs" in said
    assert "agent_refuses" in cluster.run("doctor").stdout
    eventually(lambda: "fairlead/silent" in cluster.ok("nodes", "-o", "json"), "the silent node is tainted", look_s=0.5)
    placed = [cluster.ok("submit", "--wait", "--gpus", "8", "--", "true").strip() for _ in range(2)]
    assert [msgspec.json.decode(cluster.ok("show", job, "-o", "json"))["state"] for job in placed] == ["succeeded"] * 2
    journal.rename(journal.with_suffix(".damaged"))
    cluster.ok("submit", "--wait", "--timeout", "60s", "--nodes", "2", "--", "true")


def test_hollow_nodes_play_jobs(cluster: CommandLineStack) -> None:
    """`--runtime hollow` joins as many simulated nodes as asked for, and jobs end on them without a process."""
    cluster.ok("up", "--detach", "--port", "0", "--runtime", "hollow", "--nodes", "3")
    nodes = msgspec.json.decode(cluster.ok("nodes", "-o", "json"))["items"]
    assert [(node["runtime"], node["simulated"], node["gpus"]) for node in nodes] == [("hollow", True, 8)] * 3
    cluster.ok("submit", "--wait", "--timeout", "60s", "--nodes", "3", "--gpus", "8", "--", "true")


def test_ctrl_c_stops_everything(cluster: CommandLineStack) -> None:
    """An interrupt of `up` in the foreground ends it with code 0 and leaves no process and no state behind."""
    process = cluster.start("up", "--port", "0", "--nodes", "1")
    there = _ready(cluster)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert not any(state.lives(one) for one in there.processes)
    assert state.load(cluster.data) is None


def test_the_demo_comes_out_as_expected(tmp_path: Path) -> None:
    """`fairlead demo` ends by itself with code 0, every part has the story's outcome, and nothing is left behind."""
    ran = CommandLineStack(tmp_path).run("demo", "-o", "json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    outcomes = {part["key"]: part["outcome"] for part in msgspec.json.decode(ran.stdout)}
    assert outcomes == {
        "notebook": "cancelled",
        "train": "succeeded",
        "eval": "succeeded",
        "sweep": "succeeded",
        "broken": "failed (exit 3)",
        "huge": "cancelled",
        "wide": "refused",
        "oops": "cancelled",
        "explore": "failed (idle)",
        "finetune": "cancelled",
    }


def _until_state(cluster: CommandLineStack, job: str, wanted: str) -> None:
    there = state.load(cluster.data)
    assert there is not None
    with Client(there.url, token=owner_token(there.url, cluster.data)) as client:
        eventually(lambda: client.job(job).state == wanted, f"job {job} is {wanted}", within_s=30)


def _ready(cluster: CommandLineStack) -> state.StackState:
    def ready() -> list[state.StackState]:
        there = state.load(cluster.data)
        return [there] if there is not None and there.ready else []

    return eventually(ready, "the stack is ready", look_s=0.1)[0]
