"""Runs that are moved so that a big job starts: which, when it is worth it, and that it is off unless a pool asks for it."""

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead_placer.core import PlacerCore
from fairlead_placer.scheduling.defragment import LOOK_NS, RESTART_S, plans
from fairlead_schemas.queries.explainer import DefragPlan
from fairlead_schemas.queuefile.settings import PoolSettings
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.kit.placer_world import SECOND, PlacerWorld, names, placed, request

HOUR = 3600 * SECOND
ON = ev.PoolConfigured(cause="cmd:q", pool="default", settings=PoolSettings(defragment=True))


def start(world: PlacerWorld, wanted: Request, node: str, *, slice_ns: int = HOUR, kind: ev.JobKind = "batch") -> str:
    """A job that runs on the node that its selector names."""
    submitted, offered = world.submitted(wanted)
    submitted = msgspec.structs.replace(submitted, slice_ns=slice_ns, kind=kind)
    assert placed(world.queue(submitted, offered)) == {submitted.job: [node]}
    world.start(node, submitted.job)
    return submitted.job


def fragmented(*, slice_ns: int = HOUR, kind: ev.JobKind = "batch", each: int = 2) -> PlacerWorld:
    """Four nodes of 4 GPUs, each with a job of 2: 8 GPUs are free, 4 together nowhere. Two hours pass, then one of
    4 GPUs waits as job 5."""
    world = PlacerWorld()
    for name in "abcd":
        world.join(name, 4, labels={"name": name})
    for name in "abcd":
        start(world, request(each, packing="spread"), name, slice_ns=slice_ns, kind=kind)
        world.now += 60 * SECOND
    world.now += 2 * HOUR
    assert names(world.offer(request(4))) == ["JobUnplaceable"]
    return world


def planned(world: PlacerWorld) -> DefragPlan:
    """The one plan."""
    [plan] = plans(world.core.state, "default", world.now)
    return plan


def test_the_cheapest_run_that_fits_elsewhere_is_moved() -> None:
    """All have had their slice and lose alike: the first goes, to another node, and the big job gets its node."""
    world = fragmented()
    world.now += 3 * HOUR
    before = world.core.snapshot()
    plan = planned(world)
    assert world.core.snapshot() == before
    [move] = plan.moves
    assert (move.job, move.sources, plan.nodes, plan.why_not) == ("1", ("a",), ("a",), "")
    assert move.targets[0] in "bcd"
    assert (plan.gain_gpu_s, plan.cost_gpu_s) == (4 * 3 * 3600, 2 * (3600 + RESTART_S))


def test_defragmentation_is_off_unless_the_pool_enables_it() -> None:
    """It begins once the pool enables it, and stops when the pool disables it, however long a job waits."""
    world = fragmented()
    world.now += 10 * HOUR
    assert world.step() == []
    assert world.core.wake_at() is None
    events = world.queue(ON)
    [asked, kept] = events
    assert asked == ev.PreemptionStarted(cause="clock", job="1", attempt=1, beneficiary="5", rule="defragmentation")
    assert isinstance(kept, ev.ReservationMade)
    assert (kept.job, kept.nodes, kept.waits_for) == ("5", ("a",), ("1",))
    world = fragmented()
    world.queue(ON)
    world.queue(ev.PoolConfigured(cause="cmd:q", pool="default", settings=PoolSettings()))
    world.now += 10 * HOUR
    assert world.step() == []
    world.queue(ON)
    world.queue(ev.PoolRemoved(cause="cmd:q", pool="default"))
    assert world.core.state.defragmented == {}


def test_a_move_from_end_to_end() -> None:
    """The run ends, the big job gets its node, the moved run is offered again and continues elsewhere."""
    world = fragmented()
    world.queue(ON)
    world.now += 3 * HOUR
    assert names(world.step()) == ["PreemptionStarted", "ReservationMade"]
    assert world.stops("a") == {"1.1": "preempted"}
    assert placed(world.exit("a", "1", outcome="stopped", exit_code=None)) == {"5": ["a"]}
    again = [
        ev.JobRequeued(cause="clock", job="1", attempt=2, reason="preempted"),
        ev.JobOffered(cause="clock", job="1", attempt=2, rank=99),
    ]
    assert list(placed(world.queue(*again))) == ["1"]


