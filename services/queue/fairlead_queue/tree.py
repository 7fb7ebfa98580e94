"""The tree of queues of one pool: limits, what is charged, and whether a job fits under every limit above it.

    tree = Tree(("gpu", "cpu", "memory"))
    leaf = tree.add("research/vision", Limits(guaranteed={"gpu": 8000}, maximum={"gpu": 16000}))
    tree.refusal(leaf, (8000, 64000, 524288)) is None       then: tree.charge(leaf, (8000, 64000, 524288))

Amounts are integer vectors in the order of `Tree.resources` (milli-GPU, milli-CPU, MiB). What a subtree may not
lend stays reserved for it even while it is idle: `held` counts it, so no ancestor's room is given away twice.
Every check and every charge walks from the leaf to the root and touches nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

#: No limit.
UNLIMITED = 1 << 62

type Amounts = tuple[int, ...]


class Limits(NamedTuple):
    """What is configured for one queue; amounts by resource name, a missing one is no limit (guaranteed: 0)."""

    guaranteed: Mapping[str, int] = {}
    maximum: Mapping[str, int] = {}
    #: Beyond `guaranteed`, at most this much.
    borrowing: Mapping[str, int] = {}
    #: Of an idle `guaranteed`, others may use at most this much.
    lending: Mapping[str, int] = {}
    weight: int = 1
    priority: int = 0


class Refusal(NamedTuple):
    """The first limit on the way up that a job would break."""

    node: "Node"
    resource: str
    #: held + needed > ceiling
    held: int
    needed: int
    ceiling: int


class Node:
    """One queue, or the root of a pool."""

    __slots__ = (
        "ceiling", "children", "closed", "guaranteed", "held", "kept", "name", "parent", "path", "priority", "usage",
        "wants", "weight",
    )  # fmt: skip

    def __init__(self, path: str, parent: "Node | None", width: int) -> None:
        self.path = path
        self.name = path.rpartition("/")[2]
        self.parent = parent
        self.children: dict[str, Node] = {}
        self.weight, self.priority = 1, 0
        self.guaranteed: list[int] = [0] * width
        #: The most that may be held: the lower of the maximum and of what is guaranteed plus borrowed.
        self.ceiling: list[int] = [UNLIMITED] * width
        #: Reserved for this subtree even while idle.
        self.kept: list[int] = [0] * width
        #: Charged to this subtree.
        self.usage: list[int] = [0] * width
        #: Charged to it, or reserved for a queue below.
        self.held: list[int] = [0] * width
        #: {bits of the resources that a waiting job needs: how many such jobs wait} (leaves only).
        self.wants: dict[int, int] = {}
        #: A leaf that has nothing to offer for the rest of this decision.
        self.closed = False

    @property
    def is_leaf(self) -> bool:
        """Jobs wait in leaves."""
        return not self.children

    def up(self) -> "Iterator[Node]":
        """This node and all above it."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class Tree:
    """The queues of one pool and their charges."""

    def __init__(self, resources: Sequence[str]) -> None:
        self.resources = tuple(resources)
        self.width = len(self.resources)
        self.root = Node("", None, self.width)
        self.nodes: dict[str, Node] = {"": self.root}
        #: What the pool's nodes have in all.
        self.capacity: list[int] = [0] * self.width

    # ------------------------------------------------------------------ shape and limits

    def add(self, path: str, limits: Limits | None = None) -> Node:
        """The queue at a path, made with its ancestors where missing."""
        node = self.nodes.get(path)
        if node is None:
            parent = self.add(path.rpartition("/")[0]) if "/" in path else self.root
            node = self.nodes[path] = parent.children[path.rpartition("/")[2]] = Node(path, parent, self.width)
        if limits is not None:
            self.limit(node, limits)
        return node

    def limit(self, node: Node, limits: Limits) -> None:
        """Put limits on a queue; what is charged stays."""
        node.weight, node.priority = limits.weight, limits.priority
        before = self._outward(node)
        for at, name in enumerate(self.resources):
            guaranteed = node.guaranteed[at] = limits.guaranteed.get(name, 0)
            borrowable = limits.borrowing.get(name)
            ceiling = limits.maximum.get(name, UNLIMITED)
            node.ceiling[at] = ceiling if borrowable is None else min(ceiling, guaranteed + borrowable)
            node.kept[at] = guaranteed - min(limits.lending.get(name, guaranteed), guaranteed)
        self._hold(node, before)

    def _outward(self, node: Node) -> list[int]:
        """What a node counts for in its parent."""
        return [max(held, kept) for held, kept in zip(node.held, node.kept, strict=True)]

    def _hold(self, node: Node, before: list[int]) -> None:
        """Carry a change of what a node counts for upwards."""
        while node.parent is not None:
            delta = [new - old for new, old in zip(self._outward(node), before, strict=True)]
            node = node.parent
            before = self._outward(node)
            node.held = [held + change for held, change in zip(node.held, delta, strict=True)]

    # ------------------------------------------------------------------ jobs

    def refusal(self, leaf: Node, need: Amounts) -> Refusal | None:
        """The first limit that a job would break on the way up; None when it fits under all of them."""
        rising: list[int] = list(need)
        for node in leaf.up():
            outward = False
            for at, more in enumerate(rising):
                if not more:
                    continue
                held, kept = node.held[at], node.kept[at]
                if held + more > node.ceiling[at] or (node.parent is None and self._is_reserved(at, held + more)):
                    ceiling = node.ceiling[at] if node.parent is not None else self.capacity[at]
                    return Refusal(node, self.resources[at], held, more, ceiling)
                rising[at] = max(held + more, kept) - max(held, kept)
                outward = outward or rising[at] > 0
            if not outward:
                return None
        return None

    def _is_reserved(self, at: int, held: int) -> bool:
        """At the root: the rest of the capacity is reserved for somebody who does not use it."""
        return held > self.capacity[at] and self.root.held[at] > self.root.usage[at]

    def charge(self, leaf: Node, need: Amounts, times: int = 1) -> None:
        """Count `times` jobs of this size (negative: no longer) from the leaf to the root."""
        rising = [amount * times for amount in need]
        for node in leaf.up():
            usage, held, kept = node.usage, node.held, node.kept
            for at, own in enumerate(need):
                if own:
                    usage[at] += own * times
                more = rising[at]
                if more:
                    old = held[at]
                    held[at] = new = old + more
                    rising[at] = max(new, kept[at]) - max(old, kept[at])
