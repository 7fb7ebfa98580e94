"""How events change the state. No rules, no refusals: on a valid log every event applies.

`fold` takes a commit of the log. `apply` takes one event: the same function folds it and lets `decide` try it,
so what a decision expects of its own events is what they will do.
"""

from collections.abc import Callable
from typing import Any

from fairlead_placer.entities import (
    CORDONED,
    DRAINED,
    DRAINING,
    READY,
    Claim,
    Job,
    Node,
    Offer,
    Outcome,
    Plea,
    Recall,
    Reservation,
    Run,
    Verdict,
    is_uniform,
    pool_of,
    run_key,
)
from fairlead_placer.state import State
from fairlead_schemas import events as ev
from fairlead_schemas.commit import Commit

REPORT_CURSOR = "report."
#: A cause that a parked class has named is not named again within this time, however often it comes and goes.
NEWS_INTERVAL_NS = 10 * 1_000_000_000
#: Replaced incarnations that a node remembers, so that an older agent cannot come back as a new one.
SUPERSEDED_MAX = 8
#: Jobs of a pool that nodes are kept for because they have waited long: each takes nodes from all others.
RESERVATIONS_MAX = 1
#: Runs that one plea may name; the rest is not looked at.
VICTIMS_MAX = 256


def fold(state: State, seq: int, commit: Commit) -> None:
    """Fold one commit, whoever wrote it. Events that do not concern the placer change nothing."""
    own = commit.writer == "placer"
    for index, event in enumerate(commit.events):
        apply(state, seq, index, commit.at_ns, event)
    if own:
        for name, position in commit.cursors.items():
            _consume(state, name, position)
    state.sequence = seq


def _consume(state: State, name: str, position: int) -> None:
    if not name.startswith(REPORT_CURSOR):
        state.cursors[name] = position
        return
    node = state.nodes[name[len(REPORT_CURSOR) :]]
    if node.reported != position:
        node.reported = position
        state.advanced.add(node.name)


def apply(state: State, seq: int, index: int, at_ns: int, event: ev.Event) -> None:
    """Fold one event of the commit at `seq` (0: not committed yet, only tried)."""
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(state, seq, index, at_ns, event)


# ---------------------------------------------------------------------------- of the queue


def _job_submitted(state: State, seq: int, index: int, at_ns: int, event: ev.JobSubmitted) -> None:
    # The spec is copied: as decoded it is a view that would keep the whole commit's bytes alive.
    spec = event.spec.copy()
    request = state.intern(event.request)
    state.put(state.jobs, event.job, Job(event.name, event.queue, event.user, event.grace_ns, request, spec))


def _job_moved(state: State, seq: int, index: int, at_ns: int, event: ev.JobMoved) -> None:
    job = state.jobs.get(event.job)
    if job is not None:
        state.set(job, "queue", event.queue)


def _job_offered(state: State, seq: int, index: int, at_ns: int, event: ev.JobOffered) -> None:
    """Offered again, an open attempt gets another rank; one that was placed meanwhile is not open any more."""
    request = state.request_of(event.job)
    placed = run_key(event.job, event.attempt) in state.runs or state.unanswered.get(event.job, 0) >= event.attempt
    if request is None or placed:
        return
    offer = state.offers.get(event.job)
    if offer is not None and offer.attempt == event.attempt:
        state.rerank(event.job, event.rank)
        return
    state.close_offer(event.job)
    state.drop(state.recalls, event.job)
    state.open_offer(Offer(event.job, event.attempt, event.rank, f"{seq}.{index}", request))


def _job_recalled(state: State, seq: int, index: int, at_ns: int, event: ev.JobRecalled) -> None:
    _want_back(state, event.job, event.attempt, f"{seq}.{index}", "")


def _job_stop_requested(state: State, seq: int, index: int, at_ns: int, event: ev.JobStopRequested) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None:
        stop(state, run, event.reason)
    else:
        _want_back(state, event.job, event.attempt, f"{seq}.{index}", event.reason)


def _want_back(state: State, job: str, attempt: int, cause: str, reason: str) -> None:
    """Take the offer out of the running. A commit that places it may be under way: the recall outlives it."""
    offer = state.offers.get(job)
    recall = state.recalls.get(job)
    if offer is not None and offer.attempt == attempt:
        state.close_offer(job)
        state.drop(state.claims, job)
        state.drop(state.pleas, job)
    elif recall is None or recall.attempt != attempt:
        return
    state.put(state.recalls, job, Recall(job, attempt, cause, reason or (recall.stop if recall else "")))


