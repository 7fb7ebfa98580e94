"""A real stack takes back what lies idle, and leaves alone what is alive: its policies see real CPU time, and played GPUs."""

from pathlib import Path
from typing import Any

import pytest

from fairlead_schemas.api import Job
from tests.system.cluster import Cluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

#: Each GPU does nothing, says the program (they are played); then it goes on as it is told.
_NO_GPU = (
    'for gpu in $(echo "$FAIRLEAD_GPUS" | tr , " "); do echo "$gpu 4000 0%"; done > "$FAIRLEAD_SIMULATED_GPUS/$$"; '
)
ASLEEP = ["sh", "-c", _NO_GPU + "exec sleep 3600"]
#: Low on the GPU, and at work all the same.
AT_WORK = ["sh", "-c", _NO_GPU + "while :; do :; done"]
UTILIZATION: dict[str, Any] = {
    "rule": "utilization", "below": {"gpu": "5%", "cpu": "50m"}, "after": "4s", "notice": "2s", "action": "stop",
    "mode": "always", "maySoften": True, "extend": "1h", "extensions": 1,
}  # fmt: skip
#: Somebody may be at the terminal: nodes do not say so yet, and what nobody can say counts as life.
AT_THE_TERMINAL = {**UTILIZATION, "below": {**UTILIZATION["below"], "terminal": "1s"}}
#: Time enough to extend it on any machine.
WITH_NOTICE = {**UTILIZATION, "notice": "10m"}


class Lab:
    """Sessions on one node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.client = cluster, cluster.client

    def start(self, command: list[str], **more: Any) -> str:
        """A session that runs."""
        resources = {"nvidia.com/gpu": 1, "cpu": "100m", "memory": "16Mi"}
        file = {"command": command, "kind": "session", "resources": resources, "time": {"grace": "1s"}, **more}
        job = self.client.submit(file).id
        self.until(job, lambda found: found.state == "running", "runs")
        return job

    def until(self, job: str, wanted: Any, what: str) -> None:
        self.cluster.until(lambda: wanted(self.client.job(job)), f"job {job} {what}")

    def said_of(self, job: str) -> list[str]:
        """What telemetry has said of it, in order."""
        told = ("JobIdle", "JobActive", "JobExtended", "ReclaimRequested")
        return [each.data["type"] for each in self.client.events(job=job) if each.data["type"] in told]

    def end(self, *jobs: str) -> None:
        for job in jobs:
            self.client.cancel(job)
        self.client.wait(jobs, timeout_s=60)


def test_what_sleeps_is_taken_back_and_what_is_alive_is_not(tmp_path: Path) -> None:
    """Two that began before the sleeper are there when it is gone, and nothing was ever said of them; one that was extended
    goes on."""
    cluster = Cluster(tmp_path, nodes=1)
    try:
        cluster.start()
        lab = Lab(cluster)
        lab.client.set_idle_policies("global", [UTILIZATION])
        lab.client.set_idle_policies("project:typing", [AT_THE_TERMINAL])
        lab.client.set_idle_policies("project:kept", [WITH_NOTICE])
        trains, types = lab.start(AT_WORK), lab.start(ASLEEP, project="typing")
        kept = lab.start(ASLEEP, project="kept")
        lab.until(kept, lambda found: found.idle is not None, "is told that it lies idle")
        lab.client.extend(kept)
        sleeps = lab.start(ASLEEP)
        lab.until(sleeps, lambda found: found.state == "failed", "is taken back")
        assert lab.said_of(sleeps) == ["JobIdle", "ReclaimRequested"]
        told = lab.client.why(sleeps)["reason"]["message"]
        assert "it lay idle by the utilization policy of global (GPU at most 0 % of 5 %" in told
        assert "; CPU at most 0" in told
        alive: list[Job] = [lab.client.job(job) for job in (trains, types, kept)]
        assert [(job.state, job.idle) for job in alive] == [("running", None)] * 3
        assert (lab.said_of(trains), lab.said_of(types)) == ([], [])
        assert "JobExtended" in lab.said_of(kept)
        assert alive[2].extended_until is not None
        lab.end(trains, types, kept)
    finally:
        cluster.stop()
