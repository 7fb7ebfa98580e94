"""Turns that are found at once are those that are given one by one, and leave the same behind."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_queue.decide.turns import Turns
from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, QueueEntry, QueueSettings
from tests.kit.queue_world import QueueWorld, request

#: Queues directly below the root: one with a guarantee, one with a maximum, one with a weight and a priority.
QUEUES = {
    "a": QueueSettings(guaranteed={"gpu": 4000}),
    "b": QueueSettings(maximum={"gpu": 9000, "cpu": 20_000}),
    "c": QueueSettings(weight=3, priority=1),
    "d": QueueSettings(),
}
SIZES = ((0, 2), (1, 1), (2, 8), (3, 4), (8, 1))


class Left(NamedTuple):
    """Everything that later rules of a decision read from its turns."""

    turns: list[tuple[str, int, str]]
    exhausted: set[str]
    charged: dict[str, int]
    shut: set[str]
    refused: list[tuple[str, str, str]]
    usage: dict[str, list[int]]


def left(world: QueueWorld, limit: int, *, at_once: bool) -> Left:
    """Take all open offers back, give turns, then one more than that, and take all of it back."""
    pool = world.state.pools["default"]
    pool.forget_refused()
    with world.state.speculating():
        turns = Turns(world.state, pool)
        turns.reopen(list(pool.offers.values()))
        taken = turns.take(limit) if at_once else []
        while len(taken) < limit + 1 and (turn := turns.next()) is not None:
            taken.append(turn)
        gates = turns.gates
        return Left(
            [(lane.leaf.node.path, candidate.order, candidate.id) for lane, candidate in taken],
            {name(lane) for lane in turns.exhausted},
            {name(lane): times for lane, times in turns.changed().items()},
            {str(request_class.request) for request_class in gates.shut},
            [(node.path, name(lane), closed.reason) for node, (lane, closed) in gates.refused.items()],
            {path: list(node.usage) for path, node in pool.tree.nodes.items()},
        )


def name(lane: Any) -> str:
    """Return the name of a lane."""
    return f"{lane.leaf.node.path} {lane.request_class.request}"


submits = st.tuples(
    st.sampled_from(sorted(QUEUES)),
    st.sampled_from(SIZES),
    st.sampled_from([10, 50, 90]),
    st.sampled_from([0, 0, 0, 0, 2, 30, 90]),
)
answers = st.sampled_from(["place", "refuse", "wait", "wait"])


def crowded(sequencer: str, work: list[tuple[Any, ...]], order: list[str]) -> QueueWorld:
    """Return a world of two nodes in which some jobs run, some are offered, some refused, and some wait."""
    world = QueueWorld(careful=False)
    world.node("n1", gpus=8, cpu=16)
    world.node("n2", gpus=4, cpu=32)
    world.apply(
        pools=(PoolEntry(pool="default", settings=PoolSettings(sequencer=sequencer)),),
        queues=tuple(QueueEntry(path=path, settings=each) for path, each in QUEUES.items()),
    )
    for queue, (gpus, cpu), priority, elements in work:
        array = (0, elements - 1) if elements else None
        world.ask(world.submission(request=request(gpus, cpu=cpu), queue=queue, priority=priority, array=array))
    world.settle()
    for answer, job in zip(order, sorted(world.offered()), strict=False):
        if answer == "place":
            world.run(job)
        elif answer == "refuse":
            world.refuse(job)
    world.settle()
    return world


@pytest.mark.parametrize("sequencer", ["drf", "fairshare", "fifo", "lifo"])
@given(st.lists(submits, min_size=1, max_size=24), st.lists(answers, max_size=24), st.integers(1, 400))
@settings(max_examples=25, deadline=None)
def test_turns_at_once_are_those_given_one_by_one(
    sequencer: str, work: list[tuple[Any, ...]], order: list[str], limit: int
) -> None:
    """The same turns in the same order, up to any limit; then the same next turn, lanes, charges and closed gates."""
    world = crowded(sequencer, work, order)
    before = world.core.snapshot()
    one_by_one = left(world, limit, at_once=False)
    assert left(world, limit, at_once=True) == one_by_one
    assert left(world, limit, at_once=True) == one_by_one  # by the keys that the first time kept
    assert world.core.snapshot() == before


@pytest.mark.parametrize("sequencer", ["drf", "fifo"])
@given(st.lists(submits, min_size=1, max_size=12), st.lists(answers, max_size=12), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_all_turns_of_a_review_are_those_of_offers_that_were_taken_back(
    sequencer: str, work: list[tuple[Any, ...]], order: list[str], limit: int
) -> None:
    """Every job in line and every open offer has its turn, as one by one, and only jobs in line change a charge; or nothing
    has changed."""
    world = crowded(sequencer, work, order)
    pool, before = world.state.pools["default"], world.core.snapshot()
    one_by_one = left(world, limit, at_once=False)
    with world.state.speculating():
        turns = Turns(world.state, pool)
        taken = turns.take_all(list(pool.offers.values()), limit)
        if taken is not None:
            assert [(lane.leaf.node.path, each.order, each.id) for lane, each in taken] == one_by_one.turns
            assert turns.next() is None and not (one_by_one.shut or one_by_one.refused)
            assert {path: list(node.usage) for path, node in pool.tree.nodes.items()} == one_by_one.usage
            assert {name(lane): n for lane, n in turns.changed().items()} == {
                lane: n for lane, n in one_by_one.charged.items() if n
            }
    assert world.core.snapshot() == before


def test_a_review_of_few_offers_finds_all_turns_at_once() -> None:
    """The comparison above is of two ways."""
    world = crowded("drf", [(queue, (1, 1), 50, 0) for queue in "abcd" * 5], ["place"] * 5)
    pool = world.state.pools["default"]
    with world.state.speculating():
        offers = list(pool.offers.values())
        assert len(Turns(world.state, pool).take_all(offers, len(offers) + 1) or ()) == len(offers) == 15


def test_a_later_job_of_a_higher_priority_keeps_its_turn_before_an_earlier_one() -> None:
    """The leaf's share does not change by their turns, so the key of the second, which came first, is the smaller one."""
    work = [("d", (8, 1), 50, 0), ("d", (0, 2), 10, 0), ("d", (0, 2), 90, 0), ("c", (0, 2), 50, 0)]
    world = crowded("drf", work, ["place"])
    one_by_one = left(world, 3, at_once=False)
    assert [job for queue, _, job in one_by_one.turns if queue == "d"] == ["3", "2"]
    assert left(world, 3, at_once=True) == one_by_one


def test_a_review_of_flat_queues_merges_its_turns() -> None:
    """Nothing is given one by one where no gate closes: the comparison above is of two ways."""
    world = crowded("drf", [(queue, (1, 1), 50, 0) for queue in "abcd" * 5], ["place"] * 5)
    pool = world.state.pools["default"]
    with world.state.speculating():
        turns = Turns(world.state, pool)
        turns.reopen(list(pool.offers.values()))
        offers = len(pool.offers)
        assert offers == 15
        assert len(turns.take(offers + 1)) == offers
        assert turns.next() is None
        assert turns.exhausted == set(turns.changed())


def test_queues_below_queues_are_given_their_turns_one_by_one() -> None:
    """Above a leaf, the key depends on other leaves, so nothing is merged."""
    world = QueueWorld(careful=False)
    world.node()
    world.apply(
        queues=(QueueEntry(path="a/x", settings=QueueSettings()), QueueEntry(path="b", settings=QueueSettings()))
    )
    for queue in ("a/x", "b", "a/x"):
        world.submit(1, queue=queue)
    assert left(world, 3, at_once=True) == left(world, 3, at_once=False)