def _job_finished(
    state: State, seq: int, index: int, at_ns: int, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled
) -> None:
    state.drop(state.jobs, event.job)
    state.drop(state.unanswered, event.job)
    state.drop(state.pleas, event.job)


def _job_requeued(state: State, seq: int, index: int, at_ns: int, event: ev.JobRequeued) -> None:
    state.drop(state.unanswered, event.job)


def _jobs_retired(state: State, seq: int, index: int, at_ns: int, event: ev.JobsRetired) -> None:
    for job in event.jobs:
        state.drop(state.jobs, job)
        state.drop(state.unanswered, job)


# ---------------------------------------------------------------------------- nodes


def _node_joined(state: State, seq: int, index: int, at_ns: int, event: ev.NodeJoined) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        state.add_node(Node(event.node, event.incarnation, event.boot_id, event.inventory))
    else:
        state.set(node, "superseded", (*node.superseded, node.incarnation)[-SUPERSEDED_MAX:])
        state.set(node, "incarnation", event.incarnation)
        state.set(node, "reported", 0)
        _take_stock(state, node, event.boot_id, event.inventory)
        state.change(node, lost=False)
    state.touch(event.node)


def _node_changed(state: State, seq: int, index: int, at_ns: int, event: ev.NodeChanged) -> None:
    _take_stock(state, state.nodes[event.node], event.boot_id, event.inventory)
    state.touch(event.node)  # its desired state names the boot that it is meant for


def _take_stock(state: State, node: Node, boot_id: str, inventory: ev.Inventory) -> None:
    """Another inventory under what is held: what is held and gone is nobody's until it is released."""
    used = [state.runs[key].parts[rank] for key, rank in node.held.items()]
    state.change(
        node, boot_id=boot_id, inventory=inventory, hosts=(inventory.address,), uniform=is_uniform(inventory.gpus),
        gpus_free=sum(gpu.uuid not in node.holders for gpu in inventory.gpus),
        cpu_free_milli=inventory.cpu_milli - sum(part.cpu_milli for part in used),
        memory_free_mib=inventory.memory_mib - sum(part.memory_mib for part in used),
    )  # fmt: skip


def _node_lost(state: State, seq: int, index: int, at_ns: int, event: ev.NodeLost) -> None:
    state.change(state.nodes[event.node], lost=True)


def _node_returned(state: State, seq: int, index: int, at_ns: int, event: ev.NodeReturned) -> None:
    state.change(state.nodes[event.node], lost=False)
    state.touch(event.node)


def _node_cordoned(state: State, seq: int, index: int, at_ns: int, event: ev.NodeCordoned) -> None:
    node = state.nodes[event.node]
    if node.duty in (READY, CORDONED):  # a drain is more than a cordon and goes on
        state.change(node, duty=CORDONED, by=event.by, reason=event.reason)


def _node_uncordoned(state: State, seq: int, index: int, at_ns: int, event: ev.NodeUncordoned) -> None:
    state.change(state.nodes[event.node], duty=READY, by="", reason="", cause="", deadline_ns=0)


def _node_draining(state: State, seq: int, index: int, at_ns: int, event: ev.NodeDraining) -> None:
    """A deadline that is not after the commit has come: the runs are stopped now."""
    node = state.nodes[event.node]
    due = 0 < event.deadline_ns <= at_ns
    cause = node.cause if event.cause == "clock" else event.cause
    state.change(
        node, duty=DRAINING, by=event.by, reason=event.reason, cause=cause, deadline_ns=0 if due else event.deadline_ns
    )
    if due:
        for key in sorted(node.held):
            run = state.runs[key]
            if run.ended != run.all_ranks and not run.stop:
                stop(state, run, "drained")


def _node_drained(state: State, seq: int, index: int, at_ns: int, event: ev.NodeDrained) -> None:
    state.change(state.nodes[event.node], duty=DRAINED, deadline_ns=0)


# ---------------------------------------------------------------------------- nodes that are kept for a job


