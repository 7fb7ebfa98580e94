"""Steps of a job's picture, and its lists from the steps' rows. Pure.

`steps_of(query, held, gpus, now_ns)`   the observed span, cut into steps
`series(gpus, span, rows)`             one list per GPU and measure
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fairlead_schemas.queries.telemetry import GpuSeries, JobMetricsRequest
from fairlead_schemas.units.timestamps import SECOND_NS

MINUTE_S, HOUR_S = 60, 3600
#: Default number of steps in a picture.
STEPS = 120
#: GPUs times steps that one answer has.
CELLS_MAX = 15_000
GPUS_MAX = 2_000
#: Steps that read well, in seconds; none shorter than two samples are apart by default. Whole minutes from 60 on, whole hours from 3600 on.
NICE_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


class MetricCell(NamedTuple):
    """Measurements of one GPU in one step: sums over `samples`."""

    step: int
    uuid: str
    samples: int
    utilization_pct_sum: int
    utilization_pct_max: int
    memory_used_mib_sum: int
    power_mw_sum: int


class Steps(NamedTuple):
    """From when (Unix ns), how long each, how many, and of what they are made."""

    from_ns: int
    step_s: int
    total: int
    source: str

    @property
    def to_ns(self) -> int:
        """End of the last step, Unix ns."""
        return self.from_ns + self.total * self.step_s * SECOND_NS


class BadSpan(ValueError):
    """The steps that were asked for cannot be; the message names the field, what was expected and found."""


def steps_of(query: JobMetricsRequest, placed_ns: int, back_ns: int, gpus: int) -> Steps:
    """The steps for a run that had `gpus` GPUs from `placed_ns` until `back_ns`. Raises BadSpan."""
    if gpus > GPUS_MAX:
        raise BadSpan(f"job: it has {gpus} GPUs, and a picture shows {GPUS_MAX} at most: ask samples_1m in SQL")
    begin_ns, end_ns = query.from_ns or placed_ns, query.to_ns or max(back_ns, placed_ns + SECOND_NS)
    if end_ns <= begin_ns:
        raise BadSpan("to: expected a time after from, and from before the run's end")
    seconds = -(-(end_ns - begin_ns) // SECOND_NS)
    step_s = query.step_s or _nice(seconds, gpus)
    source = _source(step_s)
    unit_ns = {"samples": 1, "minutes": MINUTE_S, "hours": HOUR_S}[source] * SECOND_NS
    from_ns = begin_ns // unit_ns * unit_ns
    count = -(-(end_ns - from_ns) // (step_s * SECOND_NS))
    if query.step_s and count * gpus > CELLS_MAX:
        least = _nice(seconds, gpus, CELLS_MAX // max(1, gpus))
        raise BadSpan(
            f"step: {count} steps of {gpus} GPUs are too many for one answer, expected {least} seconds or more"
        )
    return Steps(from_ns, step_s, count, source)


def _nice(seconds: int, gpus: int, most: int = STEPS) -> int:
    """The shortest good step with at most so many of them, and few enough for so many GPUs."""
    most = max(1, min(most, CELLS_MAX // max(1, gpus)) - 1)  # one more where the first begins on a whole minute
    wanted = -(-seconds // most)
    day_s = NICE_S[-1]
    return next((nice for nice in NICE_S if nice >= wanted), -(-wanted // day_s) * day_s)


def _source(step_s: int) -> str:
    if step_s < 0 or (step_s > MINUTE_S and step_s % MINUTE_S) or (step_s > HOUR_S and step_s % HOUR_S):
        raise BadSpan(
            f"step: expected seconds up to 60, whole minutes up to an hour, or whole hours; found {step_s} seconds"
        )
    return "samples" if step_s < MINUTE_S else "minutes" if step_s < HOUR_S else "hours"


def series(gpus: Sequence[tuple[str, str]], steps: Steps, cells: Iterable[MetricCell]) -> list[GpuSeries]:
    """Return one series per (node, UUID), in that order; steps without measurements stay empty."""
    found = {uuid: _empty(node, uuid, steps.total) for node, uuid in gpus}
    for cell in cells:
        one, at = found.get(cell.uuid), cell.step
        if one is None or not 0 <= at < steps.total or not cell.samples:
            continue
        one.samples[at] = cell.samples
        one.utilization_pct[at] = round(cell.utilization_pct_sum / cell.samples, 1)
        one.utilization_pct_max[at] = cell.utilization_pct_max
        one.memory_used_mib[at] = round(cell.memory_used_mib_sum / cell.samples)
        one.power_mw[at] = round(cell.power_mw_sum / cell.samples)
    return list(found.values())


def _empty(node: str, uuid: str, count: int) -> GpuSeries:
    return GpuSeries(
        node=node,
        uuid=uuid,
        samples=[0] * count,
        utilization_pct=[None] * count,
        utilization_pct_max=[None] * count,
        memory_used_mib=[None] * count,
        power_mw=[None] * count,
    )


def measured_pct(gpus: Sequence[GpuSeries]) -> float:
    """Share of the steps, over all GPUs, of which there are samples."""
    places = sum(len(one.samples) for one in gpus)
    return round(100 * sum(1 for one in gpus for samples in one.samples if samples) / places, 1) if places else 0.0
