"""Views of queues, pools and slices: charges up the tree, moves, budgets, time used, preemption."""

from typing import Any

import msgspec

from fairlead_gateway.routes.documents import job_document, node_document
from fairlead_gateway.views.queue_documents import pool_document, queue_document, queue_documents
from fairlead_schemas.http import api
from fairlead_schemas.queuefile.settings import Budget, PoolSettings, QueueSettings
from fairlead_schemas.units.timestamps import DAY_NS, SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.lifecycle import NOT_MOVING
from fairlead_schemas.wire.resources import Request
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
    quota,
    requeued,
    started,
    submitted,
)

A100 = "NVIDIA-A100-SXM4-80GB"


def queue(book: Logbook, path: str) -> api.Queue:
    """A queue's document."""
    return queue_document(book.views, book.views.queues.rows[path])


def job(book: Logbook, name: str = "1") -> api.Job:
    """A job's document."""
    return job_document(book.views, book.views.jobs.rows[name], book.now_ns)


def family() -> Logbook:
    """research (16 guaranteed) with vision (8 guaranteed) and speech below, and a node."""
    book = Logbook()
    book.write(
        joined(),
        configured("research", pool="a100", guaranteed={"gpu": 16_000}, users={"*": {"gpu": 12_000}}),
        configured("research/vision", guaranteed={"gpu": 8000, f"gpu:{A100}": 4000}),
        configured("research/speech"),
    )
    return book


def test_charges_count_for_all_queues_above() -> None:
    """Per resource, with what goes beyond a guarantee; a model that the request names counts as such, too."""
    book = family()
    request = Request(
        nodes=2, gpu_milli=5000, cpu_milli=4000, memory_mib=1024, selector=(f"nvidia.com/gpu.product={A100}",)
    )
    book.write(submitted("1", queue="research/vision", request=request), submitted("2", 3, queue="research/speech"))
    book.write(offered("1"), offered("2", 2))
    vision, research = queue(book, "research/vision"), queue(book, "research")
    assert vision.charged == {"gpu": 10_000, "cpu": 8000, "memory": 2048, f"gpu:{A100}": 10_000}
    assert (vision.used, vision.borrowed) == ({}, {"gpu": 0, f"gpu:{A100}": 0}), (
        "an open offer takes nothing from others"
    )
    assert (research.charged["gpu"], research.gpu_milli_charged) == (13_000, 13_000)
    assert research.borrowed == {"gpu": 0, f"gpu:{A100}": 0}, "of what it names, and of what is guaranteed below it"
    assert (research.waiting, research.running, research.pool, vision.pool) == (2, 0, "a100", "a100")
    assert (research.users, vision.users) == (
        {"ada": {"gpu": 13_000, "cpu": 9000, "memory": 3072, f"gpu:{A100}": 10_000}},
        {},
    )
    book.write(placed("1", "n1", "n1", gpus=5), placed("2"))
    vision, research = queue(book, "research/vision"), queue(book, "research")
    assert (vision.used, vision.borrowed) == (vision.charged, {"gpu": 2000, f"gpu:{A100}": 6000})
    assert (research.used["gpu"], research.borrowed) == (13_000, {"gpu": 0, f"gpu:{A100}": 6000})
    book.write(started("2"), ended("2"), started("1"), ended("1"))
    assert (queue(book, "research").used, queue(book, "research").charged) == ({}, {})


def test_a_queue_that_names_no_guarantee_has_that_of_those_below() -> None:
    """Together, whatever their order and depth; it follows them when they change or go, and its settings stay its own."""
    book = Logbook()
    book.write(
        configured("org", guaranteed={"cpu": 5000}),
        configured("org/a"),
        configured("org/a/x", guaranteed={"gpu": 4000, "cpu": 1000}),
        configured("org/b", guaranteed={"gpu": 2000}),
    )
    assert queue(book, "org").guaranteed == {"gpu": 6000, "cpu": 5000}
    assert queue(book, "org").settings == {"guaranteed": {"cpu": 5}}
    assert queue(book, "org/a").guaranteed == {"gpu": 4000, "cpu": 1000}
    book.write(configured("org/a/x", guaranteed={"gpu": 1000}))
    assert (queue(book, "org").guaranteed["gpu"], queue(book, "org/a").guaranteed) == (3000, {"gpu": 1000})
    book.write(ev.QueueRemoved(cause="cmd:q", path="org/b"))
    assert queue(book, "org").guaranteed["gpu"] == 1000


