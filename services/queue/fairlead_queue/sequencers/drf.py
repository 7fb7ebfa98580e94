"""Dominant resource fairness, weighted and hierarchical (Ghodsi et al., NSDI 2011; Bhattacharya et al., SoCC 2013); and
decayed fair share: DRF over what the queues have used in the past instead of what they hold now.

A leaf's dominant share is the largest of charged/capacity over the resources that are not saturated; the leaf with the
smallest share per weight goes first. An inner node's share is that of its children's vectors after rescaling. Each child
that can still use something is scaled to the smallest share per weight among them. So complementary children (one of
CPU, one of memory) do not add up against their sibling. Blocked children (no job waits, or all that wait need a
saturated resource) count as they are, so they are not scaled away and not given twice.

With rescaling alone, a newcomer with one small job would make all that its siblings hold look small. So a node's share
is never below its real share of the resources that its next job needs. While shares are filled from nothing the two are
the same. A rescaled vector is nowhere larger than the real holdings. So it is worked out only for a node whose next job
does not need the very resource of which the node has most.

All arithmetic is in integers over one common denominator, `Drf.whole`: of leaves, equal shares per weight are equal
integers and different ones different (weights up to 2**20). A rescaled share is rounded down once to that denominator.

Who has used the least of late, per weight, goes first; of equals who holds less now. `past_percent` in the pool's
settings mixes the two (100, the default here: the past alone).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from math import lcm
from operator import mul

from fairlead_queue.fairness.ordering import Key, NodeView
from fairlead_queue.fairness.past_use import PastUse
from fairlead_queue.fairness.tree import Parts, QueueNode, QueueTree
from fairlead_queue.fairness.waiting_line import CAME_MASK

#: Two different shares over weights of up to 2**20 differ by at least 1 in units that are finer by their product.
_FINE = 40
#: Shares are at most 2**8 and a node has at most 2**16 children, for rescaling to be exact.
_SLACK = 32
#: In a node's rank, added to its priority (which is higher for a smaller number, and less than both).
OVER, BLOCKED = 1 << 20, 1 << 21


class DominantShare:
    """DRF's state of one node, in one view."""

    __slots__ = ("blocked", "changed", "counted", "is_changed", "sums", "weighted")

    def __init__(self) -> None:
        #: Nodes that can use something now go first; the others are only looked ahead to.
        self.blocked = True
        #: Share per weight, which sets its position among its siblings; 1 is `Drf.whole`.
        self.weighted = 0
        #: Sums over its children, for rescaling; None until first needed.
        self.sums: ChildSums | None = None
        #: Children that have changed since they were counted there, and whether it is one of its parent's.
        self.changed: list[NodeView] = []
        self.is_changed = False
        #: As what it counts in its parent.
        self.counted: CountedChild | None = None


class CountedChild:
    """A child in its parent's sums."""

    __slots__ = ("direction", "vector", "weighted")

    def __init__(self, vector: list[int], weighted: int, direction: list[int] | None) -> None:
        #: Its share of each resource, and the largest per weight.
        self.vector, self.weighted = vector, weighted
        #: weight * vector / dominant, in units of 2**-Drf.fine; None when it counts as it is.
        self.direction = direction


class ChildSums:
    """Over the children of a node."""

    __slots__ = ("as_is", "directions", "shares")

    def __init__(self, width: int) -> None:
        #: Sum of the vectors of children that count as they are.
        self.as_is = [0] * width
        #: Those that are rescaled: their directions added up, and their weighted shares, rising.
        self.directions = [0] * width
        self.shares: list[int] = []

    def add(self, one: CountedChild) -> None:
        """A child comes in."""
        self._add(one, 1)
        if one.direction is not None:
            insort(self.shares, one.weighted)

    def drop(self, one: CountedChild) -> None:
        """A child goes."""
        self._add(one, -1)
        if one.direction is not None:
            del self.shares[bisect_left(self.shares, one.weighted)]

    def _add(self, one: CountedChild, sign: int) -> None:
        into, parts = (self.as_is, one.vector) if one.direction is None else (self.directions, one.direction)
        for at, part in enumerate(parts):
            into[at] += sign * part


class KnownKeys:
    """Keys of a leaf's next turns, by the saturated resources, and everything that they depend on."""

    __slots__ = ("basis", "keys")

    def __init__(self, basis: tuple[object, ...]) -> None:
        self.basis = basis
        self.keys: dict[int, list[Key]] = {}


