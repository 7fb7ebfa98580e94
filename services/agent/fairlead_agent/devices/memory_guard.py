"""Memory guard: runs that use more GPU memory than their share, and how long that is tolerated. Pure: takes the
measured use, returns what follows.

A share's memory is a promise to its neighbours, and the driver does not enforce it. So every look compares use with
the share. A run above its share is warned once, and stopped when it has been above for the grace. Time below the
share counts back, so a program that swings around its share is stopped if it spends more time above than below.
Where a run takes memory that is promised to others, the grace is a fifth: the others would fail while the excess
lasts.

GPU use of runs, summed over their processes; and processes that an ended run has left on GPUs shared with
neighbours. Pure.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from fairlead_agent.core.runs import RunKey
from fairlead_agent.devices.port import GpuProcess
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.desired import RunOrder

#: Where the excess is taken from others' promises, the grace is divided by this.
HARM_DIVISOR = 5
#: Looks that are further apart count as this far: the agent stood still, and saw nothing between.
GAP_NS_MAX = 5 * SECOND_NS


class Share(NamedTuple):
    """Part of one GPU that one run may use."""

    key: RunKey
    gpu: str  # UUID
    memory_mib: int


class ShareFinding(NamedTuple):
    """Consequence for a run. "warn" is emitted once each time that the run goes above its share; "stop" is emitted once."""

    what: Literal["warn", "stop"]
    share: Share
    used_mib: int
    #: How long it has been above its share, as it is counted.
    over_ns: int
    grace_ns: int

    @property
    def message(self) -> str:
        """For people."""
        used = f"{self.used_mib:,} MiB of its {self.share.memory_mib:,} MiB share of {self.share.gpu}"
        if self.what == "stop":
            return f"used {used} for {max(1, round(self.over_ns / SECOND_NS))} s"
        return (
            f"uses {used}; it will be stopped unless it uses less within {max(1, round(self.grace_ns / SECOND_NS))} s"
        )


class _Over:
    __slots__ = ("above", "ns", "stopped", "warned")

    def __init__(self) -> None:
        #: At the last look; what was seen then is taken to have been so until this one.
        self.above = False
        self.ns = 0
        self.warned = False
        self.stopped = False


class Guard:
    """The shares of one node."""

    def __init__(self, grace_ns: int) -> None:
        self._grace_ns = grace_ns
        self._over: dict[tuple[RunKey, str], _Over] = {}
        self._looked_at: int | None = None

    def look(
        self, shares: Sequence[Share], used: Mapping[tuple[RunKey, str], int], total_mib: Mapping[str, int], now: int
    ) -> list[ShareFinding]:
        """`used`: {(run, GPU): MiB}, of runs without an entry nothing; `total_mib`: {GPU: what it has}. By rising GPU and
        run. Runs that have no share any more are forgotten."""
        passed = 0 if self._looked_at is None else min(GAP_NS_MAX, max(0, now - self._looked_at))
        self._looked_at = now
        self._over = {(each.key, each.gpu): self._over.get((each.key, each.gpu), _Over()) for each in shares}
        promised: dict[str, int] = {}
        for each in shares:
            promised[each.gpu] = promised.get(each.gpu, 0) + each.memory_mib
        found: list[ShareFinding] = []
        for each in sorted(shares, key=lambda share: (share.gpu, share.key)):
            mib = used.get((each.key, each.gpu), 0)
            others = promised[each.gpu] - each.memory_mib
            harms = others > 0 and mib > total_mib.get(each.gpu, 0) - others
            found += self._judge(each, mib, self._grace_ns // HARM_DIVISOR if harms else self._grace_ns, passed)
        return found

    def _judge(self, share: Share, mib: int, grace_ns: int, passed: int) -> list[ShareFinding]:
        over = self._over[share.key, share.gpu]
        over.ns = over.ns + passed if over.above else max(0, over.ns - passed)
        over.above = mib > share.memory_mib
        if not over.above:
            over.warned = over.warned and over.ns > 0
            return []
        if not over.warned:
            over.warned = True
            return [ShareFinding("warn", share, mib, over.ns, grace_ns)]
        if over.stopped or over.ns < grace_ns:
            return []
        over.stopped = True
        return [ShareFinding("stop", share, mib, over.ns, grace_ns)]


class GpuUse(NamedTuple):
    """Use of one GPU or MIG instance by one run. Amounts that the driver does not report count as 0."""

    memory_mib: int
    utilization_pct: int


def uses(processes: Iterable[GpuProcess], owners: Mapping[int, RunKey]) -> dict[tuple[RunKey, str], GpuUse]:
    """Return {(run, UUID): use}. Processes that belong to no run are not counted."""
    found: dict[tuple[RunKey, str], GpuUse] = {}
    for each in processes:
        if (key := owners.get(each.pid)) is not None:
            memory_mib, percent = found.get((key, each.uuid), GpuUse(0, 0))
            found[key, each.uuid] = GpuUse(
                memory_mib + (each.memory_mib or 0), min(100, percent + (each.utilization_pct or 0))
            )
    return found


def is_share(order: RunOrder) -> bool:
    """Return True if the order is for a part of a GPU that is not separated by hardware."""
    return bool(order.gpu_milli and order.gpu_memory_mib and order.gpus and not order.instances)


def shares(orders: Mapping[RunKey, RunOrder], running: Collection[RunKey]) -> list[Share]:
    """Return the shares of running runs, one per GPU."""
    return [
        Share(key, gpu, order.gpu_memory_mib)
        for key, order in orders.items()
        if key in running and is_share(order)
        for gpu in order.gpus
    ]


def left_behind(
    key: RunKey,
    devices: Collection[str],
    processes: Iterable[GpuProcess],
    owners: Mapping[int, RunKey],
    neighbours: Collection[RunKey],
) -> dict[str, str]:
    """Return what an ended run still occupies on GPUs that others share, {UUID: evidence}: all processes except the
    neighbours'. Processes without a known owner are included, since they may belong to the run.
    """
    found: dict[str, str] = {}
    for uuid in devices:
        pids = [each.pid for each in processes if each.uuid == uuid and owners.get(each.pid) not in neighbours]
        if pids:
            found[uuid] = f"processes of {key.name} on it: " + ", ".join(map(str, pids[:8]))
    return found
