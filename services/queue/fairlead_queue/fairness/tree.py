"""The tree of queues of one pool: limits, what is charged, and whether a job fits under every limit above it.

    tree = Tree(("gpu", "cpu", "memory"))
    leaf = tree.add("research/vision", Limits(guaranteed={"gpu": 8000}, maximum={"gpu": 16000}))
    tree.refusal(leaf, (8000, 64000, 524288)) is None       then: tree.charge(leaf, (8000, 64000, 524288))

Amounts are integer vectors in the order of `Tree.resources` (milli-GPU, milli-CPU, MiB). What a subtree may not
lend stays reserved for it even while it is idle: `held` counts it, so no ancestor's room is given away twice.
Every check and every charge walks from the leaf to the root and touches nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

#: No limit.
UNLIMITED = 1 << 62
#: A user's part of a queue is a child of it with this before the user's name.
USER_MARK = "@"

type Amounts = tuple[int, ...]
#: maximum: of a queue (or what it may borrow). user_limit: the same of one user. reserved: the room is there, but kept
#: for queues that may not lend it. claimed: it is kept for a job that has waited too long.
type RefusalKind = Literal["maximum", "user_limit", "reserved", "claimed"]
#: (resource index, amount) where the amount is not 0.
type Parts = Sequence[tuple[int, int]]


class Limits(NamedTuple):
    """Limits and guarantees configured for one queue: amounts by resource name; a missing one is no limit (guaranteed: 0)."""

    guaranteed: Mapping[str, int] = {}
    maximum: Mapping[str, int] = {}
    #: Beyond `guaranteed`, at most this much.
    borrowing: Mapping[str, int] = {}
    #: Of an idle `guaranteed`, others may use at most this much.
    lending: Mapping[str, int] = {}
    weight: int = 1
    priority: int = 0


class JobCharge(NamedTuple):
    """Charge of one job, with the same amounts in the forms that are used most."""

    amounts: Amounts
    #: The resources of which there is some (`bits`).
    mask: int
    #: As `Tree.carry` takes them: of a job that comes, and of one that goes.
    gain: Parts
    loss: Parts

    @classmethod
    def of(cls, amounts: Amounts) -> "JobCharge":
        """Worked out from the amounts."""
        return cls(amounts, bits(amounts), parts(amounts, 1), parts(amounts, -1))


class QuotaClaim(NamedTuple):
    """Free resources at a node that are kept for one job until it has been offered."""

    holder: str
    leaf: "QueueNode"
    amounts: Amounts
    #: Since when the holder waits: of two holders in each other's way, the one that waits longer goes first.
    since: int = 0


class LimitRefusal(NamedTuple):
    """The first limit on the way up that a job would break."""

    node: "QueueNode"
    resource: str
    #: held + needed > ceiling; if another holder's claim is in the way, held includes it.
    held: int
    needed: int
    ceiling: int
    kind: RefusalKind = "maximum"
    #: Whose claim it is.
    holder: str = ""


class QueueNode:
    """Queue in the tree, or the root of a pool."""

    __slots__ = (
        "bounded",
        "ceiling",
        "children",
        "claim",
        "closed",
        "front",
        "guaranteed",
        "held",
        "keeps",
        "kept",
        "leaf",
        "name",
        "parent",
        "path",
        "priority",
        "promised",
        "promises",
        "usage",
        "waiters",
        "wants",
        "weight",
    )

    def __init__(self, path: str, parent: "QueueNode | None", width: int) -> None:
        self.path = path
        self.name = path.rpartition("/")[2]
        self.parent = parent
        self.children: dict[str, QueueNode] = {}
        self.weight, self.priority = 1, 0
        self.guaranteed: list[int] = [0] * width
        #: Bits of the resources that something is guaranteed of.
        self.promised = 0
        #: (resource index, its bit, amount) of each of them.
        self.promises: tuple[tuple[int, int, int], ...] = ()
        #: The most that may be held: the lower of the maximum and of what is guaranteed plus borrowed.
        self.ceiling: list[int] = [UNLIMITED] * width
        #: Whether any ceiling is one.
        self.bounded = False
        #: Reserved for this subtree even while idle, and whether anything is.
        self.kept: list[int] = [0] * width
        self.keeps = False
        #: Charged to this subtree.
        self.usage: list[int] = [0] * width
        #: Charged to it, or reserved for a queue below. One and the same list while nothing below keeps anything.
        self.held: list[int] = self.usage
        #: Room that is kept here for a job.
        self.claim: QuotaClaim | None = None
        #: {bits of the resources that a waiting job needs: how many such jobs wait} (leaves only).
        self.wants: dict[int, int] = {}
        #: The place of the first waiting job in the pool's line, smaller first; 0 when none waits (leaves only).
        self.front = 0
        #: A leaf that has nothing to offer for the rest of this decision.
        self.closed = False
        #: For the owner of the tree: its own object, and who waits for room here.
        self.leaf: Any = None
        self.waiters: set[Any] = set()

    @property
    def is_leaf(self) -> bool:
        """Jobs wait in leaves."""
        return not self.children

    def has_ceiling(self, at: int) -> bool:
        """Return True if the resource with this index is limited here."""
        return self.ceiling[at] < UNLIMITED

    def up(self) -> "Iterator[QueueNode]":
        """Yield this node and all above it."""
        node: QueueNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def is_within(self, node: "QueueNode") -> bool:
        """Return True if `node` is this node or one above it."""
        above: QueueNode | None = self
        while above is not None and above is not node:
            above = above.parent
        return above is not None


class QueueTree:
    """The queues of one pool and their charges."""

    def __init__(self, resources: Sequence[str]) -> None:
        self.resources = tuple(resources)
        self.width = len(self.resources)
        self.root = QueueNode("", None, self.width)
        self.nodes: dict[str, QueueNode] = {"": self.root}
        #: What the pool's nodes have in all.
        self.capacity: list[int] = [0] * self.width

    # ------------------------------------------------------------------ shape and limits

    def add(self, path: str, limits: Limits | None = None) -> QueueNode:
        """The queue at a path, made with its ancestors where missing."""
        node = self.nodes.get(path)
        if node is None:
            parent = self.add(path.rpartition("/")[0]) if "/" in path else self.root
            node = self.nodes[path] = parent.children[path.rpartition("/")[2]] = QueueNode(path, parent, self.width)
        if limits is not None:
            self.limit(node, limits)
        return node

    def remove(self, node: QueueNode) -> None:
        """Take away a queue that has no children and no charges; what was kept for it is free."""
        assert node.parent is not None and not node.children, f"{node.path!r} has queues below it"
        assert not any(node.usage), f"{node.path!r} has charges: {node.usage}"
        self.limit(node, Limits())
        del self.nodes[node.path], node.parent.children[node.name]

    def discard(self, node: QueueNode) -> None:
        """Take away a queue that has no children, no charges and keeps nothing, also one that was added in part."""
        assert node.parent is not None
        self.nodes.pop(node.path, None)
        node.parent.children.pop(node.name, None)

    def limit(self, node: QueueNode, limits: Limits) -> None:
        """Put limits on a queue; what is charged stays."""
        node.weight, node.priority = limits.weight, limits.priority
        before = self._outward(node)
        for at, name in enumerate(self.resources):
            guaranteed = node.guaranteed[at] = limits.guaranteed.get(name, 0)
            borrowable = limits.borrowing.get(name)
            ceiling = limits.maximum.get(name, UNLIMITED)
            node.ceiling[at] = ceiling if borrowable is None else min(ceiling, guaranteed + borrowable)
            node.kept[at] = guaranteed - min(limits.lending.get(name, guaranteed), guaranteed)
        node.promised = bits(node.guaranteed)
        node.promises = tuple((at, 1 << at, amount) for at, amount in enumerate(node.guaranteed) if amount)
        node.bounded = any(ceiling < UNLIMITED for ceiling in node.ceiling)
        node.keeps = any(node.kept)
        if node.keeps:
            self._part(node)
        self._hold(node, before)

    @staticmethod
    def _part(node: QueueNode) -> None:
        """From now on, what is held above this node may be more than what is charged there."""
        for above in node.up():
            if above is not node and above.held is above.usage:
                above.held = list(above.usage)

    def _outward(self, node: QueueNode) -> list[int]:
        """Return the amounts that a node counts for in its parent."""
        return [max(held, kept) for held, kept in zip(node.held, node.kept, strict=True)]

    def _hold(self, node: QueueNode, before: list[int]) -> None:
        """Carry a change of what a node counts for upwards."""
        while node.parent is not None:
            delta = [new - old for new, old in zip(self._outward(node), before, strict=True)]
            if not any(delta):
                return
            node = node.parent
            before = self._outward(node)
            node.held = [held + change for held, change in zip(node.held, delta, strict=True)]

    # ------------------------------------------------------------------ jobs

    def refusal(
        self, leaf: QueueNode, need: Amounts, rising: Parts | None = None, *, holder: str = "", since: int = 0
    ) -> LimitRefusal | None:
        """The first limit that a job would break on the way up; None when it fits under all of them.

        `rising` is `parts(need, 1)`, where the caller has it. `holder` is the job, where it has a claim, and `since` when it began to wait: its own claim is passed over, and
        those of others who have not waited as long. No claim holds against a job that is owed its amounts before the holder.
        """
        if rising is None:
            rising = parts(need, 1)
        within = False
        node: QueueNode | None = leaf
        while node is not None:
            held = node.held
            if node.bounded:
                ceiling = node.ceiling
                for at, more in rising:
                    if held[at] + more > ceiling[at]:
                        return self._refuse(node, at, more, need)
                if within:
                    refused = self._over(node, need)
                    if refused is not None:
                        return refused
            claim = node.claim
            if claim is not None and not (holder and (since, holder) <= (claim.since, claim.holder)):
                refused = self._claimed(node, claim, rising)
                if refused is not None and not is_owed_before(leaf, need, claim):
                    return refused
            if node.keeps:
                kept = node.kept
                rising = [(at, max(held[at] + more, kept[at]) - max(held[at], kept[at])) for at, more in rising]
                rising = [part for part in rising if part[1]]
                within = True
            node = node.parent
        return self._reserved(rising)

    def is_unlimited(self, leaf: QueueNode) -> bool:
        """Return True if nothing on the way up from a leaf refuses a job, however much is charged; claims may come later."""
        if self.root.held is not self.root.usage:
            return False
        node: QueueNode | None = leaf
        while node is not None:
            if node.bounded or node.keeps or node.claim is not None:
                return False
            node = node.parent
        return True

    def _refuse(self, node: QueueNode, at: int, more: int, need: Amounts) -> LimitRefusal:
        ceiling = node.ceiling[at]
        kind: RefusalKind = "maximum"
        if node.name.startswith(USER_MARK):
            kind = "user_limit"
        elif node.usage[at] + need[at] <= ceiling:
            kind = "reserved"
        return LimitRefusal(node, self.resources[at], node.held[at], more, ceiling, kind)

    def _over(self, node: QueueNode, need: Amounts) -> LimitRefusal | None:
        """Within what is reserved for it below, a job changes nothing that is held here; but where limits were set under
        what others use already, what it reserves is not there."""
        for at, more in enumerate(need):
            if more and node.usage[at] + more > node.ceiling[at]:
                return LimitRefusal(node, self.resources[at], node.usage[at], more, node.ceiling[at])
        return None

    def _claimed(self, node: QueueNode, claim: QuotaClaim, rising: Parts) -> LimitRefusal | None:
        """Return a refusal if another job's claim keeps the rising amounts; else None."""
        ceilings = node.ceiling if node.parent is not None else self.capacity
        for at, more in rising:
            amount = claim.amounts[at]
            if amount and node.held[at] + amount + more > ceilings[at]:
                resource, held = self.resources[at], node.held[at] + amount
                return LimitRefusal(node, resource, held, more, ceilings[at], "claimed", claim.holder)
        return None

    def _reserved(self, rising: Parts) -> LimitRefusal | None:
        """Return a refusal if the rest of the capacity is reserved for a queue that does not use it; else None. Applies to the root."""
        root, capacity = self.root, self.capacity
        if root.held is root.usage:
            return None
        for at, more in rising:
            held = root.held[at]
            if held + more > capacity[at] and held > root.usage[at]:
                return LimitRefusal(root, self.resources[at], held, more, capacity[at], "reserved")
        return None

    def charge(self, leaf: QueueNode, need: Amounts, times: int = 1) -> None:
        """Count `times` jobs of this size (negative: no longer) from the leaf to the root."""
        self.carry(leaf, parts(need, times))

    def carry(self, leaf: QueueNode, own: Parts) -> None:
        """Add these amounts from the leaf to the root."""
        rising = own
        node: QueueNode | None = leaf
        while node is not None:
            usage, held = node.usage, node.held
            for at, more in own:
                usage[at] += more
            if held is not usage:
                for at, more in rising:
                    held[at] += more
            if node.keeps:
                kept = node.kept
                rising = [(at, max(held[at], kept[at]) - max(held[at] - more, kept[at])) for at, more in rising]
            node = node.parent

    def can_ever_fit(self, leaf: QueueNode, need: Amounts) -> bool:
        """Return True if a job would be within every limit above it, and within the pool, if nothing ran there. Amounts that
        other queues never lend stay unavailable. A pool without known nodes counts as large enough.
        """
        amounts = need
        for node in leaf.up():
            ceilings = node.ceiling if node.parent is not None or not any(self.capacity) else self.capacity
            if any(more and amount > ceiling for more, amount, ceiling in zip(need, amounts, ceilings, strict=True)):
                return False
            if node.parent is not None and node.parent.held is not node.parent.usage:
                others = [_least(child) for child in node.parent.children.values() if child is not node]
                own = map(max, amounts, node.kept)
                amounts = tuple(map(sum, zip(own, *others, strict=True)))
        return True

    def over_guarantee(self, node: QueueNode, at: int) -> int:
        """Return the amount of the resource with this index that is charged beyond the guarantee."""
        return max(0, node.usage[at] - node.guaranteed[at])


