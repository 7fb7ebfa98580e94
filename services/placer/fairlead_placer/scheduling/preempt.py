"""Preemption requests: the queue names the runs that may yield to a job, and the cheapest set of them that makes room is
asked.

A job that lacks a place gets the nodes of the hole kept for it. A job that lacks its queue's permission (amounts) is
offered later: the runs that yield then make no hole. A run that was asked to yield still yields if the job that it
yields to goes away meanwhile: its program may be writing its last checkpoint, and the GPUs count as free on evidence
only. Emits on a draft.
"""

from collections.abc import Sequence

from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import Offer, PreemptionRequest, run_key
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.upcoming_maintenance import barred
from fairlead_placer.explain.reasons import refusal
from fairlead_placer.scheduling.preemption.candidates import is_stopping, may_yield
from fairlead_placer.scheduling.preemption.victim_set import find_victims
from fairlead_placer.scheduling.preemption.what_if import what_if_nodes
from fairlead_placer.scheduling.reserve import made_bytes, make
from fairlead_schemas.queuefile.settings import MODEL_LABEL, gpu_class
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request

#: Holes kept at once. A further preemption request is declined and may come again.
HOLES_MAX = 64
VICTIM_BYTES = 40


def process(draft: PlacerDraft) -> bool:
    """Decide the preemption requests in the order of arrival. Return False if the commit was full before the end."""
    for preemption in sorted(draft.state.preemption_requests.values(), key=lambda preemption: preemption.asked):
        if draft.full or not (
            _for_quota(draft, preemption) if preemption.amounts else _for_placement(draft, preemption)
        ):
            return False
    return True


# ---------------------------------------------------------------------------- a place


def _for_placement(draft: PlacerDraft, preemption: PreemptionRequest) -> bool:
    state = draft.state
    offer = state.offers[preemption.job]
    holes = [kept for kept in state.reservations.values() if kept.hole]
    if len(holes) >= HOLES_MAX and preemption.job not in state.reservations:
        return _declined(draft, preemption, {"reserved": sum(len(kept.nodes) for kept in holes)})
    hole = find_victims(state, offer, preemption.victims, draft.now_ns)
    if hole is None:
        return _declined(draft, preemption, _still_missing(state, offer, preemption.victims, draft.now_ns))
    extra_bytes = len(hole.victims) * VICTIM_BYTES + made_bytes(hole.nodes)
    if not draft.has_room(extra_bytes, len(hole.victims) + 1):
        return False
    _start(draft, preemption, hole.victims)
    make(draft, offer, hole.nodes, preemption.cause)
    return True


def _still_missing(state: ClusterState, offer: Offer, victims: Sequence[ev.Victim], now_ns: int) -> dict[str, int]:
    """Nodes by what would keep each from taking a part, were all the victims gone."""
    candidates = may_yield(state, victims)
    rooms = what_if_nodes(state, offer, victims, candidates, barred(state, offer.job, now_ns))
    then = {room.node.name: room.without(range(len(candidates))) for room in rooms}
    return refusal(state, offer.request, offer.job, None, now_ns, then).reasons


# ---------------------------------------------------------------------------- a queue's leave


def _for_quota(draft: PlacerDraft, preemption: PreemptionRequest) -> bool:
    """Ask the victims that the amounts need, in order. Without a victim to ask, the request is declined: none has the amounts,
    or (no reasons either way) capacity about to come free already has them.
    """
    state = draft.state
    left = dict(preemption.amounts)
    for victim in preemption.victims:
        if _comes_free(state, victim):
            _count(left, _charge(state, victim), -1)
    asked: list[ev.Victim] = []
    for candidate in may_yield(state, preemption.victims):
        if not _short(left):
            break
        asked.append(candidate.victim)
        _count(left, _charge(state, candidate.victim), -1)
    if _short(left) or not asked:
        return _declined(draft, preemption, {})
    for victim in reversed(asked.copy()):
        charge = _charge(state, victim)
        _count(left, charge, 1)
        if _short(left):
            _count(left, charge, -1)
        else:
            asked.remove(victim)
    if not draft.has_room(len(asked) * VICTIM_BYTES, len(asked)):
        return False
    _start(draft, preemption, asked)
    return True


def _comes_free(state: ClusterState, victim: ev.Victim) -> bool:
    """Return True if the victim is stopping, or had ended before the queue, unaware of it, requested the preemption."""
    run = state.runs.get(run_key(victim.job, victim.attempt))
    if state.unanswered.get(victim.job) == victim.attempt:
        return True
    return run is not None and is_stopping(run)


def _charge(state: ClusterState, victim: ev.Victim) -> dict[str, int]:
    """Return the amounts that its queues hold for the victim, by resource."""
    request = state.request_of(victim.job)
    return {} if request is None else charge_of(request)


def charge_of(request: Request) -> dict[str, int]:
    """{resource: amount} over all nodes; a GPU counts for its model, too, where the request names one."""
    charge = {"gpu": request.gpu_milli_total, "cpu": request.cpu_milli_total, "memory": request.memory_mib_total}
    for kind in request.kinds:
        for wanted in kind.selector:
            key, _, model = wanted.partition("=")
            if key == MODEL_LABEL:
                charge[gpu_class(model)] = charge.get(gpu_class(model), 0) + kind.nodes * kind.gpu_milli
    return charge


def _count(left: dict[str, int], charge: dict[str, int], sign: int) -> None:
    for resource in left:
        left[resource] += sign * charge.get(resource, 0)


def _short(left: dict[str, int]) -> bool:
    return any(amount > 0 for amount in left.values())


# ---------------------------------------------------------------------------- the answers


def _start(draft: PlacerDraft, preemption: PreemptionRequest, victims: Sequence[ev.Victim]) -> None:
    for victim in victims:
        event = ev.PreemptionStarted(
            cause=preemption.cause, job=victim.job, attempt=victim.attempt, beneficiary=preemption.job, rule=victim.rule
        )
        draft.emit(event, VICTIM_BYTES)


def _declined(draft: PlacerDraft, preemption: PreemptionRequest, reasons: dict[str, int]) -> bool:
    if not draft.has_room(draft.EVENT_BYTES):
        return False
    event = ev.PreemptionDeclined(
        cause=preemption.cause, job=preemption.job, attempt=preemption.attempt, reasons=reasons
    )
    draft.emit(event, draft.EVENT_BYTES)
    return True
