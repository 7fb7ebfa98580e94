"""Ends of work: learned durations of runs, the times at which nodes are free, and their use for a reservation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_placer.cluster.run_durations import (
    RUNS_MAX,
    LearnedDurations,
    RunDurations,
    bucket_of,
    longest_of,
    typical_s,
)
from fairlead_placer.cluster.timeline.earliest_start import earliest
from fairlead_placer.cluster.timeline.run_ends import KINDS_MAX
from fairlead_placer.core import PlacerCore
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import DrainNode
from tests.kit.placer_world import SECOND, PlacerWorld, names, request
from tests.placer.reserved_nodes import HOUR, busy, claim, from_now, made

# ---------------------------------------------------------------------------- what is learned


def learned(*seconds: int) -> LearnedDurations:
    """Learn from runs of these durations, in their order."""
    known = LearnedDurations()
    for each in seconds:
        known.add(bucket_of(each), 0)
    return known


@given(st.integers(4, 1 << 30))
def test_a_bucket_holds_times_that_differ_by_a_quarter(seconds: int) -> None:
    """And its end is above each of them."""
    longest = longest_of(bucket_of(seconds))
    assert seconds < longest <= seconds + seconds // 4 + 1


@given(st.lists(st.integers(0, 1 << 20), max_size=300))
def test_histograms_of_durations_stay_small(seconds: list[int]) -> None:
    """Their size does not grow with the number of runs or their length."""
    known = learned(*seconds)
    assert known.runs == sum(known.counts) <= RUNS_MAX
    assert LearnedDurations(known.saved()).counts == known.counts


@given(st.lists(st.integers(0, 1 << 20), max_size=2 * RUNS_MAX), st.integers(0, 1 << 20))
def test_one_more_duration_is_undone_without_a_trace(seconds: list[int], more: int) -> None:
    """Even where it has halved all counts, and where it was not made at all."""
    known, bucket = learned(*seconds), bucket_of(more)
    before, entry = known.saved(), (known.counts, bucket, known.counts[bucket], known.runs, known.last_ns)
    known.restore(*entry)
    assert known.saved() == before
    known.add(bucket, 7)
    assert known.saved() != before
    known.restore(*entry)
    assert (known.saved(), known.runs) == (before, sum(known.counts))


def test_the_typical_duration_depends_on_the_time_already_run() -> None:
    """Most take a minute; most that have run for ten take an hour; beyond the longest run, or with too few runs,
    nothing is known."""
    assert typical_s(learned(), 0) == 0
    known = learned(*[60] * 8, *[3600] * 3)
    assert 60 < typical_s(known, 0) <= 75
    assert 3600 < typical_s(known, 600) <= 4500
    assert typical_s(known, 5000) == 0
    assert typical_s(learned(60, 60), 0) == 0


def test_the_number_of_remembered_kinds_is_bounded() -> None:
    """The least recently seen is forgotten; the table is in the snapshot."""
    world = PlacerWorld()
    world.join("a", 4)
    for user in range(KINDS_MAX + 3):
        world.core.state.spans[f"user:u{user}:1000"] = LearnedDurations(RunDurations(user))
    world.offer(request(1))
    world.start("a", "1")
    world.now += 10 * SECOND
    world.exit("a", "1")
    kinds = {kind: known.saved() for kind, known in world.core.state.spans.items()}
    assert kinds["user:ann:1000"].counts == kinds["queue:default"].counts == ((bucket_of(10), 1),)
    assert "user:u0:1000" not in kinds
    restored = PlacerCore.restore(world.core.snapshot()).state.spans
    assert {kind: known.saved() for kind, known in restored.items()} == kinds


@pytest.mark.parametrize("how", ["stopped", "failed to start", "never seen running"])
def test_runs_that_did_not_end_by_themselves_teach_nothing(how: str) -> None:
    """A run that was stopped would have taken longer."""
    world = PlacerWorld()
    world.join("a", 4)
    world.offer(request(1))
    if how != "never seen running":
        world.start("a", "1")
    world.now += 10 * SECOND
    if how == "stopped":
        world.queue(ev.JobStopRequested(cause="cmd:x", job="1", attempt=1, reason="cancelled"))
    world.exit("a", "1", outcome="start_failed" if how == "failed to start" else "exited")
    assert world.core.state.spans == {}


# ---------------------------------------------------------------------------- when there is room


def test_by_limits_the_node_with_the_earliest_end_is_reserved() -> None:
    """Though another lacks as little and has the first name: the limit, the grace of 5 seconds, and half a minute."""
    world = busy(2 * HOUR, HOUR, 0)
    world.offer(request(4))
    event = made(world.queue(claim("4")))
    assert (event.nodes, from_now(world, event), event.basis, event.waits_for) == (("b",), HOUR + 35, "limits", ("2",))


def test_a_run_that_has_not_started_is_given_a_minute_to() -> None:
    """Its limit counts from its start."""
    world = PlacerWorld()
    world.join("a", 4)
    world.offer(request(4), limit_s=HOUR)
    world.offer(request(4))
    assert from_now(world, made(world.queue(claim("2")))) == HOUR + 35 + 60


def test_without_limits_what_such_runs_took_counts() -> None:
    """Of the same user and size, else of the same queue; and the event says that it is a guess."""
    world = PlacerWorld()
    world.join("a", 4)
    for job in "123":
        world.offer(request(4))
        world.start("a", job)
        world.now += 1000 * SECOND
        world.exit("a", job)
    world.offer(request(4))
    world.start("a", "4")
    world.now += 500 * SECOND
    world.offer(request(4))
    event = made(world.queue(claim("5")))
    assert event.basis == "evidence"
    assert 1000 - 500 <= from_now(world, event) <= 1250 - 500 + 30
    assert event.waits_for == ("4",)


def test_without_anything_known_the_start_is_not_known() -> None:
    """The nodes are those that lack least, as ever."""
    world = busy(0, 0)
    world.offer(request(4))
    event = made(world.queue(claim("3")))
    assert (event.nodes, event.start_ns, event.basis, event.waits_for) == (("a",), 0, "", ("1",))


def test_only_the_jobs_in_the_way_are_waited_for() -> None:
    """The node has room for 4 GPUs once its two jobs of 2 have ended; what ends before or after is not in the way."""
    world = PlacerWorld()
    world.join("a", 8)
    for gpus, limit_s in ((2, HOUR), (2, 2 * HOUR), (3, 3 * HOUR)):
        world.offer(request(gpus), limit_s=limit_s)
    for job in "123":
        world.start("a", job)
    world.offer(request(5))
    event = made(world.queue(claim("4")))
    assert (from_now(world, event), event.waits_for) == (2 * HOUR + 35, ("2", "1"))


def test_a_gang_starts_when_its_last_node_has_room() -> None:
    """On the two nodes that have it first."""
    world = busy(3 * HOUR, HOUR, 2 * HOUR)
    world.offer(request(4, nodes=2))
    event = made(world.queue(claim("4")))
    assert (event.nodes, from_now(world, event)) == (("b", "c"), 2 * HOUR + 35)
    assert event.waits_for == ("3", "2")


def test_nodes_of_one_rack_are_reserved_for_a_gang_that_needs_one() -> None:
    """The two nodes that are free first are in two racks, which does not help; the gang starts on its reserved nodes."""
    world = busy(HOUR, 3 * HOUR, 2 * HOUR, 2 * HOUR, racks=("r1", "r1", "r2", "r2"))
    world.offer(request(4, nodes=2, require=("rack",)))
    event = made(world.queue(claim("5")))
    assert (event.nodes, from_now(world, event)) == (("c", "d"), 2 * HOUR + 35)
    world.exit("a", "1")
    world.exit("c", "3")
    assert "JobPlaced" in names(world.exit("d", "4"))


def test_gangs_of_several_groups_and_tasks_use_their_reserved_nodes() -> None:
    """One node with GPUs and one without; four tasks on two nodes: no start is promised."""
    world = PlacerWorld()
    world.join("a", 4, labels={"name": "a"})
    world.join("b", 4, labels={"name": "b"})
    world.offer(request(4, selector=("name=a",)))
    world.offer(request(4, selector=("name=b",)))
    world.offer(request(4, selector=("name=a",), also=(request(2, selector=("name=b",)),)))
    event = made(world.queue(claim("3")))
    assert event.nodes == ("a", "b")
    world.exit("a", "1")
    assert "JobPlaced" in names(world.exit("b", "2"))
    world.offer(request(2, nodes=4, tasks=True))
    event = made(world.queue(claim("4")))
    assert (event.nodes, event.start_ns) == (("a", "b"), 0)
    world.exit("a", "3", rank=0)
    assert "JobPlaced" in names(world.exit("b", "3", rank=1))


# ---------------------------------------------------------------------------- looked at again


def test_a_start_is_recomputed_every_half_minute_and_no_sooner() -> None:
    """A result without a difference is not recorded."""
    world = busy(2 * HOUR, HOUR)
    world.offer(request(4))
    first = made(world.queue(claim("3")))
    world.start("b", "2")
    for seconds in (20, 20, 20):
        world.now += seconds * SECOND
        world.core.state.pools.stir_offers()
        assert world.step() == []
    assert world.core.state.looked == {"3": world.now - 20 * SECOND}
    assert world.core.state.reservations["3"].start_ns == first.start_ns


def test_another_node_that_is_free_sooner_is_kept_instead() -> None:
    """Once it makes a difference of more than a minute, and not before half a minute has passed."""
    world = busy(2 * HOUR, HOUR)
    world.join("c", 4, labels={"name": "c"})
    world.offer(request(4, selector=("name=c",)), limit_s=4 * HOUR)
    world.start("c", "3")
    world.offer(request(4))
    assert made(world.queue(claim("4"))).nodes == ("b",)
    world.queue(ev.JobStopRequested(cause="cmd:x", job="3", attempt=1, reason="cancelled"))
    assert world.core.state.reservations["4"].nodes == ("b",)
    world.now += 31 * SECOND
    event = made(world.heard("c") + world.command(DrainNode(id="z", node="a")))
    assert (event.nodes, from_now(world, event), event.waits_for) == (("c",), 35, ("3",))


def test_a_start_that_has_passed_is_recomputed() -> None:
    """The expected remaining time doubles with the delay, so that it is not recorded all the time."""
    world = busy(HOUR)
    world.offer(request(4))
    event = made(world.queue(claim("2")))
    assert world.core.wake_at() == event.start_ns + 1
    said: list[int] = []
    for _ in range(6):
        wake_ns = world.core.wake_at()
        assert wake_ns is not None
        world.now = wake_ns
        event = made(world.step())
        assert event.start_ns >= world.now + 30 * SECOND
        said.append(from_now(world, event))
    assert said == sorted(said)
    assert said[-1] > 8 * 30


def test_a_job_that_can_never_fit_has_no_start() -> None:
    """Too few nodes for it at all."""
    world = busy(HOUR)
    wanted = request(4, nodes=2)
    world.offer(wanted)
    assert earliest(world.core.state, wanted, "2", world.now) is None


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=5),
    st.integers(1, 2),
    st.integers(-1, 7 * 60),
)
def test_a_bound_spares_only_starts_that_come_later(hours: list[int], nodes: int, bound_minutes: int) -> None:
    """A start before the bound is the same as without one; any other result is as good as none."""
    world = busy(*[each * HOUR for each in hours])
    wanted, job = request(4, nodes=nodes), str(len(hours) + 1)
    world.offer(wanted)
    before_ns = world.now + bound_minutes * 60 * SECOND
    free = earliest(world.core.state, wanted, job, world.now)
    bounded = earliest(world.core.state, wanted, job, world.now, before_ns)
    assert free is not None
    if free.start_ns < before_ns:
        assert bounded == free
    else:
        assert bounded is None or bounded.start_ns >= before_ns
