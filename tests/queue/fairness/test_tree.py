"""Limits, charges and what is reserved in a tree of queues, by example."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fairlead_queue.fairness.tree import UNLIMITED, LimitRefusal, Limits, QueueNode, QueueTree, QuotaClaim

GPU = ("gpu",)


def tree_of(capacity: int, **limits: Limits) -> QueueTree:
    """A tree of one resource; `a__b` is the queue a/b."""
    tree = QueueTree(GPU)
    tree.capacity = [capacity]
    for name, one in limits.items():
        tree.add(name.replace("__", "/"), one)
    return tree


def refused(tree: QueueTree, path: str, amount: int, holder: str = "") -> LimitRefusal:
    """The refusal of a job that must be refused."""
    found = tree.refusal(tree.nodes[path], (amount,), holder=holder)
    assert found is not None
    assert found.held + found.needed > found.ceiling
    return found


def held(tree: QueueTree) -> dict[str, int]:
    """Return each node's use of the first resource."""
    return {path: node.held[0] for path, node in sorted(tree.nodes.items())}


def test_a_maximum_holds_at_every_level() -> None:
    """The first limit on the way up is named."""
    tree = tree_of(100, a=Limits(maximum={"gpu": 10}), a__x=Limits(maximum={"gpu": 8}), a__y=Limits())
    tree.charge(tree.nodes["a/x"], (6,))

    assert refused(tree, "a/x", 3) == (tree.nodes["a/x"], "gpu", 6, 3, 8, "maximum", "")
    assert refused(tree, "a/y", 5) == (tree.nodes["a"], "gpu", 6, 5, 10, "maximum", "")
    assert tree.refusal(tree.nodes["a/y"], (4,)) is None


def test_borrowing_ends_at_the_guarantee_and_what_may_be_borrowed() -> None:
    """The lower of maximum and guarantee plus borrowing."""
    tree = tree_of(100, a=Limits(guaranteed={"gpu": 4}, borrowing={"gpu": 2}, maximum={"gpu": 50}))

    assert tree.refusal(tree.nodes["a"], (6,)) is None
    assert refused(tree, "a", 7).ceiling == 6


def test_unlent_capacity_is_kept_for_its_queue() -> None:
    """Others are refused although there is room; the queue itself uses it without any change above."""
    tree = tree_of(10, a=Limits(guaranteed={"gpu": 6}, lending={"gpu": 2}), b=Limits())
    a, b = tree.nodes["a"], tree.nodes["b"]
    tree.charge(b, (5,))

    assert refused(tree, "b", 2) == (tree.root, "gpu", 9, 2, 10, "reserved", "")
    assert tree.refusal(a, (4,)) is None
    tree.charge(a, (4,))
    assert held(tree) == {"": 9, "a": 4, "b": 5}


def test_a_reservation_counts_within_a_parent() -> None:
    """A child's kept amount takes room under the parent's maximum; the refusal says that it is reserved."""
    tree = tree_of(
        100, p=Limits(maximum={"gpu": 10}), p__a=Limits(guaranteed={"gpu": 6}, lending={"gpu": 0}), p__b=Limits()
    )
    assert refused(tree, "p/b", 5) == (tree.nodes["p"], "gpu", 6, 5, 10, "reserved", "")


def test_a_reservation_made_while_it_is_used_comes_back_when_it_is_not() -> None:
    """Charges below a kept amount change nothing above, in both directions."""
    tree = tree_of(10, a=Limits(), b=Limits())
    tree.charge(tree.nodes["a"], (5,))
    tree.limit(tree.nodes["a"], Limits(guaranteed={"gpu": 4}, lending={"gpu": 0}))
    assert held(tree) == {"": 5, "a": 5, "b": 0}

    tree.charge(tree.nodes["a"], (5,), -1)
    assert held(tree) == {"": 4, "a": 0, "b": 0}
    assert tree.root.usage == [0]


