"""Turns: order, quota, the window, parked classes, withdrawals."""

from fairlead_queue.limits import AHEAD_OFFERS_MAX, BACK_NS, PARKED_OFFERS_MAX, WINDOW_OFFERS_MAX
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds, request


def fill(world: QueueWorld, count: int, gpus: int = 1, **more: object) -> list[str]:
    """Submit many; their ids."""
    events = world.ask(*(world.submission(gpus, **more) for _ in range(count)))
    return [event.job for event in events if isinstance(event, ev.JobSubmitted)]


def withdrawals(world: QueueWorld) -> list[tuple[str, str]]:
    """(job, reason) of every withdrawal in the log, in order."""
    return [(e.job, e.reason) for commit in world.log for e in commit.events if isinstance(e, ev.OfferWithdrawn)]


def test_priority_goes_before_submit_order() -> None:
    """Offers of one commit are in rank order: priority descending, then submit order."""
    world = QueueWorld()
    events = world.ask(*(world.submission(gpus, priority=p) for gpus, p in ((1, 10), (1, 90), (2, 90), (1, 50))))
    offers = [event for event in events if isinstance(event, ev.JobOffered)]
    assert [offer.job for offer in offers] == ["2", "3", "4", "1"]
    assert [offer.rank for offer in offers] == sorted(offer.rank for offer in offers)


def test_a_quota_holds_a_job_back_and_lets_others_pass() -> None:
    """A job over its queue's quota waits; smaller ones of the queue and all of other queues continue."""
    world = QueueWorld()
    world.quota("small", 4)
    big = world.submit(3, queue="small")
    waits = world.submit(2, queue="small")
    passes = world.submit(1, queue="small")
    other = world.submit(8)
    assert world.offered() == [big, passes, other]
    world.run(big)
    world.end(big)
    assert [event.job for event in world.settle()] == [big, waits]
    assert world.charged("small") == 3000


def test_a_request_above_the_whole_quota_waits_and_blocks_no_other() -> None:
    """It is accepted, since the quota may be raised. Then it is offered."""
    world = QueueWorld()
    world.quota("small", 2)
    big = world.submit(4, queue="small")
    little = world.submit(1, queue="small")
    assert world.offered() == [little]
    world.quota("small", None)
    world.settle()
    assert world.offered() == [little, big]
    world.pass_time()
    assert world.offered() == [big, little]


def test_a_job_without_gpus_is_not_held_by_a_gpu_quota() -> None:
    """Quota zero, no GPU: it is offered."""
    world = QueueWorld()
    world.quota("none", 0)
    job = world.submit(0, queue="none")
    waits = world.submit(1, queue="none")
    assert (world.offered(), world.of(waits)) == ([job], "queued")


def test_quota_is_free_when_the_run_has_ended_not_when_it_is_asked_to() -> None:
    """A stopping run is charged until its end."""
    world = QueueWorld()
    world.quota("small", 1)
    first = world.submit(queue="small")
    second = world.submit(queue="small")
    world.run(first)
    world.cancel(first)
    assert world.settle() == []
    world.end(first, 143, "stopped")
    assert [(type(e).__name__, e.job) for e in world.settle()] == [("JobCancelled", first), ("JobOffered", second)]


def test_the_window_bounds_open_offers() -> None:
    """Placements make room for as many again, in order."""
    world = QueueWorld(careful=False)
    jobs = [job for _ in range(6) for job in fill(world, 300)]
    world.settle()
    assert world.offered() == jobs[:WINDOW_OFFERS_MAX]
    world.place(*jobs[:10])
    assert [event.job for event in world.settle()] == jobs[WINDOW_OFFERS_MAX : WINDOW_OFFERS_MAX + 10]


def test_a_parked_class_keeps_a_few_offers_open_and_blocks_no_other() -> None:
    """After a refusal the class stays at its bound; another class continues."""
    world = QueueWorld()
    first = world.submit(8)
    world.refuse(first)
    fill(world, 40, 8)
    other = world.submit(1)
    world.settle()
    assert len(world.offered()) == PARKED_OFFERS_MAX + 1
    assert world.of(other) == "offered"


