"""Jobs that change their queue, wait for others, or were preempted: SQL, the job's document and the gateway's live view
agree about them."""

from collections.abc import Iterator

import pytest

from fairlead_gateway.views.fold import Views
from fairlead_replay.lives import Lives
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.queries.answers import find_job
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.moved_jobs import afternoon, again
from tests.telemetry.rows import store
from tests.telemetry.story import START_NS, Story, offered, started, submitted


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


@pytest.mark.parametrize("folds", [1, 4])
def test_jobs_that_are_submitted_held_are_held_in_every_fold(warehouse: Warehouse, folds: int) -> None:
    """Also with a start time or behind others, until a release; whether the events come in one span or in several."""
    story = Story()
    story.at(1, ev.QueueConfigured(cause="clock", path="research"))
    story.at(2, submitted("1", held=True), submitted("2", held=True, start_at_ns=START_NS * 2))
    story.at(3, submitted("3", held=True, after=(ev.Dependency(job="1"),)), submitted("4"))
    story.at(4, ev.JobReleased(cause="cmd:r", job="1", by="ada"))
    for first in range(0, len(story.commits), len(story.commits) // folds):
        store(warehouse, story, first, len(story.commits) // folds)
    expected = {"1": "queued", "2": "held", "3": "held", "4": "queued"}
    assert dict(warehouse.rows("SELECT id, state FROM jobs")) == expected
    documents = {job: find_job(warehouse, job) for job in expected}
    assert {job: found.state for job, found in documents.items() if found is not None} == expected
    lives = Lives()
    for _, commit, _ in story.commits:
        lives.fold(commit)
    assert lives.states == expected
