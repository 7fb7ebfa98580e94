"""Nodes that are kept for a job which has waited long: which ones, from when on it starts there, and until when. Emits on
a draft.

Kept nodes take no other work but guests (`backfill.py`); as what runs there ends, the job gets its place. That ends the
reservation by itself (JobPlaced); ReservationEnded ends it otherwise, and answers a claim for which no nodes can be kept.
"""

from collections.abc import Sequence

from fairlead_bus.core import names_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import ClusterNode, Offer, Reservation
from fairlead_placer.cluster.failure_history import avoided
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.earliest_start import (
    LEAST_NS,
    EarliestStart,
    earliest,
    is_sound,
    lack,
    serves,
    start_on,
)
from fairlead_placer.cluster.timeline.upcoming_maintenance import UpcomingMaintenance, returns_ns
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request

__all__ = ["LOOK_NS", "end", "is_kept_well", "lack", "made_bytes", "make", "process", "repair", "serves"]

#: So often it is looked whether a job would start sooner elsewhere (at once where a kept node goes).
LOOK_NS = 30 * SECOND_NS
#: What is no news: a start that moves by less than that, or by less than a tenth of the time to it.
MOVE_NS = MINUTE_NS
#: Jobs waited for, in an event.
WAITS_BYTES = 160


def end(draft: PlacerDraft) -> None:
    """End what is kept for an offer that is open no more: before the offer goes back."""
    state = draft.state
    for kept in [state.reservations[job] for job in sorted(state.reservations)]:
        if draft.full:
            return
        offer = state.offers.get(kept.job)
        if offer is None or offer.attempt != kept.attempt:
            withdrawal = state.withdrawals.get(kept.job)
            cause = withdrawal.cause if withdrawal is not None else kept.cause
            draft.emit(ev.ReservationEnded(cause=cause, job=kept.job, attempt=kept.attempt))


def repair(draft: PlacerDraft) -> bool:
    """Choose again for a reservation whose kept node has gone, and from time to time where the job would start sooner. Return
    False if the commit was full before the end.
    """
    state = draft.state
    for job in state.looked.keys() - state.reservations.keys():
        del state.looked[job]
    for kept in [state.reservations[job] for job in sorted(state.reservations)]:
        offer = state.offers.get(kept.job)
        if offer is None:
            continue
        if not is_kept_well(state, kept, offer.request, draft.now_ns):
            if draft.full or not _keep(draft, offer, kept.cause):
                return False
        elif _is_due(state, kept, draft.now_ns) and (draft.full or not _look_again(draft, offer, kept)):
            return False
    return True


def is_kept_well(state: ClusterState, kept: Reservation, request: Request, now_ns: int) -> bool:
    """Return True if the reservation is still useful: every kept node will have room at the start, the job avoids none
    of them after failures, and no maintenance window covers them."""
    asks, nodes = unit_requests(request), [state.nodes[name] for name in kept.nodes]
    if not avoided(state, kept.job).isdisjoint(kept.nodes):
        return False
    if kept.start_ns and state.windows:
        start_ns = max(kept.start_ns, now_ns)
        if UpcomingMaintenance(state).clear_ns(kept.job, kept.nodes, start_ns) > start_ns:
            return False
    if not all(any(serves(state, node, ask.request, kept.job) for ask in asks) for node in nodes):
        return False
    return all(_has_room_then(state, kept, node, None if request.also else asks[0]) for node in nodes)


def _has_room_then(state: ClusterState, kept: Reservation, node: ClusterNode, ask: UnitRequest | None) -> bool:
    """Return True if the node takes work at the start, together with the guests that it may have (`ask` None: it has none). A
    node in a maintenance window is empty when the window is over. It is kept for a start after that, never for an unknown
    start.
    """
    if not node.serving:
        return 0 < returns_ns(state, node) <= kept.start_ns
    return ask is None or is_sound(state, kept, node, ask)


