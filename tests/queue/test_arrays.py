"""An array is one event; its elements come into being as they are offered."""

from fairlead_queue.limits import WINDOW_OFFERS_MAX
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CancelJob
from tests.kit.queue_world import SECOND, QueueWorld, kinds


def run_all(world: QueueWorld, *jobs: str) -> None:
    """Each runs and ends well."""
    world.run(*jobs)
    for job in jobs:
        world.end(job)


def test_elements_are_born_by_their_offers() -> None:
    """In index order, as jobs of their own, with rising ranks; the array itself is never offered."""
    world = QueueWorld()
    array = world.submit(array=(3, 5))
    offers = world.settle()
    assert [offer.job for offer in offers] == ["1_3", "1_4", "1_5"]
    assert sorted(offer.rank for offer in offers) == [offer.rank for offer in offers]
    assert world.of(array) == "queued"
    assert world.state.in_line == 0


def test_an_array_succeeds_with_its_last_element() -> None:
    """Not before; and nothing of it is left live."""
    world = QueueWorld()
    array = world.submit(array=(0, 2))
    world.settle()
    run_all(world, "1_2", "1_0")
    assert kinds(world.settle()) == ["JobSucceeded", "JobSucceeded"]
    run_all(world, "1_1")
    assert [event.job for event in world.settle()] == ["1_1", array]
    assert world.of(array) == "succeeded"
    assert world.state.jobs == {}


def test_one_failed_element_fails_the_array_at_its_end() -> None:
    """The others run on; then the array says how many failed."""
    world = QueueWorld()
    array = world.submit(array=(0, 1))
    world.settle()
    world.run("1_0", "1_1")
    world.end("1_0", 1)
    assert kinds(world.settle()) == ["JobFailed"]
    world.end("1_1")
    assert world.settle()[-1] == ev.JobFailed(
        cause=f"{len(world.log) - 1}.0", job=array, reason="element_failed", message="1 of 2 elements failed"
    )


def test_an_element_has_retries_of_its_own() -> None:
    """A failed exit of one brings another attempt of that one."""
    world = QueueWorld()
    world.submit(array=(0, 1), retries=1)
    world.settle()
    world.run("1_0", "1_1")
    world.end("1_0", 1)
    requeued, offered = world.settle()
    assert (requeued.job, offered.job, offered.attempt) == ("1_0", "1_0", 2)


def test_cancelling_an_array_before_any_element_is_born() -> None:
    """Nothing lives: it ends at once."""
    world = QueueWorld()
    array = world.submit(array=(0, 9), start_at_ns=world.now + SECOND)
    assert isinstance(world.cancel(array), ev.JobCancelled)
    assert world.settle() == []


def test_cancelling_an_array_stops_what_lives_and_forgets_the_rest() -> None:
    """Offered and running elements are asked to stop, held ones end at once, unborn ones never come."""
    world = QueueWorld()
    world.quota("small", 3)
    array = world.submit(array=(0, 9), queue="small")
    world.settle()
    world.run("1_0")
    world.hold("1_1")
    world.give_back("1_1")
    world.settle()
    assert world.offered() == ["1_2", "1_3"]
    assert isinstance(world.cancel(array), ev.JobStopRequested)
    events = world.settle()
    assert [(type(event).__name__, event.job) for event in events] == [
        ("JobStopRequested", "1_0"),
        ("JobCancelled", "1_1"),
        ("JobStopRequested", "1_2"),
        ("JobStopRequested", "1_3"),
    ]
    world.give_back("1_2", "1_3")
    world.end("1_0", 143, "stopped")
    # Its cause is the end of the last of its elements.
    assert world.settle()[-1] == ev.JobCancelled(cause=f"{len(world.log) - 1}.2", job=array, by="bob")
    assert world.state.jobs == {}
    assert world.charged("small") == 0


def test_a_stopping_array_retries_no_element() -> None:
    """An element whose run fails while the stop is on its way is not retried."""
    world = QueueWorld()
    array = world.submit(array=(0, 1), retries=5)
    world.settle()
    world.run("1_0", "1_1")
    world.one(CancelJob(id="c", job=array))
    world.end("1_0", 1)
    assert kinds(world.settle()) == ["JobFailed", "JobStopRequested"]
    world.end("1_1", 143, "stopped")
    assert kinds(world.settle()) == ["JobCancelled", "JobCancelled"]


def test_holding_an_array_holds_its_unmaterialised_elements() -> None:
    """Live elements continue; after the release the next element is created."""
    world = QueueWorld()
    world.quota("small", 1)
    array = world.submit(array=(0, 2), queue="small")
    world.settle()
    assert isinstance(world.hold(array), ev.JobHeld)
    run_all(world, "1_0")
    assert kinds(world.settle()) == ["JobSucceeded"]
    assert isinstance(world.release(array), ev.JobReleased)
    assert [event.job for event in world.settle()] == ["1_1"]


def test_an_array_that_is_all_born_cannot_be_held() -> None:
    """There is nothing to keep back; the message says what to do."""
    world = QueueWorld()
    array = world.submit(array=(0, 1))
    world.settle()
    refused = world.hold(array)
    assert (refused.code, "hold single elements" in refused.message) == ("conflict", True)


def test_an_unborn_element_cannot_be_named_yet() -> None:
    """not_yet_offered within the array's range; not_found outside it."""
    world = QueueWorld()
    world.quota("small", 1)
    world.submit(array=(0, 5), queue="small")
    world.settle()
    assert world.cancel("1_3").code == "not_yet_offered"
    assert world.hold("1_9").code == "not_found"
    assert world.cancel("1_x").code == "not_found"


def test_an_element_cancelled_by_a_person_cancels_the_array_at_its_end() -> None:
    """The array did not do all it was to do, and nothing failed."""
    world = QueueWorld()
    array = world.submit(array=(0, 1))
    world.settle()
    world.run("1_0", "1_1")
    world.cancel("1_1")
    world.end("1_1", 143, "stopped")
    world.end("1_0")
    assert world.settle()[-1] == ev.JobCancelled(cause=f"{len(world.log) - 1}.1", job=array, by="bob")


def test_ten_thousand_elements_are_offered_a_window_at_a_time() -> None:
    """Born as the window allows; after all have run the array ends, whatever of it was retired meanwhile."""
    world = QueueWorld(careful=False)
    array = world.submit(array=(1, 10_000))
    ran = 0
    while world.of(array) == "queued":
        world.settle()
        batch = world.offered()
        assert len(batch) <= WINDOW_OFFERS_MAX
        for at in range(0, len(batch), 400):
            run_all(world, *batch[at : at + 400])
        ran += len(batch)
        assert batch or world.of(array) != "queued"
    assert (ran, world.of(array), world.state.jobs) == (10_000, "succeeded", {})


def test_the_stop_of_a_large_array_takes_several_commits() -> None:
    """More live elements than a commit holds: each is asked exactly once, and the array ends after the last."""
    world = QueueWorld(careful=False)
    array = world.submit(array=(0, 2499))
    live: list[str] = []
    while len(live) < 2500:
        world.settle()
        batch = world.offered()
        for at in range(0, len(batch), 400):
            world.place(*batch[at : at + 400])
        live += batch
    world.cancel(array)
    stops = [event.job for event in world.settle() if isinstance(event, ev.JobStopRequested)]
    assert sorted(stops) == sorted(live)
    for job in live:
        world.end(job, 143, "stopped")
    assert world.settle()[-1].job == array
    assert world.of(array) == "cancelled"
