"""Which leaf's turn it is: every inner node keeps its children in the order of a sequencer, brought up to date
only where something changed since it was last asked.

    ranking = Ranking(tree, sequencer)
    leaf = ranking.first()        then, after every change of it:   ranking.touch(leaf)

A change costs O(depth · log n). What a sequencer says of a node may depend on which resources are saturated (all of
the pool is charged), so there is one view for each such set that occurs; a view that is not asked is not kept up to
date, only told what is stale.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from fairlead_queue.past_use import PastUse
from fairlead_queue.tree import Node, Tree

#: Views kept; in a full cluster two take turns.
VIEWS_MAX = 4


class Sequencer(Protocol):
    """Who goes first. Pure: what it says depends on the nodes alone."""

    #: How the owner numbers waiting jobs in `Node.front`: the newest gets the smallest number.
    newest_first: bool
    #: Whether what it says depends on what is saturated.
    by_saturation: bool
    #: The past use that it goes by, for the owner to keep up to date; None: it looks at none.
    past: PastUse | None

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
        """A child's measure was `old` (None: there was no child) and is `new` (None: there is none any more)."""
        ...


class Placed(NamedTuple):
    """A child in the order of its parent."""

    key: Any
    path: str  # ties go by path
    face: "Face"


class Face:
    """What one view knows about one node."""

    __slots__ = ("is_stale", "measure", "node", "order", "parent", "placed", "stale", "sums", "turn")

    def __init__(self, node: Node, parent: "Face | None", sums: Any) -> None:
        self.node, self.parent = node, parent
        self.measure: Any = None
        #: This node in its parent's order.
        self.placed: Placed | None = None
        #: Children that have something to offer, in order.
        self.order: list[Placed] = []
        #: The leaf whose turn it is among those below; itself for a leaf.
        self.turn: Node | None = None
        self.sums = sums
        #: Children to be measured again, and whether it is one of its parent's.
        self.stale: list[Face] = []
        self.is_stale = False


type _View = dict[Node, Face]


class Ranking:
    """The order of a tree's leaves by one sequencer."""

    def __init__(self, tree: Tree, sequencer: Sequencer) -> None:
        self.tree, self.sequencer = tree, sequencer
        #: {saturated resources: {node: its face}}
        self._views: dict[int, _View] = {}

    def saturated(self) -> int:
        """Bits of the resources of which the whole pool is charged."""
        bits, usage = 0, self.tree.root.usage
        for at, capacity in enumerate(self.tree.capacity):
            if usage[at] >= capacity:
                bits |= 1 << at
        return bits

    def forget(self) -> None:
        """The capacity, the past use or much of the tree has changed: every measure has."""
        self._views.clear()

    def touch(self, node: Node) -> None:
        """A leaf's charges or waiting jobs have changed; or a node's limits, weight or priority; or it is new."""
        for view in self._views.values():
            face = view.get(node) or self._grow(view, node)
            parent = face.parent
            while parent is not None and not face.is_stale:
                face.is_stale = True
                parent.stale.append(face)
                face, parent = parent, parent.parent

    def remove(self, node: Node) -> None:
        """A node without children is taken out of the tree."""
        for view in self._views.values():
            face = view.pop(node, None)
            if face is None or face.parent is None:
                continue
            parent = face.parent
            if face.placed is not None:
                del parent.order[bisect_left(parent.order, face.placed)]
            if face.is_stale:
                parent.stale.remove(face)
            if face.measure is not None and parent.parent is not None:
                self.sequencer.change(parent.sums, face.measure, None)
        if node.parent is not None:
            self.touch(node.parent)

    def first(self) -> Node | None:
        """The leaf whose turn it is; None when none has anything to offer."""
        order = self._fresh()[self.tree.root].order
        return order[0].face.turn if order else None

    def leaves(self, is_pruned: Callable[[Node], bool]) -> Iterator[Node]:
        """All leaves that have something to offer, in the order of their turns as of now, without those below a
        pruned node. Nothing may change meanwhile."""
        stack = [iter(self._fresh()[self.tree.root].order)]
        while stack:
            placed = next(stack[-1], None)
            if placed is None:
                stack.pop()
                continue
            face = placed.face
            if is_pruned(face.node):
                continue
            if face.node.children:
                stack.append(iter(face.order))
            else:
                yield face.node

    def measure(self, node: Node) -> Any:
        """What the sequencer says of a node now (the root: nothing)."""
        return self._fresh()[node].measure

    # ------------------------------------------------------------------ views

    def _fresh(self) -> _View:
        """The view that holds now, brought up to date."""
        saturated = self.saturated() if self.sequencer.by_saturation else 0
        view = self._views.get(saturated)
        if view is None:
            while len(self._views) >= VIEWS_MAX:
                del self._views[next(iter(self._views))]
            view = self._views[saturated] = {}
            for node in self.tree.nodes.values():
                self._grow(view, node)
        root = view[self.tree.root]
        if root.stale:
            self._refresh(root, saturated)
        return view

    def _grow(self, view: _View, node: Node) -> Face:
        """A face for a node that the view does not know yet, and for those above it; they are stale."""
        face = view.get(node)
        if face is None:
            parent = self._grow(view, node.parent) if node.parent is not None else None
            face = view[node] = Face(node, parent, self.sequencer.sums())
            while parent is not None and not face.is_stale:
                face.is_stale = True
                parent.stale.append(face)
                face, parent = parent, parent.parent
            face = view[node]
        return face

    def _refresh(self, face: Face, saturated: int) -> None:
        """Measure a node's stale children again."""
        for child in face.stale:
            child.is_stale = False
            self._renew(face, child, saturated)
        face.stale.clear()

    def _renew(self, parent: Face, face: Face, saturated: int) -> None:
        """Measure a node again and put it where it belongs among its siblings."""
        node, sequencer = face.node, self.sequencer
        if face.stale:
            self._refresh(face, saturated)
        if node.children:
            measure = sequencer.inner(node, face, saturated)
            face.turn = face.order[0].face.turn if face.order else None
        else:
            measure = sequencer.leaf(node, saturated)
            face.turn = node
        if parent.parent is not None:  # nobody asks for the root's own measure
            sequencer.change(parent.sums, face.measure, measure)
        face.measure = measure
        key = sequencer.key(node, face)
        old, order = face.placed, parent.order
        if old is not None:
            if old.key == key:
                return
            del order[bisect_left(order, old)]
        if key is None:
            face.placed = None
        else:
            face.placed = placed = Placed(key, node.path, face)
            insort(order, placed)