def test_a_parked_class_goes_on_when_capacity_changes_or_one_is_placed() -> None:
    """Either says that the refusal is no longer the last word."""
    world = QueueWorld()
    jobs = fill(world, 1, 8) + fill(world, 1, 8)
    world.refuse(jobs[0])
    fill(world, 40, 8)
    world.settle()
    world.free_something()
    world.settle()
    assert len(world.offered()) == 42
    world.refuse(jobs[0])
    fill(world, 10, 8)
    assert world.settle() == []
    world.place(jobs[0])
    world.settle()
    assert len(world.offered()) == 51


def test_beyond_the_capacity_the_placer_looks_ahead_over_a_few() -> None:
    """While the pool has room for more, the window is wide; then some more of anything, and always some of each class."""
    world = QueueWorld(careful=False)
    world.node(gpus=8)
    fill(world, 300, 1)
    world.settle()
    assert len(world.offered()) == AHEAD_OFFERS_MAX
    fill(world, 30, 2)
    world.settle()
    assert len(world.offered()) == AHEAD_OFFERS_MAX + PARKED_OFFERS_MAX


def full_world() -> QueueWorld:
    """Return a world in which as many large jobs are offered as the placer looks ahead over, and more wait."""
    world = QueueWorld()
    world.refuse(world.submit(8))
    fill(world, 40, 8)
    world.settle()
    return world


def test_a_late_job_of_higher_rank_takes_its_place() -> None:
    """At the next review of the order: the urgent one goes before all, and the last offer is withdrawn for it."""
    world = full_world()
    before = world.offered()
    urgent = world.submit(8, priority=90)
    assert world.of(urgent) == "queued"
    world.pass_time()
    assert withdrawals(world) == [(before[-1], "order")]
    assert world.offered() == [urgent, *before]
    world.give_back(before[-1])
    assert world.pass_time() == []
    assert world.of(before[-1]) == "queued"


def test_an_unchanged_order_records_nothing_again() -> None:
    """A second review changes nothing."""
    world = QueueWorld()
    world.refuse(world.submit(8))
    fill(world, 40, 8)
    world.settle()
    assert [world.pass_time(seconds) for seconds in (1, 1, 60)] == [[], [], []]


def test_refused_offers_give_their_quota_to_jobs_that_can_use_it() -> None:
    """Withdrawn, returned, and offered again only after capacity has changed."""
    world = QueueWorld()
    world.quota("small", 8)
    big = world.submit(8, queue="small")
    world.refuse(big)
    little = world.submit(1, queue="small")
    world.pass_time()
    assert withdrawals(world) == [(big, "quota")]
    assert world.settle() == []
    world.give_back(big)
    assert [event.job for event in world.settle()] == [little]
    world.run(little)
    world.end(little, released=())
    assert kinds(world.settle()) == ["JobSucceeded"]
    world.free_something()
    assert [event.job for event in world.settle()] == [big]


def test_a_recall_is_made_only_where_it_helps() -> None:
    """Nothing is withdrawn for a job that is parked itself, or that no withdrawal could bring within the quota."""
    world = QueueWorld()
    world.quota("small", 8)
    running = world.submit(4, queue="small")
    world.run(running)
    parked = world.submit(4, queue="small")
    world.refuse(parked)
    world.submit(6, queue="small")
    assert world.pass_time() == []
    same_class = world.submit(4, queue="small")
    assert (world.pass_time(), world.of(same_class)) == ([], "queued")


def test_recalls_take_the_last_offers_and_no_more_than_needed() -> None:
    """The first in line keep their offers."""
    world = QueueWorld()
    world.quota("small", 8)
    jobs = [world.submit(2, queue="small") for _ in range(4)]
    world.refuse(*jobs)
    world.submit(3, queue="small")
    world.pass_time()
    assert withdrawals(world) == [(jobs[3], "quota"), (jobs[2], "quota")]
    assert world.settle() == []


def test_lowering_a_quota_recalls_offers_but_stops_no_run() -> None:
    """Open offers above the new quota come back, last first; what runs is left alone."""
    world = QueueWorld()
    world.quota("small", 4)
    jobs = [world.submit(1, queue="small") for _ in range(4)]
    world.run(jobs[3])
    world.quota("small", 2)
    world.pass_time()
    # One is running, so one offer may stay.
    assert withdrawals(world) == [(jobs[2], "quota"), (jobs[1], "quota")]


