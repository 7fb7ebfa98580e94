"""Preemption: runs end before their time, so that a job gets its place or its quota. The queue nominates, the placer selects.

PROBLEM. A guarantee, a priority or a time slice has a value only if the runs that are in the way can be ended. That takes
two kinds of knowledge. The queue knows which job is entitled to what, and what each run would lose; it does not know
the inside of a node. The placer knows which runs must end so that a job fits; it judges no fairness. Naively, one of them
decides alone. If the queue ends the cheapest runs, they are scattered over the cluster, and the job fits nowhere although
they have ended. If the placer ends the runs that make room, their queues may be within their guarantees. If one search
weighs both, fairness and placement become one problem. Therefore the queue names the runs that may end, each with its
rule and its loss, and the placer selects among these (ADR 0012).

     queue                                              placer
     ─────                                              ──────
     starvation.py: the first jobs that lack a place,
     or are refused by a limit, usually for a second
     preemption_candidates.py: runs that may yield,
     by rule, the cheapest first, at most 256
       PreemptionRequested(victims, amounts) ─────────> kept until it is answered (apply/jobs.py)
                                                        `process`, after all offers had their try, the oldest first
                                                          no amounts: the job lacks a place  -> preemption/: the
                                                            cheapest set that makes room, and its nodes
                                                          amounts: the job lacks quota       -> the first victims in
                                                            the queue's order that hold the amounts
       the job waits for the runs' ends  <───────────── PreemptionStarted, one for each run that must end
                                                        ReservationMade: the nodes are kept for the job ("hole")
       it requests again after 5 s, 10 s … <─────────── or PreemptionDeclined, with reasons counted over nodes
                                                        agents: notice, grace, KILL
       JobRequeued of the victims  <─────────────────── RunEnded(preempted)
                                                        the job's offer is placed on its nodes: JobPlaced

NOMINATED are runs to which a rule applies: idle under a policy that allows it, of lower priority in the same queue, past
their slice, of a queue over its guarantee, or (if the queue file enables it) of a queue with the larger share. No run is
nominated within its protection, or if a queue above it would fall below its guarantee.

SELECTED is, for a place, the set that loses the fewest GPU-seconds since the runs' last checkpoints, then has the fewest
runs, then the smallest domain, then the fullest nodes, then the first names. Rules have equal rank here: a run that may
yield may be selected alone. Idle runs cost nothing but their number. Runs that are stopping already count as gone, so the
set may be empty: then nodes are kept and no run ends. Nodes with free room count, too, so part of a gang may need no
victim. The smallest size of an elastic job is enough. For quota there is nothing to search, as any place will do: victims
are taken in the queue's order until they hold the amounts, and each that proves unnecessary is spared again, the last
first.

EXACT. A selected set is minimal: if any one of its runs stayed, the job would not fit, by the same function that places
jobs (`seat`). It is also the cheapest, if the search ends by itself: branch and bound over the runs of one node
(`preemption/node_search.py`), over the nodes of a domain (`choose` in `preemption/search.py`), and over runs that span
several nodes (`VictimSearch`). Lower bounds never exceed the true cost, so no cheaper set is cut off.

HEURISTIC. A search that reaches its limit takes the best set that it has found by then: 2,048 steps for one request of
one node (enough for 10 runs there), 256 decisions about runs on several nodes (enough for 7), 65,536 steps in all. For a
job of several kinds of units the dearest runs are spared one after the other: a minimal set, not the cheapest. What the
victims do next is not weighed: they are requeued and may wait long. Costs are the queue's, of the moment of the request.

BOUNDS. At most 256 victims of a request, and 64 holes at once (`HOLES_MAX`); more are declined and may come again. A
request is decided as a whole in one commit, or in the next one.

AFTERWARDS. The job has only a reservation, not a placement: the GPUs count as free on evidence, when an agent reports
them clean. If the job finds another place first, or goes away, the runs yield even so, because a program may be writing
its last checkpoint. If the job lacked quota, it is offered later and placed like any other: no nodes are kept for it.
The job that yielded by guarantee or share has no right to an exchange back, so two jobs cannot chase each other.

The events are emitted on a draft. Start at `process`.
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
    return refusal(state, offer, None, now_ns, then).reasons


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