def test_a_withdrawn_offer_counts_as_no_use() -> None:
    """It is not charged or used afterwards; the next attempt counts from zero."""
    book = family()
    book.write(
        submitted("1", 4, queue="research/vision"),
        submitted("2", 3, queue="research/speech"),
        offered("1"),
        offered("2", 2),
    )
    book.write(placed("2"), started("2"), ended("2"), ev.OfferReturned(cause="x", job="1", attempt=1))
    assert (queue(book, "research").charged, queue(book, "research").users) == ({}, {})


def test_documents_of_many_queues_are_those_of_each() -> None:
    """One pass over all gives what asking one by one gives."""
    book = family()
    book.write(submitted("1", queue="research/vision"), submitted("2", queue="research", array=(0, 4)), offered("1"))
    rows = list(book.views.queues.existing())
    assert queue_documents(book.views, rows) == [queue(book, row.path) for row in rows]
    assert [row.path for row in rows] == ["research", "research/speech", "research/vision"]


def test_settings_are_shown_in_the_fields_of_a_file() -> None:
    """And the amounts in integers; an old log's quota is the maximum."""
    book = Logbook()
    book.write(quota(8), configured("team", guaranteed={"gpu": 4000, "memory": 2048}, maximum={"cpu": 1500}, weight=2))
    assert queue(book, "team").settings == {
        "guaranteed": {"nvidia.com/gpu": 4, "memory": "2Gi"},
        "maximum": {"cpu": "1500m"},
        "weight": 2,
    }
    default = queue(book, "default")
    assert (default.settings, default.gpu_quota_milli) == ({"maximum": {"nvidia.com/gpu": 8}}, 8000)
    book.write(quota(None))
    assert (queue(book, "default").settings, queue(book, "default").gpu_quota_milli) == ({}, None)


def test_a_moved_job_counts_where_it_is() -> None:
    """A single job by its state, an array by its elements that are still to come; what is charged later goes there."""
    book = family()
    book.write(submitted("1", queue="research/vision"), submitted("2", queue="research/vision", array=(0, 3)))
    book.write(offered("2_0"))
    book.write(ev.JobMoved(cause="cmd:m", job="1", queue="research/speech", by="bob"))
    book.write(ev.JobMoved(cause="cmd:m", job="2", queue="research/speech"))
    assert (queue(book, "research/vision").waiting, queue(book, "research/speech").waiting) == (1, 4)
    assert (job(book, "1").queue, job(book, "2").queue, job(book, "2_0").queue) == (
        "research/speech",
        "research/speech",
        "research/vision",
    )
    book.write(offered("1", 2), offered("2_1", 3))
    assert queue(book, "research/speech").charged["gpu"] == 2000
    assert queue(book, "research").charged["gpu"] == 3000


def test_a_removed_queue_is_gone_and_its_past_is_counted() -> None:
    """It is listed no more; how many jobs ever ended stays known; made again, it begins without settings."""
    book = family()
    book.write(submitted("1", queue="research/vision"), ev.JobCancelled(cause="c", job="1"))
    book.write(ev.QueueRemoved(cause="cmd:r", path="research/vision"))
    assert [row.path for row in book.views.queues.existing()] == ["research", "research/speech"]
    assert book.views.job_counts() == {"cancelled": 1}
    book.write(configured("research/vision"))
    assert queue(book, "research/vision").settings == {}


def test_pools_have_queues_and_nodes() -> None:
    """By the queue at the top and by the nodes' label; the default pool is always there."""
    book = family()
    book.write(ev.PoolConfigured(cause="cmd:p", pool="a100", settings=PoolSettings(prices={A100: 2500})))
    book.write(configured("other"))
    a100, default = [pool_document(book.views, row) for row in book.views.queues.pool_rows()]
    assert (default.name, default.queues, default.nodes, default.gpus) == ("default", ["other"], 1, 8)
    assert (a100.name, a100.queues, a100.nodes, a100.gpus) == ("a100", ["research"], 0, 0)
    assert a100.settings == {"sequencer": "drf", "prices": {A100: 2.5}}
    book.write(ev.PoolRemoved(cause="cmd:p", pool="a100"))
    assert [row.name for row in book.views.queues.pool_rows()] == ["default"]


