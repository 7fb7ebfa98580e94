"""Jobs that change their queue, wait for others, or were preempted: SQL, the job's document and the gateway's live view
agree about them."""

from collections.abc import Iterator

import pytest

from fairlead_gateway.views.fold import Views
from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.queries.answers import find_job
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import Story, ended, joined, offered, placed, started, submitted


def afternoon() -> Story:
    """Queue b goes and its jobs with it, comes back, and goes again; others are moved by people."""
    s = Story()
    s.at(0, *(ev.QueueConfigured(cause="cmd:q", path=path) for path in "abcd"))
    limited = QueueSettings(maximum={"gpu": 6000, "cpu": 9000})
    s.at(0, ev.QueueConfigured(cause="cmd:q", path="a", settings=limited))
    s.at(1, joined("n1", gpus=8))
    # 1 is moved to b before that goes; 2 ends in b before; 3 is an array, of which one element has ended in b.
    s.at(
        10,
        submitted("1", queue="a"),
        submitted("2", queue="b"),
        submitted("3", queue="b", array=(0, 1)),
        offered("2"),
        offered("3_0"),
    )
    s.at(
        11,
        placed("2", n1=1),
        placed("3_0", n1=1),
        started("2"),
        started("3_0"),
        ended("2", released=("n1",)),
        ended("3_0", released=("n1",)),
    )
    s.at(12, *(ev.JobSucceeded(cause="4.4", job=job, attempt=1) for job in ("2", "3_0")))
    s.at(13, ev.JobMoved(cause="cmd:m", job="1", queue="b", by="ada"))
    s.at(14, ev.QueueRemoved(cause="cmd:r", path="b", move_to="c"), offered("3_1"))
    # b is there again: 4 waits in it, for 1, and 5 for 2, which has succeeded already.
    s.at(20, ev.QueueConfigured(cause="cmd:q", path="b"))
    s.at(
        21,
        submitted("4", queue="b", after=(ev.Dependency(job="1"),)),
        submitted("5", queue="b", after=(ev.Dependency(job="2", state="ended"),)),
    )
    s.at(22, submitted("6", queue="b", after=(ev.Dependency(job="2", state="failed"),)))
    # 7 runs in d, must give back what it has, waits again, is moved to b, which goes, and runs in a.
    s.at(30, submitted("7", gpus=2, queue="d"), offered("7"))
    s.at(31, placed("7", n1=2), started("7"))
    s.at(3631, ev.JobStopRequested(cause="clock", job="7", attempt=1, reason="reclaimed", by="ada"))
    s.at(3631, ended("7", exit_code=None, outcome="stopped", signal=15, released=("n1",)))
    s.at(3632, ev.JobRequeued(cause="12.0", job="7", attempt=2, reason="preempted"))
    s.at(3633, ev.JobMoved(cause="cmd:m", job="7", queue="b", by="ada"))
    s.at(3634, ev.QueueRemoved(cause="cmd:r", path="b", move_to="a"))
    return s


def again() -> Story:
    """And 7 has its place for the second time."""
    s = afternoon()
    s.at(3640, offered("7", 2))
    s.at(3641, placed("7", 2, n1=2))
    return s


@pytest.fixture
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    warehouse = Warehouse(tmp_path_factory.mktemp("moves"))
    yield warehouse
    warehouse.close()


QUEUES = {"1": "c", "2": "b", "3": "c", "3_0": "b", "3_1": "c", "4": "a", "5": "a", "6": "a", "7": "a"}
STATES = {
    "1": "queued",
    "2": "succeeded",
    "3": "queued",
    "3_0": "succeeded",
    "3_1": "offered",
    "4": "scheduled",
    "5": "queued",
    "6": "scheduled",
    "7": "queued",
}


def test_a_job_is_where_it_was_moved_to(warehouse: Warehouse) -> None:
    """By a person, or with its queue, however often; what had ended stays where it ended."""
    store(warehouse, afternoon())
    rows = warehouse.rows("SELECT id, queue, state FROM jobs")
    assert {job: queue for job, queue, _ in rows} == QUEUES
    assert {job: state for job, _, state in rows} == STATES
    counted = warehouse.rows("SELECT path, waiting, ended, gpu_quota FROM queues ORDER BY path")
    assert counted == [("a", 4, 0, 6.0), ("c", 2, 0, None), ("d", 0, 0, None)]  # b is gone, what ended in it is not


def test_the_document_and_the_live_view_say_so_too(warehouse: Warehouse) -> None:
    """Three folds of one log, written apart."""
    story = afternoon()
    store(warehouse, story)
    live = Views()
    for sequence, (_, commit, _) in enumerate(story.commits, 1):
        live.fold(sequence, commit)
    assert {job: (row.queue, row.state) for job, row in live.jobs.rows.items()} == {
        job: (queue, STATES[job]) for job, queue in QUEUES.items()
    }
    for job, queue in QUEUES.items():
        document = find_job(warehouse, job)
        assert document is not None
        assert (document.queue, document.state) == (queue, STATES[job])


def test_a_rank_that_came_too_late_says_nothing(warehouse: Warehouse) -> None:
    """The placer had placed the offer meanwhile: the job has its place, and runs."""
    story = again()
    story.at(3642, offered("7", 2))
    store(warehouse, story)
    assert warehouse.rows("SELECT state FROM jobs WHERE id = '7'") == [("placed",)]
    story.at(3643, started("7", 2))
    story.at(3644, offered("7", 2))
    store(warehouse, story, len(story.commits) - 2)
    assert warehouse.rows("SELECT state FROM jobs WHERE id = '7'") == [("running",)]


def test_use_counts_for_the_queue_in_which_it_occurred(warehouse: Warehouse) -> None:
    """An hour in d before the move, and the current use in a."""
    store(warehouse, again())
    rows = warehouse.rows(
        "SELECT queue, runs, gpu_hours::DECIMAL(9, 2)::VARCHAR FROM gpu_hours_by_user WHERE queue <> 'b'"
    )
    assert sorted(rows) == [("a", 1, "0.00"), ("d", 1, "2.00")]
    assert warehouse.rows("SELECT state, attempt FROM jobs WHERE id = '7'") == [("placed", 2)]
    assert warehouse.rows("SELECT queue, jobs FROM queue_wait ORDER BY queue") == [("b", 2), ("d", 1)]
