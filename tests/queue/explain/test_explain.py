"""Reasons of waiting jobs, their remedies, and dry runs of jobs not yet submitted."""

from fairlead_queue.explain.dry_run import dry_run
from fairlead_queue.explain.explain import explain
from fairlead_schemas.queries.explainer import Explanation, Limit
from fairlead_schemas.queuefile.settings import Budget
from fairlead_schemas.wire.resources import Request
from tests.kit.queue_world import SECOND, QueueWorld, request
from tests.queue.sentences import sentences, start_estimate


def told(world: QueueWorld, job: str) -> Explanation:
    """The explanation of a live job; asking changes nothing."""
    before = world.core.snapshot()
    answer = explain(world.state, world.state.jobs[job])
    assert world.core.snapshot() == before
    assert explain(world.state, world.state.jobs[job]) == answer
    return answer


def kinds_of(answer: Explanation, asked: Request) -> dict[str, str]:
    """{kind of change: its message}"""
    return {change.kind: change.message for change in sentences(asked, answer)}


def test_a_maximum_is_explained_with_numbers_and_remedies() -> None:
    """Wait for an amount, request less, move to another queue, or raise the maximum by an amount."""
    world = QueueWorld()
    world.configure("research", maximum={"gpu": 8000})
    world.configure("research/vision")
    world.configure("shared")
    world.node(gpus=8)
    world.node("n2", gpus=8)
    running = world.submit(6, queue="research/vision")
    world.run(running)
    waits = world.submit(4, queue="research/vision")
    answer = told(world, waits)
    assert (answer.reason, answer.ahead) == ("maximum", 0)
    assert answer.limit == Limit(queue="research", resource="gpu", held=6000, needed=4000, ceiling=8000)
    messages = kinds_of(answer, request(4))
    assert messages["wait"] == "starts when 2 GPUs of research are given back"
    assert messages["smaller"] == "could start now with 2 GPUs instead of 4"
    assert messages["quota"] == "could start now if research might hold 10 GPUs"
    assert {change.queue for change in answer.changes if change.kind == "other_queue"} == {"default", "shared"}


def test_a_change_that_is_named_does_start_the_job() -> None:
    """The smaller request is offered at once; the one that is a GPU larger is not."""
    world = QueueWorld()
    world.configure("research", maximum={"gpu": 8000})
    world.node(gpus=8)
    world.run(world.submit(5, queue="research"))
    waits = world.submit(8, queue="research")
    (smaller,) = (change for change in told(world, waits).changes if change.kind == "smaller")
    assert smaller.gpu_milli == 3000
    assert world.of(world.submit(4, queue="research")) == "queued"
    assert world.of(world.submit(3, queue="research")) == "offered"


def test_jobs_ahead_are_counted_in_the_order_of_turns() -> None:
    """Of the own queue by priority, of other queues by share."""
    world = QueueWorld()
    world.node(gpus=8)
    first = world.submit(8)
    world.run(first)
    world.refuse(world.submit(8))
    for _ in range(15):
        world.submit(8)
    late = world.submit(8)
    assert world.of(late) == "queued"
    answer = told(world, late)
    assert (answer.reason, answer.ahead) == ("turn", 16)
    assert answer.first_ahead[0] == "2"
    urgent = world.submit(8, priority=90)
    # The offers are made; at the next look at the order it goes before them.
    assert told(world, urgent).ahead == 16
    world.pass_time()
    assert told(world, urgent).ahead == 0


def test_jobs_at_the_same_limit_are_ahead_by_the_order() -> None:
    """A limit that blocks the job blocks them, too: of its own queue by priority, of others below it by share."""
    world = QueueWorld()
    world.configure("research", maximum={"gpu": 4000})
    world.configure("research/vision")
    world.configure("research/speech")
    world.node(gpus=8)
    world.run(world.submit(4, queue="research/vision"))
    waiting = [world.submit(2, queue="research/vision") for _ in range(3)]
    urgent = world.submit(2, queue="research/vision", priority=90)
    other = world.submit(2, queue="research/speech")
    answer = told(world, waiting[-1])
    assert (answer.reason, answer.ahead) == ("maximum", 4)
    assert set(answer.first_ahead) == {urgent, other, *waiting[:-1]}
    assert answer.first_ahead[0] == other, "its queue has nothing yet"
    assert told(world, urgent).first_ahead == (other,)


