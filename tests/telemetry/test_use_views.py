"""Views about how GPUs are used: efficiency, idleness, fragmentation, preemptions, each on one small afternoon."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, columns_of
from fairlead_telemetry.queries.answers import find_job
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import START_NS, Story, ended, joined, offered, placed, started, submitted

MINUTE = 60


def afternoon() -> Story:
    """1 holds n1 whole, 2 half of n2, 3 makes way for 1."""
    s = Story()
    s.at(0, joined("n1"), joined("n2"), joined("n3", gpus=4))
    s.at(60, submitted("3", gpus=2, user="bob"), offered("3"))
    s.at(60, placed("3", n1=2))
    s.at(60, started("3"))
    s.at(660, submitted("1", gpus=2), offered("1"), submitted("2", user="eve"), offered("2"))
    s.at(660, ev.PreemptionStarted(cause="clock", job="3", attempt=1, beneficiary="1", rule="over_share"))
    s.at(720, ended("3", exit_code=None, outcome="stopped", released=("n1",), saved_ns=START_NS + 600 * SECOND_NS))
    s.at(720, placed("1", n1=2), placed("2", n2=1))
    s.at(720, started("1"), started("2"))
    s.at(7200, ev.NodeCordoned(cause="cmd:k", node="n3", by="ada", reason="fan"))
    return s


def samples(node: str, run: str, first: int, last: int, busy: dict[str, int]) -> list[SampleBatch]:
    """A sample every 20 s from second `first` to before `last`; `busy`: {GPU: up to which second it is used}."""
    return [
        SampleBatch(
            node=node,
            incarnation=run,
            n=n,
            at_ns=START_NS + second * SECOND_NS,
            gpus=[
                GpuSample(uuid=uuid, run=run, utilization_pct=80 * (second < until), memory_used_mib=100 + n)
                for uuid, until in busy.items()
            ],
        )
        for n, second in enumerate(range(first, last, 20), 1)
    ]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    warehouse = Warehouse(tmp_path_factory.mktemp("use"))
    store(warehouse, afternoon())
    book = SampleBook({})
    for batch in (
        *samples("n1", "1.1", 720, 7200, {"GPU-n1-0": 10_000, "GPU-n1-1": 3960}),
        *samples("n2", "2.1", 720, 3600, {"GPU-n2-0": 0}),  # idle, but silent for an hour by now
    ):
        book.add(columns_of(batch))
    warehouse.store([], {}, "a log", book.take())
    warehouse.roll_up(START_NS + 7200 * SECOND_NS + 10 * SECOND_NS)
    yield warehouse
    warehouse.close()


def test_efficiency(warehouse: Warehouse) -> None:
    """One GPU used all the time, one for half of it: three quarters of 80 %, of what was held; a job without samples has no row."""
    rows = warehouse.rows(
        'SELECT job, "user", queue, state, gpu_hours, used_gpu_hours, utilization_pct, busy_pct, memory_used_mib_max, samples FROM job_efficiency ORDER BY job'
    )
    assert [row[:4] for row in rows] == [("1", "ada", "research", "running"), ("2", "eve", "research", "running")]
    assert rows[0][4:] == pytest.approx((3.6, 2.16, 60.0, 75.0, 424, 648))
    assert rows[1][4:] == pytest.approx((1.8, 0.0, 0.0, 0.0, 244, 144))


def test_idle_allocations(warehouse: Warehouse) -> None:
    """The GPU that went idle, since when; not the busy one, and not the one of which nothing is known of late."""
    query = "SELECT job, node, uuid, strftime(idle_since, '%T'), idle_minutes, strftime(measured_until, '%T') FROM idle_allocations"
    assert warehouse.rows(query) == [("1", "n1", "GPU-n1-1", "01:06:00", 54, "02:00:00")]


def test_a_gpu_that_was_used_in_its_last_minute_is_not_idle(tmp_path: Path) -> None:
    """A single busy sample of the newest minute is enough."""
    warehouse = Warehouse(tmp_path)
    store(warehouse, afternoon())
    book = SampleBook({})
    batches = samples("n1", "1.1", 720, 1200, {"GPU-n1-0": 0})
    last = batches[-1]
    batches[-1] = SampleBatch(
        node="n1",
        incarnation="1.1",
        n=last.n,
        at_ns=last.at_ns,
        gpus=[GpuSample(uuid="GPU-n1-0", run="1.1", utilization_pct=1, memory_used_mib=1)],
    )
    for batch in batches:
        book.add(columns_of(batch))
    warehouse.store([], {}, "a log", book.take())
    warehouse.roll_up(START_NS + 1200 * SECOND_NS + 10 * SECOND_NS)
    assert warehouse.rows("FROM idle_allocations") == []
    warehouse.close()


def test_fragmentation(warehouse: Warehouse) -> None:
    """Eight GPUs; at one o'clock 3 are held: n1 whole, half of n2; n3 is empty. Before anyone had joined there is no row."""
    rows = warehouse.rows("SELECT strftime(time, '%H'), * EXCLUDE (time) FROM fragmentation_by_hour ORDER BY time")
    assert rows == [
        ("00", 3, 8.0, 8.0, 8.0, 4.0, 0.0),
        ("01", 3, 8.0, 5.0, 4.0, 4.0, 20.0),
        ("02", 3, 8.0, 5.0, 4.0, 4.0, 20.0),
    ]


def test_requeues_say_what_was_lost_to_what(tmp_path: Path) -> None:
    """Each attempt that was followed by another, why, where, and its GPU-seconds; of one that never began none."""
    story = Story()
    story.at(0, joined("n1"), joined("n2"))
    story.at(1, submitted("1", gpus=2), offered("1"))
    story.at(2, placed("1", n1=2), started("1"))
    story.at(62, ended("1", exit_code=None, outcome="stopped", gpu_fault="xid79", released=("n1",)))
    story.at(63, ev.JobRequeued(cause="1.0", job="1", attempt=2, reason="gpu_fault"), offered("1", 2))
    story.at(64, placed("1", 2, n2=2), ended("1", 2, exit_code=None, outcome="start_failed", released=("n2",)))
    story.at(65, ev.JobRequeued(cause="1.0", job="1", attempt=3, reason="start_failed"))
    warehouse = Warehouse(tmp_path)
    store(warehouse, story)
    asked = (
        'SELECT attempt, "user", queue, reason, nodes, lost_seconds, lost_gpu_seconds FROM requeues ORDER BY sequence'
    )
    assert warehouse.rows(asked) == [
        (1, "ada", "research", "gpu_fault", ["n1"], 60.0, 120.0),
        (2, "ada", "research", "start_failed", ["n2"], None, None),
    ]
    document = find_job(warehouse, "1")
    assert document is not None
    assert [(each.attempt, each.reason, each.gpu_fault) for each in document.attempts] == [
        (1, "gpu_fault", "xid79"),
        (2, "start_failed", ""),
    ]
    warehouse.close()


def test_preemptions(warehouse: Warehouse) -> None:
    """Victim, beneficiary, rule, and the two GPU-minutes since its checkpoint, on two GPUs."""
    rows = warehouse.rows(
        "SELECT strftime(asked_at, '%T'), job, attempt, \"user\", queue, beneficiary, rule, strftime(saved_at, '%T'), strftime(ended_at, '%T'), lost_seconds, lost_gpu_seconds, sequence FROM preemptions"
    )
    assert rows == [
        ("00:11:00", "3", 1, "bob", "research", "1", "over_share", "00:10:00", "00:12:00", 120.0, 240.0, 6),
    ]