def test_a_reservation_does_not_exceed_a_maximum() -> None:
    """If others had used up the parent's maximum before, the owner of a reservation waits like any other."""
    tree = tree_of(100, p=Limits(maximum={"gpu": 3}), p__a=Limits(), p__b=Limits())
    tree.charge(tree.nodes["p/b"], (3,))
    tree.limit(tree.nodes["p/a"], Limits(guaranteed={"gpu": 2}, lending={"gpu": 0}))

    assert refused(tree, "p/a", 1) == (tree.nodes["p"], "gpu", 3, 1, 3, "maximum", "")
    tree.charge(tree.nodes["p/b"], (1,), -1)
    assert tree.refusal(tree.nodes["p/a"], (1,)) is None


def test_a_user_has_limits_inside_a_queue() -> None:
    """They are refused as the user's, not as the queue's."""
    tree = QueueTree(GPU)
    tree.capacity = [100]
    tree.add("q/@ada", Limits(maximum={"gpu": 2}))

    assert refused(tree, "q/@ada", 3).kind == "user_limit"


def test_pools_are_looked_ahead_beyond_unless_room_is_reserved() -> None:
    """The tree itself does not bound what is charged to the whole pool."""
    tree = tree_of(4, a=Limits())
    assert tree.refusal(tree.nodes["a"], (1000,)) is None


@pytest.fixture
def claimed() -> tuple[QueueTree, QueueNode, QueueNode]:
    """A pool of 10 with 4 charged and 5 claimed by a job of queue a."""
    tree = tree_of(10, a=Limits(), b=Limits())
    a, b = tree.nodes["a"], tree.nodes["b"]
    tree.charge(b, (4,))
    tree.root.claim = QuotaClaim("j1", a, (5,))
    return tree, a, b


def test_a_claim_keeps_free_capacity_for_its_holder(claimed: tuple[QueueTree, QueueNode, QueueNode]) -> None:
    """Others have the rest; the holder may use it, other jobs of the same leaf may not."""
    tree, a, b = claimed

    assert tree.refusal(b, (1,)) is None
    assert refused(tree, "b", 2) == (tree.root, "gpu", 9, 2, 10, "claimed", "j1")
    assert refused(tree, "a", 2).kind == "claimed"
    assert tree.refusal(a, (6,), holder="j1") is None


def test_a_claim_concerns_only_what_it_claims() -> None:
    """A job that needs nothing of it goes by; a claim below the root has that node's ceiling."""
    tree = QueueTree(("gpu", "cpu"))
    tree.capacity = [10, 10]
    a = tree.add("p/a")
    b = tree.add("p/b")
    p = tree.nodes["p"]
    p.claim = QuotaClaim("j1", a, (5, 0))

    assert tree.refusal(b, (0, 50)) is None
    assert tree.refusal(b, (50, 0)) is None
    tree.limit(p, Limits(maximum={"gpu": 8}))
    found = tree.refusal(b, (4, 0))
    assert found is not None
    assert (found.node, found.kind, found.holder, found.ceiling) == (p, "claimed", "j1", 8)


def test_a_removed_queue_leaves_nothing_behind() -> None:
    """Its reservations are freed; a queue with charges or children is not removed."""
    tree = tree_of(10, p=Limits(), p__a=Limits(guaranteed={"gpu": 6}, lending={"gpu": 0}))
    a, p = tree.nodes["p/a"], tree.nodes["p"]
    with pytest.raises(AssertionError, match="below it"):
        tree.remove(p)
    tree.charge(a, (1,))
    with pytest.raises(AssertionError, match="has charges"):
        tree.remove(a)
    tree.charge(a, (1,), -1)

    tree.remove(a)
    tree.remove(p)
    assert held(tree) == {"": 0}
    assert tree.root.children == {}


def test_use_over_a_guarantee_is_counted() -> None:
    """Never below 0."""
    tree = tree_of(10, a=Limits(guaranteed={"gpu": 4}))
    a = tree.nodes["a"]
    assert tree.over_guarantee(a, 0) == 0
    tree.charge(a, (6,))
    assert tree.over_guarantee(a, 0) == 2


# ---------------------------------------------------------------------------------------- after any history

TWO = ("gpu", "cpu")
PATHS = ("a", "b", "a/x", "a/y", "a/x/u", "a/x/@v", "b/x")
AMOUNTS = st.dictionaries(st.sampled_from(TWO), st.integers(0, 8))


