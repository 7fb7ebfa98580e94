"""The cheapest runs that make room, against every set of candidates in small worlds; and what is large."""

from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat
from fairlead_placer.cluster.capacity.unit_request import several, unit_requests
from fairlead_placer.cluster.entities import Offer, run_key
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.scheduling.preemption.victim_set import VictimSet, find_victims
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.kit.placer_world import PlacerWorld, placed, request

RACK = "fairlead/rack"


def offered(wanted: Request) -> Offer:
    """An offer that the state does not know: it fits or does not fit all the same."""
    return Offer("999", 1, 1, "1.0", wanted)


def victim(job: str, gpu_s: int) -> ev.Victim:
    """One who may yield."""
    return ev.Victim(job=job, attempt=1, rule="over_share", gpu_s=gpu_s)


def shared(milli: int, *, nodes: int, cpu: int) -> Request:
    """A part of one GPU on each node."""
    return Request(nodes=nodes, gpu_milli=milli, gpu_parts=1, cpu_milli=cpu * 1000, memory_mib=64)


def takes(left: FreeResources, wanted: Request) -> int:
    """Units on one node."""
    ask = unit_requests(wanted)[0]
    most = wanted.nodes if wanted.tasks else 1
    return max((n for n in range(1, most + 1) if isinstance(seat(left, several(ask, n)), NodeAllocation)), default=0)


def fits(state: ClusterState, wanted: Request, gone: set[str]) -> bool:
    """Return True if all units fit without these jobs: counted by domain, node after node."""
    domains: dict[str, int] = {}
    for node in state.nodes.values():
        left = node.left.copy()
        for job in gone:
            for part in state.runs[run_key(job, 1)].parts:
                if part.node == node.name:
                    left.give(part)
        rack = node.inventory.labels.get(RACK, "") if "rack" in wanted.require else "all"
        rack = rack or (node.name if wanted.tasks else "")  # one node lies in one rack, whatever its name is
        if rack:
            domains[rack] = domains.get(rack, 0) + takes(left, wanted)
    return max(domains.values(), default=0) >= (wanted.nodes_min or wanted.nodes)


def cost(victims: list[ev.Victim]) -> tuple[int, int]:
    """Return the loss and the number of stopped runs."""
    return sum(each.gpu_s for each in victims), len(victims)


def cheapest(state: ClusterState, wanted: Request, victims: list[ev.Victim]) -> tuple[int, int] | None:
    """The cost of the cheapest of all sets."""
    sets = [list(some) for size in range(len(victims) + 1) for some in combinations(victims, size)]
    able = (cost(some) for some in sorted(sets, key=cost) if fits(state, wanted, {each.job for each in some}))
    return next(able, None)


jobs_of = st.tuples(
    st.sampled_from([0, 1, 1, 2, 3]), st.integers(1, 3), st.integers(0, 3), st.sampled_from([0, 0, 0, 500])
)
wishes = st.tuples(
    st.integers(0, 4),
    st.integers(1, 4),
    st.integers(0, 6),
    st.sampled_from([(), (), ("rack",)]),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([0, 0, 300]),
)


def wished(wish: tuple[int, int, int, tuple[str, ...], bool, int, int]) -> Request:
    """A request of some GPUs or a share, on some nodes or as tasks, within a rack or anywhere."""
    gpus, nodes, cpu, require, tasks, least, share = wish
    least = least if 0 < least < nodes else 0
    wanted = shared(share, nodes=nodes, cpu=cpu) if share else request(gpus, nodes=nodes, cpu=cpu)
    return msgspec.structs.replace(wanted, require=require, tasks=tasks, nodes_min=least)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    nodes=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "r1", "r2"])), min_size=1, max_size=5),
    jobs=st.lists(jobs_of, min_size=1, max_size=9),
    wish=wishes,
    losses=st.lists(st.integers(0, 6), min_size=9),
)
def test_no_set_of_victims_is_cheaper(
    nodes: list[tuple[int, str]], jobs: list[Any], wish: Any, losses: list[int]
) -> None:
    """The victims make room and cost as little as the cheapest such set; none is preempted if no set makes room."""
    world = PlacerWorld()
    for i, (gpus, rack) in enumerate(nodes):
        world.join(f"n{i}", gpus, cpu=6, memory_gib=16, labels={RACK: rack} if rack else {})
    for gpus, count, cpu, share in jobs:
        world.offer(request(gpus, nodes=count, cpu=cpu) if not share else shared(share, nodes=count, cpu=cpu))
    state, wanted = world.core.state, wished(wish)
    running = sorted(run.job for run in state.runs.values())
    victims = [victim(job, loss) for job, loss in zip(running, losses, strict=False)]
    found, best = find_victims(state, offered(wanted), victims), cheapest(state, wanted, victims)
    assert (None if found is None else cost(found.victims)) == best
    if found is not None:
        assert fits(state, wanted, {each.job for each in found.victims})
        assert len(set(found.nodes)) == len(found.nodes)
        assert fits_on(state, wanted, found)


def fits_on(state: ClusterState, wanted: Request, hole: VictimSet) -> bool:
    """Return True if all units fit on the reserved nodes alone."""
    units = 0
    for name in hole.nodes:
        left = state.nodes[name].left.copy()
        for each in hole.victims:
            for part in state.runs[run_key(each.job, 1)].parts:
                if part.node == name:
                    left.give(part)
        units += takes(left, wanted)
    return units >= (wanted.nodes_min or wanted.nodes)


# ---------------------------------------------------------------------------- holes that are taken by their jobs