class Drf:
    """Implements `ordering.Sequencer`. `past_percent` of every share are of past use, the rest of what is charged."""

    newest_first = False
    by_order = False
    stretch = 0
    by_saturation = True
    has_keys = True

    def __init__(self, tree: QueueTree, past: PastUse | None = None, past_percent: int = 0) -> None:
        self.tree = tree
        self.past = past if past_percent else None
        self.percent = past_percent
        #: A share of 1.
        self.whole = 0
        #: Binary places of a direction: its rounding up, times any share, stays below 1.
        self.fine = 0
        self._capacity: list[int] = []
        #: What one of each resource counts for.
        self._units: list[int] = []
        self._range = range(tree.width)
        self._all = (1 << tree.width) - 1
        #: A memo: leaves whose turns were found in advance.
        self._known: dict[QueueNode, KnownKeys] = {}

    # ------------------------------------------------------------------ ordering.Sequencer

    def state(self) -> DominantShare:
        """Return the state of a node without a share."""
        if self._capacity != self.tree.capacity:
            self._measure_capacity()
        return DominantShare()

    def place(self, face: NodeView, saturated: int) -> Key | None:
        """Order the nodes: those that can use something, those within their guarantee, then by the queue's priority and the share.
        Among equals the node whose next job came first goes first.
        """
        node, leaf, share, parent = face.node, face.turn, face.state, face.parent
        if not share.is_changed and parent is not None and parent.parent is not None:  # the root rescales no child
            share.is_changed = True
            parent.state.changed.append(face)
        wanted, blocked = 0, True
        if leaf is not None and not leaf.closed:
            for mask in leaf.wants:
                if not mask & saturated:
                    wanted |= mask
                    blocked = False
        share.blocked = blocked
        vector = self._shares(node)
        counts = self._all if blocked else self._all & ~saturated
        dominant = max(vector) if counts == self._all else self._largest(vector, counts)
        if node.children and not blocked and wanted != counts:
            held = self._largest(vector, wanted)
            if held < dominant:
                dominant = max(held, self._largest(self._rescaled(face, counts), counts))
        share.weighted = weighted = dominant // node.weight
        if leaf is None or leaf.closed or not leaf.wants:
            return None
        rank = -node.priority
        if not (node.promised and is_within(node, leaf)):
            rank += OVER
        if blocked:
            rank += BLOCKED
        came = leaf.front & CAME_MASK
        if self.percent < 100:
            return (rank, weighted, came)
        return (rank, weighted, self._now(node, node.usage), came)

    def leave(self, face: NodeView) -> None:
        """Remove the node from its parent's sums."""
        self._known.pop(face.node, None)
        share, above = face.state, face.parent.state if face.parent is not None else None
        if above is None:
            return
        if share.is_changed:
            above.changed.remove(face)
        if share.counted is not None and above.sums is not None:
            above.sums.drop(share.counted)

    def keys(self, leaf: QueueNode, orders: list[int], gains: list[Parts], saturated: int) -> list[Key]:
        """As `place`, for all turns in one pass. The keys of the last turns are kept: most leaves are the same in the next review."""
        if self._capacity != self.tree.capacity:
            self._measure_capacity()
        past = self.past.value(leaf) if self.past is not None else None
        basis = (
            leaf.usage,
            past,
            leaf.priority,
            leaf.weight,
            leaf.promises,
            list(leaf.wants),
            self._units,
            orders,
            gains,
        )
        known = self._known.get(leaf)
        if known is None or known.basis != basis:
            if len(self._known) >= len(self.tree.nodes):
                self._known.clear()  # some are of leaves that are gone
            frozen = (leaf.usage.copy(), past, *basis[2:7], orders.copy(), gains.copy())
            known = self._known[leaf] = KnownKeys(frozen)
        keys = known.keys.get(saturated)
        if keys is None:
            keys = known.keys[saturated] = self._keys(leaf, past, orders, gains, saturated)
        return keys

    def _keys(
        self, leaf: QueueNode, past: list[int] | None, orders: list[int], gains: list[Parts], saturated: int
    ) -> list[Key]:
        blocked = all(mask & saturated for mask in leaf.wants)
        rank = BLOCKED - leaf.priority if blocked else -leaf.priority
        counted = [(at, unit) for at, unit in enumerate(self._units) if blocked or not saturated >> at & 1]
        now = 1 if past is None else 100 - self.percent
        before = [0] * self.tree.width if past is None else [self.percent * amount for amount in past]
        used, within, keys = list(leaf.usage), leaf.promised > 0, list[Key]()
        for order, gain in zip(orders, gains, strict=True):
            within = within and is_owed_some(leaf, used, leaf.wants)
            share = max([(now * used[at] + before[at]) * unit for at, unit in counted], default=0) // leaf.weight
            measure = (share,) if self.percent < 100 else (share, self._now(leaf, used))
            keys.append((rank if within else rank + OVER, *measure, order & CAME_MASK))
            for at, more in gain:
                used[at] += more
        return keys

    # ------------------------------------------------------------------ arithmetic

    def _measure_capacity(self) -> None:
        capacity = list(self.tree.capacity)
        whole = lcm(*(amount for amount in capacity if amount)) << _FINE
        self._units = [whole // amount if amount else 0 for amount in capacity]
        self.whole = whole * 100 if self.past is not None else whole
        self.fine = 2 * self.whole.bit_length() + _SLACK
        self._capacity = capacity  # last: an exception before leaves it to be measured again

    def _shares(self, node: QueueNode) -> list[int]:
        """Return a node's present and past charges, as a share of each resource."""
        if self.past is None:
            return list(map(mul, node.usage, self._units))
        now, before = 100 - self.percent, self.percent
        past = self.past.value(node)
        return [(now * u + before * p) * unit for u, p, unit in zip(node.usage, past, self._units, strict=True)]

    def _now(self, node: QueueNode, usage: Sequence[int]) -> int:
        """The dominant share per weight of what is charged."""
        return max(used * unit for used, unit in zip(usage, self._units, strict=True)) // node.weight

    def _largest(self, vector: list[int], among: int) -> int:
        """Over the resources whose bits are set."""
        largest = 0
        for at in self._range:
            if among >> at & 1 and vector[at] > largest:
                largest = vector[at]
        return largest

    # ------------------------------------------------------------------ rescaling

    def _rescaled(self, face: NodeView, counts: int) -> list[int]:
        """The vector of an inner node from its children's, those that count as they are and those that are rescaled.

        `counts` has the bits of the resources that are not saturated.
        """
        share = face.state
        if share.sums is None:
            share.sums = ChildSums(self.tree.width)
        sums = share.sums
        for child in share.changed:
            state = child.state
            state.is_changed = False
            if state.counted is not None:
                sums.drop(state.counted)
            state.counted = self._counted(child, counts)
            sums.add(state.counted)
        share.changed.clear()
        least = sums.shares[0] if sums.shares else 0
        return [sums.as_is[at] + (sums.directions[at] * least >> self.fine) for at in self._range]

    def _counted(self, face: NodeView, counts: int) -> CountedChild:
        """A child for its parent's sums."""
        node = face.node
        if face.state.blocked:  # and so is all below
            return CountedChild(self._shares(node), 0, None)
        vector = self._rescaled(face, counts) if node.children else self._shares(node)
        dominant = self._largest(vector, counts)
        scale = -((node.weight << self.fine) // -dominant) if dominant else 0
        return CountedChild(vector, dominant // node.weight, [part * scale for part in vector])


def is_within(node: QueueNode, leaf: QueueNode) -> bool:
    """Some job that waits in the leaf needs what is guaranteed to the node, and nothing of which it has its guarantee."""
    return is_owed_some(node, node.usage, leaf.wants)


def is_owed_some(node: QueueNode, usage: Sequence[int], wants: Iterable[int]) -> bool:
    """Return True if with this use some waiting job, given by the bits of what it needs, needs what is guaranteed to the node,
    and nothing of which the node has its guarantee.
    """
    full, promised = 0, node.promised
    for at, bit, amount in node.promises:
        if usage[at] >= amount:
            full |= bit
    if full == promised:
        return False
    return any(mask & promised and not mask & full for mask in wants)


class FairShare(Drf):
    """Implements `ordering.Sequencer`."""

    def __init__(self, tree: QueueTree, past: PastUse, past_percent: int = 0) -> None:
        super().__init__(tree, past, past_percent or 100)
