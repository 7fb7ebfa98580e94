"""The maintained order equals the one computed from scratch, after any history; and it equals the definition. The
definition is written down here a second time, with fractions and without any caches."""

from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from bench.ordering import measure
from fairlead_queue.fairness.ordering import VIEWS_MAX, Ranking, Sequencer
from fairlead_queue.fairness.past_use import PastUse
from fairlead_queue.fairness.tree import Limits, QueueNode, QueueTree
from fairlead_queue.fairness.waiting_line import CAME_MASK
from fairlead_queue.sequencers.custom import CustomSequencer, QueueOrder, QueueView
from fairlead_queue.sequencers.drf import Drf
from fairlead_queue.sequencers.fifo import Fifo

RESOURCES = ("gpu", "cpu")
PATHS = ("a", "b", "a/x", "a/y", "a/x/u", "a/x/v", "b/x", "b/x/u", "c")
#: Two roundings down to the common denominator at each of three levels, with room.
CLOSE = Fraction(1, 1 << 30)


class Least(QueueOrder):
    """A custom queue order: the smallest sum first."""

    def key(self, queue: QueueView) -> tuple[int, ...]:
        return (sum(queue.usage), queue.front)


SEQUENCERS = {
    "drf": lambda tree: Drf(tree),
    "fifo": lambda tree: Fifo(),
    "own": lambda tree: CustomSequencer(tree, Least(), PastUse(tree)),
}


class Measured(NamedTuple):
    """DRF's values of a node, by definition."""

    blocked: bool
    vector: list[Fraction]
    weighted: Fraction
    #: The leaf whose turn it is below, and where the node stands.
    turn: QueueNode | None
    key: tuple[bool, bool, int, Fraction, int, str]


def defined(tree: QueueTree, node: QueueNode, saturated: int) -> Measured:
    """The recursion of the paper, with what fairlead_queue.sequencers.drf adds."""
    real = [Fraction(used, whole) for used, whole in zip(node.usage, tree.capacity, strict=True)]
    if node.children:
        below = [defined(tree, child, saturated) for child in node.children.values()]
        offering = [one for one in below if one.turn is not None]
        turn = min(offering, key=lambda one: one.key).turn if offering else None
        open_ = [one for one in below if not one.blocked]
        least = min((one.weighted for one in open_), default=Fraction(0))
        vector = [Fraction(0)] * len(real)
        for one in below:
            scale = Fraction(1)
            if not one.blocked:
                scale = least / one.weighted if one.weighted else Fraction(0)
            vector = [have + part * scale for have, part in zip(vector, one.vector, strict=True)]
    else:
        vector, turn = real, node if node.wants and not node.closed else None
    masks = list(turn.wants) if turn is not None else []
    can = [mask for mask in masks if not mask & saturated]
    blocked = not can
    counted = [part for at, part in enumerate(vector) if blocked or not saturated >> at & 1]
    weighted = max(counted, default=Fraction(0)) / node.weight
    held = weighted
    if node.children and not blocked:
        held = max([held, *(part / node.weight for at, part in enumerate(real) if any(mask >> at & 1 for mask in can))])
    within = any(
        mask & node.promised
        and all(node.usage[at] < node.guaranteed[at] for at in range(len(real)) if mask & node.promised & 1 << at)
        for mask in masks
    )
    came = turn.front & CAME_MASK if turn is not None else 0
    return Measured(blocked, vector, weighted, turn, (blocked, not within, -node.priority, held, came, node.path))