class Trees(RuleBasedStateMachine):
    """Charges in the leaves next to a plain list of them; held and refused amounts are computed again from their
    definition."""

    @initialize(maximum=st.sampled_from([{}, {"gpu": 20, "cpu": 20}]))
    def begin(self, maximum: dict[str, int]) -> None:
        self.tree = QueueTree(TWO)
        self.tree.capacity = [30, 30]
        #: {leaf: jobs charged}
        self.jobs: dict[str, list[tuple[int, int]]] = {}
        self.limits: dict[str, Limits] = {}
        for path in PATHS:
            self.tree.add(path)
        self.configure(self.tree.nodes["a"], Limits(maximum=maximum))

    def configure(self, node: QueueNode, limits: Limits) -> None:
        self.tree.limit(node, limits)
        self.limits[node.path] = limits

    def leaves(self) -> list[QueueNode]:
        return [node for node in self.tree.nodes.values() if node.is_leaf and node.parent is not None]

    @rule(path=st.sampled_from(PATHS), maximum=AMOUNTS, guaranteed=AMOUNTS, borrowing=AMOUNTS, lending=AMOUNTS)
    def limit(
        self,
        path: str,
        maximum: dict[str, int],
        guaranteed: dict[str, int],
        borrowing: dict[str, int],
        lending: dict[str, int],
    ) -> None:
        node = self.tree.nodes.get(path)
        if node is not None:
            self.configure(node, Limits(guaranteed, maximum, borrowing, lending))

    @rule(path=st.sampled_from(PATHS))
    def remove_or_add(self, path: str) -> None:
        node = self.tree.nodes.get(path)
        if node is None:
            if not any(path.startswith(f"{above}/") for above in self.jobs):  # jobs are in leaves
                self.tree.add(path)
        elif node.is_leaf and not self.jobs.get(path):
            self.tree.remove(node)
            self.limits.pop(path, None)

    @rule(at=st.integers(0, 9), need=st.tuples(st.integers(0, 5), st.integers(0, 5)), anyway=st.booleans())
    def start(self, at: int, need: tuple[int, int], anyway: bool) -> None:
        """With a check; or without, as jobs are that ran before a limit was lowered."""
        leaves = self.leaves()
        if not leaves:
            return
        leaf = leaves[at % len(leaves)]
        refusal = self.tree.refusal(leaf, need)
        assert (refusal is None) == self.fits(leaf, need), refusal
        if refusal is not None:
            assert refusal.held + refusal.needed > refusal.ceiling
        if refusal is None or anyway:
            self.tree.charge(leaf, need)
            self.jobs.setdefault(leaf.path, []).append(need)

    @rule(at=st.integers(0, 9), which=st.integers(0, 9), times=st.integers(1, 2))
    def end(self, at: int, which: int, times: int) -> None:
        for path in sorted(self.jobs)[at : at + 1]:
            for _ in range(times):
                if self.jobs[path]:
                    need = self.jobs[path].pop(which % len(self.jobs[path]))
                    self.tree.charge(self.tree.nodes[path], need, -1)
            if not self.jobs[path]:
                del self.jobs[path]

    # -- the same from its definition

    def usage(self, node: QueueNode, at: int) -> int:
        below = sum(self.usage(child, at) for child in node.children.values())
        return below + sum(need[at] for need in self.jobs.get(node.path, ()))

    def held(self, node: QueueNode, at: int) -> int:
        """Return the use of a leaf, or the sum of each child's use or unlent reservation."""
        if node.is_leaf:
            return self.usage(node, at)
        return sum(self.outward(child, at) for child in node.children.values())

    def outward(self, node: QueueNode, at: int) -> int:
        limits, name = self.limits.get(node.path, Limits()), TWO[at]
        guaranteed = limits.guaranteed.get(name, 0)
        kept = guaranteed - min(guaranteed, limits.lending.get(name, guaranteed))
        return max(self.held(node, at), kept)

    def ceiling(self, node: QueueNode, at: int) -> int:
        limits, name = self.limits.get(node.path, Limits()), TWO[at]
        borrowed = limits.guaranteed.get(name, 0) + limits.borrowing.get(name, UNLIMITED)
        return min(limits.maximum.get(name, UNLIMITED), borrowed)

    def fits(self, leaf: QueueNode, need: tuple[int, int]) -> bool:
        """Return True if a job may start: no node on the way exceeds its maximum or its former use, and, with limits
        set under reservations below, none uses more of the job's resources than it may."""
        above = [node for node in leaf.up() if node.parent is not None]
        if any(
            need[at] and self.usage(node, at) + need[at] > self.ceiling(node, at) for node in above for at in (0, 1)
        ):
            return False
        before = {(node.path, at): self.held(node, at) for node in leaf.up() for at in (0, 1)}
        reserved = [before["", at] - self.usage(self.tree.root, at) for at in (0, 1)]
        self.jobs.setdefault(leaf.path, []).append(need)
        after = {(node.path, at): self.held(node, at) for node in leaf.up() for at in (0, 1)}
        self.jobs[leaf.path].pop()
        if not self.jobs[leaf.path]:
            del self.jobs[leaf.path]
        grown = [(self.tree.nodes[path], at, held) for (path, at), held in after.items() if held > before[path, at]]
        if any(held > self.ceiling(node, at) for node, at, held in grown if node.parent is not None):
            return False
        return not any(
            held > self.tree.capacity[at] and reserved[at] for node, at, held in grown if node.parent is None
        )

    @invariant()
    def charges_are_what_is_defined(self) -> None:
        for node in self.tree.nodes.values() if hasattr(self, "tree") else ():
            assert node.usage == [self.usage(node, at) for at in (0, 1)], node.path
            assert node.held == [self.held(node, at) for at in (0, 1)], node.path