def _reservation_requested(state: State, seq: int, index: int, at_ns: int, event: ev.ReservationRequested) -> None:
    """Remembered until it is answered, where it needs an answer. A claim under a queue's limit (`queue`) is the
    queue's business until the job is offered; beyond RESERVATIONS_MAX it asks again."""
    offer = state.offers.get(event.job)
    if event.queue or offer is None or offer.attempt != event.attempt:
        return
    if event.job in state.reservations or starving(state, pool_of(offer.request)) >= RESERVATIONS_MAX:
        return
    state.put(state.claims, event.job, Claim(event.job, event.attempt, f"{seq}.{index}"))
    state.pools.stir_offers()


def starving(state: State, pool: str) -> int:
    """Jobs of the pool that nodes are, or shall be, kept for because they have waited long."""
    jobs = [*state.claims, *(job for job, kept in state.reservations.items() if not kept.hole)]
    return sum(pool_of(request) == pool for request in map(state.request_of, jobs) if request is not None)


def _reservation_made(state: State, seq: int, index: int, at_ns: int, event: ev.ReservationMade) -> None:
    claim, kept = state.drop(state.claims, event.job), state.reservations.get(event.job)
    _answered(state, event.job, event.cause)
    hole = claim is None or claim.cause != event.cause
    if kept is not None and kept.cause == event.cause:  # other nodes for the same wish
        hole = kept.hole
    state.reserve(Reservation(event.job, event.attempt, event.cause, event.nodes, seq, hole))


def _reservation_ended(state: State, seq: int, index: int, at_ns: int, event: ev.ReservationEnded) -> None:
    state.drop(state.claims, event.job)
    state.unreserve(event.job)


# ---------------------------------------------------------------------------- runs that yield


def _preemption_requested(state: State, seq: int, index: int, at_ns: int, event: ev.PreemptionRequested) -> None:
    """Remembered until it is answered. A job that lacks a place only, and has no open offer, lacks none any more."""
    offer = state.offers.get(event.job)
    if not event.amounts and (offer is None or offer.attempt != event.attempt):
        return
    victims = event.victims[:VICTIMS_MAX]
    state.put(state.pleas, event.job, Plea(event.job, event.attempt, (seq, index), victims, event.amounts))
    state.pools.stir_offers()


def _answered(state: State, job: str, cause: str) -> None:
    """The plea is decided, unless the queue has put another in its place meanwhile."""
    plea = state.pleas.get(job)
    if plea is not None and plea.cause == cause:
        state.drop(state.pleas, job)


def _preemption_started(state: State, seq: int, index: int, at_ns: int, event: ev.PreemptionStarted) -> None:
    _answered(state, event.beneficiary, event.cause)
    stop(state, state.runs[run_key(event.job, event.attempt)], "preempted")


def _preemption_declined(state: State, seq: int, index: int, at_ns: int, event: ev.PreemptionDeclined) -> None:
    _answered(state, event.job, event.cause)


# ---------------------------------------------------------------------------- offers and runs


def _job_placed(state: State, seq: int, index: int, at_ns: int, event: ev.JobPlaced) -> None:
    state.close_offer(event.job)
    nodes = [state.nodes[part.node] for part in event.parts]
    hosts = nodes[0].hosts if len(nodes) == 1 else tuple(node.hosts[0] for node in nodes)
    run = Run(event.job, event.attempt, seq, event.parts, hosts)
    run.master_address, run.master_port = event.master_address, event.master_port
    recall = state.drop(state.recalls, event.job)
    if recall is not None:  # it was placed before the stop was seen: the run is stopped at once
        run.stop = recall.stop
    state.put(state.runs, run.key, run)
    for rank, (node, part) in enumerate(zip(nodes, event.parts, strict=True)):
        state.take(node, run.key, rank, part)
        state.touch(node.name)
    state.drop(state.claims, event.job)
    state.drop(state.pleas, event.job)
    state.unreserve(event.job)


def _job_unplaceable(state: State, seq: int, index: int, at_ns: int, event: ev.JobUnplaceable) -> None:
    offer = state.offers.get(event.job)
    if offer is not None:
        group = state.classes[offer.request]
        keys, since_ns = set(event.reasons), at_ns
        if group.outcome is not None and at_ns < group.outcome.since_ns + NEWS_INTERVAL_NS:
            keys, since_ns = keys | set(group.outcome.keys), group.outcome.since_ns
        state.set(group, "outcome", Outcome(tuple(sorted(keys)), event.nodes, since_ns))


def _offer_returned(state: State, seq: int, index: int, at_ns: int, event: ev.OfferReturned) -> None:
    state.drop(state.recalls, event.job)


