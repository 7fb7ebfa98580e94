"""Offers that are placed or refused, and the life of a run: started, stopped, ended, released.

Runs that are idle under policies that give them to waiting jobs. Only these are asked to yield by the rule "idle": a
user who returns after the queue named the run keeps it.
"""

from collections.abc import Callable

from fairlead_bus.core import EventHandlers, EventPosition
from fairlead_placer.cluster.entities import ClusterNode, PlacedRun, RankVerdict, ReportedRefusal, run_key
from fairlead_placer.cluster.failure_history import RankEnding, record_failure, record_success, way_of
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.run_ends import learn
from fairlead_placer.topology.gpu_topology import members_of
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev

#: A cause that a parked class has named is not named again within this time, however often it comes and goes.
NEWS_INTERVAL_NS = 10 * SECOND_NS

#: Signals that the orders of a run carry: an agent that was away gets the newest.
SIGNALS_MAX = 16

#: Stops that a stronger one replaces.
YIELDING_STOPS = ("", "time_limit", "drained", "preempted", "gpu_fault")


def _job_placed(state: ClusterState, event: ev.JobPlaced, at: EventPosition) -> None:
    name, attempt, parts = event.job, event.attempt, event.parts
    nodes = [state.nodes[part.node] for part in parts]
    hosts = nodes[0].hosts if len(nodes) == 1 else tuple([node.hosts[0] for node in nodes])
    job = state.jobs.get(name if "_" not in name else array_of(name) or "")
    run = PlacedRun(
        name,
        attempt,
        f"{name}.{attempt}",  # as `run_key`: this is done for every placement
        at.sequence,
        parts,
        hosts,
        event.master_address,
        event.master_port,
        at.time_ns,
        gang=job.gang if job is not None else "",
    )
    if state.requeued:
        run.restarted = state.drop(state.requeued, name) or ""
    if state.withdrawals:
        withdrawal = state.drop(state.withdrawals, name)
        if withdrawal is not None:  # it was placed before the stop was seen: the run is stopped at once
            run.stop = withdrawal.stop
    state.place(run, nodes)
    if state.claims or state.preemption_requests or state.reservations:
        state.drop(state.claims, name)
        state.drop(state.preemption_requests, name)
        state.unreserve(name)


def _job_unplaceable(state: ClusterState, event: ev.JobUnplaceable, at: EventPosition) -> None:
    offer = state.offers.get(event.job)
    if offer is not None:
        group = state.classes[offer.request]
        keys, since_ns = set(event.reasons), at.time_ns
        if group.outcome is not None and at.time_ns < group.outcome.since_ns + NEWS_INTERVAL_NS:
            keys, since_ns = keys | set(group.outcome.keys), group.outcome.since_ns
        state.set(group, "outcome", ReportedRefusal(tuple(sorted(keys)), event.nodes, since_ns))


def _offer_returned(state: ClusterState, event: ev.OfferReturned, at: EventPosition) -> None:
    state.drop(state.withdrawals, event.job)


def _rank_started(state: ClusterState, event: ev.RankStarted, at: EventPosition) -> None:
    run = state.runs[f"{event.job}.{event.attempt}"]
    state.start_ranks(run, 1 << event.rank, at.time_ns)


def _run_started(state: ClusterState, event: ev.RunStarted, at: EventPosition) -> None:
    run = state.runs[f"{event.job}.{event.attempt}"]
    state.start_ranks(run, run.all_ranks, at.time_ns)


def _app_ready(state: ClusterState, event: ev.AppReady, at: EventPosition) -> None:
    state.set(state.runs[run_key(event.job, event.attempt)], "app_ready", True)


def _checkpoint_saved(state: ClusterState, event: ev.CheckpointSaved, at: EventPosition) -> None:
    run = state.runs[run_key(event.job, event.attempt)]
    state.set(run, "saved_ns", at.time_ns)
    if event.noticed and run.notice_ns:  # the notice is over, for all ranks
        state.set(run, "notice_ns", 0)
        _touch_live(state, run)


def _rank_ended(state: ClusterState, event: ev.RankEnded, at: EventPosition) -> None:
    run = state.runs[run_key(event.job, event.attempt)]
    state.end_rank(run, event.rank)
    if run.verdict is None and not is_success(event.outcome, event.exit_code, event.signal):
        verdict = RankVerdict(
            event.outcome,
            event.exit_code,
            event.signal,
            event.rank,
            event.message,
            event.fault,
            event.blames,
            event.ran_ns,
        )
        state.set(run, "verdict", verdict)
        record_failure(state, run, _ending(event), at.time_ns)
        _touch_live(state, run)
    elif event.rank == 0 and run.led_to_its_end:
        _touch_live(state, run)
    if event.released:
        state.release_rank(run, event.rank)


