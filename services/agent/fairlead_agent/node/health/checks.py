"""Health checks: each looks at facts and yields the current faults; and facts known about the node at one moment, for the
checks to judge. Pure, without memory except for the previous facts.

`finding_reports.py` decides which findings are reported, after how long, and when they are over.

`collect.py` reads the facts.

None means "not known", here as in the devices' facts: nothing is concluded from it. Times are monotonic nanoseconds.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fairlead_agent.devices.port import GpuHealth, Recovery, Slowdown
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS


class DiskHealth(NamedTuple):
    """A file system that the agent or its runtime writes to."""

    path: str
    total_bytes: int
    #: What is left to the agent.
    free_bytes: int


class Clock(NamedTuple):
    """Both clocks, read together, and how far the wall clock is from the placer's."""

    wall_ns: int
    monotonic_ns: int
    #: This node's wall clock minus the placer's; None: not known well enough.
    skew_ns: int | None = None


class EngineHealth(NamedTuple):
    """The container engine."""

    #: Why it does not answer; "" where it does.
    silent: str = ""
    #: A different value means that the service restarted; "" where the start is not known.
    started: str = ""


class Dirt(NamedTuple):
    """A run that has ended, and whose GPUs are not free."""

    run: str
    gpus: tuple[str, ...]
    since_ns: int


class Kill(NamedTuple):
    """A run that was killed and has not ended."""

    run: str
    gpus: tuple[str, ...]
    since_ns: int


class HealthFacts(NamedTuple):
    """All of it."""

    now_ns: int
    gpus: tuple[GpuHealth, ...] = ()
    #: {UUID: percent of its time that it computes}.
    loads: Mapping[str, int] = MappingProxyType({})
    #: Expected number of GPUs; 0: not configured.
    gpus_expected: int = 0
    disks: tuple[DiskHealth, ...] = ()
    clock: Clock | None = None
    engine: EngineHealth | None = None
    #: Whether the parent of process runs lives; None: there is none.
    spawner: bool | None = None
    dirt: tuple[Dirt, ...] = ()
    kills: tuple[Kill, ...] = ()


#: Of a file system, left: below the first no pulls, and old images go; below the second no new jobs.
DISK_LOW_PER_CENT, DISK_FULL_PER_CENT = 10, 5
#: The wall clock against the monotonic one, between two looks.
STEP_NS = 5 * SECOND_NS
#: Against the placer's clock: worth a note; too far for work.
SKEW_NS, FAR_NS = SECOND_NS // 2, 5 * SECOND_NS
#: A GPU works at full speed of its bus from this load on: below, it saves power.
LOADED_PER_CENT = 50
#: Errors of NVLinks between two looks that are more than the odd one.
LINK_ERRORS = 100
#: A run was killed, a GPU should be free: so long ago that it is no matter of patience.
KILLED_NS, ZOMBIE_NS = MINUTE_NS, 5 * MINUTE_NS

_HOT: frozenset[Slowdown] = frozenset({"hw_slowdown", "hw_thermal", "sw_thermal"})
_ASKS: dict[Recovery, str] = {
    "gpu_reset": "a reset of the GPU",
    "node_reboot": "a reboot",
    "drain_p2p": "its peers to be drained",
    "drain_and_reset": "to be drained and reset",
    "other": "something that this version does not know",
}


class HealthFinding(NamedTuple):
    """Something is not well: of a GPU, or (gpu "") of the node itself."""

    gpu: str
    code: str
    evidence: str
    #: Of what only grows: a higher one is a new fault, also where a person has restored the old one.
    mark: int = 0


type Check = Callable[[HealthFacts, HealthFacts | None], Iterator[HealthFinding]]


def all_findings(facts: HealthFacts, before: HealthFacts | None) -> list[HealthFinding]:
    """Return the findings of every check. `before` holds the facts of the previous look."""
    return [finding for check in CHECKS for finding in check(facts, before)]


