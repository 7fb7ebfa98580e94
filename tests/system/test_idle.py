"""A real stack reclaims idle runs and leaves active ones alone: its policies see real CPU time, real terminals, real
network interfaces, and simulated GPUs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead_schemas.http.api import Job
from tests.kit.hosts import Hosts
from tests.system.cluster import StackCluster
from tests.system.people import Terminal

pytestmark = [pytest.mark.nats, pytest.mark.slow]

#: For half a minute's idleness to be seen, on a machine that has much else to do.
LONG_S = 240.0
#: Each GPU does nothing, says the program (they are played); then it goes on as it is told.
_NO_GPU = (
    'for gpu in $(echo "$FAIRLEAD_GPUS" | tr , " "); do echo "$gpu 4000 0%"; done > "$FAIRLEAD_SIMULATED_GPUS/$$"; '
)
_SENDER = """
import socket, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    out.sendto(bytes(30_000), ("10.77.0.1", 9))
    time.sleep(0.05)
"""
ASLEEP = ["sh", "-c", _NO_GPU + "exec sleep 3600"]
#: Low on the GPU, and at work all the same.
AT_WORK = ["sh", "-c", _NO_GPU + "while :; do :; done"]
#: Behind these comes the path of the terminal that is theirs; the second never looks at it.
AT_A_TERMINAL = ["sh", "-c", _NO_GPU + 'exec cat < "$0" > /dev/null']
COMPUTES = ["sh", "-c", _NO_GPU + 'exec < "$0"; while :; do :; done']
#: About 600 KiB/s to the first of the hosts.
SENDS = ["sh", "-c", _NO_GPU + f"exec {sys.executable} -c '{_SENDER}'"]
UTILIZATION: dict[str, Any] = {
    "rule": "utilization",
    "below": {"gpu": "5%", "cpu": "50m"},
    "after": "4s",
    "notice": "2s",
    "action": "stop",
    "mode": "always",
    "maySoften": True,
    "extend": "1h",
    "extensions": 1,
}
#: Who has no terminal is alive by it: what nobody can say counts as life.
AT_THE_TERMINAL = {**UTILIZATION, "below": {**UTILIZATION["below"], "terminal": "1s"}}
#: Time enough to extend it on any machine.
WITH_NOTICE = {**UTILIZATION, "notice": "10m"}
#: Of sessions with terminals. Somebody who types all the time may seem to be away for the kernel's 8 s and the 15 s for which a
#: sample counts; who computes need do so in one of 20 samples only.
ON_DEMAND: dict[str, Any] = {
    "rule": "utilization",
    "kinds": ["session"],
    "below": {"gpu": "5%", "cpu": "20m", "terminal": "30s"},
    "after": "20s",
    "notice": "2s",
    "action": "stop",
    "mode": "on_demand",
}
BY_ITS_NETWORK = {**UTILIZATION, "below": {"gpu": "5%", "network": "20KiB/s"}, "after": "20s"}


class Lab:
    """Sessions on one node."""

    def __init__(self, cluster: StackCluster) -> None:
        self.cluster, self.client = cluster, cluster.client

    def start(self, command: list[str], *, gpus: int = 1, **more: Any) -> str:
        """A session that runs."""
        job = self.submit(command, gpus=gpus, kind="session", **more)
        self.until(job, lambda found: found.state == "running", "runs")
        return job

    def submit(self, command: list[str], *, gpus: int, **more: Any) -> str:
        resources = {"nvidia.com/gpu": gpus, "cpu": "100m", "memory": "16Mi"}
        return self.client.submit({"command": command, "resources": resources, "time": {"grace": "1s"}, **more}).id

    def until(self, job: str, wanted: Any, what: str) -> None:
        self.cluster.until(lambda: wanted(self.client.job(job)), f"job {job} {what}", timeout_s=LONG_S)

    def until_measured(self, gpus: dict[str, int]) -> None:
        """`fairlead top` knows of all GPUs of these jobs, {job: GPUs}, that they do nothing."""

        def known() -> dict[str, tuple[int, float | None]]:
            return {use.job: (use.measured, use.utilization_pct) for use in self.client.use(list(gpus)).items}

        wanted = {job: (count, 0.0) for job, count in gpus.items()}
        self.cluster.until(lambda: known() == wanted, f"all are measured: {wanted}", timeout_s=LONG_S)

    def said_of(self, job: str) -> list[str]:
        """Return telemetry's events of a job, in order."""
        told = ("JobIdle", "JobActive", "JobExtended", "ReclaimRequested")
        return [each.data["type"] for each in self.client.events(job=job) if each.data["type"] in told]

    def untouched(self, *jobs: str) -> None:
        """Check that the jobs run without any idle event, and that their documents show this."""
        for job in jobs:
            found: Job = self.client.job(job)
            assert (found.state, found.idle, self.said_of(job)) == ("running", None, [])
            assert self.client.why(job)["reason"]["code"] == "running"

    def end(self, *jobs: str) -> None:
        for job in jobs:
            self.client.cancel(job)
        self.client.wait(jobs, timeout_s=60)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """One node of 8 GPUs."""
    cluster = StackCluster(tmp_path, nodes=1)
    try:
        cluster.start()
        yield Lab(cluster)
    finally:
        cluster.stop()


