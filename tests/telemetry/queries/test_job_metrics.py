"""A job's picture: the same numbers whatever they are taken from, holes where nothing was measured, and only for those who may see it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.queries.telemetry import ANONYMOUS_ADMIN, JobMetrics, JobMetricsRequest, QueryCaller
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, columns_of
from fairlead_telemetry.queries.job_metrics import job_metrics_of
from fairlead_telemetry.queries.metric_steps import (
    CELLS_MAX,
    GPUS_MAX,
    NICE_S,
    STEPS,
    BadSpan,
    MetricCell,
    Steps,
    series,
    steps_of,
)
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import START_NS, Story, ended, joined, placed, started, submitted

LONG_S = 4 * 3600
#: Not measured: seconds 600 to 1200 of the second GPU.
HOLE = range(600, 1200)


def wish(**more: object) -> JobMetricsRequest:
    return JobMetricsRequest(**({"caller": ANONYMOUS_ADMIN, "job": "1"} | more))  # pyright: ignore[reportArgumentType]


@pytest.fixture
def warehouse(tmp_path: Path):
    """One job on two GPUs for four hours, a sample every ten seconds, and another that holds no GPU."""
    story = Story()
    story.at(0, joined("n1"), submitted("1", gpus=2), submitted("2", gpus=0))
    story.at(0, placed("1", n1=2), started("1"), placed("2", n1=0))
    story.at(LONG_S, ended("1", released=("n1",)))
    warehouse = Warehouse(tmp_path)
    store(warehouse, story)
    book = SampleBook({})
    for n, second in enumerate(range(0, LONG_S, 10), 1):
        gpus = [
            GpuSample(
                uuid=f"GPU-n1-{g}",
                utilization_pct=10 * g + second % 60,
                memory_used_mib=1000 * (g + 1),
                power_mw=100 * second,
                run="1.1",
            )
            for g in (0, 1)
            if g == 0 or second not in HOLE
        ]
        batch = SampleBatch(
            node="n1", incarnation="a", n=n, at_ns=START_NS + second * SECOND_NS, gpus=gpus, simulated=True
        )
        book.add(columns_of(batch))
    warehouse.store([], warehouse.cursor.heads, "a log", book.take())
    yield warehouse
    warehouse.close()


def picture(warehouse: Warehouse, **more: object) -> JobMetrics:
    found = job_metrics_of(warehouse, wish(**more), START_NS + 10**14)
    assert found is not None
    return found


def test_steps_are_means_of_what_was_measured(warehouse: Warehouse) -> None:
    """The whole run in steps that suit; a hole stays a hole, and is counted."""
    found = picture(warehouse)
    assert (found.attempt, found.from_ns, found.step_s, found.steps, found.source) == (1, START_NS, 300, 48, "minutes")
    first, second = found.gpus
    assert [(one.node, one.uuid) for one in found.gpus] == [("n1", "GPU-n1-0"), ("n1", "GPU-n1-1")]
    assert (first.samples, first.utilization_pct[:2], first.utilization_pct_max[0]) == ([30] * 48, [25.0, 25.0], 50)
    assert (second.utilization_pct[:5], second.samples[1:4]) == ([35.0, 35.0, None, None, 35.0], [30, 0, 0])
    assert (second.memory_used_mib[0], first.power_mw[0]) == (2000, 14_500)
    assert (found.measured_pct, found.simulated) == (round(100 * 94 / 96, 1), True)


@pytest.mark.parametrize("rolled_s", [0, 5000, 10**6])
def test_sums_and_samples_agree(warehouse: Warehouse, rolled_s: int) -> None:
    """If none, some or all of it has been summed per minute and hour."""
    before = {step: picture(warehouse, step_s=step).gpus for step in (600, 3600)}
    warehouse.roll_up(START_NS + rolled_s * SECOND_NS)
    for step, gpus in before.items():
        assert picture(warehouse, step_s=step).gpus == gpus
    fine = picture(warehouse, step_s=30, to_ns=START_NS + 600 * SECOND_NS)
    assert (fine.source, fine.steps, fine.gpus[0].samples) == ("samples", 20, [3] * 20)


def test_an_invisible_job_is_not_found(warehouse: Warehouse) -> None:
    """As if it did not exist; a job without GPUs has no metrics."""
    ada = QueryCaller(user="ada", role="member")
    assert picture(warehouse, caller=ada).steps == 48
    for other in (QueryCaller(user="bob", role="member"), QueryCaller(user="bob", role="member", projects=("", "x"))):
        assert job_metrics_of(warehouse, wish(caller=other), 0) is None
    for job in ("2", "3", "", "1'--"):
        assert job_metrics_of(warehouse, wish(job=job), 0) is None
    assert job_metrics_of(warehouse, wish(attempt=2), 0) is None


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"step_s": 61}, "step: expected seconds up to 60"),
        ({"step_s": 3660}, "step: expected seconds up to 60"),
        ({"step_s": 1}, "step: 14400 steps of 2 GPUs are too many for one answer, expected 5 seconds or more"),
        ({"to_ns": 5}, "to: expected a time after from"),
    ],
)
def test_steps_that_cannot_be_are_refused(warehouse: Warehouse, more: dict[str, int], told: str) -> None:
    """With the field, and what would do."""
    with pytest.raises(BadSpan, match=told):
        picture(warehouse, **more)


@given(st.integers(1, 10**9), st.integers(1, GPUS_MAX), st.integers(0, 86_400))
def test_suitable_steps_always_fit(seconds: int, gpus: int, begun: int) -> None:
    """For any run: all of it is covered, by few more steps than requested, and the answer stays small."""
    placed_ns = (1_700_000_000 + begun) * SECOND_NS
    steps = steps_of(wish(), placed_ns, placed_ns + seconds * SECOND_NS, gpus)
    assert steps.from_ns <= placed_ns
    assert steps.to_ns >= placed_ns + seconds * SECOND_NS
    assert 1 <= steps.total <= STEPS + 1
    assert steps.total * gpus <= CELLS_MAX
    assert steps.step_s in NICE_S or steps.step_s % NICE_S[-1] == 0


def test_cells_outside_are_left_out() -> None:
    """Of another GPU, before and behind; an empty one is nothing."""
    cells = [
        MetricCell(-1, "a", 1, 1, 1, 1, 1),
        MetricCell(2, "a", 1, 1, 1, 1, 1),
        MetricCell(0, "b", 1, 1, 1, 1, 1),
        MetricCell(0, "a", 0, 0, 0, 0, 0),
    ]
    assert series([("n", "a")], Steps(0, 1, 2, "samples"), cells)[0].samples == [0, 0]