def test_it_begins_when_the_gain_is_more_than_the_cost() -> None:
    """The core asks to be woken for each look, and begins at the first one after the gain has grown past the cost."""
    world = fragmented()
    world.queue(ON)
    offered = world.now
    looks = 0
    while not (events := world.step()):
        at_ns = world.core.wake_at()
        assert at_ns is not None
        assert world.now < at_ns <= world.now + LOOK_NS
        world.now, looks = at_ns, looks + 1
        assert looks < 1000
    assert names(events) == ["PreemptionStarted", "ReservationMade"]
    waited_s = (world.now - offered) // SECOND
    assert 4 * (waited_s - LOOK_NS // SECOND) <= 2 * (3600 + RESTART_S) < 4 * waited_s


def test_runs_that_are_not_moved() -> None:
    """Jobs that name no slice, sessions, those whose slice is not over, those that are starting."""
    for world in (fragmented(slice_ns=0), fragmented(kind="session"), fragmented(slice_ns=99 * HOUR)):
        world.now += 9 * HOUR
        assert (planned(world).moves, planned(world).why_not) == ((), "no_moves")
        world.queue(ON)
        assert world.core.state.reservations == {}


def test_nothing_is_moved_if_too_few_gpus_are_free() -> None:
    """Moving frees no GPU in total."""
    world = fragmented(each=3)
    world.offer(request(1))
    world.now += 9 * HOUR
    assert planned(world).why_not == "few_free"


def test_runs_without_another_place_stay() -> None:
    """The cheapest ones need more CPU than is left anywhere else: a dearer one that fits is moved."""
    world = PlacerWorld()
    for name in "abc":
        world.join(name, 4, cpu=8, labels={"name": name})
    for name, cpu in (("a", 6), ("b", 6), ("c", 1)):
        start(world, request(2, cpu=cpu, selector=(f"name={name}",) if name != "c" else (), packing="spread"), name)
    world.now += 2 * HOUR
    world.offer(request(4))
    world.now += 9 * HOUR
    plan = planned(world)
    assert [(move.job, move.sources) for move in plan.moves] == [("3", ("c",))]


def test_one_defragmentation_at_a_time() -> None:
    """Of two waiting big jobs, the second has its turn after the first is placed."""
    world = fragmented()
    world.offer(request(4))
    world.queue(ON)
    world.now += 9 * HOUR
    assert names(world.step()) == ["PreemptionStarted", "ReservationMade"]
    world.now += LOOK_NS
    assert world.step() == []
    assert placed(world.exit("a", "1", outcome="stopped", exit_code=None)) == {"5": ["a"]}


def test_defragmentation_state_survives_a_restart() -> None:
    """The pool's setting, the slices and the time of an offer are restored."""
    world = fragmented()
    world.queue(ON)
    restored = PlacerCore.restore(world.core.snapshot())
    assert restored.snapshot() == world.core.snapshot()
    world.now += 9 * HOUR
    assert plans(restored.state, "default", world.now) == plans(world.core.state, "default", world.now)
    assert restored.decide((), world.now) == world.decide()


def test_they_fit_elsewhere_in_whatever_order_they_come_back() -> None:
    """Two would leave a node; the smaller one, back first, would spread onto the place of the larger: so others move."""
    world = PlacerWorld()
    for i in range(4):
        world.join(f"n{i}", 4, cpu=8)
    for gpus in (1, 1, 1, 2, 2, 2, 2):
        submitted, offered = world.submitted(request(gpus, packing="spread"))
        submitted = msgspec.structs.replace(submitted, slice_ns=HOUR)
        for job, [node] in placed(world.queue(submitted, offered)).items():
            world.start(node, job)
    world.offer(request(4))
    world.now += 50 * HOUR
    assert planned(world).why_not == "no_moves"


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@example(nodes=4, jobs=[(1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 1), (2, 1)], wanted=(4, 1))
@given(
    nodes=st.integers(3, 5),
    jobs=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=3, max_size=9),
    wanted=st.tuples(st.integers(3, 4), st.integers(1, 2)),
)
def test_every_plan_holds(nodes: int, jobs: list[tuple[int, int]], wanted: tuple[int, int]) -> None:
    """Carried out, the big job starts where the plan says, and each run that was moved finds a place at once."""
    world = PlacerWorld()
    for i in range(nodes):
        world.join(f"n{i}", 4, cpu=8)
    for gpus, cpu in jobs:
        submitted, offered = world.submitted(request(gpus, cpu=cpu, packing="spread"))
        submitted = msgspec.structs.replace(submitted, slice_ns=HOUR)
        for job, [node] in placed(world.queue(submitted, offered)).items():
            world.start(node, job)
    for job in sorted(world.core.state.offers):
        world.queue(ev.OfferWithdrawn(cause="cmd:h", job=job, attempt=1, reason="hold"))
    world.offer(request(wanted[0], nodes=wanted[1]))
    big = str(world.jobs)
    world.now += 50 * HOUR
    found = plans(world.core.state, "default", world.now)
    if not found or found[0].why_not:
        return
    [plan] = found
    world.queue(ON)
    starts: dict[str, list[str]] = {}
    for move in plan.moves:
        starts |= placed(world.exit(move.sources[0], move.job, outcome="stopped", exit_code=None))
    assert starts == {big: list(plan.nodes)}
    for move in plan.moves:
        job = move.job
        again = ev.JobRequeued(cause="clock", job=job, attempt=2, reason="preempted")
        assert job in placed(world.queue(again, ev.JobOffered(cause="clock", job=job, attempt=2, rank=999)))