def lost(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """GPUs that do not answer."""
    for gpu in facts.gpus:
        if gpu.lost:
            yield HealthFinding(gpu.uuid, "gpu_lost", gpu.why or "it does not answer")


def memory(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """Errors that were not corrected, and rows that wait for a reset or could not be remapped."""
    for gpu in facts.gpus:
        if gpu.ecc_volatile_uncorrectable:
            count = gpu.ecc_volatile_uncorrectable
            yield HealthFinding(
                gpu.uuid, "ecc_uncorrectable", f"{count} uncorrectable ECC errors since the driver was loaded", count
            )
        if gpu.remap_failed:
            yield HealthFinding(gpu.uuid, "remap_failed", f"a row could not be remapped; {gpu.rows_remapped or 0} are")
        elif gpu.remap_pending:
            yield HealthFinding(gpu.uuid, "remap_pending", "rows wait for a reset to be remapped")


def recovery(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """Yield the recovery actions that the driver itself requests."""
    for gpu in facts.gpus:
        if gpu.recovery not in (None, "none"):
            yield HealthFinding(gpu.uuid, "recovery", f"the driver asks for {_ASKS[gpu.recovery]}")


def slowed(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """Held down by heat or hardware; or by the power supply."""
    for gpu in facts.gpus:
        if hot := sorted(_HOT.intersection(gpu.slowdowns or ())):
            limit = f", slows down at {gpu.temperature_slowdown_c} C" if gpu.temperature_slowdown_c else ""
            at = "" if gpu.temperature_c is None else f" at {gpu.temperature_c} C{limit}"
            yield HealthFinding(gpu.uuid, "thermal", f"slowed down: {', '.join(hot)}{at}")
    braked = [gpu.uuid for gpu in facts.gpus if "hw_power_brake" in (gpu.slowdowns or ())]
    if braked:
        yield HealthFinding("", "power_brake", f"held down by the power supply: {_named(braked)}")


def bus(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """PCI Express lanes missing; or, under load, a lower generation than there could be."""
    narrow = [each for each in (_narrow(gpu, facts.loads.get(gpu.uuid, 0)) for gpu in facts.gpus) if each]
    if narrow:
        yield HealthFinding("", "pcie_narrow", _named(narrow))


def _narrow(gpu: GpuHealth, load_pct: int) -> str:
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        return f"{gpu.uuid} has x{gpu.pcie_width} of x{gpu.pcie_width_max}"
    slow = gpu.pcie_generation and gpu.pcie_generation_max and gpu.pcie_generation < gpu.pcie_generation_max
    if slow and load_pct >= LOADED_PER_CENT:
        return f"{gpu.uuid} is at generation {gpu.pcie_generation} of {gpu.pcie_generation_max} under load"
    return ""


def links(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """NVLinks whose error counters run."""
    was = {gpu.uuid: gpu.nvlink_errors for gpu in before.gpus} if before is not None else {}
    risen = [
        f"{gpu.uuid} {gpu.nvlink_errors - earlier} more"
        for gpu in facts.gpus
        if gpu.nvlink_errors is not None
        and (earlier := was.get(gpu.uuid)) is not None
        and gpu.nvlink_errors - earlier >= LINK_ERRORS
    ]
    if risen:
        yield HealthFinding("", "nvlink_errors", _named(risen))


def zombies(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """GPUs that are not free long after their run has ended, and runs that outlive their kill."""
    for dirt in facts.dirt:
        if facts.now_ns - dirt.since_ns >= ZOMBIE_NS:
            for gpu in dirt.gpus:
                yield HealthFinding(gpu, "zombie_memory", f"run {dirt.run} has ended and the GPU is not free")
    for kill in facts.kills:
        if facts.now_ns - kill.since_ns >= KILLED_NS:
            yield HealthFinding("", "kill_failed", f"run {kill.run} was killed and has not ended")
            for gpu in kill.gpus:
                yield HealthFinding(gpu, "kill_failed", f"run {kill.run} was killed and has not ended")


def disks(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """Yield findings if the fullest file system is low on space or full."""
    for disk in sorted(facts.disks, key=left_per_mille):
        if left_per_mille(disk) < 10 * DISK_FULL_PER_CENT:
            yield HealthFinding("", "disk_full", _left(disk))
        if left_per_mille(disk) < 10 * DISK_LOW_PER_CENT:
            yield HealthFinding("", "disk_low", _left(disk))
        return


def left_per_mille(disk: DiskHealth) -> int:
    """Thousandths that are left."""
    return 1000 * disk.free_bytes // disk.total_bytes if disk.total_bytes else 1000


def _left(disk: DiskHealth) -> str:
    mille = left_per_mille(disk)
    return f"{disk.path}: {mille // 10}.{mille % 10} % left, {disk.free_bytes // 2**20} MiB"


def clock(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """The wall clock against the monotonic one, and against the placer's."""
    now = facts.clock
    if now is None:
        return
    if before is not None and before.clock is not None:
        passed = now.monotonic_ns - before.clock.monotonic_ns
        step = now.wall_ns - before.clock.wall_ns - passed
        if abs(step) > STEP_NS:
            yield HealthFinding("", "clock_step", f"the clock has jumped by {_seconds(step)} s")
    if now.skew_ns is not None and abs(now.skew_ns) > SKEW_NS:
        code = "clock_far" if abs(now.skew_ns) > FAR_NS else "clock_skew"
        yield HealthFinding("", code, f"{_seconds(now.skew_ns)} s from the placer's clock")


def engine(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """The container engine answers, and is the one that it was."""
    now = facts.engine
    if now is None:
        return
    if now.silent:
        yield HealthFinding("", "engine_gone", now.silent)
    was = before.engine.started if before is not None and before.engine is not None else ""
    if was and now.started and was != now.started:
        yield HealthFinding("", "engine_restarted", f"started {now.started}, before {was}")


def spawner(facts: HealthFacts, before: HealthFacts | None) -> Iterator[HealthFinding]:
    """The parent of process runs."""
    if facts.spawner is False:
        yield HealthFinding("", "spawner_gone", "the spawner's process is not there")


CHECKS: tuple[Check, ...] = (
    lost,
    memory,
    recovery,
    slowed,
    bus,
    links,
    zombies,
    disks,
    clock,
    engine,
    spawner,
)


def _named(texts: list[str]) -> str:
    return "; ".join(texts[:4]) + (f"; and {len(texts) - 4} more" if len(texts) > 4 else "")


def _seconds(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{abs(ns) // SECOND_NS}.{abs(ns) % SECOND_NS // 100_000_000}"
