"""Facts of the state, restored from the undo log after an exception in mid-decision.

An entry of the log undoes a whole change: of tables, of what nodes have left, and of their index. An exception may strike
in the middle of one, and then its inverse cannot be called. So only the facts of each entry are restored here, those
that a snapshot is made of. Each function sets them to what they were, whether or not the change had come to them.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fairlead_bus.core import UndoFailed
from fairlead_placer.cutting.plans import LayoutPlan
from fairlead_placer.entities import Node, Offer, OfferClass, Reservation, Run
from fairlead_placer.packing.policies import DEFAULT
from fairlead_schemas.queuefile.settings import Packing

if TYPE_CHECKING:
    from fairlead_placer.state import State


def restore(state: "State", journal: Sequence[tuple[Any, ...]]) -> None:
    """Restore the facts in all entries of an undo log, newest first. Raises UndoFailed."""
    try:
        for inverse, *args in reversed(journal):
            if getattr(inverse, "__self__", None) is state:
                FACTS[inverse.__name__](state, *args)
            else:
                inverse(*args)  # of one field or one entry of a table: done in one step
    except BaseException as error:
        raise UndoFailed(f"the state is unknown, a rollback failed: {type(error).__name__}: {error}") from error


def _no_run(state: "State", run: Run, _nodes: object, _marks: object) -> None:
    state.runs.pop(run.key, None)


def _offer(state: "State", offer: Offer, group: OfferClass, _at: int) -> None:
    state.offers[offer.job] = offer
    state.classes[offer.request] = group


def _rank(state: "State", offer: Offer) -> None:
    state.offers[offer.job] = offer


def _no_offer(state: "State", offer: Offer, is_new: bool) -> None:
    state.offers.pop(offer.job, None)
    if is_new:
        state.classes.pop(offer.request, None)


def _fields(_state: "State", node: Node, fields: dict[str, object]) -> None:
    for name, value in fields.items():
        setattr(node, name, value)


def _no_node(state: "State", node: Node) -> None:
    state.nodes.pop(node.name, None)


def _layout(state: "State", node: Node, plan: LayoutPlan | None) -> None:
    state.layouts.pop(node.name, None)
    if plan is not None:
        state.layouts[node.name] = plan


def _packing(state: "State", pool: str, packing: Packing) -> None:
    state.packings.pop(pool, None)
    if packing != DEFAULT:
        state.packings[pool] = packing


def _reservation(state: "State", job: str, kept: Reservation | None) -> None:
    state.reservations.pop(job, None)
    if kept is not None:
        state.reservations[job] = kept


def _nothing(_state: "State", *_of: object) -> None:
    """Parts held on nodes follow from the runs."""


#: {method of `State` that is noted as an inverse: how the facts in its arguments are restored}
FACTS: dict[str, Callable[..., None]] = {
    "_unplace": _no_run,
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