TestTrees = pytest.mark.slow(Trees.TestCase)
TestTrees.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


@st.composite
def promises(draw: st.DrawFn) -> dict[str, Limits]:
    """Limits of a pool of 30 that can all be kept at once: children's guarantees within their parent's."""

    def limits(guaranteed: int) -> Limits:
        lending = draw(st.sampled_from([{}, {"gpu": draw(st.integers(0, guaranteed))}]))
        maximum = draw(st.sampled_from([{}, {"gpu": guaranteed + draw(st.integers(0, 10))}]))
        borrowing = draw(st.sampled_from([{}, {"gpu": draw(st.integers(0, 10))}]))
        return Limits({"gpu": guaranteed}, maximum, borrowing, lending)

    x, y = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    return {
        "a": limits(x + y + draw(st.integers(0, 4))),
        "a/x": limits(x),
        "a/y": limits(y),
        "b": limits(draw(st.integers(0, 14))),
        "c": Limits(),
    }


@given(
    promises(),
    st.lists(st.tuples(st.sampled_from(["a/x", "a/y", "b", "c"]), st.integers(-6, 12)), min_size=5, max_size=30),
)
def test_respected_refusals_keep_every_promise(limits: dict[str, Limits], steps: list[tuple[str, int]]) -> None:
    """Use stays within every maximum and what may be borrowed; and what is not lent can be had at any time, at once."""
    tree = QueueTree(GPU)
    tree.capacity = [30]
    for path, one in limits.items():
        tree.add(path, one)
    for path, amount in steps:
        leaf = tree.nodes[path]
        if amount < 0:
            tree.charge(leaf, (min(-amount, leaf.usage[0]),), -1)
        elif tree.refusal(leaf, (amount,)) is None and tree.root.usage[0] + amount <= 30:
            tree.charge(leaf, (amount,))
        for path_, one in limits.items():
            used, guaranteed = tree.nodes[path_].usage[0], one.guaranteed.get("gpu", 0)
            assert used <= one.maximum.get("gpu", UNLIMITED)
            assert used <= guaranteed + one.borrowing.get("gpu", UNLIMITED)
        assert tree.root.held[0] <= 30
        for path_ in ("a/x", "a/y", "b"):
            keeper = tree.nodes[path_]
            missing = keeper.kept[0] - keeper.usage[0]
            assert missing <= 0 or tree.refusal(keeper, (missing,)) is None


