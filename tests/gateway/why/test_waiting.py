"""Reasons without an offer, and preemptions: each event of the queue in its sentence, with numbers."""

import msgspec
import pytest

from fairlead_gateway.why.dominant_reason import reason_of, request_class
from fairlead_schemas.http.api import Reason
from fairlead_schemas.queuefile.settings import Budget
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from tests.gateway.logbook import (
    START_NS,
    Logbook,
    configured,
    deferred,
    ended,
    joined,
    offered,
    placed,
    preempting,
    requeued,
    started,
    submitted,
    unplaceable,
    why,
)

RESEARCH = configured("research", maximum={"gpu": 64_000})
VISION = configured("research/vision", users={"*": {"gpu": 8000}})
HOURS = 3_600_000


#: (name, events, code, the sentence, the next step, what the detail must hold)
TABLE: list[tuple[str, list[ev.Event], str, str, str, dict[str, int | str]]] = [
    (
        "maximum",
        [RESEARCH, VISION, submitted(gpus=8, queue="research/vision"),
         deferred("1", "maximum", "research", resource="gpu", held=60_000, needed=8000, ceiling=64_000)],
        "maximum", "queue research is at 60 of 64 GPUs; this needs 8",
        "starts when 4 GPUs of research are given back, or ask for 4 instead of 8",
        {"queue": "research", "held_gpu_milli": 60_000, "needed_gpu_milli": 8000, "ceiling_gpu_milli": 64_000,
         "decided_for": "1", "decided_at_sequence": 4},
    ),
    (
        "maximum of a gang",
        [RESEARCH, submitted(gpus=8, nodes=4, queue="research"),
         deferred("1", "maximum", "research", resource="gpu", held=44_000, needed=32_000, ceiling=64_000)],
        "maximum", "queue research is at 44 of 64 GPUs; this needs 32",
        "starts when 12 GPUs of research are given back, or ask for 2 nodes instead of 4", {},
    ),
    (
        "a full maximum leaves nothing to ask for less of",
        [RESEARCH, submitted(gpus=8, queue="research"),
         deferred("1", "maximum", "research", resource="gpu", held=64_000, needed=8000, ceiling=64_000)],
        "maximum", "queue research is at 64 of 64 GPUs; this needs 8", "starts when 8 GPUs of research are given back", {},
    ),
    (
        "memory",
        [RESEARCH, submitted(queue="research"),
         deferred("1", "maximum", "research", resource="memory", held=2**20, needed=1024, ceiling=2**20)],
        "maximum", "queue research is at 1Ti of 1Ti of memory; this needs 1Gi",
        "starts when 1Gi of memory of research is given back", {"held_memory_mib": 2**20},
    ),
    (
        "one model",
        [RESEARCH, submitted(queue="research"),
         deferred("1", "maximum", "research", resource="gpu:NVIDIA-L4", held=4000, needed=1000, ceiling=4000)],
        "maximum", "queue research is at 4 of 4 NVIDIA-L4 GPUs; this needs 1",
        "starts when 1 NVIDIA-L4 GPU of research is given back", {"resource": "gpu:NVIDIA-L4"},
    ),
    (
        "borrowing",
        [configured("a", guaranteed={"gpu": 16_000}, borrowing={"gpu": 8000}), submitted(gpus=2, queue="a"),
         deferred("1", "maximum", "a", resource="gpu", held=24_000, needed=2000, ceiling=24_000)],
        "maximum", "queue a is at 24 of 24 GPUs (16 guaranteed, 8 borrowed at most); this needs 2",
        "starts when 2 GPUs of a are given back", {},
    ),
    (
        "larger than its queue",
        [configured("a", maximum={"gpu": 8000}), submitted(gpus=16, queue="a"),
         deferred("1", "maximum", "a", resource="gpu", held=0, needed=16_000, ceiling=8000)],
        "larger_than_queue", "asks for 16 GPUs; queue a may hold 8 at most",
        "ask for less, use another queue, or raise the maximum of a", {"ceiling_gpu_milli": 8000},
    ),
    (
        "user limit",
        [RESEARCH, VISION, submitted(gpus=2, queue="research/vision"),
         deferred("1", "user_limit", "research/vision", resource="gpu", held=8000, needed=2000, ceiling=8000)],
        "user_limit", "ada holds 8 of the 8 GPUs that one user may hold in research/vision; this needs 2",
        "starts when 2 GPUs of ada in research/vision are given back", {"user": "ada"},
    ),
    (
        "more than its user may ever hold",
        [RESEARCH, configured("research/vision", users={"*": {"gpu": 8000}, "ada": {"gpu": 4000}}), submitted(gpus=6, queue="research/vision"),
         deferred("1", "user_limit", "research/vision", resource="gpu", held=2000, needed=6000, ceiling=4000)],
        "larger_than_queue", "asks for 6 GPUs; ada may hold 4 at most in research/vision",
        "ask for less, use another queue, or raise the limit of ada in research/vision", {"user": "ada"},
    ),
    (
        "reserved",
        [RESEARCH, submitted(gpus=8), deferred("1", "reserved", "research", resource="gpu", held=60_000, needed=8000, ceiling=64_000)],
        "reserved", "needs 8 GPUs; of queue research, 60 of 64 GPUs are used, or kept for queues that do not lend them",
        "starts when 4 GPUs of research are given back or lent, or ask for 4 instead of 8", {},
    ),
    (
        "reserved for queues that are named with their limits",
        [RESEARCH, VISION, configured("research/speech", guaranteed={"gpu": 4000}, lending={"gpu": 2000}),
         configured("research/web", guaranteed={"gpu": 6000}, lending={"gpu": 0}), submitted("9", gpus=1, queue="research/web"), offered("9"),
         configured("research/all", guaranteed={"gpu": 6000}, lending={"gpu": 6000}), configured("other", guaranteed={"gpu": 8000}, lending={"gpu": 0}),
         submitted(gpus=8, queue="research/vision"), deferred("1", "reserved", "research", resource="gpu", held=60_000, needed=8000, ceiling=64_000)],
        "reserved", ("needs 8 GPUs; of queue research, 60 of 64 GPUs are used, or kept for queues that do not lend them: "
                     "research/web keeps 5 (guaranteed 6, lending 0), research/speech keeps 2 (guaranteed 4, lending 2)"),
        "starts when 4 GPUs of research are given back or lent, or ask for 4 instead of 8", {},
    ),
    (
        "reserved, without numbers", [submitted(), deferred("1", "reserved", "research")], "reserved",
        "what queue research has left is kept for queues that do not lend it", "wait, or let them lend more of it", {"queue": "research"},
    ),
    (
        "claimed", [submitted(), deferred("1", "claimed", holder="811")], "claimed",
        "what is free is kept for job 811, which has waited longer", "starts after it: fairlead why 811", {"holder": "811"},
    ),
    (
        "budget",
        [configured("a", budget=Budget(gpu_milli_s=1000 * HOURS)), submitted(queue="a"),
         ev.BudgetReached(cause="clock", queue="a", percent=100, spent=1002 * HOURS, budget=1000 * HOURS, period_ns=START_NS),
         deferred("1", "budget", "a")],
        "budget", "the budget of a is spent: 1002 of 1000 GPU-hours this month",
        "starts with the next month at 2026-02-01T00:00:00.000Z, or when the budget of a is raised",
        {"queue": "a", "spent_gpu_milli_s": 1002 * HOURS, "period_ends": "2026-02-01T00:00:00.000Z"},
    ),
    (
        "held queue",
        [RESEARCH, VISION, submitted(queue="research/vision"),
         ev.QueueHeld(cause="cmd:h", path="research", reason="storage moves", by="ann"),
         deferred("1", "queue_held", "research")],
        "queue_held", "queue research is held by ann: nothing new of it starts (storage moves)",
        "starts when it is released: fairlead queues release research", {"queue": "research", "by": "ann"},
    ),
    (
        "held queue, of which the queue has not told yet",
        [RESEARCH, submitted(queue="research"), ev.QueueHeld(cause="cmd:h", path="research")],
        "queue_held", "queue research is held: nothing new of it starts",
        "starts when it is released: fairlead queues release research", {},
    ),
    (
        "array limit",
        [joined(), submitted(array=(0, 9), array_limit=2), offered("1_0"), offered("1_1", 2), placed("1_0"),
         deferred("1", "array_limit")],
        "array_limit", "2 of at most 2 elements of array 1 are at work",
        "starts when one of them has ended; submitted without %, all may run at once", {"at_work": 2, "limit": 2},
    ),
    (
        "turn", [submitted("8", priority=90), submitted(), deferred("1", "turn")], "waiting_turn",
        "waits for its turn; 1 job is ahead of it", "wait; a higher priority goes first", {"ahead": 1},
    ),
    (
        "a place counts for more than the turn", [submitted("8", 8), offered("8"), unplaceable("8", free_gpus=4), submitted(gpus=8), deferred("1", "turn")],
        "no_place", "needs 8 GPUs on one node; of 4 nodes 4 lack free GPUs", "it is tried again when nodes or GPUs become free: fairlead nodes", {},
    ),
    (
        "dependencies",
        [submitted("12"), submitted("13"), submitted(after=(ev.Dependency(job="12"), ev.Dependency(job="13", state="ended")))],
        "dependency", "waits for job 12 to succeed and job 13 to end", "fairlead why 12", {"jobs": "12, 13", "waits_for": 2},
    ),
    (
        "a dependency that is met is not named",
        [submitted("12"), submitted("13"), submitted(after=(ev.Dependency(job="12", state="ended"), ev.Dependency(job="13", state="failed"))),
         ev.JobCancelled(cause="c", job="12")],
        "dependency", "waits for job 13 to fail", "fairlead why 13", {"waits_for": 1},
    ),
    (
        "many dependencies",
        [*[submitted(str(n)) for n in range(5, 10)], submitted(after=tuple(ev.Dependency(job=str(n)) for n in range(5, 10)))],
        "dependency", "waits for job 5 to succeed, job 6 to succeed, job 7 to succeed and 2 more", "fairlead why 5", {},
    ),
    (
        "failed by a dependency",
        [submitted("12"), submitted(after=(ev.Dependency(job="12"),)), ev.JobCancelled(cause="c", job="12"),
         ev.JobFailed(cause="3.0", job="1", reason="dependency")],
        "failed", "never started: job 12 was cancelled, and had to succeed first; ended at 2026-01-01T00:00:04.000Z",
        "fairlead why 12, then submit it again", {"reason": "dependency"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "code", "message", "following", "detail"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_why(events: list[ev.Event], code: str, message: str, following: str, detail: dict[str, int | str]) -> None:
    """The queue's own reason in one sentence, the smallest change that is known, and the numbers."""
    reason = why(events)
    assert (reason.code, reason.message, reason.detail["next"]) == (code, message, following)
    assert {key: reason.detail.get(key) for key in detail} == detail


@pytest.mark.parametrize("events", [row[1] for row in TABLE], ids=[row[0] for row in TABLE])
def test_those_of_one_likeness_have_one_reason(events: list[ev.Event]) -> None:
    """So the answer to a list of submits tells it once."""
    first = next(event for event in events if isinstance(event, ev.JobSubmitted))
    after = [ev.JobSubmitted(**{**msgspec.structs.asdict(first), "job": job, "after": ()}) for job in ("91", "92")]
    book = Logbook()
    for event in (*events, *after):
        book.write(event)
    rows = book.views.jobs.rows
    likes: dict[object, Reason] = {}
    for row in rows.values():
        reason, like = reason_of(book.views, row, book.now_ns, count_ahead=False), request_class(row)
        if like is not None:
            assert likes.setdefault(like, reason) == reason, row.id
    assert first.array is not None or request_class(rows["91"]) == request_class(rows["92"]) in likes


def test_a_recorded_reason_counts_for_equal_requests() -> None:
    """Of the same queue with the same request; a user's limit for that user only, an array's for that array."""
    limit = {"resource": "gpu", "held": 8000, "needed": 1000, "ceiling": 8000}
    events: list[ev.Event] = [
        submitted("1"),
        submitted("2"),
        submitted("3", user="bob"),
        submitted("4", 2),
        submitted("5", queue="other"),
        submitted("6", array=(0, 3), array_limit=1),
    ]
    for reason, alike in (
        (deferred("1", "maximum", "default", **limit), {"1", "2", "3", "6"}),
        (deferred("1", "user_limit", "default", **limit), {"1", "2", "6"}),
        (deferred("6", "array_limit"), {"6"}),
    ):
        code = reason.reason
        assert {job for job in "123456" if why([*events, reason], job).code == code} == alike


def test_a_recorded_reason_ends_with_the_next_offer_of_its_class() -> None:
    """An equal job was offered: the old numbers are no longer true."""
    events: list[ev.Event] = [submitted("1"), submitted("2")]
    events.append(deferred("1", "maximum", "default", resource="gpu", held=8, needed=1, ceiling=8))
    assert (why(events).code, why(events, "2").code) == ("maximum", "maximum")
    assert why([*events, offered("2")], "2").code == "waiting_turn"
    # Of the very job that was named it counts until that one is offered.
    assert why([*events, offered("2")]).code == "maximum"
    assert why([*events, offered("1")]).code == "waiting_turn"
    assert why([*events, ev.JobMoved(cause="c", job="1", queue="b")]).code == "waiting_turn"


def yielded(rule: str, *more: ev.Event) -> list[ev.Event]:
    """Job 1 of research/speech runs and is asked to yield to job 2 of research/vision."""
    return [
        joined(),
        configured("research"),
        configured("research/speech", guaranteed={"gpu": 4000}),
        configured("research/vision"),
        submitted(gpus=8, queue="research/speech", priority=50, grace_ns=120 * SECOND_NS),
        submitted("2", 8, queue="research/vision", priority=70),
        offered(),
        placed(gpus=8),
        started(),
        preempting("1", "2", rule),
        *more,
    ]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("lower_priority", "lower priority: 50 against 70"),
        ("over_slice", "it had had its slice, and the other goes before it"),
        ("over_guarantee", "queue research/speech used 4 GPUs over its guarantee, which research/vision was owed"),
        ("over_share", "queue research/speech was above its fair share, research/vision below its own"),
    ],
)
def test_a_displaced_job_shows_its_beneficiary_and_rule(rule: str, told: str) -> None:
    """During the stop and the wait afterwards, in text that needs no rights: no user is named."""
    running = why(yielded(rule))
    assert running.code == "yielding"
    assert running.message == (
        f"runs on n1 since 2026-01-01T00:00:09.000Z; is asked to yield to job 2 ({told}) and ends within its grace of 2m"
    )
    waiting = why(yielded(rule, ended(preempted=True), requeued()))
    assert (waiting.code, waiting.detail["preempted_for"], waiting.detail["rule"]) == ("preempted", "2", rule)
    assert waiting.message == f"yielded to job 2 ({told}); now waits for its turn; it is next"
    assert "ada" not in running.message + waiting.message


def test_a_team_without_a_guarantee_of_its_own_is_over_that_of_its_queues() -> None:
    """Across teams it is theirs that counts: what the queues below them are guaranteed together."""
    reason = why(
        [
            joined(),
            configured("org/x", guaranteed={"gpu": 2000}),
            configured("org/y", guaranteed={"gpu": 2000}),
            configured("prod", guaranteed={"gpu": 4000}),
            submitted(gpus=8, queue="org/x"),
            submitted("2", 4, queue="prod"),
            offered(),
            placed(gpus=8),
            started(),
            preempting("1", "2", "over_guarantee"),
        ]
    )
    assert "(queue org used 4 GPUs over its guarantee, which prod was owed)" in reason.message


def test_a_limit_on_borrowing_adds_to_the_guarantees_of_child_queues() -> None:
    """The views' own check of limits counts it so, too, if the queue has recorded nothing."""
    events = [
        joined(),
        configured("org", borrowing={"gpu": 2000}),
        configured("org/x", guaranteed={"gpu": 4000}),
        submitted(gpus=5, queue="org/x"),
        offered(),
        placed(gpus=5),
        started(),
    ]
    assert why([*events, submitted("2", 1, queue="org/x")], "2").code == "waiting_turn"
    reason = why([*events, submitted("2", 2, queue="org/x")], "2")
    assert reason.message == "queue org is at 5 of 6 GPUs (4 guaranteed, 2 borrowed at most); this needs 2"


def test_the_reason_of_a_displaced_job_follows_its_displacement() -> None:
    """The numbers and the next step are those of the present reason."""
    full = deferred("1", "maximum", "research", resource="gpu", held=60_000, needed=8000, ceiling=64_000, attempt=2)
    reason = why(yielded("over_slice", ended(preempted=True), requeued(), full))
    assert reason.message.endswith("; now queue research is at 60 of 64 GPUs; this needs 8")
    assert (reason.detail["now"], reason.detail["times"]) == ("maximum", 1)
    assert reason.detail["next"] == "starts when 4 GPUs of research are given back, or ask for 4 instead of 8"


def test_the_reason_ends_with_the_next_run() -> None:
    """A job that runs again just runs."""
    again = yielded(
        "over_slice", ended(preempted=True), requeued(), offered(attempt=2), placed(attempt=2), started(attempt=2)
    )
    assert why(again).code == "running"


def test_a_run_stopped_for_a_lowered_limit() -> None:
    """It has no beneficiary."""
    events = yielded("lower_priority")
    events[-1] = preempting("1", "", "over_guarantee")
    assert (
        "is asked to yield because a limit was lowered (queue research used 4 GPUs over its guarantee)"
        in why(events).message
    )


def test_a_run_stopped_because_its_queue_exceeds_a_lowered_maximum() -> None:
    """During the stop and the wait afterwards: it has no beneficiary."""
    stop = ev.JobStopRequested(cause="cmd:q", job="1", attempt=1, reason="reclaimed", by="bob")
    events: list[ev.Event] = [*yielded("lower_priority")[:-1], stop]
    running = why(events)
    lowered = "its queue, or one above, held more than its maximum after that was lowered"
    assert (running.code, running.message) == ("stopping", f"{lowered}, so it is being stopped, and queued again")
    waiting = why([*events, ended(preempted=True), requeued()])
    assert waiting.message == f"yielded because {lowered}; now waits for its turn; it is next"
    assert (waiting.code, waiting.detail["rule"], waiting.detail["times"]) == ("preempted", "reclaimed", 1)


def test_room_is_made_for_a_starving_job() -> None:
    """Named, asked, or kept for: the waiting beneficiary says what is being done."""
    asked = ev.PreemptionRequested(
        cause="c", job="2", attempt=1, victims=(ev.Victim(job="1", attempt=1, rule="lower_priority"),)
    )
    events: list[ev.Event] = [*yielded("lower_priority")[:-1], offered("2", 2), unplaceable("2", nodes=1, free_gpus=1)]
    assert why([*events, asked], "2").message.endswith("; 1 job may be asked to yield for it")
    told = why([*events, asked, preempting("1", "2")], "2")
    assert (told.code, told.message, told.detail["asked"]) == ("making_room", "1 job was asked to yield for it: 1", 1)
    assert told.detail["nodes.free_gpus"] == 1
    # It ended, and what it gave back was not enough: the job waits for what it lacks now.
    assert why([*events, asked, preempting("1", "2"), ended(preempted=True)], "2").message.endswith("lacks free GPUs")
    declined = ev.PreemptionDeclined(cause="c", job="2", attempt=1)
    assert why([*events, asked, declined], "2").message.endswith("lacks free GPUs")
    in_vain = ev.PreemptionDeclined(cause="c", job="2", attempt=1, reasons={"free_gpus": 1, "reserved": 2})
    told = "asking others to yield would not make room: even then 2 are kept for other jobs, 1 lacks free GPUs"
    assert why([*events, asked, in_vain], "2").message.endswith(f"; {told}")
    assert why([*events, asked, in_vain, asked], "2").message.endswith("; 1 job may be asked to yield for it")
    waited = ev.ReservationRequested(cause="c", job="2", attempt=1, waited_ns=300 * SECOND_NS)
    assert why([*events, waited], "2").message.endswith("; it has waited for 5m, so what comes free is kept for it")
    kept = ev.ReservationMade(cause="c", job="2", attempt=1, nodes=("n1",))
    assert why([*events, waited, kept], "2").message.endswith("; n1 is kept for it")
    over = ev.ReservationEnded(cause="c", job="2", attempt=1)
    assert why([*events, waited, kept, over], "2").message.endswith("lacks free GPUs")


def test_the_numbers_of_a_full_maximum_are_those_of_now() -> None:
    """The queue says once why it defers; the limit was lowered and a run has ended since."""
    events: list[ev.Event] = [
        joined(), joined("n2"), configured("a", maximum={"gpu": 12_000}), submitted("8", 4, queue="a"), submitted("9", 8, queue="a"),
        offered("8"), placed("8", gpus=4), offered("9", 2), placed("9", "n2", gpus=8), submitted(gpus=4, queue="a"),
        deferred("1", "maximum", "a", resource="gpu", held=12_000, needed=4000, ceiling=12_000),
    ]  # fmt: skip
    assert why(events).message == "queue a is at 12 of 12 GPUs; this needs 4"
    events += [started("8"), ended("8"), configured("a", maximum={"gpu": 8000})]
    assert why(events).message == "queue a is at 8 of 8 GPUs; this needs 4"


def test_a_maximum_is_found_before_the_queue_says_so() -> None:
    """Anywhere above, by what is charged; also of old logs, which have no words of the queue."""
    events: list[ev.Event] = [
        configured("a", maximum={"cpu": 1500}),
        configured("a/b"),
        configured("a/c"),
        submitted("9", 0, queue="a/c"),
        offered("9"),
        submitted(gpus=0, queue="a/b"),
    ]
    reason = why(events)
    assert (reason.code, reason.message) == ("maximum", "queue a is at 1 of 1.500 CPUs; this needs 1")
    assert "decided_for" not in reason.detail


def test_a_released_queue_is_no_reason_any_more() -> None:
    """Though the queue service has reported nothing else since: the job waits for its turn."""
    events = [RESEARCH, submitted(queue="research"), ev.QueueHeld(cause="cmd:h", path="research")]
    told = [*events, deferred("1", "queue_held", "research"), ev.QueueReleased(cause="cmd:r", path="research")]
    assert why(told).code == "waiting_turn"


def test_a_job_that_was_submitted_held_says_by_whom() -> None:
    """Its submitter holds it."""
    held = msgspec.structs.replace(submitted(user="ada"), held=True)
    found = why([held])
    assert (found.code, found.message) == ("held", "held by ada until it is released")
