"""GPUs that the placer has ordered to be cut anew: each plan once, and never one that takes away what a run uses. Pure."""

from collections.abc import Iterable

from fairlead_agent.drafting import Draft
from fairlead_agent.instructions import RepartitionGpu
from fairlead_agent.records import Cut, Ledger
from fairlead_schemas.desired import LayoutOrder


def begin(draft: Draft, layouts: Iterable[LayoutOrder]) -> None:
    """Those that are newer than the newest that was begun."""
    for order in layouts:
        if order.plan > draft.ledger.cut:
            draft.record(Cut(plan=order.plan))
            draft.ask(RepartitionGpu(order, _in_use(draft.ledger, order)))


def pending(ledger: Ledger) -> int:
    """A plan that was begun under an earlier process and not answered; it is over, and the inventory says how far it came. 0: none."""
    return ledger.cut if ledger.cut > ledger.cut_answered else 0


def _in_use(ledger: Ledger, order: LayoutOrder) -> str:
    """Which run uses what the order takes away, "" where none does; the placer has not ordered that knowingly."""
    going = {each.uuid for each in order.destroy}
    for run in ledger.runs.values():
        if run.phase != "clean" and (going & set(run.devices) or (order.mode and order.gpu in run.gpus)):
            return f"it is in use by {run.key.name}"
    return ""