def test_an_idle_run_is_reclaimed_and_active_ones_are_not(lab: Lab) -> None:
    """Two that began before the idle one continue after its end without any idle decision; an extended one continues."""
    lab.client.set_idle_policies("global", [UTILIZATION])
    lab.client.set_idle_policies("project:typing", [AT_THE_TERMINAL])
    lab.client.set_idle_policies("project:kept", [WITH_NOTICE])
    trains, types = lab.start(AT_WORK), lab.start(ASLEEP, project="typing")
    kept = lab.start(ASLEEP, project="kept")
    lab.until(kept, lambda found: found.idle is not None, "is reported as idle")
    lab.client.extend(kept)
    sleeps = lab.start(ASLEEP)
    lab.until(sleeps, lambda found: found.state == "failed", "is taken back")
    assert lab.said_of(sleeps) == ["JobIdle", "ReclaimRequested"]
    told = lab.client.why(sleeps)["reason"]["message"]
    assert "idle under the utilization policy of global (GPU at most 0 % of 5 %" in told
    assert "; CPU at most 0" in told
    lab.untouched(trains, types)
    extended = lab.client.job(kept)
    assert (extended.state, extended.idle) == ("running", None)
    assert "JobExtended" in lab.said_of(kept)
    assert extended.extended_until is not None
    lab.end(trains, types, kept)


def test_on_demand_only_the_idle_one_of_three_yields_to_a_waiting_job(lab: Lab) -> None:
    """Three sessions hold all GPUs: one has typing, one computes, one is idle. That one is warned and preempted for the
    waiting job; each shows the reason."""
    lab.client.set_idle_policies("global", [ON_DEMAND])
    with Terminal() as typed, Terminal() as left_open, Terminal() as looked_at:
        types = lab.start([*AT_A_TERMINAL, typed.path], gpus=3)
        typed.type()
        trains = lab.start([*COMPUTES, looked_at.path], gpus=3)
        sleeps = lab.start([*AT_A_TERMINAL, left_open.path], gpus=2)
        lab.until(sleeps, lambda found: found.idle is not None, "is warned")
        assert typed.idle_s() < left_open.idle_s()
        lab.until_measured({types: 3, trains: 3, sleeps: 2})
        lies = lab.client.why(sleeps)["reason"]
        assert lies["code"] == "idle"
        assert "idle since" in lies["message"]
        assert (
            "it is reclaimed once a job waits for what it holds: then it is stopped and its job ends" in lies["message"]
        )
        waits = lab.submit(["sleep", "600"], gpus=2)
        lab.until(sleeps, lambda found: found.state == "failed", "is taken back")
        lab.until(waits, lambda found: found.state == "running", "has what it waited for")
        lab.untouched(types, trains)
        assert lab.said_of(sleeps)[-2:] == ["JobIdle", "ReclaimRequested"]
        lay_idle = "idle under the utilization policy of global (GPU at most 0 % of 5 %"
        for told in (lab.client.why(sleeps)["reason"]["message"], lab.client.why(waits)["reason"]["message"]):
            assert lay_idle in told
            assert "; CPU at most 0" in told
            assert "; no activity at the terminal for" in told
        assert f"it has what job {sleeps} gave back" in lab.client.why(waits)["reason"]["message"]
        lab.end(types, trains, waits)


@pytest.mark.hosts
def test_a_run_that_only_sends_is_active(lab: Lab) -> None:
    """In networks of their own, the only ones that attribute traffic: one sends, one does not."""
    lab.client.set_idle_policies("global", [BY_ITS_NETWORK])
    with Hosts("sink", "busy", "quiet") as hosts:
        sends = lab.start(["ip", "netns", "exec", hosts["busy"].name, *SENDS])
        sleeps = lab.start(["ip", "netns", "exec", hosts["quiet"].name, *ASLEEP])
        lab.until(sleeps, lambda found: found.state == "failed", "is taken back")
        lab.untouched(sends)
        assert "; network at most" in lab.client.why(sleeps)["reason"]["message"]
        lab.end(sends)
