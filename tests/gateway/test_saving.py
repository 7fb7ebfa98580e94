"""Checkpoints of a run, and the loss at an end, in views and `why`."""

import pytest

from fairlead_gateway.routes.documents import job_document
from fairlead_schemas.http import api
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from tests.gateway.logbook import Logbook, ended, joined, offered, placed, preempting, requeued, started, submitted


def yielded_after(*, saves: bool) -> api.Job:
    """Preempt a job after 100 s, with or without a checkpoint after 70 s."""
    book = Logbook()
    book.write(joined(), submitted(checkpoint=Checkpoint()), submitted("2"), offered(), placed("1", "n1"), started())
    began_ns = book.now_ns
    if saves:
        book.now_ns = began_ns + 69 * SECOND_NS  # a commit is a second later
        book.write(ev.CheckpointSaved(cause="report:n1:3", job="1", attempt=1, note="step=7"))
    book.now_ns = began_ns + 99 * SECOND_NS
    book.write(preempting("1", "2"), ended("1", 0, "n1", outcome="stopped", preempted=True))
    book.write(requeued())
    return job_document(book.views, book.views.jobs.rows["1"], book.now_ns)


def test_a_session_says_when_it_is_ready() -> None:
    """The first word of its application, until another run starts."""
    book = Logbook()
    book.write(joined(), submitted(), offered(), placed("1", "n1"), started())
    assert job_document(book.views, book.views.jobs.rows["1"], book.now_ns).ready_at is None
    book.write(ev.AppReady(cause="report:n1:3", job="1", attempt=1))
    assert job_document(book.views, book.views.jobs.rows["1"], book.now_ns).ready_at is not None
    book.write(
        ended("1", 1, "n1", outcome="lost"), requeued(), offered("1", 2), placed("1", "n1", attempt=2), started("1", 2)
    )
    assert job_document(book.views, book.views.jobs.rows["1"], book.now_ns).ready_at is None


@pytest.mark.parametrize(
    ("saves", "lost", "told"),
    [
        (True, 30, "and lost 30s since it had saved; now"),
        (False, 100, "and lost 1m 40s of work, none of which it had reported as saved; now"),
    ],
)
def test_a_preempted_run_shows_its_loss(saves: bool, lost: int, told: str) -> None:
    """Since its last checkpoint, or since it started; that checkpoint's report stays with the job."""
    job = yielded_after(saves=saves)
    assert job.lost_seconds == lost
    assert job.reason is not None
    assert told in job.reason.message
    assert job.reason.detail["lost_seconds"] == lost
    assert (job.saved_note, job.saved_at is not None) == (("step=7", True) if saves else ("", False))