class Ordering(RuleBasedStateMachine):
    """Everything that may happen to a tree, and the order asked now and then."""

    kind = ""

    @initialize()
    def begin(self) -> None:
        self.tree = QueueTree(RESOURCES)
        self.tree.capacity = [8, 7]
        self.ranking = Ranking(self.tree, self.sequencer())
        self.numbers = 0
        for path in PATHS:
            self.tree.add(path)
        for node in self.leaves():
            self.numbers += 1
            node.wants, node.front = {3: 1}, self.numbers

    def sequencer(self) -> Sequencer:
        return SEQUENCERS[self.kind](self.tree)

    def leaves(self) -> list[QueueNode]:
        return [node for node in self.tree.nodes.values() if node.is_leaf and node.parent is not None]

    def leaf(self, at: int) -> QueueNode | None:
        leaves = self.leaves()
        return leaves[at % len(leaves)] if leaves else None

    @rule(
        path=st.sampled_from(PATHS),
        weight=st.integers(1, 3),
        priority=st.integers(0, 1),
        gpu=st.sampled_from([0, 0, 4]),
    )
    def configure(self, path: str, weight: int, priority: int, gpu: int) -> None:
        if path not in self.tree.nodes:
            parts = path.split("/")
            above = [n for at in range(len(parts)) if (n := self.tree.nodes.get("/".join(parts[:at]))) is not None][-1]
            if above.is_leaf and any(above.usage):
                return  # jobs are in leaves
            above.wants, above.front = {}, 0
        node = self.tree.add(path, Limits(weight=weight, priority=priority, guaranteed={"gpu": gpu} if gpu else {}))
        self.ranking.touch(node)

    @rule(at=st.integers(0, 9))
    def remove(self, at: int) -> None:
        node = self.leaf(at)
        if node is not None:
            self.tree.charge(node, tuple(node.usage), -1)
            self.ranking.touch(node)
            self.tree.remove(node)
            self.ranking.remove(node)

    @rule(at=st.integers(0, 9), need=st.tuples(st.integers(0, 3), st.integers(0, 3)))
    def charge(self, at: int, need: tuple[int, int]) -> None:
        node = self.leaf(at)
        if node is not None and min(need) >= 0:
            self.tree.charge(node, need)
            self.ranking.touch(node)

    @rule(at=st.integers(0, 9), resource=st.integers(0, 1))
    def saturate(self, at: int, resource: int) -> None:
        rest = self.tree.capacity[resource] - self.tree.root.usage[resource]
        self.charge(at, (rest, 0) if resource == 0 else (0, rest))

    @rule(at=st.integers(0, 9))
    def uncharge(self, at: int) -> None:
        node = self.leaf(at)
        if node is not None:
            self.tree.charge(node, tuple(node.usage), -1)
            self.ranking.touch(node)

    @rule(at=st.integers(0, 9), masks=st.frozensets(st.integers(0, 3), max_size=2), closed=st.booleans())
    def wait(self, at: int, masks: frozenset[int], closed: bool) -> None:
        node = self.leaf(at)
        if node is not None:
            self.numbers += 1
            node.wants, node.closed = dict.fromkeys(sorted(masks), 1), closed
            node.front = self.numbers if masks else 0
            self.ranking.touch(node)

    @rule(gpu=st.integers(1, 9), cpu=st.integers(1, 9))
    def resize(self, gpu: int, cpu: int) -> None:
        self.tree.capacity = [gpu, cpu]
        self.ranking.forget()

    @rule(deep=st.booleans())
    def ask(self, deep: bool) -> None:
        first = self.ranking.first()
        anew = Ranking(self.tree, self.sequencer())
        assert first is anew.first()
        if self.kind == "drf":
            self.check_drf(first, deep)
        if self.kind == "fifo":
            waiting = [n for n in self.tree.nodes.values() if n.is_leaf and n.front and not n.closed]
            assert first is min(waiting, key=lambda node: node.front, default=None)

    def check_drf(self, first: QueueNode | None, deep: bool) -> None:
        """Every share is close to its definition; of a leaf it is exact; and the first is first at every level."""
        tree, saturated = self.tree, self.ranking.saturated()
        drf = self.ranking.sequencer
        assert isinstance(drf, Drf)
        for node in tree.nodes.values():
            if node.parent is None:
                continue
            share, should = self.ranking.measure(node), defined(tree, node, saturated)
            assert share.blocked == should.blocked, node.path
            assert abs(Fraction(share.weighted, drf.whole) - should.key[3]) < CLOSE, node.path
            if node.is_leaf:
                assert share.weighted == int(should.weighted * drf.whole)
            elif deep and not share.blocked:
                for part, exact in zip(self.rescaled(node, saturated), should.vector, strict=True):
                    assert abs(Fraction(part, drf.whole) - exact) < CLOSE, node.path
        if first is None:
            assert defined(tree, tree.root, saturated).turn is None
        for node in first.up() if first is not None else ():
            if node.parent is not None:
                mine = defined(tree, node, saturated).key
                others = [defined(tree, child, saturated) for child in node.parent.children.values()]
                best = min(one.key for one in others if one.turn is not None)
                assert mine[:3] == best[:3]
                assert mine[3] - best[3] < CLOSE, (node.path, best)

    def rescaled(self, node: QueueNode, saturated: int) -> list[int]:
        """Return DRF's rescaled values of a node's children, whether or not it needed them."""
        return self.ranking.sequencer._rescaled(self.ranking.views[saturated][node], 3 & ~saturated)  # type: ignore[attr-defined] -- of Drf

    @invariant()
    def few_views(self) -> None:
        if hasattr(self, "ranking"):
            assert len(self.ranking.views) <= VIEWS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SEQUENCERS))
