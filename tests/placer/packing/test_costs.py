"""Cached costs never change a choice: a computation from scratch would choose the same."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_placer.cluster import pools as index_module
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, part_of, seat
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.packing import costs as costs_module
from fairlead_placer.packing import moves
from fairlead_placer.packing.policies import POLICIES
from fairlead_placer.packing.policy import POINTS, PRICE_ONE, columns_of
from fairlead_placer.scheduling.node_selection import NodeSelection, find
from fairlead_schemas.wire.resources import TOPOLOGY_GPUS_MAX, Request
from tests.placer.cluster.capacity.ground import Ground
from tests.placer.packing.anew import check, state_of
from tests.placer.packing.play import SIZES, STEPS, Play, stock

#: New states one by one or at once; choices in order at once, late or never; prices seldom or always, moved by a little or
#: by much; lines kept or soon forgotten.
WAYS = [
    {"FEW": 0, "SOUGHT": 1, "UNORDERED": 0, "PRICED_EVERY": 0, "LINES_MAX": 3},
    {"FEW": 1000, "SOUGHT": 1, "UNORDERED": 1000, "PRICED_EVERY": 5, "CELLS_MAX": 100},
    {"FEW": 2, "UNORDERED": 2, "PRICED_EVERY": 0},
    {"SOUGHT": 2},
]


@contextmanager
def small(way: dict[str, int]) -> Iterator[None]:
    """Lower the bounds of the caches, so that they are reached soon."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in way.items():
            patch.setattr(costs_module, name, value)
        patch.setattr(costs_module, "NODES_PER_ARRIVAL", 1000)
        patch.setattr(moves, "MOVED", 0 if way.get("PRICED_EVERY") == 0 else 100)
        patch.setattr(moves, "MOVES_MAX", way.get("LINES_MAX", 1000))
        patch.setattr(index_module, "PACKING_REQUESTS_MAX", way.get("LINES_MAX", 1000))
        patch.setattr(index_module, "ROWS_PER_NODE", 0)
        patch.setattr(index_module, "ROWS_SPARE", -1)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, min_size=20, max_size=60), st.sampled_from(WAYS))
def test_cached_costs_change_no_choice(
    policy: str, steps: list[tuple[Request | tuple[str, int], int]], way: dict[str, int]
) -> None:
    """With arrivals, ends, joins and leaves, and any part of them applied at once."""
    with small(way):
        played = Play(policy, 6)
        for step, looks in steps:
            played.do(step, looks)
        played.review()


@pytest.mark.parametrize("policy", POLICIES)
def test_cached_costs_change_no_choice_after_many_jobs(policy: str) -> None:
    """After columns have grown, with the default bounds."""
    rng, played = random.Random(5), Play(policy, 20)
    for at in range(300):
        size = rng.choice(SIZES)
        wanted = Request(
            cpu_milli=rng.choice([100, 1_000, 5_000, 9_000]),
            memory_mib=rng.choice([0, 7_000, 30_000]),
            gpu_milli=size[0] * (size[1] or 1000),
            gpu_parts=size[0] if size[1] else 0,
        )
        played.do(wanted, at % 10 == 0)
        if len(played.keys) > 40:
            played.end(rng.randrange(40))
    assert played.index.rows.rows > 64
    played.review()


def test_prices_are_those_of_the_pool_as_it_is() -> None:
    """Or nearly: they stay while none has moved by more than MOVED."""
    with small({"PRICED_EVERY": 0}), pytest.MonkeyPatch.context() as patch:
        patch.setattr(moves, "MOVED", 100)
        rng, played = random.Random(8), Play("fragmentation", 8)
        for _ in range(40):
            gpus = rng.choice([1, 1, 2, 4, 8])
            played.place(Request(gpu_milli=1000 * gpus, cpu_milli=4_000 * gpus, memory_mib=9_000 * gpus))
            index = played.index
            costs, _ = index.line(unit_requests(played.last)[0], played.ground.state.work_of(played.last))
            states = [state_of(index, node) for node in index.members.values()]
            slots = costs.policy.held(columns_of(states, TOPOLOGY_GPUS_MAX)).slots.sum(axis=0)
            anew = costs.policy.prices(index.rows, costs.work, slots) * POINTS // PRICE_ONE
            assert len(anew) and costs._states._prices is not None
            assert np.abs(anew - costs._states._prices).max() <= moves.MOVED


def test_rows_of_full_nodes_are_coarser() -> None:
    """Two nodes with slightly different CPUs are distinct while a GPU is free, and equal when none is."""
    ground = Ground()
    nodes = [ground.join(stock(name, 0)) for name in ("n0", "n1")]
    for node, cpu in zip(nodes, (1_000, 4_000), strict=True):
        hold(ground, node, 7, cpu)
    index = ground.state.pools.of(Request())
    assert len(index.rows.filled) == 2
    for node in nodes:
        hold(ground, node, 1, 0)
    (row,) = index.settled().rows.filled.tolist()
    assert index.rows.here[row] == 2
    assert index.rows.keys[row].cpu_milli >= max(node.left.cpu_milli for node in nodes) == 95_000


def hold(ground: Ground, node: ClusterNode, gpus: int, cpu_milli: int) -> None:
    """A job on that node."""
    ask = unit_requests(Request(gpu_milli=1000 * gpus, cpu_milli=cpu_milli))[0]
    place = seat(node.left, ask)
    assert isinstance(place, NodeAllocation)
    ground.put(NodeSelection([node], (part_of(node.name, node.left, ask, place),), {}))


def test_a_row_has_the_maximum_of_its_nodes() -> None:
    """A node of the row that lacks a little is skipped."""
    ground = Ground()
    nodes = [ground.join(stock(name, 0)) for name in ("n0", "n1")]
    hold(ground, nodes[0], 8, 6_000)
    hold(ground, nodes[1], 8, 5_000)
    index, wanted = ground.state.pools.of(Request()), Request(cpu_milli=90_500)
    assert len(index.rows.filled) == 1
    found = find(ground.state, wanted)
    assert isinstance(found, NodeSelection) and found.nodes == [nodes[1]]
    assert not isinstance(find(ground.state, Request(cpu_milli=91_001)), NodeSelection)
    check(ground, wanted)