def test_an_offer_that_went_back_is_explained_by_what_holds_it_now() -> None:
    """Its queue's limit, with today's numbers; or that it fitted nowhere, and when it is tried again."""
    world = QueueWorld()
    world.configure("research", maximum={"gpu": 12_000})
    world.node(gpus=8)
    world.run(world.submit(8, queue="research"))
    back = world.submit(4, queue="research")
    world.refuse(back)
    world.configure("research", maximum={"gpu": 8000})
    world.pass_time()
    world.give_back(back)
    assert world.of(back) == "queued"
    answer = told(world, back)
    assert answer.reason == "maximum"
    assert answer.limit == Limit(queue="research", resource="gpu", held=8000, needed=4000, ceiling=8000)
    assert kinds_of(answer, request(4))["wait"] == "starts when 4 GPUs of research are given back"


def test_a_user_limit_and_a_budget_are_named() -> None:
    """The user, and the queue that has the budget."""
    world = QueueWorld()
    world.configure("vision", users={"*": {"gpu": 2000}})
    world.configure("poor", budget=Budget(gpu_milli_s=1))
    world.run(world.submit(2, queue="vision"))
    answer = told(world, world.submit(1, queue="vision"))
    assert answer.reason == "user_limit"
    assert answer.limit == Limit(queue="vision", resource="gpu", held=2000, needed=1000, ceiling=2000)
    assert kinds_of(answer, request(1))["wait"] == "starts when 1 GPU of ada in vision is given back"
    assert told(world, world.submit(1, queue="vision", user="bob")).reason == "place"


def test_a_dry_run_says_what_would_refuse_it() -> None:
    """The same words as the queue's own refusal."""
    world = QueueWorld()
    world.node(gpus=8)
    outcome = dry_run(world.state, world.submission(1, queue="nowhere"), world.now)
    assert (outcome.code, outcome.field) == ("unknown_queue", "queue")
    too_large = dry_run(world.state, world.submission(9), world.now)
    assert too_large.code == "larger_than_any_node"


def test_a_dry_run_leaves_no_trace_and_tells_the_quota_after() -> None:
    """Used, after, guaranteed and most, for each queue on the way up; what is borrowed; no trace."""
    world = QueueWorld()
    world.configure("research", guaranteed={"gpu": 4000}, maximum={"gpu": 8000})
    world.configure("research/vision", guaranteed={"gpu": 2000})
    world.node(gpus=8)
    world.run(world.submit(2, queue="research/vision"))
    before = world.core.snapshot()
    outcome = dry_run(world.state, world.submission(2, queue="research/vision"), world.now)
    assert world.core.snapshot() == before
    assert [(q.queue, q.resource, q.used, q.after, q.guaranteed, q.maximum) for q in outcome.quota] == [
        ("research/vision", "gpu", 2000, 4000, 2000, None),
        ("research", "gpu", 2000, 4000, 4000, 8000),
    ]
    assert outcome.borrows == {"gpu": 2000}
    assert outcome.waits is not None
    assert outcome.waits.reason == "next"


def test_a_dry_run_names_possible_victims() -> None:
    """The borrower's run, by its rule."""
    world = QueueWorld()
    world.configure("owner", guaranteed={"gpu": 8000})
    world.configure("other")
    world.node(gpus=8)
    borrower = world.submit(8, queue="other")
    world.run(borrower)
    world.now += 3600 * SECOND
    outcome = dry_run(world.state, world.submission(4, queue="owner"), world.now)
    assert [(victim.job, victim.rule) for victim in outcome.displaces] == [(borrower, "over_guarantee")]


def test_a_dry_run_in_a_full_pool_waits_for_capacity() -> None:
    """No job is ahead, no limit blocks it, and nothing is free: it is not next to start, but a smaller one might be."""
    world = QueueWorld()
    world.node(gpus=8)
    world.run(world.submit(6))
    waits = dry_run(world.state, world.submission(4), world.now).waits
    assert waits is not None
    assert (waits.reason, waits.no_place) == ("place", "pool_full")
    assert kinds_of(waits, request(4)) == {
        "wait": "starts when 4 GPUs are free on one node",
        "smaller": "could start now with 2 GPUs instead of 4",
    }
    large = dry_run(world.state, world.submission(request=request(1, nodes=2)), world.now).waits
    assert large is not None
    assert large.reason == "next", "of two GPUs one on each node: where, the queue does not know"
    fits = dry_run(world.state, world.submission(2), world.now).waits
    assert fits is not None
    assert fits.reason == "next"