def test_a_budget_is_known_as_far_as_it_was_reported() -> None:
    """Nothing before the first warning; forgotten once its period is over."""
    book = Logbook()
    hours = 3_600_000
    book.write(configured("team", budget=Budget(gpu_milli_s=1000 * hours, period="day")))
    told = queue(book, "team").budget
    assert told == api.QueueBudget(gpu_hours=1000.0, period="day")
    reached = ev.BudgetReached(
        cause="clock", queue="team", percent=80, spent=801 * hours, budget=1000 * hours, period_ns=START_NS
    )
    book.write(reached)
    told = queue(book, "team").budget
    assert told is not None and (told.percent_reached, told.spent_gpu_hours) == (80, 801.0)
    book.now_ns = START_NS + DAY_NS
    book.write(quota(1))
    told = queue(book, "team").budget
    assert told is not None and (told.percent_reached, told.spent_gpu_hours) == (0, None)


def run(book: Logbook, seconds: int, attempt: int = 1, **how: Any) -> None:
    """One attempt of job 1 that runs for so long."""
    book.write(offered(attempt=attempt))
    book.write(placed(attempt=attempt))
    book.write(started(attempt=attempt))
    book.now_ns += (seconds - 1) * SECOND_NS
    book.write(ended(attempt=attempt, **how))


def test_time_used_continues_after_a_preemption_and_restarts_after_a_failure() -> None:
    """Slices add up; a drain costs no time; a retry begins at zero."""
    book = Logbook()
    book.write(joined(), submitted(total_ns=100 * SECOND_NS, slice_ns=10 * SECOND_NS, retries=3))
    assert (job(book).used_seconds, job(book).left_seconds, job(book).slice_seconds) == (0, 100, 10)
    run(book, 10, preempted=True)
    book.write(requeued(reason="preempted", attempt=2))
    assert (job(book).used_seconds, job(book).left_seconds, job(book).preempted) == (10, 90, 1)
    run(book, 20, attempt=2, drained=True)
    book.write(requeued(reason="drained", attempt=3))
    assert (job(book).used_seconds, job(book).left_seconds, job(book).preempted) == (30, 70, 1)
    run(book, 5, attempt=3, code=1)
    assert job(book).used_seconds == 35
    book.write(requeued(reason="retry", attempt=4))
    assert (job(book).used_seconds, job(book).left_seconds) == (0, 100)
    run(book, 40, attempt=4)
    book.write(ev.JobSucceeded(cause="x", job="1", attempt=4))
    book.write(quota(1))
    assert (job(book).used_seconds, job(book).left_seconds) == (40, 60)


def test_a_running_jobs_time_is_that_of_the_sequence() -> None:
    """Not of the request: the same sequence gives the same answer."""
    book = Logbook()
    book.write(joined(), submitted(), offered(), placed(), started())
    book.write(quota(1))
    book.write(quota(2))
    assert (job(book).used_seconds, job(book).left_seconds) == (2, None)


def test_a_writer_with_a_slow_clock_takes_no_time_back() -> None:
    """Time used is counted by the newest time in the log so far."""
    book = Logbook()
    book.write(joined(), submitted(), offered(), placed(), started())
    book.now_ns -= 100 * SECOND_NS
    book.write(quota(1))
    book.write(ended())
    assert job(book).used_seconds == 0
    book.now_ns += 200 * SECOND_NS
    book.write(ev.JobSucceeded(cause="x", job="1"))
    assert job(book).used_seconds == 0


def test_the_request_of_a_job_is_shown() -> None:
    """Deadline and dependencies; a deadline that cannot be met is shown as missed; an element has its array's."""
    book = Logbook()
    after = (ev.Dependency(job="7"), ev.Dependency(job="8", state="ended"))
    book.write(submitted("7"), submitted("8"), submitted("1", after=after, deadline_ns=START_NS, slice_ns=SECOND_NS))
    document = job(book)
    assert (document.state, document.deadline, document.deadline_missed) == (
        "scheduled",
        "2026-01-01T00:00:00.000Z",
        False,
    )
    assert document.after == [{"job": "7", "state": "succeeded"}, {"job": "8", "state": "ended"}]
    book.write(ev.DeadlineMissed(cause="clock", job="1", deadline_ns=START_NS), ev.JobQueued(cause="clock", job="1"))
    assert (job(book).state, job(book).deadline_missed) == ("queued", True)
    book.write(submitted("9", array=(0, 1), deadline_ns=START_NS, total_ns=SECOND_NS), offered("9_0"))
    assert (job(book, "9_0").deadline, job(book, "9_0").left_seconds, job(book, "9_0").after) == (
        document.deadline,
        1,
        [],
    )


