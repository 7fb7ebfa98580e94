"""Maintenance windows that are on: for whom their nodes are kept from the end, and for whom not."""

import pytest

from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CancelMaintenance, CordonNode, QuarantineNode
from tests.kit.placer_world import PlacerWorld, names, placed, request
from tests.placer.reserved_nodes import busy, claim, from_now, kept, made
from tests.placer.windows import pass_time, schedule

HOUR = 3600


def under_maintenance(*limits_s: int, ends: int = 2 * HOUR) -> PlacerWorld:
    """Nodes a, b, c … each full with one job of that limit; then a is emptied for a window that is on."""
    world = busy(*limits_s)
    schedule(world, "a", starts=60, ends=ends, notice=60)
    pass_time(world, 60)
    world.exit("a", "1", outcome="stopped", exit_code=None)
    assert names(world.log[-1].events)[-1] == "NodeDrained"
    return world


def test_a_node_is_kept_from_the_end_of_the_window_that_it_is_in() -> None:
    """Nothing else will have room before: who comes meanwhile does not get it at the end, though he has the better rank."""
    world = under_maintenance(0, 9 * HOUR)
    world.offer(request(4))
    other = world.offer(request(4))
    assert placed(other) == {}
    event = made(world.queue(claim("4")))
    assert (event.nodes, from_now(world, event), event.basis, event.waits_for) == (("a",), 2 * HOUR - 60, "limits", ())
    assert pass_time(world, HOUR) == []  # nothing is said again: it stays what it is
    events = pass_time(world, HOUR - 60)
    assert names(events)[:2] == ["MaintenanceEnded", "NodeUncordoned"]
    assert placed(events) == {"4": ["a"]}


def test_another_node_that_is_free_before_is_kept_instead() -> None:
    """Or taken, when it comes free before it was expected to."""
    world = under_maintenance(0, HOUR)
    world.offer(request(4))
    assert made(world.queue(claim("3"))).nodes == ("b",)
    world = under_maintenance(0, 9 * HOUR)
    world.offer(request(4))
    assert made(world.queue(claim("3"))).nodes == ("a",)
    assert placed(world.exit("b", "2")) == {"3": ["b"]}


def test_a_gang_waits_for_the_window_and_others_run_on_its_nodes_until_then() -> None:
    """Those that are gone by then."""
    world = under_maintenance(0, HOUR)
    world.offer(request(4, nodes=2))
    event = made(world.queue(claim("3")))
    assert (event.nodes, from_now(world, event), event.waits_for) == (("a", "b"), 2 * HOUR - 60, ("2",))
    world.exit("b", "2")
    short, long = world.offer(request(4), limit_s=HOUR), world.offer(request(4), limit_s=3 * HOUR)
    assert placed([*short, *long]) == {"4": ["b"]}
    world.start("b", "4")
    pass_time(world, HOUR + 60)
    world.exit("b", "4")
    assert placed(pass_time(world, HOUR - 120)) == {"3": ["a", "b"]}


def test_without_a_known_start_the_node_is_not_reserved() -> None:
    """Also for tasks, which never have one, and for an end more than a week away."""
    for wanted, ends in (
        (request(4, nodes=2), 2 * HOUR),
        (request(2, nodes=4, tasks=True), 2 * HOUR),
        (request(4), 8 * 24 * HOUR),
    ):
        world = under_maintenance(0, 0, ends=ends)
        world.offer(wanted)
        events = world.queue(claim("3"))
        if wanted.nodes == 1:
            assert kept(world) == {"3": ("b",)}
        else:
            assert names(events) == ["ReservationEnded"]


def test_a_current_reservation_does_not_span_a_window() -> None:
    """A job that was to start before the window goes elsewhere; a job without another node gets it from the window's
    end."""
    for others, ends, expected in (((9 * HOUR,), 19 * HOUR, "b"), ((9 * HOUR,), 2 * HOUR, "a"), ((), 2 * HOUR, "a")):
        world = busy(600, *others)
        world.offer(request(4))
        assert made(world.queue(claim(str(world.jobs)))).nodes == ("a",)
        event = made(schedule(world, "a", starts=60, ends=ends, notice=60))
        assert event.nodes == (expected,)
        assert expected == "b" or from_now(world, event) == 2 * HOUR


def test_nodes_freed_by_preemption_are_not_kept_through_a_window() -> None:
    """Other runs were preempted there; the reservation moves to a usable node, or begins with the window's end."""
    world = busy(0, 9 * HOUR)
    world.offer(request(4))
    victim = ev.Victim(job="1", attempt=1, rule="lower_priority", gpu_s=1)
    events = world.queue(ev.PreemptionRequested(cause="clock", job="3", attempt=1, victims=(victim,)))
    assert names(events) == ["PreemptionStarted", "ReservationMade"]
    schedule(world, "a", starts=60, ends=2 * HOUR, notice=60)
    assert from_now(world, made(world.log[-1].events)) == 2 * HOUR
    world.exit("a", "1", outcome="stopped", exit_code=None)
    assert placed(world.exit("b", "2")) == {"3": ["b"]}


def test_a_backfilled_job_that_a_window_stops_blocks_nothing() -> None:
    """It has no limit and ran next to the reservation; at the window's end the node is empty."""
    world = PlacerWorld()
    world.join("a", 4)
    world.offer(request(3), limit_s=HOUR)
    world.start("a", "1")
    world.offer(request(3))
    assert made(world.queue(claim("2"))).nodes == ("a",)
    assert placed(world.offer(request(1))) == {"3": ["a"]}
    events = schedule(world, "a", starts=60, ends=2 * HOUR, notice=60)
    assert from_now(world, made(events)) == 2 * HOUR


@pytest.mark.parametrize("taken", [CordonNode(id="t", node="a"), QuarantineNode(id="t", node="a")])
def test_a_reserved_node_that_a_user_takes_is_given_up(taken: CordonNode | QuarantineNode) -> None:
    """The time of its return is unknown; a lost one is given up as well."""
    world = under_maintenance(0, 9 * HOUR)
    world.offer(request(4))
    world.queue(claim("3"))
    assert kept(world) == {"3": ("a",)}
    world.command(taken)
    assert kept(world) == {"3": ("b",)}
    world = under_maintenance(0, 9 * HOUR)
    world.offer(request(4))
    world.queue(claim("3"))
    world.silent("a")
    assert kept(world) == {"3": ("b",)}


def test_a_window_that_is_cancelled_starts_the_job() -> None:
    """At once."""
    world = under_maintenance(0, 9 * HOUR)
    world.offer(request(4))
    world.queue(claim("3"))
    assert placed(world.command(CancelMaintenance(id="x", name="cooling"))) == {"3": ["a"]}
