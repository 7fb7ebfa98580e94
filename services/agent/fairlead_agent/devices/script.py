"""Script of a simulated machine: faults and curves by time, from a file. Pure: takes bytes and moments, returns facts.

The file is TOML or JSON. Parsing is strict: an unknown word, or a number out of its range, is refused with its place.
Times are seconds since the devices were opened, or (`since = "run"`) since a run took the GPU.
docs/reference/devices.md lists everything.
"""

import tomllib
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from fairlead_agent.devices.port import GpuHealth

Seconds = Annotated[float, msgspec.Meta(ge=0, le=10**9)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Points = tuple[tuple[Seconds, Amount], ...]
Measured = Literal[
    "utilization_pct",
    "memory_used_mib",
    "power_mw",
    "temperature_c",
    "sm_clock_mhz",
    "memory_busy_pct",
    "memory_temperature_c",
    "pcie_tx_bytes_s",
    "pcie_rx_bytes_s",
    "sm_permille",
    "tensor_permille",
    "dram_permille",
]


class BadScript(ValueError):
    """The file of a simulation cannot be read; the message says where and what was expected."""


class _OnGpus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something about some GPUs."""

    #: Indexes of GPUs; () is all of them.
    gpus: tuple[Annotated[int, msgspec.Meta(ge=0)], ...] = ()

    def on(self, index: int) -> bool:
        """Return True if this entry applies to the GPU with that index."""
        return not self.gpus or index in self.gpus


class _Act(_OnGpus, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    """Something that is so on a GPU for a while."""

    #: What times count from: the opening of the devices, or the moment when a run took the GPU (and only while it has it).
    since: Literal["start", "run"] = "start"
    begin: Seconds = 0
    #: None: without end.
    until: Seconds | None = None


class Curve(_Act, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    """Measured value over time: straight lines between points; after the last point its value is kept."""

    what: Measured
    points: Annotated[Points, msgspec.Meta(min_length=1)]


class Health(_Act, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    """Facts of health that are so meanwhile, in the words of `facts.GpuHealth`."""

    facts: dict[str, Any]


class Lost(_Act, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    """The GPU has fallen off the bus: every question about it fails."""

    why: str = "GPU is lost"


class PlayedXid(_Act, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    """An XID at `from`, once."""

    code: Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class PlayedProcess(_Act, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    """A process on the GPU, with memory over time."""

    pid: Annotated[int, msgspec.Meta(ge=1)]
    memory_mib: Annotated[Points, msgspec.Meta(min_length=1)]
    utilization_pct: Percent | None = None


class Zombie(_OnGpus, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory that stays in use for so long after a run's end, without a process."""

    memory_mib: Amount
    seconds: Seconds


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is played, each kind in the file's order; of two that say the same thing, the later one counts."""

    curve: tuple[Curve, ...] = ()
    health: tuple[Health, ...] = ()
    lost: tuple[Lost, ...] = ()
    xid: tuple[PlayedXid, ...] = ()
    process: tuple[PlayedProcess, ...] = ()
    zombie: tuple[Zombie, ...] = ()


class Moment(NamedTuple):
    """Now, of one GPU: seconds since the opening, and since a run took it (None: no run has it)."""

    start: float
    run: float | None

    def of(self, act: _Act) -> float | None:
        """Seconds since what the act's times count from; None while that has not come."""
        return self.run if act.since == "run" else self.start


def read_script(data: bytes, *, toml: bool, gpus: int) -> Script:
    """The script in a file, for a machine of so many GPUs. Raises BadScript."""
    try:
        raw = tomllib.loads(data.decode()) if toml else msgspec.json.decode(data)
        script = msgspec.convert(raw, Script)
        for at, each in enumerate(script.health):
            _facts(each, at)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise BadScript(str(error)) from error
    for kind in Script.__struct_fields__:
        for at, act in enumerate(getattr(script, kind)):
            wrong = [index for index in act.gpus if index >= gpus]
            if wrong:
                raise BadScript(f"expected GPUs below {gpus}, found {wrong[0]} - at `$.{kind}[{at}].gpus`")
            if isinstance(act, _Act) and act.until is not None and act.until <= act.begin:
                raise BadScript(f"expected `until` after `from`, found {act.until} - at `$.{kind}[{at}].until`")
    return script


def _facts(act: Health, at: int) -> GpuHealth:
    try:
        return msgspec.convert({**act.facts, "uuid": ""}, GpuHealth)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{error} - in `$.health[{at}].facts`") from error


def active(act: _Act, index: int, moment: Moment) -> float | None:
    """Seconds since the act began on that GPU; None while it is not so."""
    now = moment.of(act)
    if now is None or not act.on(index) or now < act.begin or (act.until is not None and now >= act.until):
        return None
    return now - act.begin


def value_at(points: Points, second: float) -> int:
    """On the line between the points around it."""
    before = points[0]
    for point in points:
        if second < point[0]:
            span = point[0] - before[0]
            part = (second - before[0]) / span if span > 0 else 1.0
            return round(before[1] + (point[1] - before[1]) * max(0.0, part))
        before = point
    return before[1]


def measured(script: Script, index: int, moment: Moment) -> dict[str, int]:
    """{field of a sample: value} of what curves say now."""
    found: dict[str, int] = {}
    for curve in script.curve:
        second = active(curve, index, moment)
        if second is not None:
            found[curve.what] = value_at(curve.points, second)
    return found


def lost(script: Script, index: int, moment: Moment) -> str:
    """The driver's words about a GPU that is lost; "" while it is not."""
    return next((each.why for each in script.lost if active(each, index, moment) is not None), "")


def healthy(script: Script, index: int, moment: Moment, well: GpuHealth) -> GpuHealth:
    """Return the GPU's health at this moment: `well`, its health without a script, overlaid with the script's facts."""
    if why := lost(script, index, moment):
        return GpuHealth(uuid=well.uuid, lost=True, why=why)
    for at, each in enumerate(script.health):
        if active(each, index, moment) is not None:
            facts = _facts(each, at)
            well = msgspec.structs.replace(well, **{name: getattr(facts, name) for name in each.facts})
    return well


def running(script: Script, index: int, moment: Moment) -> Sequence[tuple[int, int, int | None]]:
    """(pid, MiB, percent) of each played process on that GPU."""
    return [
        (each.pid, value_at(each.memory_mib, second), each.utilization_pct)
        for each in script.process
        if (second := active(each, index, moment)) is not None
    ]


def left_behind(script: Script, index: int, ended: float | None) -> int:
    """MiB that stay in use, so many seconds after the end of a run on it."""
    if ended is None:
        return 0
    return sum(each.memory_mib for each in script.zombie if each.on(index) and ended < each.seconds)
