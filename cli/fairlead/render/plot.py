"""Plot of a job's GPUs over time: a line of signs for each GPU, with the minimum, the mean and the maximum. Pure.

Terminals without Unicode get ASCII signs. A step without measurements has a sign of its own: it is not zero.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_schemas.queries.telemetry import GpuSeries, JobMetrics
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.units.timestamps import SECOND_NS, utc_text

#: Signs that a line of them has at least, however narrow the terminal.
SIGNS_MIN = 10
#: What is drawn.
SHOWN = "utilization"
#: "GPU-4ffeb993"
UUID_SIGNS = 12


class Signs(NamedTuple):
    """From nothing to everything, in equal parts; and for what was not measured."""

    levels: str
    unmeasured: str


BLOCKS = Signs("▁▂▃▄▅▆▇█", "·")
ASCII = Signs("_.:-=+*#", "?")


class PlotStep(NamedTuple):
    """Measurements of one GPU in one or several steps."""

    samples: int
    mean: float
    most: int


def signs_for(encoding: str | None) -> Signs:
    """Return the signs that a terminal of this encoding can show."""
    try:
        (BLOCKS.levels + BLOCKS.unmeasured).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def plot(metrics: JobMetrics, width: int, signs: Signs) -> list[str]:
    """Lines of `width` signs at most: what is shown, a row per GPU in the order of ranks, what the signs mean."""
    names = _names(metrics.gpus)
    label = max(map(len, names), default=0)
    room = max(SIGNS_MIN, width - label - len("    100    100    100 %  "))
    fold = max(1, -(-metrics.steps // room))
    rows = [_merged(one, fold) for one in metrics.gpus]
    lines = [_head(metrics, fold), ""]
    wide = max(len(SHOWN), -(-metrics.steps // fold))
    lines += [f"{'':<{label}}  {SHOWN:<{wide}}  {'min':>5}  {'mean':>5}  {'max':>5}".rstrip()]
    lines += [_row(name.ljust(label), steps, wide, signs) for name, steps in zip(names, rows, strict=True)]
    if any(step is None for steps in rows for step in steps):
        lines += ["", f"{signs.unmeasured} no samples"]
    return lines


def _names(gpus: Sequence[GpuSeries]) -> list[str]:
    """Nodes and the beginnings of UUIDs; whole ones where two would be called the same."""
    short = [f"{one.node} {one.uuid[:UUID_SIGNS]}" for one in gpus]
    return short if len(set(short)) == len(short) else [f"{one.node} {one.uuid}" for one in gpus]


def _head(metrics: JobMetrics, fold: int) -> str:
    step = format_duration(metrics.step_s * fold * SECOND_NS)
    played = "; the GPUs are simulated" if metrics.simulated else ""
    gpus = f"{len(metrics.gpus)} GPU{'' if len(metrics.gpus) == 1 else 's'}"
    return (
        f"job {metrics.job}, attempt {metrics.attempt}: {gpus} from {utc_text(metrics.from_ns)} UTC, a sign is {step}; "
        f"{metrics.measured_pct:g} % measured{played}"
    )


def _merged(one: GpuSeries, fold: int) -> list[PlotStep | None]:
    """Every `fold` steps as one; None: nothing was measured in any of them."""
    return [_sum(one, range(first, min(first + fold, len(one.samples)))) for first in range(0, len(one.samples), fold)]


def _sum(one: GpuSeries, steps: range) -> PlotStep | None:
    samples = sum(one.samples[at] for at in steps)
    if not samples:
        return None
    total = sum(one.samples[at] * (one.utilization_pct[at] or 0) for at in steps)
    return PlotStep(samples, total / samples, max(one.utilization_pct_max[at] or 0 for at in steps))


def _row(name: str, steps: Sequence[PlotStep | None], wide: int, signs: Signs) -> str:
    drawn = "".join(signs.unmeasured if step is None else _sign(step.mean, signs) for step in steps).ljust(wide)
    found = [step for step in steps if step is not None]
    if not found:
        return f"{name}  {drawn}  no samples"
    mean = sum(step.samples * step.mean for step in found) / sum(step.samples for step in found)
    least, most = min(step.mean for step in found), max(step.most for step in found)
    return f"{name}  {drawn}  {least:5.0f}  {mean:5.0f}  {most:5d} %"


def _sign(pct: float, signs: Signs) -> str:
    return signs.levels[min(len(signs.levels) - 1, int(max(0.0, pct) * len(signs.levels) / 100))]
