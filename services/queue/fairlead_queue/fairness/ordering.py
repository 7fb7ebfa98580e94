"""Order of leaves' turns: every inner node keeps its children in the order of a sequencer. The order is updated only where
something changed since the last query.

    ranking = Ranking(tree, sequencer)
    leaf = ranking.first()        then, after every change of it:   ranking.touch(leaf)

A change costs O(depth · log n). A sequencer's measure of a node may depend on the set of saturated resources (all of the
pool is charged). So there is one view for each such set that occurs. A view that is not queried is not updated, only
notified of stale nodes.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from fairlead_queue.fairness.past_use import PastUse
from fairlead_queue.fairness.tree import Parts, QueueNode, QueueTree

#: Views kept; in a full cluster two take turns.
VIEWS_MAX = 4

#: Position of a node among its siblings, smallest first; all keys of one sequencer have one length.
type Key = tuple[Any, ...]
#: A child in the order of its parent: its key, its path (ties go by it), and last its face.
type Placed = tuple[Any, ...]


class Sequencer(Protocol):
    """Order of a pool's nodes by turn. Pure: the order depends on the nodes alone."""

    #: How the owner numbers waiting jobs in `Node.front`: the newest gets the smallest number.
    newest_first: bool
    #: Whether jobs of all queues go by their places in one line, so that the place decides who yields to whom, too.
    by_order: bool
    #: How many times its time limit after its submit a job is promised to have ended (0: no promise): the order of lines.
    stretch: int
    #: Whether what it says depends on what is saturated.
    by_saturation: bool
    #: The past use that it goes by, for the owner to keep up to date; None: it looks at none.
    past: PastUse | None

    #: True if `keys` answers for leaves.
    has_keys: bool

    def state(self) -> Any:
        """Return the sequencer's memory of a node and of its children; called for each node of a new view."""
        ...

    def place(self, face: "NodeView", saturated: int) -> Key | None:
        """Measure a node again, after those below it: keep `face.state` true, and what the parent's state (if it is an
        inner node, not the root) says of its children. None: the node has nothing to offer. `saturated` has the bit of
        each resource of which nothing is left."""
        ...

    def leave(self, face: "NodeView") -> None:
        """The node is taken out of the tree: the parent's state no longer counts it."""
        ...

    def keys(self, leaf: QueueNode, orders: list[int], gains: list[Parts], saturated: int) -> list[Key]:
        """Return the keys that `place` gives a leaf at its next turns, while these resources are saturated (do not change the
        list). Each turn is given by its job's order and by the amounts that it adds.
        """
        ...


class NodeView:
    """Knowledge of one view about one node."""

    __slots__ = ("is_stale", "node", "order", "parent", "placed", "stale", "state", "turn")

    def __init__(self, node: QueueNode, parent: "NodeView | None", state: Any) -> None:
        self.node, self.parent, self.state = node, parent, state
        #: This node in its parent's order.
        self.placed: Placed | None = None
        #: Children that have something to offer, in order.
        self.order: list[Placed] = []
        #: The leaf whose turn it is among those below; itself for a leaf.
        self.turn: QueueNode | None = None
        #: Children to be measured again, and whether it is one of its parent's.
        self.stale: list[NodeView] = []
        self.is_stale = False


type _View = dict[QueueNode, NodeView]


class Ranking:
    """The order of a tree's leaves by one sequencer."""

    def __init__(self, tree: QueueTree, sequencer: Sequencer) -> None:
        self.tree, self.sequencer = tree, sequencer
        #: {saturated resources: {node: its face}}. Empty until the first question: before it no update is needed.
        self.views: dict[int, _View] = {}

    def saturated(self) -> int:
        """Bits of the resources of which the whole pool is charged."""
        bits, usage = 0, self.tree.root.usage
        for at, capacity in enumerate(self.tree.capacity):
            if usage[at] >= capacity:
                bits |= 1 << at
        return bits

    def forget(self) -> None:
        """The capacity, the past use or much of the tree has changed: every measure has."""
        self.views.clear()

    def touch(self, node: QueueNode) -> None:
        """A leaf's charges or waiting jobs have changed; or a node's limits, weight or priority; or it is new."""
        for view in self.views.values():
            face = view.get(node)
            if face is None:
                self._grow(view, node)
            elif not face.is_stale:
                self._mark(face)

    def remove(self, node: QueueNode) -> None:
        """A node without children is taken out of the tree."""
        for view in self.views.values():
            face = view.pop(node, None)
            if face is None or face.parent is None:
                continue
            parent = face.parent
            if face.placed is not None:
                del parent.order[bisect_left(parent.order, face.placed)]
            if face.is_stale:
                parent.stale.remove(face)
            self.sequencer.leave(face)
        if node.parent is not None:
            self.touch(node.parent)

    def first(self) -> QueueNode | None:
        """The leaf whose turn it is; None when none has anything to offer."""
        order = self._fresh()[self.tree.root].order
        return order[0][-1].turn if order else None

    def leaves(self, is_pruned: Callable[[QueueNode], bool]) -> Iterator[QueueNode]:
        """All leaves that have something to offer, in the order of their turns as of now, without those below a
        pruned node. Nothing may change meanwhile."""
        stack = [iter(self._fresh()[self.tree.root].order)]
        while stack:
            placed = next(stack[-1], None)
            if placed is None:
                stack.pop()
                continue
            face: NodeView = placed[-1]
            if is_pruned(face.node):
                continue
            if face.node.children:
                stack.append(iter(face.order))
            else:
                yield face.node

    def measure(self, node: QueueNode) -> Any:
        """Return the sequencer's own state of a node now (the root has none)."""
        return self._fresh()[node].state

    # ------------------------------------------------------------------ views

    def _fresh(self) -> _View:
        """The view that holds now, brought up to date."""
        saturated = self.saturated() if self.sequencer.by_saturation else 0
        view = self.views.get(saturated)
        if view is None:
            while len(self.views) >= VIEWS_MAX:
                del self.views[next(iter(self.views))]
            view = self.views[saturated] = {}
            for node in self.tree.nodes.values():
                self._grow(view, node)
        root = view[self.tree.root]
        if root.stale:
            self._refresh(root, saturated)
        return view

    def _grow(self, view: _View, node: QueueNode) -> NodeView:
        """The face of a node that the view may not know yet, made with those above it; it is stale."""
        face = view.get(node)
        if face is None:
            parent = self._grow(view, node.parent) if node.parent is not None else None
            face = view[node] = NodeView(node, parent, self.sequencer.state())
            self._mark(face)
        return face

    @staticmethod
    def _mark(face: NodeView) -> None:
        """A node and those above it are to be measured again."""
        parent = face.parent
        while parent is not None and not face.is_stale:
            face.is_stale = True
            parent.stale.append(face)
            face, parent = parent, parent.parent

    def _refresh(self, parent: NodeView, saturated: int) -> None:
        """Measure a node's stale children again, and put them where they belong among their siblings."""
        order, place = parent.order, self.sequencer.place
        for face in parent.stale:
            face.is_stale = False
            if face.stale:
                self._refresh(face, saturated)
            face.turn = face.node
            if face.node.children:
                face.turn = face.order[0][-1].turn if face.order else None
            placed = face.placed
            if placed is not None:
                del order[0 if order[0] is placed else bisect_left(order, placed)]
            key = place(face, saturated)
            if key is None:
                face.placed = None
            else:
                face.placed = placed = (*key, face.node.path, face)
                insort(order, placed)
        parent.stale.clear()