def _rank_started(state: State, seq: int, index: int, at_ns: int, event: ev.RankStarted) -> None:
    run = state.runs[run_key(event.job, event.attempt)]
    state.set(run, "started", run.started | 1 << event.rank)


def _run_started(state: State, seq: int, index: int, at_ns: int, event: ev.RunStarted) -> None:
    run = state.runs[run_key(event.job, event.attempt)]
    state.set(run, "started", run.all_ranks)


def _rank_ended(state: State, seq: int, index: int, at_ns: int, event: ev.RankEnded) -> None:
    run = state.runs[run_key(event.job, event.attempt)]
    _end(state, run, event.rank)
    if run.verdict is None and not is_success(event.outcome, event.exit_code, event.signal):
        verdict = Verdict(event.outcome, event.exit_code, event.signal, event.rank, event.message)
        state.set(run, "verdict", verdict)
        _touch_live(state, run)
    if event.released:
        _release(state, run, event.rank)


def _run_ended(state: State, seq: int, index: int, at_ns: int, event: ev.RunEnded) -> None:
    run = state.runs[run_key(event.job, event.attempt)]
    state.put(state.unanswered, event.job, event.attempt)
    for rank in range(len(run.parts)):
        if not run.ended >> rank & 1:
            _end(state, run, rank)
    for name in event.released:
        _release(state, run, state.nodes[name].held[run.key])


def _allocation_released(state: State, seq: int, index: int, at_ns: int, event: ev.AllocationReleased) -> None:
    run = state.runs[run_key(event.job, event.attempt)]
    _release(state, run, state.nodes[event.node].held[run.key])


def _end(state: State, run: Run, rank: int) -> None:
    node = state.nodes[run.parts[rank].node]
    state.set(run, "ended", run.ended | 1 << rank)
    state.set(node, "live", node.live - 1)
    state.touch(node.name)


def _release(state: State, run: Run, rank: int) -> None:
    part = run.parts[rank]
    state.give(state.nodes[part.node], run.key, part)
    state.set(run, "released", run.released | 1 << rank)
    if run.released == run.all_ranks:
        state.drop(state.runs, run.key)
    state.touch(part.node)


def stop(state: State, run: Run, reason: str) -> None:
    """Mark the orders of a run's living ranks. What the queue asks for (a person's stop, a limit) outranks a drain's
    stop and one for another job: the job is then not requeued."""
    if run.stop in ("", "drained", "preempted"):
        state.set(run, "stop", reason)
        _touch_live(state, run)


def _touch_live(state: State, run: Run) -> None:
    for rank, part in enumerate(run.parts):
        if not run.ended >> rank & 1:
            state.touch(part.node)


def is_success(outcome: ev.RunOutcome, exit_code: int | None, signal: int | None) -> bool:
    """True for a rank whose end does not end the others."""
    return outcome == "exited" and exit_code == 0 and signal is None


_HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
    ev.JobSubmitted: _job_submitted,
    ev.JobMoved: _job_moved,
    ev.JobOffered: _job_offered,
    ev.JobRecalled: _job_recalled,
    ev.JobStopRequested: _job_stop_requested,
    ev.JobRequeued: _job_requeued,
    ev.JobSucceeded: _job_finished,
    ev.JobFailed: _job_finished,
    ev.JobCancelled: _job_finished,
    ev.JobsRetired: _jobs_retired,
    ev.NodeJoined: _node_joined,
    ev.NodeChanged: _node_changed,
    ev.NodeLost: _node_lost,
    ev.NodeReturned: _node_returned,
    ev.NodeCordoned: _node_cordoned,
    ev.NodeUncordoned: _node_uncordoned,
    ev.NodeDraining: _node_draining,
    ev.NodeDrained: _node_drained,
    ev.ReservationRequested: _reservation_requested,
    ev.ReservationMade: _reservation_made,
    ev.ReservationEnded: _reservation_ended,
    ev.PreemptionRequested: _preemption_requested,
    ev.PreemptionStarted: _preemption_started,
    ev.PreemptionDeclined: _preemption_declined,
    ev.JobPlaced: _job_placed,
    ev.JobUnplaceable: _job_unplaceable,
    ev.OfferReturned: _offer_returned,
    ev.RankStarted: _rank_started,
    ev.RunStarted: _run_started,
    ev.RankEnded: _rank_ended,
    ev.RunEnded: _run_ended,
    ev.AllocationReleased: _allocation_released,
}