def test_the_maintained_order_equals_one_computed_from_scratch(kind: str) -> None:
    """After any history."""
    machine = type(kind, (Ordering,), {"kind": kind})
    quiet = settings(
        max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(machine, settings=quiet)


def leaves(*paths: str) -> QueueTree:
    """A tree of one resource in which one job waits in every leaf."""
    tree = QueueTree(("gpu",))
    tree.capacity = [10]
    for path in paths:
        tree.add(path).wants = {1: 1}
    return tree


def test_a_new_queue_is_ordered_without_a_full_recomputation() -> None:
    """Adding and removing a queue changes its own branch only."""
    tree = leaves("a/x", "b/x")
    ranking = Ranking(tree, Drf(tree))
    tree.charge(tree.nodes["a/x"], (2,))
    tree.charge(tree.nodes["b/x"], (1,))
    ranking.first()
    counted: list[str] = []
    place = ranking.sequencer.place
    ranking.sequencer.place = lambda face, saturated: (counted.append(face.node.path), place(face, saturated))[1]  # type: ignore[method-assign] -- counts

    leaf = tree.add("b/new")
    leaf.wants = {1: 1}
    ranking.touch(leaf)
    assert ranking.first() is leaf
    assert counted == ["b/new", "b"]

    tree.remove(leaf)
    ranking.remove(leaf)
    assert ranking.first() is tree.nodes["b/x"]
    assert counted == ["b/new", "b", "b"]


def test_the_benchmark_of_the_order_runs() -> None:
    """On a small tree, and it removes everything that it added."""
    assert min(measure(turns=20, fanout=(2, 2))) > 0


def test_views_of_what_is_saturated_are_bounded() -> None:
    """The one that was made first is forgotten; all give the same answers again."""
    tree = QueueTree(("r0", "r1", "r2"))
    tree.capacity = [1, 1, 1]
    leaf = tree.add("a")
    leaf.wants = {1: 1}
    ranking = Ranking(tree, Drf(tree))
    for bits in (*range(8), *range(8)):
        need = tuple(bits >> at & 1 for at in range(3))
        tree.charge(leaf, need)
        ranking.touch(leaf)
        assert ranking.saturated() == bits
        assert ranking.first() is leaf
        assert ranking.measure(leaf).blocked == bool(bits & 1)
        tree.charge(leaf, need, -1)
        ranking.touch(leaf)
    assert len(ranking.views) == VIEWS_MAX


def test_ties_go_by_path() -> None:
    """Equal shares, of whatever fractions, are equal."""
    tree = QueueTree(("gpu", "cpu"))
    tree.capacity = [7, 9]
    for path, weight, usage in (("b", 3, (3, 0)), ("a", 7, (0, 9)), ("c", 1, (1, 0))):
        leaf = tree.add(path, Limits(weight=weight))
        leaf.wants = {1: 1}
        tree.charge(leaf, usage)
    assert Ranking(tree, Drf(tree)).first() is tree.nodes["a"]


def test_a_job_that_needs_nothing_has_its_turn() -> None:
    """It is never blocked, whatever is saturated."""
    tree = leaves("a", "b")
    tree.nodes["b"].wants = {0: 1}
    tree.charge(tree.nodes["a"], (10,))
    assert Ranking(tree, Drf(tree)).first() is tree.nodes["b"]


@pytest.mark.parametrize("kind", sorted(SEQUENCERS))
def test_an_empty_tree_has_no_first(kind: str) -> None:
    """Neither has one in which nothing waits."""
    tree = QueueTree(RESOURCES)
    ranking = Ranking(tree, SEQUENCERS[kind](tree))
    assert ranking.first() is None
    ranking.touch(tree.add("a/b"))
    assert ranking.first() is None