def plea(job: str, *victims: str) -> ev.PreemptionRequested:
    """All of them lose as many GPU-seconds as their numbers say."""
    named = tuple(victim(each, int(each)) for each in victims)
    return ev.PreemptionRequested(cause="clock", job=job, attempt=1, victims=named)


def full(racks: int, each: int, gpus: int = 4) -> PlacerWorld:
    """Racks of nodes a1, a2 …, b1 …, each with a job that takes it all: 1, 2, 3 … in order."""
    world = PlacerWorld()
    for rack in "abcdef"[:racks]:
        for i in range(1, each + 1):
            world.join(f"{rack}{i}", gpus, labels={RACK: rack, "name": f"{rack}{i}"})
            world.offer(request(gpus, selector=(f"name={rack}{i}",)))
    return world


def asked(events: list[ev.Event]) -> list[str]:
    """Return the runs to be preempted, in order."""
    return [e.job for e in events if isinstance(e, ev.PreemptionStarted)]


def end(world: PlacerWorld, jobs: list[str]) -> dict[str, list[str]]:
    """They end and are clean; {job: its nodes} of what is placed then."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        for part in world.core.state.runs[run_key(job, 1)].parts:
            found |= placed(world.exit(part.node, job, outcome="stopped", exit_code=None))
    return found


def test_room_is_made_in_one_rack_for_a_gang_that_needs_one() -> None:
    """The cheapest nodes are in two racks; the runs of one rack are preempted, and the gang goes there only."""
    world = full(2, 3)
    world.offer(request(4, nodes=2, require=("rack",)))
    chosen = asked(world.queue(plea("7", "3", "4", "5")))
    assert chosen == ["4", "5"]
    assert end(world, ["4"]) == {}
    assert end(world, ["5"]) == {"7": ["b1", "b2"]}


def test_equal_losses_are_taken_in_the_smallest_domain() -> None:
    """Four nodes lose alike; two in one rack go."""
    world = full(3, 2)
    world.offer(request(4, nodes=2))
    named = tuple(victim(job, 5) for job in ("1", "3", "4", "6"))
    events = world.queue(ev.PreemptionRequested(cause="clock", job="7", attempt=1, victims=named))
    assert asked(events) == ["3", "4"]


def test_room_is_made_for_tasks_that_share_nodes() -> None:
    """Six tasks of one GPU: two nodes that hold three or more are kept until both are empty."""
    world = full(1, 3)
    world.offer(request(1, nodes=6, tasks=True))
    assert asked(world.queue(plea("4", "1", "2", "3"))) == ["1", "2"]
    assert placed(world.offer(request(1))) == {}
    assert end(world, ["1"]) == {}
    assert end(world, ["2"])["4"] == ["a1", "a2"]


def test_room_is_made_for_each_task_group() -> None:
    """One big unit and two small ones on nodes of different sizes: no run is preempted that no group needs."""
    world = full(1, 3)
    world.join("big", 8, labels={"name": "big"})
    world.offer(request(8, selector=("name=big",)))
    world.offer(msgspec.structs.replace(request(2, nodes=2), also=(request(8),)))
    chosen = asked(world.queue(plea("5", "1", "2", "3", "4")))
    assert chosen == ["1", "2", "4"]
    assert end(world, ["1", "2"]) == {}
    assert end(world, ["4"]) == {"5": ["a1", "a2", "big"]}


def test_an_elastic_gang_asks_for_the_least_it_starts_with() -> None:
    """Two of four nodes are enough; it starts with them."""
    world = full(1, 4)
    world.offer(request(4, nodes=4, nodes_min=2))
    assert asked(world.queue(plea("5", "1", "2", "3", "4"))) == ["1", "2"]
    assert end(world, ["1", "2"]) == {"5": ["a1", "a2"]}


def test_a_gang_counts_once_however_many_nodes_it_frees() -> None:
    """One run on four nodes loses less than four runs on one each."""
    world = PlacerWorld()
    for i in range(8):
        world.join(f"n{i}", 4, labels={"half": "left" if i < 4 else "right"})
    world.offer(request(4, nodes=4, selector=("half=left",)))
    for _ in range(4):
        world.offer(request(4, selector=("half=right",)))
    world.offer(request(4, nodes=4))
    named = (victim("1", 35), *(victim(str(job), 10) for job in range(2, 6)))
    events = world.queue(ev.PreemptionRequested(cause="clock", job="6", attempt=1, victims=named))
    assert asked(events) == ["1"]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_beyond_its_bounds_a_set_is_still_minimal(data: st.DataObject) -> None:
    """Twenty gangs that overlap on many nodes, and a node with many runs: without any one of those asked it would not
    fit."""
    world = PlacerWorld()
    for i in range(24):
        world.join(f"n{i:02}", 8, cpu=40)
    for _ in range(30):
        world.offer(request(data.draw(st.integers(1, 4)), nodes=data.draw(st.integers(2, 4))))
    world.queue(*(event for _ in range(40) for event in world.submitted(request(0, cpu=data.draw(st.integers(1, 9))))))
    state = world.core.state
    victims = [
        victim(run.job, data.draw(st.integers(0, 99))) for run in sorted(state.runs.values(), key=lambda r: r.job)
    ]
    wanted = request(data.draw(st.integers(4, 8)), nodes=data.draw(st.integers(1, 12)), cpu=30)
    found = find_victims(state, offered(wanted), victims)
    gone = {each.job for each in victims} if found is None else {each.job for each in found.victims}
    assert fits(state, wanted, gone) == (found is not None)
    for one in gone if found is not None else ():
        assert not fits(state, wanted, gone - {one})