def _run_ended(state: ClusterState, event: ev.RunEnded, at: EventPosition) -> None:
    run = state.runs[f"{event.job}.{event.attempt}"]  # as `run_key`: this is done for every run
    job = state.job_of(run)
    if run.verdict is None:  # else it was noted with the rank that decided it
        if is_success(event.outcome, event.exit_code, event.signal):
            record_success(state, run, job, at.time_ns)
        else:
            record_failure(state, run, _ending(event), at.time_ns)
    learn(state, run, job, event.outcome, at.time_ns)
    state.put(state.unanswered, event.job, event.attempt)
    if len(run.parts) == 1 and event.released and not run.ended:  # most runs
        state.finish(run)
        return
    for rank in members_of(run.all_ranks & ~run.ended):
        state.end_rank(run, rank)
    for name in event.released:
        state.release_rank(run, state.nodes[name].held[run.key])


def _allocation_released(state: ClusterState, event: ev.AllocationReleased, at: EventPosition) -> None:
    run = state.runs[run_key(event.job, event.attempt)]
    state.release_rank(run, state.nodes[event.node].held[run.key])


def _ending(event: ev.RankEnded | ev.RunEnded) -> RankEnding:
    way = way_of(event.outcome, event.exit_code, event.signal)
    return RankEnding(event.outcome, event.rank, way, event.fault, event.blames)


def stop(state: ClusterState, run: PlacedRun, reason: str, at_ns: int, *, notice: bool = True, ran_ns: int = 0) -> None:
    """Mark the orders of a run's living ranks as stopping for `reason`.

    A person's stop outranks a drain, a stop for another job and a stop for a fault. All of them outrank a time limit.
    Agents hold a time limit back until the run has run for `ran_ns` by their clocks; the other stops do not wait for that,
    and a time limit delays none that has begun. The first stop of a run with a `notice` gives the notice; a stop without
    one ends it.
    """
    if reason == "time_limit" and run.stop:
        return
    if run.stop in YIELDING_STOPS:
        if not notice:
            state.set(run, "notice_ns", 0)
        elif not run.stop and run.started == run.all_ranks and not run.ended:
            _give_notice(state, run, at_ns)
        elif run.stop == "time_limit" and run.notice_ns:
            state.set(run, "noticed_ns", at_ns)  # its agents may have held the notice back, too
        state.set(run, "stop", reason)
        state.set(run, "ran_ns", ran_ns)
        _touch_live(state, run)


def add_signal(state: ClusterState, run: PlacedRun, name: str) -> None:
    """Add a signal to the orders of a run's living ranks. Its number lets each agent deliver it once."""
    number = run.signals[-1][0] + 1 if run.signals else 1
    state.set(run, "signals", (*run.signals, (number, name))[-SIGNALS_MAX:])
    _touch_live(state, run)


def _give_notice(state: ClusterState, run: PlacedRun, at_ns: int) -> None:
    job = state.job_of(run)
    if job is not None and job.checkpoint is not None and job.checkpoint.is_told:
        state.set(run, "noticed_ns", at_ns)
        state.set(run, "notice_ns", job.checkpoint.notice_ns)


def send_away(
    state: ClusterState, node: ClusterNode, at_ns: int, leave: Callable[[PlacedRun], bool] = lambda run: True
) -> None:
    """Stop the node's runs that `leave` selects, so that each job goes elsewhere. Runs that are already stopping are skipped,
    except those that stop for their time limit only.
    """
    for key in sorted(node.held):
        run = state.runs[key]
        if run.ended != run.all_ranks and run.stop in ("", "time_limit") and leave(run):
            stop(state, run, "drained", at_ns)


def _touch_live(state: ClusterState, run: PlacedRun) -> None:
    for rank, part in enumerate(run.parts):
        if not run.ended >> rank & 1:
            state.touch(part.node)


def is_success(outcome: ev.RunOutcome, exit_code: int | None, signal: int | None) -> bool:
    """True for a rank whose end does not end the others."""
    return outcome == "exited" and exit_code == 0 and signal is None


def _reclaim_requested(state: ClusterState, event: ev.ReclaimRequested, at: EventPosition) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None and event.rule not in run.idle:
        state.set(run, "idle", (*run.idle, event.rule))


def _active(state: ClusterState, event: ev.JobActive, at: EventPosition) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None and event.rule in run.idle:
        state.set(run, "idle", tuple(rule for rule in run.idle if rule != event.rule))


def _extended(state: ClusterState, event: ev.JobExtended, at: EventPosition) -> None:
    run = state.runs.get(run_key(event.job, event.attempt))
    if run is not None and run.idle:
        state.set(run, "idle", ())


HANDLERS: EventHandlers[ClusterState] = {
    ev.JobPlaced: _job_placed,
    ev.JobUnplaceable: _job_unplaceable,
    ev.OfferReturned: _offer_returned,
    ev.RankStarted: _rank_started,
    ev.RunStarted: _run_started,
    ev.AppReady: _app_ready,
    ev.CheckpointSaved: _checkpoint_saved,
    ev.RankEnded: _rank_ended,
    ev.RunEnded: _run_ended,
    ev.AllocationReleased: _allocation_released,
    ev.ReclaimRequested: _reclaim_requested,
    ev.JobActive: _active,
    ev.JobExtended: _extended,
}
