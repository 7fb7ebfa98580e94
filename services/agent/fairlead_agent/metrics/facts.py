"""What an agent knows when it is asked for its metrics. Pure data."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead_agent.devices.facts import GpuHealth
from fairlead_schemas.resources import Gpu
from fairlead_schemas.samples import GpuSample, RunResources, RunUse


class Owner(NamedTuple):
    """Whose a run is, as its order says; user and queue are "" until an agent that was started anew has heard them."""

    job: str
    attempt: int
    rank: int
    user: str = ""
    queue: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """`hpc_job` is dcgm-exporter's word; a label called `job` is Prometheus' own."""
        return {"hpc_job": self.job, "user": self.user, "queue": self.queue}


class Xids(NamedTuple):
    """Of one GPU, since the agent's start."""

    newest: int = 0
    total: int = 0


class NodeFacts(NamedTuple):
    """All of it, of the newest look at each."""

    node: str
    #: The adapter's name, and whether it plays.
    devices: str = "none"
    simulated: bool = False
    driver_version: str = ""
    gpus: Sequence[Gpu] = ()
    samples: Sequence[GpuSample] = ()
    #: Seconds since those were taken; None before the first ones.
    age_s: float | None = None
    #: {UUID}.
    health: Mapping[str, GpuHealth] = {}
    xids: Mapping[str, Xids] = {}
    #: {UUID of a GPU or MIG instance: who has it, the longest first}.
    holders: Mapping[str, Sequence[Owner]] = {}
    uses: Sequence[RunUse] = ()
    resources: Sequence[RunResources] = ()
    #: {"<job>.<attempt>": whose it is}.
    owners: Mapping[str, Owner] = {}
    #: {phase: runs}; reports that the placer has not confirmed.
    runs: Mapping[str, int] = {}
    unconfirmed: int = 0
    gate_closed: bool = False
    disk_full: bool = False
    batches: int = 0
