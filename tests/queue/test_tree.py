"""Limits, charges and what is reserved in a tree of queues, by example."""

import pytest

from fairlead_queue.tree import Claim, Limits, Node, Refusal, Tree

GPU = ("gpu",)


def tree_of(capacity: int, **limits: Limits) -> Tree:
    """A tree of one resource; `a__b` is the queue a/b."""
    tree = Tree(GPU)
    tree.capacity = [capacity]
    for name, one in limits.items():
        tree.add(name.replace("__", "/"), one)
    return tree


def refused(tree: Tree, path: str, amount: int, holder: str = "") -> Refusal:
    """The refusal of a job that must be refused."""
    found = tree.refusal(tree.nodes[path], (amount,), holder=holder)
    assert found is not None
    assert found.held + found.needed > found.ceiling
    return found


def held(tree: Tree) -> dict[str, int]:
    """What each node holds of the first resource."""
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


def test_what_a_queue_may_not_lend_is_kept_for_it() -> None:
    """Others are refused although the room is there; the queue itself comes in without anything changing above."""
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


def test_a_user_has_limits_inside_a_queue() -> None:
    """They are refused as the user's, not as the queue's."""
    tree = Tree(GPU)
    tree.capacity = [100]
    tree.add("q/@ada", Limits(maximum={"gpu": 2}))

    assert refused(tree, "q/@ada", 3).kind == "user_limit"


def test_pools_are_looked_ahead_beyond_unless_room_is_reserved() -> None:
    """The tree itself does not bound what is charged to the whole pool."""
    tree = tree_of(4, a=Limits())
    assert tree.refusal(tree.nodes["a"], (1000,)) is None


@pytest.fixture
def claimed() -> tuple[Tree, Node, Node]:
    """A pool of 10 with 4 charged and 5 claimed by a job of queue a."""
    tree = tree_of(10, a=Limits(), b=Limits())
    a, b = tree.nodes["a"], tree.nodes["b"]
    tree.charge(b, (4,))
    tree.root.claim = Claim("j1", a, (5,))
    return tree, a, b


def test_a_claim_keeps_what_is_free_for_its_holder(claimed: tuple[Tree, Node, Node]) -> None:
    """Others have what is left beside it; the holder passes over it, other jobs of the same leaf do not."""
    tree, a, b = claimed

    assert tree.refusal(b, (1,)) is None
    assert refused(tree, "b", 2) == (tree.root, "gpu", 9, 2, 10, "claimed", "j1")
    assert refused(tree, "a", 2).kind == "claimed"
    assert tree.refusal(a, (6,), holder="j1") is None


def test_a_claim_concerns_only_what_it_claims() -> None:
    """A job that needs nothing of it goes by; a claim below the root has that node's ceiling."""
    tree = Tree(("gpu", "cpu"))
    tree.capacity = [10, 10]
    a = tree.add("p/a")
    b = tree.add("p/b")
    p = tree.nodes["p"]
    p.claim = Claim("j1", a, (5, 0))

    assert tree.refusal(b, (0, 50)) is None
    assert tree.refusal(b, (50, 0)) is None
    tree.limit(p, Limits(maximum={"gpu": 8}))
    found = tree.refusal(b, (4, 0))
    assert found is not None
    assert (found.node, found.kind, found.holder, found.ceiling) == (p, "claimed", "j1", 8)


def test_a_removed_queue_leaves_nothing_behind() -> None:
    """What was kept for it is free; one with charges or children is not removed."""
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