def test_ageing_raises_the_priority() -> None:
    """By one each time, for the jobs in the event; an element has its array's; another attempt begins without."""
    book = Logbook()
    book.write(submitted("1"), submitted("2"), ev.PriorityAged(cause="clock", jobs=("1",)))
    book.write(ev.PriorityAged(cause="clock", jobs=("1",)))
    assert (job(book, "1").priority, job(book, "2").priority) == (52, 50)
    book.write(joined(), offered(), placed(), started(), ended(code=1), requeued(reason="retry"))
    assert job(book, "1").priority == 50
    book.write(submitted("3", array=(0, 1)), ev.PriorityAged(cause="clock", jobs=("3",)), offered("3_0"))
    assert job(book, "3_0").priority == 51


def test_yielding_is_counted_where_it_happened() -> None:
    """By job and by queue, once it has led to another attempt; the last beneficiary and rule are kept."""
    book = family()
    book.write(submitted("1", queue="research/speech"), submitted("2", queue="research/vision"))
    book.write(offered("1"), placed(), started(), preempting("1", "2", "over_guarantee"))
    assert (job(book).preempted, job(book).preempted_for) == (0, {"job": "2", "rule": "over_guarantee"})
    assert queue(book, "research/speech").preempted == 0
    book.write(ended(preempted=True), requeued())
    assert (job(book).preempted, job(book).preempted_for) == (1, {"job": "2", "rule": "over_guarantee"})
    assert [queue(book, path).preempted for path in ("research", "research/speech", "research/vision")] == [1, 1, 0]


def test_jobs_of_a_removed_queue_wait_in_another() -> None:
    """Single jobs by their state, arrays with the elements still to come; ended ones stay counted in the old queue."""
    book = family()
    held = ev.JobHeld(cause="c", job="2")
    book.write(*(submitted(name, queue="research/vision") for name in "123"), held, ev.JobCancelled(cause="c", job="3"))
    book.write(submitted("4", queue="research/vision", array=(0, 3)), submitted("5", queue="research/speech"))
    book.write(ev.QueueRemoved(cause="cmd:r", path="research/vision", move_to="research/speech"))
    assert {name: job(book, name).queue for name in "1234"} == {
        "1": "research/speech",
        "2": "research/speech",
        "3": "research/vision",
        "4": "research/speech",
    }
    assert queue(book, "research/speech").waiting == 1 + 1 + 4 + 1
    assert book.views.job_counts() == {"queued": 2, "held": 1, "cancelled": 1, "waiting": 4}
    book.write(offered("1"), offered("4_0", 2))
    assert queue(book, "research/speech").charged["gpu"] == 2000


def test_a_job_behind_jobs_that_have_ended_waits_for_nothing() -> None:
    """It is queued at once; behind one that ended otherwise, or has not ended, it is scheduled."""
    book = Logbook()
    book.write(joined(), submitted("1"), submitted("2"), submitted("3"))
    book.write(
        offered("1"),
        placed(),
        started(),
        ended(),
        ev.JobSucceeded(cause="x", job="1"),
        ev.JobCancelled(cause="c", job="2"),
    )
    states = [
        (("1", "succeeded"), "queued"),
        (("1", "ended"), "queued"),
        (("1", "failed"), "scheduled"),
        (("2", "failed"), "queued"),
        (("2", "ended"), "queued"),
        (("2", "succeeded"), "scheduled"),
        (("3", "ended"), "scheduled"),
    ]
    for number, ((name, state), expected) in enumerate(states, 10):
        book.write(submitted(str(number), after=(ev.Dependency(job=name, state=state),)))  # type: ignore[arg-type] -- of a table
        assert job(book, str(number)).state == expected, (name, state)


def test_a_new_rank_that_comes_too_late_changes_nothing() -> None:
    """It was placed meanwhile, or its run has ended already: what it holds is counted once and given back once."""
    book = Logbook()
    book.write(joined(), submitted(), offered(), placed(), offered(rank=3))
    assert (job(book).state, queue(book, "default").gpu_milli_charged) == ("placed", 1000)
    book.write(started(), ended(), offered(rank=4))
    assert (job(book).state, queue(book, "default").gpu_milli_charged) == ("running", 0)


def test_another_rank_is_no_admission() -> None:
    """An open offer's new place in the order charges nothing twice and ends no word about those like it."""
    book = Logbook()
    book.write(submitted("1"), submitted("2"), offered("1", 5))
    book.write(deferred("2", "maximum", "default", resource="gpu", held=1000, needed=1000, ceiling=1000))
    book.write(offered("1", 3))
    assert (queue(book, "default").gpu_milli_charged, book.views.jobs.rows["1"].offer_rank) == (1000, 3)
    assert len(book.views.waiting.deferrals) == 1
    book.write(offered("2", 4))
    assert len(book.views.waiting.deferrals) == 0


