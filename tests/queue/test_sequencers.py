"""What each sequencer puts first, by example."""

import pytest

from fairlead_queue.ordering import Ranking, Sequencer
from fairlead_queue.sequencers.named import known_sequencers, sequencer_named
from fairlead_queue.tree import Limits, Tree
from fairlead_schemas.queues import PoolSettings


def tree_of(*paths: str, capacity: int = 12) -> Tree:
    """A tree of one resource in which one job waits in every leaf, numbered in the order given."""
    tree = Tree(("gpu",))
    tree.capacity = [capacity]
    for front, path in enumerate(paths, 1):
        leaf = tree.add(path)
        leaf.wants, leaf.front = {1: 1}, front
    return tree


def order(ranking: Ranking, picks: int) -> list[str]:
    """Give one unit to the leaf whose turn it is, again and again; its next job comes last in the pool's line."""
    tree, found, last = ranking.tree, list[str](), max(node.front for node in ranking.tree.nodes.values())
    for _ in range(picks):
        leaf = ranking.first()
        assert leaf is not None
        found.append(leaf.path)
        tree.charge(leaf, (1,))
        last += 1
        leaf.front = last
        ranking.touch(leaf)
    return found


def named(name: str, tree: Tree, **settings: int) -> Sequencer:
    """A sequencer of a pool with these settings."""
    return sequencer_named(name, tree, PoolSettings(sequencer=name, **settings))  # type: ignore[arg-type] -- all are integers


def test_first_come_first_served_over_the_whole_pool() -> None:
    """Neither the tree nor what a queue has matters."""
    tree = tree_of("b/y", "a", "b/x")
    assert order(Ranking(tree, named("fifo", tree)), 5) == ["b/y", "a", "b/x", "b/y", "a"]


def test_the_newest_first_is_the_same_order_of_other_numbers() -> None:
    """The owner numbers the newest lowest."""
    tree = tree_of("a", "b")
    assert named("lifo", tree).newest_first
    assert not named("fifo", tree).newest_first
    assert order(Ranking(tree, named("lifo", tree)), 2) == ["a", "b"]


def test_shares_per_weight_are_equal() -> None:
    """Weight 2 gets twice as much; ties go by path."""
    tree = tree_of("a", "b")
    tree.limit(tree.nodes["b"], Limits(weight=2))
    assert order(Ranking(tree, named("drf", tree)), 6) == ["a", "b", "b", "a", "b", "b"]


def test_guarantees_come_before_priority_and_priority_before_shares() -> None:
    """A queue within its guarantee goes before a queue of higher priority that has none left."""
    tree = tree_of("a", "b", "c")
    tree.limit(tree.nodes["a"], Limits(priority=10))
    tree.limit(tree.nodes["c"], Limits(guaranteed={"gpu": 2}))
    assert order(Ranking(tree, named("drf", tree)), 4) == ["c", "c", "a", "a"]


def test_nothing_to_offer_is_nobody() -> None:
    """Closed leaves and leaves in which nothing waits are passed by."""
    tree = tree_of("a", "b")
    ranking = Ranking(tree, named("drf", tree))
    tree.nodes["a"].closed = True
    tree.nodes["b"].wants = {}
    assert ranking.first() is None
    tree.nodes["a"].closed = False
    ranking.touch(tree.nodes["a"])
    assert ranking.first() is tree.nodes["a"]


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    """The message can be shown to a person."""
    with pytest.raises(ValueError, match='unknown sequencer "best"; known are drf, fairshare, fifo, lifo'):
        named("best", Tree(("gpu",)))
    assert {"drf", "fairshare", "fifo", "lifo"} <= set(known_sequencers())
