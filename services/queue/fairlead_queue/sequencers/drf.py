"""Dominant resource fairness, weighted and hierarchical (Ghodsi et al., NSDI 2011; Bhattacharya et al., SoCC 2013).

A leaf's dominant share is the largest of charged/capacity over the resources that are not saturated; the leaf with
the smallest share per weight goes first. An inner node's share is that of its children's vectors after rescaling:
each child that can still use something is scaled to the smallest share per weight among them, so that complementary
children (one of CPU, one of memory) do not add up against their sibling; blocked children (nothing waits, or all
that waits needs a saturated resource) count as they are, so that they are neither scaled away nor given twice.

Rescaling alone would let a newcomer with one small job make all that its siblings hold look small. So a node never
stands before others with less than it really has of what its next job needs. While shares are filled from nothing the
two are the same.

All in integers over one common denominator, `Drf.whole`: of leaves, equal shares per weight are equal integers and
different ones different (weights up to 2**20). A rescaled share is rounded down once to that denominator.
"""

from bisect import bisect_left, insort
from math import lcm

from fairlead_queue.order import CAME_MASK
from fairlead_queue.ordering import Face, Key
from fairlead_queue.past_use import PastUse
from fairlead_queue.tree import Node, Tree

#: Two different shares over weights of up to 2**20 differ by at least 1 in units that are finer by their product.
_FINE = 40
#: Shares are at most 2**8 and a node has at most 2**16 children, for rescaling to be exact.
_SLACK = 32
#: In a node's rank, added to its priority (which is higher for a smaller number, and less than both).
OVER, BLOCKED = 1 << 20, 1 << 21


class Share:
    """What DRF knows of one node, in one view. A share of 1 is `Drf.whole`."""

    __slots__ = ("as_is", "blocked", "direction", "directions", "dominant", "shares", "vector", "weighted")

    def __init__(self, width: int) -> None:
        #: Nobody goes before those who can use something now; the others are looked ahead to.
        self.blocked = True
        #: charged/capacity by resource; of an inner node, its children's after rescaling.
        self.vector: list[int] = [0] * width
        #: The largest of the vector that counts, and that per weight.
        self.dominant = self.weighted = 0
        #: weight * vector / dominant, in fine units; empty for a node that counts in its parent as it is.
        self.direction: list[int] = []
        #: Of the children that count as they are: their vectors added up.
        self.as_is: list[int] = [0] * width
        #: Of the children that are rescaled: their directions added up, and their weighted shares, rising.
        self.directions: list[int] = [0] * width
        self.shares: list[int] = []


