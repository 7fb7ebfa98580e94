"""Dominant resource fairness, weighted and hierarchical (Ghodsi et al., NSDI 2011; Bhattacharya et al., SoCC 2013).

A leaf's dominant share is the largest of charged/capacity over the resources that are not saturated; the leaf with
the smallest share per weight goes first. An inner node's share is that of its children's vectors after rescaling:
each child that can still use something is scaled to the smallest share per weight among them, so that complementary
children (one of CPU, one of memory) do not add up against their sibling; blocked children (nothing waits, or all
that waits needs a saturated resource) count as they are, so that they are neither scaled away nor given twice.

Exact for leaves: shares are integers over one common denominator, and equal fractions are equal integers for
weights below 2**30. Rescaling rounds down at 2**-60 of a share, the same way everywhere.
"""

from bisect import bisect_left, insort
from math import lcm

import msgspec

from fairlead_queue.ordering import Face
from fairlead_queue.tree import Node, Tree

_FINE, _WEIGHT, _DIRECTION = 40, 20, 60
#: In and over its guarantee: the guaranteed come first.
WITHIN, OVER = 0, 1
#: Nobody goes before those who can use something now; the others are looked ahead to.
BLOCKED = 1


class Share(msgspec.Struct, gc=False):
    """What DRF says of a node. Shares are in units of 1/(lcm of the capacities * 2**40)."""

    blocked: int
    #: charged/capacity by resource, rescaled in inner nodes.
    vector: list[int]
    dominant: int
    #: dominant / weight * 2**20
    weighted: int
    #: weight * vector / dominant * 2**60; nothing for a node without a share.
    direction: list[int]


class Sums:
    """Over the children of a node."""

    __slots__ = ("blocked", "directions", "shares")

    def __init__(self, width: int) -> None:
        #: Those that count as they are, added up.
        self.blocked = [0] * width
        #: Those that are scaled: their directions added up, and their weighted shares, rising.
        self.directions = [0] * width
        self.shares: list[int] = []


class Drf:
    """Implements `ordering.Sequencer`."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._capacity: list[int] = []
        self._units: list[int] = []

    def leaf(self, node: Node, saturated: int) -> Share:
        """By what is charged to it."""
        vector = [used * unit for used, unit in zip(node.usage, self._unit(), strict=False)]
        blocked = node.closed or all(mask & saturated for mask in node.wants)
        return self._share(node, blocked, vector, saturated)

    def inner(self, node: Node, face: Face, saturated: int) -> Share:
        """By its children, rescaled."""
        sums: Sums = face.sums
        least = sums.shares[0] if sums.shares else 0
        vector = [
            blocked + (direction * least >> _DIRECTION + _WEIGHT)
            for blocked, direction in zip(sums.blocked, sums.directions, strict=False)
        ]
        blocked = not face.order or face.order[0].key[0] == BLOCKED
        return self._share(node, blocked, vector, saturated)

    def key(self, node: Node, face: Face) -> tuple[int, int, int, int] | None:
        """Those who can use something, then by the queue's priority, those within their guarantee, the smaller share."""
        if not face.order if node.children else node.closed or not node.wants:
            return None
        measure: Share = face.measure
        return (measure.blocked, -node.priority, OVER if self._is_over(node) else WITHIN, measure.weighted)

    def sums(self) -> Sums:
        """None yet."""
        return Sums(self.tree.width)

    def change(self, sums: Sums, old: Share | None, new: Share) -> None:
        """A child's vector changes: as it is, or as a direction to be scaled."""
        if old is not None:
            self._count(sums, old, -1)
        self._count(sums, new, 1)

    @staticmethod
    def _count(sums: Sums, share: Share, sign: int) -> None:
        if share.blocked:
            into, parts = sums.blocked, share.vector
        elif share.dominant:
            into, parts = sums.directions, share.direction
            if sign > 0:
                insort(sums.shares, share.weighted)
            else:
                del sums.shares[bisect_left(sums.shares, share.weighted)]
        else:
            return
        for at, part in enumerate(parts):
            into[at] += sign * part

    def _share(self, node: Node, blocked: bool, vector: list[int], saturated: int) -> Share:
        if saturated and not blocked:
            dominant = max((part for at, part in enumerate(vector) if not saturated >> at & 1), default=0)
        else:
            dominant = max(vector)
        direction: list[int] = []
        if dominant and not blocked:
            whole = node.weight << _DIRECTION
            direction = [part * whole // dominant for part in vector]
        return Share(blocked, vector, dominant, (dominant << _WEIGHT) // node.weight, direction)

    @staticmethod
    def _is_over(node: Node) -> bool:
        """Not below its guarantee in everything that it has a guarantee of."""
        guaranteed = False
        for used, amount in zip(node.usage, node.guaranteed, strict=True):
            if amount:
                guaranteed = True
                if used >= amount:
                    return True
        return not guaranteed

    def _unit(self) -> list[int]:
        """What one of each resource counts for."""
        capacity = self.tree.capacity
        if self._capacity != capacity:
            self._capacity = list(capacity)
            whole = lcm(*(amount for amount in capacity if amount)) << _FINE
            self._units = [whole // amount if amount else 0 for amount in capacity]
        return self._units
