"""The placer's undo log: speculative changes of the state, rolled back or kept, and marks for those who publish; and facts
of the state, restored from the undo log after an exception in mid-decision.

Nothing that decides may depend on the order of a dict: an undone removal comes back last.

An entry of the log undoes a whole change: of tables, of what nodes have left, and of their index. An exception may strike
in the middle of one, and then its inverse cannot be called. So only the facts of each entry are restored here, those
that a snapshot is made of. Each function sets them to what they were, whether or not the change had come to them.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from fairlead_bus.undo_log import UndoFailed, UndoLog
from fairlead_placer.cluster.entities import ClusterNode, Offer, OfferClass, PlacedRun, Reservation
from fairlead_placer.cluster.plans import LayoutPlan
from fairlead_placer.packing.policies import DEFAULT
from fairlead_schemas.queuefile.settings import Packing


class PlacerUndoLog(UndoLog):
    """The undo log, and the names of nodes whose desired state has changed."""

    def __init__(self) -> None:
        super().__init__()
        #: Nodes whose desired state a fold has changed, and whose number it moved, since it was published; and those
        #: whose desired state is changed speculatively.
        self.touched: set[str] = set()
        self.advanced: set[str] = set()
        self._to_touch: set[str] = set()

    def touch(self, name: str) -> None:
        """Mark the node's desired state as changed; published once the change is not speculative any more."""
        (self.touched if self.journal is None else self._to_touch).add(name)

    def begin(self) -> None:
        """Make every change speculative, until `rollback`, `abort` or `keep`."""
        self.journal = []

    def rollback(self) -> None:
        """Restore the state as it was when the journal was opened, and close the journal. Raises UndoFailed."""
        super().rollback()
        self._to_touch.clear()

    def keep(self) -> None:
        """Make the speculative changes final: they are in the log."""
        self.journal = None
        self.touched |= self._to_touch
        self._to_touch.clear()

    @contextmanager
    def trying(self) -> Generator[None]:
        """Roll back every change of the block, within a decision that continues. After an exception the changes are left to the
        decision's own `abort`, which can restore from a partial journal.
        """
        outer, marks = self.journal, self._to_touch
        self.journal, self._to_touch = [], set()
        try:
            yield
        except BaseException:
            self.journal = [*(outer or ()), *self.journal]
            raise
        else:
            self.rollback()
            self.journal = outer
        finally:
            self._to_touch = marks


def restore(state: Any, journal: Sequence[tuple[Any, ...]]) -> None:
    """Restore the facts in all entries of an undo log, newest first. Raises UndoFailed."""
    try:
        for inverse, *args in reversed(journal):
            if getattr(inverse, "__self__", None) is state:
                FACTS[inverse.__name__](state, *args)
            else:
                inverse(*args)  # of one field or one entry of a table: done in one step
    except BaseException as error:
        raise UndoFailed(f"the state is unknown, a rollback failed: {type(error).__name__}: {error}") from error


def _no_run(state: Any, run: PlacedRun, _nodes: object, _marks: object) -> None:
    state.runs.pop(run.key, None)


def _started(_state: Any, run: PlacedRun, started: int, began_ns: int) -> None:
    run.started, run.began_ns = started, began_ns


def _ended(_state: Any, run: PlacedRun, _node: object, ended: int) -> None:
    run.ended = ended


def _finished(state: Any, run: PlacedRun, _node: object, _part: object) -> None:
    run.ended = run.released = 0
    state.runs[run.key] = run


def _released(state: Any, run: PlacedRun, _node: object, _rank: int, _part: object, released: int) -> None:
    run.released = released
    state.runs[run.key] = run


def _offer(state: Any, offer: Offer, group: OfferClass, _at: int) -> None:
    state.offers[offer.job] = offer
    state.classes[offer.request] = group


def _rank(state: Any, offer: Offer) -> None:
    state.offers[offer.job] = offer


def _no_offer(state: Any, offer: Offer, is_new: bool) -> None:
    state.offers.pop(offer.job, None)
    if is_new:
        state.classes.pop(offer.request, None)


def _fields(_state: Any, node: ClusterNode, fields: dict[str, object]) -> None:
    for name, value in fields.items():
        setattr(node, name, value)


def _no_node(state: Any, node: ClusterNode) -> None:
    state.nodes.pop(node.name, None)


def _layout(state: Any, node: ClusterNode, plan: LayoutPlan | None) -> None:
    state.layouts.pop(node.name, None)
    if plan is not None:
        state.layouts[node.name] = plan


def _packing(state: Any, pool: str, packing: Packing) -> None:
    state.packings.pop(pool, None)
    if packing != DEFAULT:
        state.packings[pool] = packing


def _reservation(state: Any, job: str, kept: Reservation | None) -> None:
    state.reservations.pop(job, None)
    if kept is not None:
        state.reservations[job] = kept


def _nothing(_state: Any, *_of: object) -> None:
    """Parts held on nodes follow from the runs."""


#: {method of `State` that is noted as an inverse: how the facts in its arguments are restored}
FACTS: dict[str, Callable[..., None]] = {
    "_unplace": _no_run,
    "_unstart_ranks": _started,
    "_unfinish": _finished,
    "_unend_rank": _ended,
    "_unrelease_rank": _released,
    "_untake": _nothing,
    "hold": _nothing,
    "_unopen": _no_offer,
    "_reopen": _offer,
    "_rerank": _rank,
    "_keep": _reservation,
    "_restore": _fields,
    "_remove_node": _no_node,
    "_lay_out": _layout,
    "_pack": _packing,
}
