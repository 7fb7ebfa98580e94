"""Which leaf's turn it is: every inner node keeps its children in the order of a sequencer, brought up to date
only where something changed since it was last asked.

What a sequencer says of a node may depend on which resources are saturated (all of the pool is charged), so there
is one view for each such set that occurs; a view that is not asked is not kept up to date, only told what is stale.
"""

from bisect import bisect_left, insort
from typing import Any, NamedTuple, Protocol

from fairlead_queue.tree import Node, Tree

#: Views kept; in a full cluster two take turns.
VIEWS_MAX = 4


class Sequencer(Protocol):
    """Who goes first. Pure: what it says depends on the nodes alone."""

    def leaf(self, node: Node, saturated: int) -> Any:
        """The measure of a leaf. `saturated` has the bit of each resource of which nothing is left."""
        ...

    def inner(self, node: Node, face: "Face", saturated: int) -> Any:
        """The measure of an inner node, from its children's (`face.order`, `face.sums`)."""
        ...

    def key(self, node: Node, face: "Face") -> Any:
        """Where it stands among its siblings (smallest first); None: it has nothing to offer."""
        ...

    def sums(self) -> Any:
        """What an inner node accumulates over its children, at first."""
        ...

    def change(self, sums: Any, old: Any, new: Any) -> None:
        """A child's measure was `old` (None: it had none) and is `new`."""
        ...


class Placed(NamedTuple):
    """A child in the order of its parent."""

    key: Any
    path: str  # ties go by path
    node: Node


class Face:
    """What one view knows about one node."""

    __slots__ = ("measure", "order", "placed", "stale", "sums")

    def __init__(self, sums: Any) -> None:
        self.measure: Any = None
        #: This node in its parent's order.
        self.placed: Placed | None = None
        #: Children that have something to offer, in order.
        self.order: list[Placed] = []
        self.sums = sums
        self.stale: set[Node] = set()


class Ranking:
    """The order of a tree's leaves by one sequencer."""

    def __init__(self, tree: Tree, sequencer: Sequencer) -> None:
        self.tree, self.sequencer = tree, sequencer
        #: {saturated resources: {node: its face}}
        self._views: dict[int, dict[Node, Face]] = {}

    def saturated(self) -> int:
        """Bits of the resources of which the whole pool is charged."""
        bits, usage = 0, self.tree.root.usage
        for at, capacity in enumerate(self.tree.capacity):
            if usage[at] >= capacity:
                bits |= 1 << at
        return bits

    def forget(self) -> None:
        """The capacity or the tree's shape has changed: every measure has."""
        self._views.clear()

    def touch(self, leaf: Node) -> None:
        """A leaf's charges or waiting jobs have changed."""
        for view in self._views.values():
            node = leaf
            while node.parent is not None:
                stale = view[node.parent].stale
                if node in stale:
                    break
                stale.add(node)
                node = node.parent

    def first(self) -> Node | None:
        """The leaf whose turn it is; None when none has anything to offer."""
        saturated = self.saturated()
        view = self._view(saturated)
        node = self.tree.root
        self._refresh(view, node, saturated)
        while node.children:
            order = view[node].order
            if not order:
                return None
            node = order[0].node
        return node if node.parent is not None else None

    def measure(self, node: Node) -> Any:
        """What the sequencer says of a node now."""
        saturated = self.saturated()
        view = self._view(saturated)
        self._refresh(view, self.tree.root, saturated)
        return view[node].measure

    # ------------------------------------------------------------------ views

    def _view(self, saturated: int) -> dict[Node, Face]:
        view = self._views.get(saturated)
        if view is None:
            while len(self._views) >= VIEWS_MAX:
                del self._views[next(iter(self._views))]
            view = self._views[saturated] = {}
            for node in self.tree.nodes.values():
                face = view[node] = Face(self.sequencer.sums())
                face.stale.update(node.children.values())
        return view

    def _refresh(self, view: dict[Node, Face], node: Node, saturated: int) -> None:
        face = view[node]
        for child in face.stale:
            self._renew(view, face, child, saturated)
        face.stale.clear()

    def _renew(self, view: dict[Node, Face], parent: Face, node: Node, saturated: int) -> None:
        """Measure a node again and put it where it belongs among its siblings."""
        face, sequencer = view[node], self.sequencer
        if node.children:
            self._refresh(view, node, saturated)
            measure = sequencer.inner(node, face, saturated)
        else:
            measure = sequencer.leaf(node, saturated)
        if node.parent is not self.tree.root:  # nobody asks for the root's own measure
            sequencer.change(parent.sums, face.measure, measure)
        face.measure = measure
        key = sequencer.key(node, face)
        old = face.placed
        if old is not None:
            if old.key == key:
                return
            del parent.order[bisect_left(parent.order, old[:2])]  # type: ignore[type-var] -- a prefix sorts before
        face.placed = None if key is None else Placed(key, node.path, node)
        if face.placed is not None:
            insort(parent.order, face.placed)
