"""Maintenance windows that are ahead: who is not started where one would come over him, and from when nodes are kept."""

import pytest

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CancelMaintenance, UncordonNode
from tests.kit.placer_world import PlacerWorld, cluster, names, placed, request
from tests.placer.reserved_nodes import busy, claim, from_now, kept, made
from tests.placer.windows import pass_time, schedule

HOUR = 3600
#: From the placement to the end at the latest, beyond the limit: start, grace (5 s), cleaning.
BEYOND_S = 60 + 5 + 30


def refused(events: list[ev.Event]) -> ev.JobUnplaceable:
    """The one refusal among the events."""
    [event] = [event for event in events if isinstance(event, ev.JobUnplaceable)]
    return event


@pytest.mark.parametrize(
    ("limit_s", "fits"), [(HOUR - BEYOND_S, True), (HOUR - BEYOND_S + 1, False), (9 * HOUR, False)]
)
def test_a_job_that_would_not_end_in_time_is_not_started(limit_s: int, fits: bool) -> None:
    """To the second; the refusal names the window, and its end admits the job."""
    world = cluster(1)
    schedule(world, "n1", starts=HOUR, ends=2 * HOUR)
    events = world.offer(request(1), limit_s=limit_s)
    if fits:
        assert placed(events) == {"1": ["n1"]}
        return
    told = refused(events)
    assert (told.reasons, told.windows, told.fitting, told.near) == ({"maintenance": 1}, ("cooling",), 0, ())
    pass_time(world, HOUR)
    assert names(pass_time(world, HOUR)) == ["MaintenanceEnded", "NodeUncordoned", "JobPlaced"]


def test_a_cancelled_window_lets_him_in() -> None:
    """Before it has begun, when the node was never out of work."""
    world = cluster(1)
    schedule(world, "n1", starts=HOUR, ends=2 * HOUR)
    world.offer(request(1), limit_s=HOUR)
    assert names(world.command(CancelMaintenance(id="x", name="cooling"))) == ["MaintenanceEnded", "JobPlaced"]


def test_he_goes_to_another_node_though_that_one_would_be_better() -> None:
    """And a gang goes where none of its nodes is met."""
    world = cluster(4)
    world.offer(request(7))  # n1 is the best for what needs one GPU
    schedule(world, "n1", "n3", starts=HOUR, ends=2 * HOUR)
    assert placed(world.offer(request(1), limit_s=HOUR)) == {"2": ["n2"]}
    assert refused(world.offer(request(2, nodes=3), limit_s=HOUR)).reasons == {"maintenance": 1, "free_gpus": 1}
    assert placed(world.offer(request(2, nodes=2), limit_s=HOUR)) == {"4": ["n2", "n4"]}


def test_without_a_limit_he_starts_until_the_notice() -> None:
    """Then the node drains."""
    world = cluster(1)
    schedule(world, "n1", starts=HOUR, ends=2 * HOUR, notice=600)
    assert placed(world.offer(request(1))) == {"1": ["n1"]}
    assert names(pass_time(world, HOUR - 600)) == ["MaintenanceStarted", "NodeDraining"]
    assert refused(world.offer(request(1))).reasons == {"draining": 1}


def test_of_equal_requests_those_that_end_in_time_overtake() -> None:
    """The first of the class waits; jobs that end in time or have no limit take the capacity."""
    world = cluster(1)
    schedule(world, "n1", starts=HOUR, ends=2 * HOUR)
    long, short, none = (world.submitted(request(2), limit_s=limit_s) for limit_s in (HOUR, 60, 0))
    assert placed(world.queue(*long, *short, *none)) == {"2": ["n1"], "3": ["n1"]}
    assert sorted(world.core.state.offers) == ["1"]
    pass_time(world, HOUR)
    for job in ("2", "3"):
        world.exit("n1", job)
    assert placed(pass_time(world, HOUR)) == {"1": ["n1"]}


def test_a_window_that_has_begun_and_was_overruled_reserves_nothing() -> None:
    """A user has returned the node, so it may be used."""
    world = cluster(1)
    schedule(world, "n1", starts=HOUR, ends=2 * HOUR)
    pass_time(world, HOUR - 40)
    assert refused(world.offer(request(1), limit_s=HOUR)).reasons == {"draining": 1}
    assert names(world.command(UncordonNode(id="u", node="n1"))) == ["NodeUncordoned", "JobPlaced"]


