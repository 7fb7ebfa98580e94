"""The views follow the lifecycle's table, count what they should, forget what has left, and survive a snapshot."""

import msgspec
import pytest

from fairlead_gateway.routes.documents import job_document, node_document
from fairlead_gateway.views import outcomes
from fairlead_gateway.views.fold import SCHEMA, Views
from fairlead_gateway.views.queue_documents import queue_document
from fairlead_schemas.http.api import ATTEMPTS_MAX
from fairlead_schemas.queuefile.settings import Budget, PoolSettings
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.lifecycle import MOVES, NOT_MOVING, STATES, JobMove
from tests.gateway.logbook import (
    START_NS,
    Logbook,
    configured,
    deferred,
    ended,
    joined,
    offered,
    placed,
    quota,
    requeued,
    started,
    submitted,
    unplaceable,
)

#: Events that bring a job of two ranks into each state.
WAY: dict[str, list[ev.Event]] = {
    "scheduled": [submitted(start_at_ns=START_NS * 2)],
    "queued": [submitted()],
    "held": [submitted(), ev.JobHeld(cause="cmd:h", job="1", by="ada")],
    "offered": [submitted(), offered()],
    "placed": [submitted(), offered(), placed("1", "n1", "n2")],
    "running": [submitted(), offered(), placed("1", "n1", "n2"), started()],
    "stopping": [
        submitted(),
        offered(),
        ev.JobStopRequested(cause="cmd:s", job="1", attempt=1, reason="cancelled", by="bob"),
    ],
}
#: One event of each moving type.
ONE: dict[str, ev.Event] = {
    type(event).__name__: event
    for event in (
        ev.JobQueued(cause="clock", job="1"), offered(), ev.OfferWithdrawn(cause="1.0", job="1", attempt=1, reason="quota"),
        ev.JobHeld(cause="cmd:h", job="1"), ev.JobReleased(cause="cmd:r", job="1"),
        ev.JobMoved(cause="cmd:m", job="1", queue="other"),
        ev.JobStopRequested(cause="cmd:s", job="1", attempt=1, reason="cancelled"),
        ev.JobRequeued(cause="1.0", job="1", attempt=2, reason="retry"), ev.JobSucceeded(cause="1.0", job="1", attempt=1),
        ev.JobFailed(cause="1.0", job="1", reason="exit_code", exit_code=1), ev.JobCancelled(cause="cmd:c", job="1"),
        placed("1", "n1", "n2"), unplaceable(), ev.OfferReturned(cause="1.0", job="1", attempt=1),
        ev.RankStarted(cause="1.0", job="1", attempt=1, rank=0), started(),
        ev.RankEnded(cause="1.0", job="1", attempt=1, rank=0, outcome="exited", exit_code=0), ended("1", 0, "n1", "n2"),
    )
}  # fmt: skip


def book_in(state: str) -> Logbook:
    """A log in which job 1 is in a state; two nodes are there."""
    book = Logbook()
    book.write(joined("n1"), joined("n2"))
    for event in WAY[state]:
        book.write(event)
    assert book.views.jobs.rows["1"].state == state
    return book


@pytest.mark.parametrize("move", [m for m in MOVES if m.source], ids=lambda m: f"{m.source}-{m.event}")
def test_every_listed_move_is_followed(move: JobMove) -> None:
    """From each state by each listed event to the listed state; the document says so."""
    book = book_in(move.source)
    book.write(ONE[move.event])
    row = book.views.jobs.rows["1"]
    assert row.state == move.target
    assert job_document(book.views, row, book.now_ns).state == row.state
    counts = book.views.job_counts()
    assert counts == {row.state: 1}


def test_moves_outside_the_table_are_errors() -> None:
    """For every state and event."""
    legal = {(move.source, move.event) for move in MOVES}
    illegal = [(state, name) for state in WAY for name in ONE if (state, name) not in legal]
    assert len(illegal) > len(legal)
    for state, name in illegal:
        with pytest.raises(KeyError):
            book_in(state).write(ONE[name])


def test_every_event_has_its_place() -> None:
    """Each type of event either moves jobs or is listed as not moving; the views know all of them."""
    names = {kind.__name__ for kind in ev.Event.__args__}
    assert names == {move.event for move in MOVES} | NOT_MOVING.keys()
    assert set(WAY) | {"succeeded", "failed", "cancelled"} == STATES.keys()
    assert set(Views()._handlers) == set(ev.Event.__args__)