def test_an_applied_file_is_an_outcome() -> None:
    """Its counts answer the command, whatever other events are in the commit."""
    book = Logbook()
    book.write(
        ev.QueueConfigured(cause="cmd:k1", path="a", settings=QueueSettings()),
        ev.QueuesApplied(cause="cmd:k1", command="k1", configured=1, removed=2, unchanged=3),
    )
    outcome = book.views.outcomes.get("k1")
    assert outcome is not None and (outcome.code, outcome.applied) == ("", (1, 2, 3))


def test_events_about_jobs_that_have_left_are_folded() -> None:
    """A reservation may end, and a preemption be declined, after its job has gone."""
    book = Logbook()
    book.write(
        ev.ReservationEnded(cause="x", job="9", attempt=1),
        ev.PreemptionDeclined(cause="x", job="9", attempt=1),
        ev.ReservationMade(cause="x", job="9", attempt=1, nodes=("n1",)),
    )
    assert {"ReservationEnded", "PreemptionDeclined", "ReservationMade"} <= NOT_MOVING.keys()
    assert not book.views.jobs.rows


def test_an_elastic_job_counts_for_what_it_got() -> None:
    """For the most with its offer, for two of eight nodes from its placement on, and for all of it with the next offer."""
    book = Logbook()
    book.write(joined("n1"), joined("n2"), configured("q"))
    request = Request(nodes=8, nodes_min=2, gpu_milli=1000, cpu_milli=2000)

    def counts() -> tuple[int, int, int]:
        shown = queue(book, "q")
        return shown.charged.get("gpu", 0), shown.used.get("gpu", 0), shown.charged.get("cpu", 0)

    book.write(submitted(queue="q", request=request), offered())
    assert counts() == (8000, 0, 16_000)
    book.write(placed("1", "n1", "n2"))
    assert counts() == (2000, 2000, 4000)
    book.write(started())
    book.write(ended("1", None, "n1", "n2", outcome="node_lost"), requeued(reason="node_lost"))
    assert counts() == (0, 0, 0)
    book.write(offered(attempt=2))
    assert counts() == (8000, 0, 16_000)


def test_every_kind_of_a_job_counts() -> None:
    """Each for its model; parts of GPUs as they are charged."""
    book = family()
    other = Request(nodes=2, gpu_milli=858, gpu_parts=2, profile="3g.20gb", cpu_milli=1000)
    request = Request(gpu_milli=4000, cpu_milli=1000, selector=(f"nvidia.com/gpu.product={A100}",), also=(other,))
    book.write(submitted(queue="research/vision", request=request), offered())
    charged = queue(book, "research").charged
    assert (charged["gpu"], charged[f"gpu:{A100}"], charged["cpu"]) == (4000 + 2 * 858, 4000, 3000)


def test_jobs_that_share_a_gpu_hold_one() -> None:
    """A node's free capacity is counted in GPUs, not in parts of placements."""
    book = Logbook()
    book.write(joined())
    for name in ("1", "2"):
        book.write(submitted(name, request=Request(gpu_milli=500, gpu_parts=1)), offered(name), placed(name))
    assert node_document(book.views, book.views.nodes.rows["n1"]).gpus_free == 7


def test_holds_and_drains_are_shown_until_a_release() -> None:
    """With who, why and since when; a removed queue takes them with it."""
    book = family()
    book.write(ev.QueueHeld(cause="cmd:h", path="research", reason="storage moves", by="ann"))
    book.write(ev.QueueDrained(cause="cmd:d", path="research", by="bob"))
    held, drained = queue(book, "research").held, queue(book, "research").drained
    assert held is not None and drained is not None
    assert (held.by, held.reason, drained.by) == ("ann", "storage moves", "bob")
    assert queue(book, "research/vision").held is None
    book.write(ev.QueueReleased(cause="cmd:r", path="research", by="ann"))
    assert (queue(book, "research").held, queue(book, "research").drained) == (None, None)
    book.write(
        ev.QueueHeld(cause="cmd:h", path="research/vision"), ev.QueueRemoved(cause="cmd:x", path="research/vision")
    )
    book.write(configured("research/vision"))
    assert queue(book, "research/vision").held is None


def test_a_job_that_was_submitted_held_counts_as_held() -> None:
    """A release lets it wait in line."""
    book = family()
    book.write(msgspec.structs.replace(submitted("1", queue="research/vision"), held=True))
    assert (job(book).state, book.views.queues.rows["research/vision"].states) == ("held", {"held": 1})
    book.write(ev.JobReleased(cause="cmd:r", job="1", by="ada"))
    assert job(book).state == "queued"