def overdue(kept: Reservation, now_ns: int) -> bool:
    """Return True if the job's promised start has passed; a start due at this very moment is not late. A new promise
    is never immediate, so making one too early would admit guests that are in the job's way.
    """
    return not kept.hole and 0 < kept.start_ns < now_ns


def _is_due(state: ClusterState, kept: Reservation, now_ns: int) -> bool:
    if kept.hole:  # as good as free: who was asked to yield there is going
        return False
    looked_ns = state.looked.setdefault(kept.job, now_ns)  # after a restart, count from now
    return overdue(kept, now_ns) or looked_ns + LOOK_NS <= now_ns


def _look_again(draft: PlacerDraft, offer: Offer, kept: Reservation) -> bool:
    state, now_ns = draft.state, draft.now_ns
    here = start_on(state, offer.request, offer.job, kept.nodes, now_ns)
    best = None
    if _is_sooner(
        now_ns + LEAST_NS, here.start_ns, now_ns
    ):  # else no start elsewhere is soon enough to make a difference
        best = earliest(state, offer.request, offer.job, now_ns, _latest_ns(here.start_ns, now_ns))
    # A start by limits is a promise; an estimate elsewhere may pass without a start, and the promise would be gone.
    firm = here.basis == "limits" and best is not None and best.basis != "limits"
    if best is not None and not firm and _is_sooner(best.start_ns, here.start_ns, now_ns):
        here = best
    moved = _is_sooner(here.start_ns, kept.start_ns, now_ns) or _is_sooner(kept.start_ns, here.start_ns, now_ns)
    if here.nodes != kept.nodes or moved or overdue(kept, now_ns):
        if not draft.has_room(made_bytes(here.nodes)):
            return False
        _emit(draft, offer, here, kept.cause)
    state.looked[kept.job] = now_ns
    return True


def _is_sooner(start_ns: int, than_ns: int, now_ns: int) -> bool:
    """True when it makes a difference; 0 is later than any time."""
    return bool(start_ns) and (not than_ns or start_ns < _latest_ns(than_ns, now_ns))


def _latest_ns(than_ns: int, now_ns: int) -> int:
    """Return the time before which a start makes a difference to one at `than_ns`; 0 for one that is not known: any does."""
    return than_ns - max(MOVE_NS, (than_ns - now_ns) // 10) if than_ns else 0


def process(draft: PlacerDraft) -> bool:
    """Decide the claims, in the order of their offers. False as for `mend`."""
    state = draft.state
    for offer in sorted((state.offers[job] for job in state.claims), key=lambda offer: (offer.rank, offer.job)):
        if draft.full or not _keep(draft, offer, state.claims[offer.job].cause):
            return False
    return True


def _keep(draft: PlacerDraft, offer: Offer, cause: str) -> bool:
    start = earliest(draft.state, offer.request, offer.job, draft.now_ns)
    if start is None:
        draft.emit(ev.ReservationEnded(cause=cause, job=offer.job, attempt=offer.attempt))
        return True
    if not draft.has_room(made_bytes(start.nodes)):
        return False
    _emit(draft, offer, start, cause)
    return True


def made_bytes(nodes: Sequence[str]) -> int:
    """Return the size of the event that names these nodes, beyond that of an ordinary event."""
    return WAITS_BYTES + names_bytes(nodes)


def make(draft: PlacerDraft, offer: Offer, nodes: Sequence[str], cause: str) -> None:
    """Keep these nodes, and no others, for the offer."""
    _emit(draft, offer, start_on(draft.state, offer.request, offer.job, nodes, draft.now_ns), cause)


def _emit(draft: PlacerDraft, offer: Offer, start: EarliestStart, cause: str) -> None:
    event = ev.ReservationMade(
        cause=cause,
        job=offer.job,
        attempt=offer.attempt,
        nodes=start.nodes,
        start_ns=start.start_ns,
        basis=start.basis,
        waits_for=start.waits_for,
    )
    draft.emit(event, made_bytes(start.nodes))