def test_of_two_conflicting_claims_the_older_goes_first() -> None:
    """One claims under the upper limit, the other under the lower: neither waits for the other permanently."""
    tree = QueueTree(("gpu",))
    tree.capacity = [100]
    tree.add("lab", Limits(maximum={"gpu": 9}))
    wide = tree.add("lab/wide", Limits(maximum={"gpu": 8}))
    tree.nodes["lab"].claim = QuotaClaim("old", wide, (3,), 10)
    wide.claim = QuotaClaim("young", wide, (8,), 20)
    assert tree.refusal(wide, (3,), holder="old", since=10) is None
    refused = tree.refusal(wide, (8,), holder="young", since=20)
    assert refused is not None
    assert (refused.kind, refused.holder) == ("claimed", "old")


def test_a_claim_holds_against_no_job_within_its_guarantee() -> None:
    """Unless its holder is, too. Sides are compared below the node where both ways up meet."""
    tree = QueueTree(("gpu",))
    tree.capacity = [16]
    a = tree.add("org/a", Limits(guaranteed={"gpu": 4}))
    b = tree.add("org/b")
    c = tree.add("lab", Limits(guaranteed={"gpu": 4}))
    tree.charge(b, (12,))
    tree.root.claim = QuotaClaim("j", b, (4,))
    assert tree.refusal(c, (4,)) is None
    assert tree.refusal(a, (1,)) is None
    refused = tree.refusal(tree.add("other"), (1,))
    assert refused is not None and refused.kind == "claimed"
    tree.charge(c, (4,))
    refused = tree.refusal(c, (1,))
    assert refused is not None and refused.kind == "claimed"
    tree.charge(c, (4,), -1)
    tree.root.claim = QuotaClaim("j", tree.add("vip", Limits(guaranteed={"gpu": 4})), (4,))
    refused = tree.refusal(c, (4,))
    assert refused is not None and refused.kind == "claimed"


def test_a_job_can_ever_fit_if_no_limit_and_no_kept_amount_above_it_is_in_the_way() -> None:
    """Whatever runs now; amounts that siblings never lend stay theirs, at every level."""
    tree = QueueTree(("gpu", "cpu"))
    leaf = tree.add("org/a", Limits(maximum={"gpu": 8}))
    tree.add("org/b", Limits(guaranteed={"cpu": 2}, lending={"cpu": 0}))
    tree.limit(tree.nodes["org"], Limits(maximum={"cpu": 6}))
    assert tree.can_ever_fit(leaf, (8, 4))
    assert not tree.can_ever_fit(leaf, (9, 1))
    assert not tree.can_ever_fit(leaf, (1, 5))
    tree.capacity = [4, 100]
    assert not tree.can_ever_fit(leaf, (8, 4))
    assert tree.can_ever_fit(leaf, (4, 4))


@given(promises(), st.integers(0, 40))
def test_a_leaf_with_no_limit_above_it_is_never_refused(limits: dict[str, Limits], used: int) -> None:
    """However much is charged; where it is refused, some limit, reservation or claim stands there."""
    tree = QueueTree(GPU)
    tree.capacity = [30]
    for path, one in limits.items():
        tree.add(path, one)
    for path in ("a/x", "a/y", "b", "c"):
        tree.charge(tree.nodes[path], (used,))
    for path in ("a/x", "a/y", "b", "c"):
        leaf = tree.nodes[path]
        assert not tree.is_unlimited(leaf) or tree.refusal(leaf, (40,)) is None


def test_a_leaf_has_no_limit_above_it_until_one_is_set() -> None:
    """A ceiling or a claim of any node above counts, a guarantee does not."""
    tree = tree_of(8, a=Limits({"gpu": 4}), b=Limits())
    leaf = tree.add("a/x")
    assert tree.is_unlimited(leaf)
    tree.nodes["a"].claim = QuotaClaim("1", leaf, (1,))
    assert not tree.is_unlimited(leaf)
    assert tree.is_unlimited(tree.nodes["b"])
    tree.limit(tree.nodes["b"], Limits(maximum={"gpu": 1}))
    assert not tree.is_unlimited(tree.nodes["b"])