def test_the_first_job_is_not_passed_for_ever() -> None:
    """A stream of small jobs cannot starve a big one of the same queue: when it has waited for as long as the pool is
    patient, what comes free is kept for it."""
    world = QueueWorld()
    world.quota("small", 2)
    running = [world.submit(1, queue="small"), world.submit(1, queue="small")]
    big = world.submit(2, queue="small")
    world.run(*running)
    patience_s = world.state.pools["default"].settings.patience_ns // 10**9
    waited = passed = 0
    while world.of(big) == "queued":
        world.submit(1, queue="small")
        if running:
            world.end(running.pop(0))
        waited += 10
        world.pass_time(10)
        for job in world.offered():
            if job != big:
                passed += 1
                world.run(job)
                running.append(job)
        assert waited <= patience_s + 60
    assert world.of(big) == "offered"
    assert passed > 20


def test_deciding_twice_upon_the_same_state_is_free() -> None:
    """The second decision is the memo's, and equal; the next look is due when the pool's patience is over."""
    world = QueueWorld()
    world.submit(1)
    world.pass_time()
    assert world.core.wake_at() == 1_000 * SECOND + world.state.pools["default"].settings.patience_ns
    assert world.decide() == []


def test_a_large_class_backlog_is_looked_at_by_lane() -> None:
    """Many classes, each refused: the next decision offers nothing and withdraws nothing."""
    world = QueueWorld(careful=False)
    for cpu in range(1, 101):
        world.ask(*(world.submission(request=request(1, cpu=cpu)) for _ in range(30)))
    world.settle()
    for _ in range(100):
        unparked = {k.request: k for k in world.state.classes.values() if k.open and not k.parked}
        first_of = {world.state.jobs[job].lane.request_class.request: job for job in reversed(world.offered())}
        if not unparked:
            break
        world.refuse(*(first_of[asked] for asked in unparked))
        world.settle()
    assert world.settle() == []
    assert world.state.open >= 100 * PARKED_OFFERS_MAX


def test_a_withdrawn_offer_is_charged_until_it_is_returned() -> None:
    """The urgent job gets its offer only after the withdrawn one is back."""
    world = QueueWorld()
    world.quota("small", 4)
    first = world.submit(2, queue="small", priority=10)
    second = world.submit(1, queue="small", priority=10)
    world.now += SECOND
    urgent = world.submit(2, queue="small")
    world.settle()
    assert (withdrawals(world), world.of(urgent), world.charged("small")) == ([(second, "quota")], "queued", 3000)
    assert world.pass_time() == []
    world.give_back(second)
    assert [(event.job, event.rank < world.state.jobs[first].rank) for event in world.settle()] == [(urgent, True)]
    world.pass_time()
    assert world.offered() == [urgent, first]


def test_a_slow_withdrawal_costs_no_other_offer() -> None:
    """A withdrawn offer frees capacity once, however often the order is reviewed meanwhile."""
    world = full_world()
    before = world.offered()
    world.submit(8, priority=90)
    for _ in range(5):
        world.pass_time()
    assert withdrawals(world) == [(before[-1], "order")]


def test_an_offer_withdrawn_for_quota_is_made_again_although_nothing_is_freed() -> None:
    """The placer may only have been away: no refusal has been recorded."""
    world = QueueWorld()
    world.quota("small", 8)
    world.node("n1", gpus=8)
    big = world.submit(8, queue="small")
    little = world.submit(1, queue="small")
    begun = world.state.jobs[big].since_ns
    world.pass_time(6)
    assert withdrawals(world) == [(big, "quota")]
    world.give_back(big)
    world.settle()
    world.cancel(little)
    world.give_back(little)
    assert kinds(world.settle()) == ["JobCancelled"]
    world.restart()
    assert kinds(world.pass_time(BACK_NS / SECOND)) == ["JobQueued", "JobOffered"]
    assert world.state.jobs[big].since_ns == begun