def test_a_queue_counts_and_charges() -> None:
    """Charged from offer to the run's end; waiting and running by state; elements not offered yet wait."""
    book = Logbook()
    book.write(joined(), quota(8), submitted("1", 4), submitted("2", 2), submitted("3", 1, array=(0, 9)))
    queue = book.views.queues.rows["default"]

    def seen() -> tuple[int, int, int]:
        document = queue_document(book.views, queue)
        return document.gpu_milli_charged, document.waiting, document.running

    assert seen() == (0, 12, 0)
    book.write(offered("1"), offered("3_0", 2), offered("3_1", 3))
    assert seen() == (6000, 12, 0)
    book.write(placed("1", gpus=4))
    assert seen() == (6000, 11, 1)
    book.write(started("1"))
    book.write(ended("1"))
    assert seen() == (2000, 11, 1)
    book.write(ev.JobSucceeded(cause="8.0", job="1", attempt=1))
    assert seen() == (2000, 11, 0)
    book.write(ev.OfferReturned(cause="3.0", job="3_0", attempt=1))
    assert seen() == (1000, 11, 0)


def test_a_node_holds_and_gets_back() -> None:
    """GPUs leave with the placement and come back on evidence only, rank by rank in a gang."""
    book = Logbook()
    book.write(joined("n1"), joined("n2"), submitted(gpus=8, nodes=2), offered(), placed("1", "n1", "n2", gpus=8))
    nodes = book.views.nodes.rows

    def free() -> list[int]:
        return [node_document(book.views, nodes[name]).gpus_free for name in ("n1", "n2")]

    assert free() == [0, 0]
    assert node_document(book.views, nodes["n1"]).jobs == ["1"]
    book.write(started())
    book.write(ev.RankEnded(cause="r", job="1", attempt=1, rank=1, outcome="exited", exit_code=1, released=True))
    assert free() == [0, 8]
    book.write(ev.RunEnded(cause="r", job="1", attempt=1, outcome="exited", exit_code=1))
    assert free() == [0, 8]
    book.write(ev.AllocationReleased(cause="r", job="1", attempt=1, node="n1"))
    assert free() == [8, 8]


def test_a_node_has_one_state() -> None:
    """Lost over drained over draining over cordoned over ready; a lost node is no GPU of the cluster."""
    book = Logbook()
    book.write(joined())
    row = book.views.nodes.rows["n1"]
    states: list[str] = []
    for event in (
        ev.NodeCordoned(cause="cmd:1", node="n1", reason="fan"),
        ev.NodeDraining(cause="cmd:2", node="n1", reason="bios"),
        ev.NodeDrained(cause="clock", node="n1"),
        ev.NodeLost(cause="clock", node="n1", silent_ns=1),
        ev.NodeReturned(cause="beat", node="n1"),
        ev.NodeUncordoned(cause="cmd:3", node="n1"),
    ):
        book.write(event)
        states.append(node_document(book.views, row).state)
    assert states == ["cordoned", "draining", "drained", "lost", "drained", "ready"]


def test_retired_jobs_leave_and_counts_stay() -> None:
    """Rows of jobs, arrays and elements go; how many ever ended stays known."""
    book = Logbook()
    book.write(
        joined(), submitted("1"), submitted("2", array=(0, 1)), offered("1"), offered("2_0", 2), offered("2_1", 3)
    )
    for job in ("1", "2_0", "2_1"):
        book.write(placed(job), started(job), ended(job), ev.JobSucceeded(cause="1.0", job=job, attempt=1))
    book.write(ev.JobSucceeded(cause="1.0", job="2"))
    book.write(ev.JobsRetired(cause="clock", jobs=("1", "2_0")))
    assert list(book.views.jobs.rows) == ["2", "2_1"]
    assert book.views.jobs.rows["2"].elements == {"waiting": 0, "offered": 0, "placed": 0, "running": 0, "succeeded": 2}
    book.write(ev.JobsRetired(cause="clock", jobs=("2",)))
    assert not book.views.jobs.rows
    assert book.views.job_counts() == {"succeeded": 3}


def test_memory_does_not_grow_with_finished_jobs() -> None:
    """After many lives, retired as the queue does, rows and refusals are as few as after few."""
    book = Logbook()
    book.write(joined())
    for number in range(1, 500):
        job = str(number)
        book.write(submitted(job), offered(job), unplaceable(job, free_gpus=1), placed(job), started(job), ended(job))
        book.write(ev.JobSucceeded(cause="1.0", job=job, attempt=1), ev.JobsRetired(cause="clock", jobs=(job,)))
    views = book.views
    assert (
        len(views.jobs.rows),
        len(views.waiting.refusals),
        len(views.nodes.gangs),
        len(views.nodes.rows["n1"].held),
    ) == (0, 0, 0, 0)


