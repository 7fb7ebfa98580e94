"""`down --jobs` ends every job: what runs, what waits for the GPUs that come free, and what comes meanwhile."""

import threading
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from fairlead.commands import stack
from fairlead.stack import state
from tests.cli.conftest import Run
from tests.cli.gateway_stub import Answer, GatewayStub, job_document, page, problem

ENDED = ("succeeded", "failed", "cancelled")


class OneGpu:
    """A cluster with room for one job: when one ends, the oldest that waits is started."""

    def __init__(self, gateway: GatewayStub, *jobs: str) -> None:
        self.gateway = gateway
        self.states: dict[str, str] = {}
        #: Submitted by somebody when the first of these is cancelled.
        self.coming: list[str] = []
        self.elements: dict[str, list[str]] = {}
        #: Jobs that do not end.
        self.deaf: set[str] = set()
        self.started: list[str] = []
        self._lock = threading.Lock()
        gateway.on("GET", "/readyz", {"ready": True, "bus": True, "sequence": 40, "log_end": 40, "conditions": []})
        gateway.answers["GET", "/v1/jobs"] = self._list
        for job in jobs:
            self.submit(job)

    def submit(self, job: str) -> None:
        self.states[job] = "queued"
        self.gateway.answers["POST", f"/v1/jobs/{job}:cancel"] = lambda request: self._cancel(job)
        self._start()

    def _start(self) -> None:
        waiting = [job for job, at in self.states.items() if at == "queued"]
        if waiting and not {"running", "stopping"} & set(self.states.values()):
            self.states[waiting[0]] = "running"
            self.started.append(waiting[0])

    def _cancel(self, job: str) -> Answer:
        with self._lock:
            if self.states[job] in (*ENDED, "stopping"):
                return problem(409, f"job {job} has already ended")
            self.states[job] = "stopping" if job in self.deaf else "cancelled"
            self.states |= dict.fromkeys(self.elements.get(job, []), "cancelled")
            while self.coming:
                self.submit(self.coming.pop())
            self._start()
            return 200, {}

    def _list(self, request: httpx.Request) -> Answer:
        wanted = request.url.params["state"].split(",")
        found: list[dict[str, Any]] = [
            job_document(job, state=at, nodes=["n1"] if at in ("running", "stopping") else [])
            for job, at in self.states.items()
            if at in wanted
        ]
        return 200, page(*found)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a stack whose supervisor is gone; its gateway answers."""
    gone = state.Running(name="supervisor", pid=1, started="another")
    state.save(
        tmp_path,
        state.StackState(
            url="http://gateway.test",
            nats_url="",
            supervisor=gone,
            processes=[],
            ready=True,
            runtime="process",
            nodes=[],
        ),
    )
    return tmp_path


def test_waiting_jobs_do_not_start_during_down(gateway: GatewayStub, run: Run, data: Path) -> None:
    """The GPU that a cancelled job frees starts no waiting job, and each waiting job is cancelled."""
    cluster = OneGpu(gateway, "1", "2", "3", "4")
    cluster.states["4"] = "held"
    ran = run("down", "--jobs", "--data", str(data))
    assert (ran.code, ran.err) == (0, "")
    assert set(cluster.states.values()) == {"cancelled"}
    assert ran.out.splitlines()[0].split() == ["jobs", "4", "ended"]


def test_an_array_is_cancelled_once_with_its_elements(gateway: GatewayStub, run: Run, data: Path) -> None:
    """Its elements are not asked for one by one, and it counts as one job."""
    cluster = OneGpu(gateway, "7")
    cluster.states["7"] = "queued"
    cluster.elements["7"] = ["7_1", "7_2"]
    cluster.states |= {"7_1": "running", "7_2": "offered"}
    ran = run("down", "--jobs", "--data", str(data))
    assert (ran.code, ran.out.splitlines()[0].split()) == (0, ["jobs", "1", "ended"])
    assert [r.url.path for r in gateway.requests if r.method == "POST"] == ["/v1/jobs/7:cancel"]


def test_a_refused_cancel_is_not_retried(gateway: GatewayStub, run: Run, data: Path) -> None:
    """A user without permission gets the refusal at once, not after a minute."""
    OneGpu(gateway, "1")
    gateway.on("POST", "/v1/jobs/1:cancel", problem(403, "the token is read-only")[1], 403)
    ran = run("down", "--jobs", "--data", str(data))
    assert (ran.code, len([r for r in gateway.requests if r.method == "POST"])) == (124, 1)
    assert "the token is read-only" in ran.err


def test_jobs_that_come_meanwhile_are_ended_too(gateway: GatewayStub, run: Run, data: Path) -> None:
    """It looks again until nothing is left."""
    cluster = OneGpu(gateway, "1")
    cluster.coming = ["2", "3"]
    ran = run("down", "--jobs", "--data", str(data))
    assert set(cluster.states.values()) == {"cancelled"}
    assert (ran.code, ran.out.splitlines()[0].split()) == (0, ["jobs", "3", "ended"])


def test_jobs_that_do_not_end_are_named(
    gateway: GatewayStub, run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded; the stack is stopped all the same, and the exit code reports the failure."""
    monkeypatch.setattr(stack, "JOBS_END_S", 0.3)
    cluster = OneGpu(gateway, "1", "2")
    cluster.deaf = {"1"}
    ran = run("down", "--jobs", "--data", str(data), "-o", "json")
    assert cluster.states == {"1": "stopping", "2": "cancelled"}
    assert (ran.code, msgspec.json.decode(ran.out)["jobs_left_running"]) == (124, ["1"])
    assert "jobs that did not end: 1" in ran.err
    assert state.load(data) is None


def test_jobs_on_silent_nodes_are_given_up_early_with_a_message(
    gateway: GatewayStub, run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cannot end before their nodes' leases: the command prints this, names the nodes, and gives up early."""
    monkeypatch.setattr(stack, "TELL_S", 0.0)
    monkeypatch.setattr(stack, "SILENT_S", 0.1)
    cluster = OneGpu(gateway, "1")
    cluster.deaf = {"1"}
    gateway.on("GET", "/readyz", {"ready": True, "nodes": {"known": 2, "heard": 1, "unheard": ["n1"]}})
    ran = run("down", "--jobs", "--data", str(data))
    assert ran.code == 124
    assert "waiting for 1 to end: silent nodes have to end their part (n1)" in ran.err
    assert "no agent is there to end them" in ran.err


def test_a_long_wait_for_jobs_is_reported(
    gateway: GatewayStub, run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, also if their nodes are well."""
    monkeypatch.setattr(stack, "TELL_S", 0.0)
    monkeypatch.setattr(stack, "JOBS_END_S", 0.5)
    cluster = OneGpu(gateway, "1")
    cluster.deaf = {"1"}
    ran = run("down", "--jobs", "--data", str(data))
    assert (ran.code, ran.err.count("waiting for 1 to end")) == (124, 1)
