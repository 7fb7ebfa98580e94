"""Prometheus' text format 0.0.4. Pure.

Written here because the client library names counters by its own rule (`_total`), and dcgm-exporter's counters do not follow it.

Facts that an agent has when its metrics are requested. Pure data.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from fairlead_agent.devices.port import GpuHealth
from fairlead_schemas.wire.resources import Gpu
from fairlead_schemas.wire.samples import GpuSample, RunResources, RunUse

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """Current value of one series. A label without a value is left out: to Prometheus both are the same."""

    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """All series of one name."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: list[Sample]


def text(families: Iterable[Family]) -> bytes:
    """The exposition; families without samples are left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += [f"{family.name}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples]
    return "".join(f"{line}\n" for line in lines).encode()


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


class Owner(NamedTuple):
    """Owner of a run, from its order; user and queue are "" until a restarted agent has received them."""

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
    """XIDs of one GPU since the agent's start."""

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