class Drf:
    """Implements `ordering.Sequencer`. `past_percent` of every share are of past use, the rest of what is charged."""

    newest_first = False
    by_order = False
    stretch = 0
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
        #: Binary places of a direction: its rounding up, times any share, stays below 1.
        self._fine = 0
        self._range = range(tree.width)

    # ------------------------------------------------------------------ ordering.Sequencer

    def state(self) -> Share:
        """Of a node without a share."""
        if self._capacity != self.tree.capacity:
            self._measure_capacity()
        return Share(self.tree.width)

    def place(self, face: Face, saturated: int) -> Key | None:
        """Those who can use something, those within their guarantee, then by the queue's priority and the share; of
        equals the one whose next job came first."""
        node, leaf, share, parent = face.node, face.turn, face.state, face.parent
        wanted, blocked = 0, True
        if leaf is not None and not leaf.closed:
            for mask in leaf.wants:
                wanted |= mask
                if not mask & saturated:
                    blocked = False
        vector = self._rescaled(share) if node.children else self._shares(node)
        dominant = max(vector) if blocked or not saturated else self._largest(vector, ~saturated)
        weighted = dominant // node.weight
        if parent is not None and parent.parent is not None:  # nobody asks for the root's own share
            direction: list[int] = []
            if not blocked:
                scale = -((node.weight << self._fine) // -dominant) if dominant else 0
                direction = [part * scale for part in vector]
            self._change(parent.state, share, vector, direction, weighted)
            share.direction = direction
        share.blocked, share.vector, share.dominant, share.weighted = blocked, vector, dominant, weighted
        if leaf is None or leaf.closed or not leaf.wants:
            return None
        if node.children and not blocked:
            held = self._held(node, wanted)
            if held > weighted:
                weighted = held
        rank = -node.priority
        if not (node.promised and is_within(node, leaf)):
            rank += OVER
        if blocked:
            rank += BLOCKED
        came = leaf.front & CAME_MASK
        if self.percent < 100:
            return (rank, weighted, came)
        return (rank, weighted, self._now(node), came)

    def leave(self, face: Face) -> None:
        """As if it had nothing."""
        parent, share = face.parent, face.state
        if parent is not None and parent.parent is not None:
            self._change(parent.state, share, [0] * self.tree.width, [], 0)

    # ------------------------------------------------------------------ arithmetic

    def _measure_capacity(self) -> None:
        self._capacity = list(self.tree.capacity)
        self.whole = lcm(*(amount for amount in self._capacity if amount)) << _FINE
        self._units = [self.whole // amount if amount else 0 for amount in self._capacity]
        if self.past is not None:
            self.whole *= 100
        self._fine = 2 * self.whole.bit_length() + _SLACK

    def _shares(self, node: Node) -> list[int]:
        """What is charged to a node (and was), as a share of each resource."""
        if self.past is None:
            usage, units = node.usage, self._units
            return [usage[at] * units[at] for at in self._range]
        now, before = 100 - self.percent, self.percent
        past = self.past.value(node)
        return [(now * u + before * p) * unit for u, p, unit in zip(node.usage, past, self._units, strict=True)]

    def _now(self, node: Node) -> int:
        """The dominant share per weight of what is charged now."""
        return max(used * unit for used, unit in zip(node.usage, self._units, strict=True)) // node.weight

    def _held(self, node: Node, wanted: int) -> int:
        """The largest share per weight that an inner node really has of the resources whose bits are set."""
        if self.past is not None:
            return self._largest(self._shares(node), wanted) // node.weight
        largest, usage, units = 0, node.usage, self._units
        for at in self._range:
            if wanted >> at & 1:
                part = usage[at] * units[at]
                if part > largest:
                    largest = part
        return largest // node.weight

    def _largest(self, vector: list[int], among: int) -> int:
        """Over the resources whose bits are set."""
        largest = 0
        for at in self._range:
            if among >> at & 1 and vector[at] > largest:
                largest = vector[at]
        return largest

    def _rescaled(self, share: Share) -> list[int]:
        """The vector of an inner node: its children's, those that count as they are and those that are rescaled."""
        if not share.shares:
            return share.as_is.copy()
        least, as_is, directions, fine = share.shares[0], share.as_is, share.directions, self._fine
        return [as_is[at] + (directions[at] * least >> fine) for at in self._range]

    def _change(self, above: Share, old: Share, vector: list[int], direction: list[int], weighted: int) -> None:
        """A child's share is another: in what its parent knows, put the new in the place of the old."""
        if old.direction and direction:
            sums, before, after = above.directions, old.direction, direction
            for at in self._range:
                sums[at] += after[at] - before[at]
        else:
            self._add(above, old.vector, old.direction, -1)
            self._add(above, vector, direction, 1)
        if old.direction:
            del above.shares[bisect_left(above.shares, old.weighted)]
        if direction:
            insort(above.shares, weighted)

    def _add(self, above: Share, vector: list[int], direction: list[int], sign: int) -> None:
        into, parts = (above.directions, direction) if direction else (above.as_is, vector)
        for at in self._range:
            into[at] += sign * parts[at]


def is_within(node: Node, leaf: Node) -> bool:
    """Some job that waits in the leaf needs what is guaranteed to the node, and nothing of which it has its guarantee."""
    full = 0
    for at, (used, guaranteed) in enumerate(zip(node.usage, node.guaranteed, strict=True)):
        if guaranteed and used >= guaranteed:
            full |= 1 << at
    return any(mask & node.promised and not mask & full for mask in leaf.wants)
