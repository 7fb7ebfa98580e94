"""Dominant resource fairness, weighted and hierarchical (Ghodsi et al., NSDI 2011; Bhattacharya et al., SoCC 2013).

A leaf's dominant share is the largest of charged/capacity over the resources that are not saturated; the leaf with
the smallest share per weight goes first. An inner node's share is that of its children's vectors after rescaling:
each child that can still use something is scaled to the smallest share per weight among them, so that complementary
children (one of CPU, one of memory) do not add up against their sibling; blocked children (nothing waits, or all
that waits needs a saturated resource) count as they are, so that they are neither scaled away nor given twice.

Rescaling alone would let a newcomer with one small job make all that its siblings hold look small. So a node never
stands before others with less than it really has of what its next job needs. While shares are filled from nothing the
two are the same.

Exact for leaves: shares are integers over one common denominator, `Drf.whole`, and equal fractions are equal integers
for weights up to 2**20. Rescaling rounds down at 2**-60 of a share, the same way everywhere.
"""

from bisect import bisect_left, insort
from math import lcm

import msgspec

from fairlead_queue.ordering import Face
from fairlead_queue.past_use import PastUse
from fairlead_queue.tree import Node, Tree

#: Two different shares over weights of up to 2**20 differ by at least 1 in units that are finer by their product.
_FINE = 40
_DIRECTION = 60
#: In and over its guarantee: the guaranteed come first.
WITHIN, OVER = 0, 1

type Key = tuple[int, ...]


class Share(msgspec.Struct, gc=False):
    """What DRF says of a node. A share of 1 is `Drf.whole`."""

    #: Nobody goes before those who can use something now; the others are looked ahead to.
    blocked: bool
    #: charged/capacity by resource, rescaled in inner nodes.
    vector: list[int]
    dominant: int
    #: dominant / weight
    weighted: int
    #: weight * vector / dominant * 2**60; nothing for a node that counts as it is.
    direction: list[int] | None


class Sums:
    """Over the children of a node."""

    __slots__ = ("as_is", "directions", "shares")

    def __init__(self, width: int) -> None:
        #: The vectors of those that count as they are, added up.
        self.as_is = [0] * width
        #: Those that are scaled: their directions added up, and their weighted shares, rising.
        self.directions = [0] * width
        self.shares: list[int] = []


class Drf:
    """Implements `ordering.Sequencer`. `past_percent` of every share are of past use, the rest of what is charged."""

    newest_first = False
    by_saturation = True

    def __init__(self, tree: Tree, past: PastUse | None = None, past_percent: int = 0) -> None:
        self.tree = tree
        self.past = past if past_percent else None
        self.percent = past_percent
        #: A share of 1.
        self.whole = 0
        self._capacity: list[int] = []
        #: What one of each resource counts for.
        self._units: list[int] = []

    def leaf(self, node: Node, saturated: int) -> Share:
        """By what is charged to it."""
        blocked = node.closed or not node.wants
        if saturated and not blocked:
            blocked = all(mask & saturated for mask in node.wants)
        return self._share(node, blocked, self._vector(node), saturated)

    def inner(self, node: Node, face: Face, saturated: int) -> Share:
        """By its children, rescaled."""
        sums: Sums = face.sums
        vector = sums.as_is
        if sums.shares:
            least = sums.shares[0]
            vector = [
                part + (direction * least >> _DIRECTION)
                for part, direction in zip(vector, sums.directions, strict=False)
            ]
        blocked = not face.order or face.order[0].key[0]
        return self._share(node, blocked, vector, saturated)

    def key(self, node: Node, face: Face) -> Key | None:
        """Those who can use something, those within their guarantee, then by the queue's priority and the share."""
        leaf = face.turn
        if leaf is None or leaf.closed or not leaf.wants:
            return None
        measure: Share = face.measure
        share = measure.weighted
        if leaf is not node and not measure.blocked:
            share = max(share, self._held(node, leaf))
        within = WITHIN if node.promised and is_within(node, leaf) else OVER
        if self.percent < 100:
            return (measure.blocked, within, -node.priority, share)
        now = max(used * unit for used, unit in zip(node.usage, self._units, strict=True))
        return (measure.blocked, within, -node.priority, share, now // node.weight)

    def sums(self) -> Sums:
        """None yet."""
        return Sums(self.tree.width)

    def change(self, sums: Sums, old: Share | None, new: Share | None) -> None:
        """A child's vector changes: as it is, or as a direction to be scaled."""
        if old is not None:
            self._count(sums, old, -1)
        if new is not None:
            self._count(sums, new, 1)

    @staticmethod
    def _count(sums: Sums, share: Share, sign: int) -> None:
        into, parts = sums.as_is, share.vector
        if share.direction is not None:
            into, parts = sums.directions, share.direction
            if sign > 0:
                insort(sums.shares, share.weighted)
            else:
                del sums.shares[bisect_left(sums.shares, share.weighted)]
        for at, part in enumerate(parts):
            into[at] += sign * part

    @staticmethod
    def _share(node: Node, blocked: bool, vector: list[int], saturated: int) -> Share:
        if blocked or not saturated:
            dominant = max(vector)
        else:
            dominant = max((part for at, part in enumerate(vector) if not saturated >> at & 1), default=0)
        direction = None
        if dominant and not blocked:
            whole = node.weight << _DIRECTION
            direction = [part * whole // dominant for part in vector]
        return Share(blocked, vector, dominant, dominant // node.weight, direction)

    def _vector(self, node: Node) -> list[int]:
        """What is charged to a node (and was), as shares."""
        if self._capacity != self.tree.capacity:
            self._measure_capacity()
        if self.past is None:
            return [used * unit for used, unit in zip(node.usage, self._units, strict=False)]
        now, before = 100 - self.percent, self.percent
        past = self.past.value(node)
        return [(now * u + before * p) * unit for u, p, unit in zip(node.usage, past, self._units, strict=True)]

    def _held(self, node: Node, leaf: Node) -> int:
        """The largest share per weight that an inner node has of anything that the leaf's jobs need."""
        wanted = 0
        for mask in leaf.wants:
            wanted |= mask
        vector = self._vector(node)
        return max((part for at, part in enumerate(vector) if wanted >> at & 1), default=0) // node.weight

    def _measure_capacity(self) -> None:
        self._capacity = list(self.tree.capacity)
        self.whole = lcm(*(amount for amount in self._capacity if amount)) << _FINE
        self._units = [self.whole // amount if amount else 0 for amount in self._capacity]
        if self.past is not None:
            self.whole *= 100


def is_within(node: Node, leaf: Node) -> bool:
    """Some job that waits in the leaf needs what is guaranteed to the node, and nothing of which it has its guarantee."""
    full = 0
    for at, (used, guaranteed) in enumerate(zip(node.usage, node.guaranteed, strict=True)):
        if guaranteed and used >= guaranteed:
            full |= 1 << at
    return any(mask & node.promised and not mask & full for mask in leaf.wants)