def test_a_job_that_failed_and_is_met_avoids_both() -> None:
    """Each node is counted for its own reason."""
    world = cluster(3)
    schedule(world, "n2", starts=HOUR, ends=2 * HOUR)
    world.offer(request(8), limit_s=2 * HOUR)
    world.offer(request(8, selector=()), limit_s=60)
    assert placed_on(world) == {"1": "n1", "2": "n2"}
    world.offer(request(8))
    world.exit("n1", "1", exit_code=1)
    world.exit("n2", "2")
    again = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=2)
    told = refused(world.queue(again, ev.JobOffered(cause="clock", job="1", attempt=2, rank=1)))
    assert told.reasons == {"avoided": 1, "maintenance": 1, "free_gpus": 1}


def placed_on(world: PlacerWorld) -> dict[str, str]:
    """{job: its first node}."""
    return {run.job: run.parts[0].node for run in world.core.state.runs.values()}


# ---------------------------------------------------------------------------- kept nodes


def test_a_node_is_kept_from_the_end_of_its_window() -> None:
    """The job would not be gone in time when the node is free; one that is free later, and not met, is better."""
    world = busy(600)
    schedule(world, "a", starts=HOUR, ends=3 * HOUR)
    world.offer(request(4), limit_s=HOUR)
    event = made(world.queue(claim("2")))
    assert (event.nodes, from_now(world, event), event.waits_for) == (("a",), 3 * HOUR, ("1",))
    world = busy(600, 2 * HOUR)
    schedule(world, "a", starts=HOUR, ends=3 * HOUR)
    world.offer(request(4), limit_s=HOUR)
    assert made(world.queue(claim("3"))).nodes == ("b",)


def test_a_gang_starts_when_no_window_is_between() -> None:
    """One node is free before its window, the other after the first one's: both are, once that is over."""
    world = busy(60, HOUR)
    schedule(world, "a", starts=HOUR + 600, ends=2 * HOUR)
    world.offer(request(4, nodes=2), limit_s=1200)
    event = made(world.queue(claim("3")))
    assert (event.nodes, from_now(world, event)) == (("a", "b"), 2 * HOUR)


def test_a_window_that_is_planned_later_moves_what_is_kept() -> None:
    """At once; and a short job's start stays where it is."""
    for limit_s, expected in ((HOUR, ("b",)), (60, ("a",))):
        world = busy(600, 2 * HOUR)
        world.offer(request(4), limit_s=limit_s)
        assert made(world.queue(claim("3"))).nodes == ("a",)
        schedule(world, "a", starts=HOUR, ends=3 * HOUR)
        assert kept(world) == {"3": expected}


def test_a_backfilled_job_is_not_hit_by_a_window_either() -> None:
    """It would end before the reserved start, but not before the window's."""
    world = PlacerWorld()
    for name in ("a", "b"):
        world.join(name, 4, labels={"name": name})
    world.offer(request(3, selector=("name=a",)), limit_s=5 * HOUR)
    world.offer(request(4, selector=("name=b",)), limit_s=9 * HOUR)
    world.start("a", "1")
    world.offer(request(4, selector=("name=a",)), limit_s=HOUR)
    made(world.queue(claim("3")))
    schedule(world, "a", starts=2 * HOUR, ends=3 * HOUR)
    assert refused(world.offer(request(1), limit_s=3 * HOUR)).reasons == {"reserved": 1, "free_gpus": 1}
    assert placed(world.offer(request(1), limit_s=HOUR)) == {"5": ["a"]}


def test_nothing_is_preempted_on_a_node_that_the_job_would_have_to_leave() -> None:
    """The request is declined with the reason; for a shorter job it is granted."""
    for limit_s, expected in ((2 * HOUR, "PreemptionDeclined"), (60, "PreemptionStarted")):
        world = cluster(1)
        world.offer(request(8))
        world.start("n1", "1")
        schedule(world, "n1", starts=HOUR, ends=2 * HOUR)
        world.offer(request(8), limit_s=limit_s)
        victim = ev.Victim(job="1", attempt=1, rule="lower_priority", gpu_s=1)
        events = world.queue(ev.PreemptionRequested(cause="clock", job="2", attempt=1, victims=(victim,)))
        assert names(events)[0] == expected