def test_outcomes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations are kept; the newest is always there, the oldest gone."""
    monkeypatch.setattr(outcomes, "GENERATION", 10)
    book = Logbook()
    for number in range(1, 100):
        book.write(submitted(str(number)))
    assert len(book.views.outcomes) <= 20
    newest, oldest = book.views.outcomes.get("c99"), book.views.outcomes.get("c1")
    assert newest is not None and newest.job == "99" and oldest is None


def test_a_snapshot_restores_equal_views() -> None:
    """Restored bytes are equal, and the same tail folds to the same; another shape is refused."""
    book = Logbook()
    book.write(
        joined("n1"), joined("n2"), quota(8), submitted("1", 8, 2), submitted("2", array=(0, 3)), submitted("3", 4)
    )
    book.write(
        ev.PoolConfigured(cause="cmd:p", pool="a100", settings=PoolSettings(prices={"A100": 2500})),
        configured("team", guaranteed={"gpu": 4000}, budget=Budget(gpu_milli_s=10)),
        submitted("4", queue="team"),
        ev.BudgetReached(cause="clock", queue="team", percent=80, spent=8, budget=10, period_ns=START_NS),
        deferred("4", "budget", "team"),
        ev.ReservationRequested(cause="clock", job="4", attempt=1, waited_ns=5),
    )
    book.write(
        offered("1"), placed("1", "n1", "n2", gpus=8), offered("2_0", 2), offered("3", 3), unplaceable("3", free_gpus=2)
    )
    saved = book.views.snapshot()
    restored = Views.restore(saved)
    assert restored is not None and restored.snapshot() == saved
    original, book.views = book.views, restored
    tail = (
        started("1"),
        ended("1", 1, "n1", "n2"),
        ev.JobFailed(cause="x", job="1", reason="exit_code", exit_code=1),
        placed("3"),
    )
    book.write(*tail)
    again = Logbook()
    again.views, again.now_ns = original, book.now_ns - 1_000_000_000
    again.write(*tail)
    assert book.views.snapshot() == original.snapshot()
    assert msgspec.json.decode(job_document(restored, restored.jobs.rows["2_0"], 0).spec) == {"command": ["true"]}
    assert Views.restore(saved.replace(SCHEMA.encode(), b"1-0")) is None
    assert Views.restore(b"{}") is None


def test_prices_survive_a_snapshot() -> None:
    """A gateway that starts from one lists the prices that were set before it, as every other view that has handlers."""
    book = Logbook()
    for n in (1, 2):
        book.write(ev.PriceSet(cause="cmd:p", model="A100", micro=n, currency="EUR", from_ns=n * 1000, by="ada"))
    restored = Views.restore(book.views.snapshot())
    assert restored is not None
    assert restored.prices.rows == book.views.prices.rows and len(restored.prices.rows) == 2


def test_a_job_that_ran_before_survives_a_snapshot() -> None:
    """The nodes with its earlier attempts' output are in it, too."""
    book = book_in("running")
    book.write(ended("1", None, "n1", "n2", outcome="node_lost"), ONE["JobRequeued"])
    restored = Views.restore(book.views.snapshot())
    assert restored is not None
    assert restored.jobs.rows["1"].past == {"1": ("n1", "n2")}
    assert restored.snapshot() == book.views.snapshot()


def test_a_job_that_waits_again_has_no_ending() -> None:
    """The end of an attempt must not be shown with `queued`: the next attempt has not ended."""
    book = book_in("running")
    book.write(ev.RunEnded(cause="r", job="1", attempt=1, outcome="stopped", signal=15, message="gone"))
    book.write(ONE["JobRequeued"])
    document = job_document(book.views, book.views.jobs.rows["1"], book.now_ns)
    assert (document.signal, document.exit_code, document.message, document.attempt) == (None, None, "", 2)


def test_attempts_are_listed_with_why_there_was_another() -> None:
    """Of each its nodes, its times and how it ended, the newest ones; a withdrawn offer is no attempt."""
    book = Logbook()
    book.write(joined("n1"), joined("n2"), submitted(), offered())
    book.write(placed(), started(), ended(code=143, outcome="stopped", gpu_fault="xid79"))
    book.write(requeued(reason="gpu_fault"), offered(attempt=2))
    book.write(
        placed("1", "n2", attempt=2), ended("1", None, "n2", attempt=2, outcome="start_failed", message="no disk")
    )
    book.write(requeued(reason="start_failed", attempt=3), offered(attempt=3))
    row = book.views.jobs.rows["1"]
    first, second = job_document(book.views, row, now_ns=book.views.at_ns).attempts
    assert (first.attempt, first.nodes, first.reason, first.gpu_fault, first.exit_code) == (
        1,
        ["n1"],
        "gpu_fault",
        "xid79",
        143,
    )
    assert first.started_at and first.ended_at
    assert (second.attempt, second.nodes, second.reason, second.message) == (2, ["n2"], "start_failed", "no disk")
    assert second.started_at is None and second.gpu_fault == ""
    restored = Views.restore(book.views.snapshot())
    assert restored is not None and restored.jobs.rows["1"].attempts == row.attempts
    for attempt in range(3, 3 + ATTEMPTS_MAX):
        book.write(placed(attempt=attempt), ended(code=1, attempt=attempt))
        book.write(requeued(reason="retry", attempt=attempt + 1), offered(attempt=attempt + 1))
    assert [each.attempt for each in row.attempts] == list(range(3, 3 + ATTEMPTS_MAX))