def test_another_limit_is_named_only_where_the_pool_has_room() -> None:
    """Raising a maximum starts nothing while others hold all there is."""
    world = QueueWorld()
    world.configure("small", maximum={"gpu": 2000})
    world.node(gpus=8)
    world.run(world.submit(2, queue="small"))
    waits = world.submit(2, queue="small")
    assert kinds_of(told(world, waits), request(2))["quota"] == "could start now if small might hold 4 GPUs"
    world.run(world.submit(6))
    assert "quota" not in kinds_of(told(world, waits), request(2))


def test_an_array_ahead_is_named_once() -> None:
    """Each of its elements ahead is counted."""
    world = QueueWorld()
    world.configure("research", maximum={"gpu": 1000})
    world.node(gpus=8)
    world.run(world.submit(queue="research"))
    array = world.submit(queue="research", array=(0, 4))
    answer = told(world, world.submit(queue="research"))
    assert (answer.ahead, answer.first_ahead) == (5, (array,))


def test_no_estimate_is_given_for_capacity_kept_for_other_queues() -> None:
    """The time at which queues that do not lend use less is unknown, however much is idle now."""
    world = QueueWorld()
    world.configure("owner", guaranteed={"gpu": 6000}, lending={"gpu": 0})
    world.node(gpus=8)
    outcome = dry_run(world.state, world.submission(4), world.now)
    assert outcome.waits is not None and outcome.waits.reason == "reserved"
    assert outcome.estimate is not None and outcome.estimate.start_ns == 0
    assert outcome.estimate.unknown == "reserved"
    assert start_estimate(outcome).basis.startswith("what it needs is kept for queues that do not lend it")


def test_an_estimate_uses_time_limits_and_names_them() -> None:
    """The end of the run at its limit, then the jobs ahead; without an estimate if a run has no limit."""
    world = QueueWorld()
    world.node(gpus=8)
    run = world.submit(8, total_ns=100 * SECOND)
    world.run(run)
    world.refuse(world.submit(8, total_ns=50 * SECOND))
    outcome = dry_run(world.state, world.submission(8, total_ns=SECOND), world.now)
    assert outcome.estimate is not None
    assert outcome.estimate.start_ns == world.now + 150 * SECOND
    assert "time limits of all that runs" in start_estimate(outcome).basis
    world.refuse(world.submit(8))
    unknown = dry_run(world.state, world.submission(8, total_ns=SECOND), world.now)
    assert unknown.estimate is not None
    assert unknown.estimate.start_ns == 0
    assert "1 job without a limit is taken to run on" in start_estimate(unknown).basis


def test_an_estimate_goes_by_the_limits_above_the_job() -> None:
    """The pool has room; the queue has it when its run has ended, and that which waits there before."""
    world = QueueWorld()
    world.configure("small", maximum={"gpu": 2000})
    world.node(gpus=8)
    world.run(world.submit(2, queue="small", total_ns=100 * SECOND))
    world.submit(2, queue="small", total_ns=50 * SECOND)
    outcome = dry_run(world.state, world.submission(1, queue="small"), world.now)
    assert outcome.estimate is not None
    assert outcome.estimate.start_ns == world.now + 150 * SECOND
    assert "1 job before it" in start_estimate(outcome).basis
    free = dry_run(world.state, world.submission(2), world.now)
    assert free.estimate is not None
    assert free.estimate.start_ns == world.now


def test_a_job_that_can_never_fit_gets_no_estimate() -> None:
    """It exceeds the whole maximum: only a smaller request, another queue or another limit helps."""
    world = QueueWorld()
    world.configure("small", maximum={"gpu": 2000})
    world.node(gpus=8)
    waits = world.submit(request=request(4), queue="small")
    assert "wait" not in kinds_of(told(world, waits), request(4))