def is_owed(node: QueueNode, need: Amounts, used: Sequence[int] | None = None) -> bool:
    """Return True if a job that comes below the node stays within what the node is guaranteed, of each resource that is
    guaranteed and that the job needs, and there is such a resource. `used`: instead of what is charged to the node.
    """
    if not node.promised:
        return False
    owed = False
    for before, more, most in zip(node.usage if used is None else used, need, node.guaranteed, strict=True):
        if more and most:
            if before + more > most:
                return False
            owed = True
    return owed


def is_owed_before(leaf: QueueNode, need: Amounts, claim: QuotaClaim) -> bool:
    """Return True if a job of the leaf is within the guarantee of its side, and the claim's holder is not within that of its
    own (`sides`)."""
    mine, theirs = sides(leaf, claim.leaf)
    return mine is not theirs and is_owed(mine, need) and not is_owed(theirs, claim.amounts)


def sides(leaf: QueueNode, other: QueueNode) -> tuple[QueueNode, QueueNode]:
    """Return the branches, below the node where the ways up from two leaves meet, that hold the one and the other. A leaf
    and itself: twice the leaf."""
    if leaf.parent is other.parent:  # a flat tree asks nothing else
        return leaf, other
    ways = [list(leaf.up()), list(other.up())]
    mine, theirs = leaf, other
    while ways[0] and ways[1] and ways[0][-1] is ways[1][-1]:
        mine, theirs = ways[0].pop(), ways[1].pop()
    return (ways[0] or [mine])[-1], (ways[1] or [theirs])[-1]


def _least(node: QueueNode) -> list[int]:
    """Return the amounts that a queue counts for in its parent while nothing runs in it."""
    if node.held is node.usage:  # nothing below it keeps anything
        return node.kept
    below = [sum(amounts) for amounts in zip(*map(_least, node.children.values()), strict=True)]
    return [max(kept, amount) for kept, amount in zip(node.kept, below, strict=True)]


def parts(amounts: Amounts, times: int) -> Parts:
    """`times` these amounts, by resource index, without those of which there is none."""
    return tuple((at, amount * times) for at, amount in enumerate(amounts) if amount)


def bits(amounts: Iterable[int]) -> int:
    """The resources of which there is some, as `Node.wants` counts them: bit 0 for the first."""
    return sum(1 << at for at, amount in enumerate(amounts) if amount)
