"""The life of a run: ranks start, end and are released. Emits on a draft.

One node: RunStarted, RunEnded. Several: RankStarted and RankEnded for each, RunStarted with the last that starts,
RunEnded in place of the last RankEnded. GPUs come back on clean evidence only; otherwise a part stays held (dirty)
until AllocationReleased.
"""

from fairlead_bus.core import encoded_bytes, names_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.apply.runs import is_success
from fairlead_placer.cluster.entities import ClusterNode, PlacedRun, RankVerdict
from fairlead_placer.cluster.failure_history import RankEnding, failed_alike, way_of
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.policies.checkpoints import note_of
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import IMAGE_CHARS_MAX, AppSeen, CheckpointSeen, StartSeen

#: Agents report saves at most half as often, except for the last report before an end.
SAVED_EVERY_NS = 5 * SECOND_NS
#: A node's clock from here on is no time: it would not fit 64 bits.
CLOCK_NS_MAX = 1 << 63


def node_clock(at_ns: int) -> int:
    """Return a node's wall clock (Unix ns) as an event may have it; 0 for one that is no time."""
    return at_ns if 0 < at_ns < CLOCK_NS_MAX else 0


def rank_started(draft: PlacerDraft, run: PlacedRun, report: StartSeen, cause: str) -> None:
    """Record that a rank runs, and its image. A repeated report, or one after its end, changes nothing."""
    rank, image = report.rank, report.image[:IMAGE_CHARS_MAX]
    if (run.started | run.ended) >> rank & 1:
        return
    gang, image_bytes = len(run.parts) > 1, encoded_bytes(image)
    if gang:
        draft.emit(ev.RankStarted(cause=cause, job=run.job, attempt=run.attempt, rank=rank, image=image), image_bytes)
    if (run.started | 1 << rank) == run.all_ranks:
        started = ev.RunStarted(
            cause=cause,
            job=run.job,
            attempt=run.attempt,
            image="" if gang else image,
            began_ns=node_clock(report.at_ns),
        )
        draft.emit(started, image_bytes)


def said_saved(draft: PlacerDraft, run: PlacedRun, report: CheckpointSeen, cause: str) -> None:
    """Rank 0 says that the run's work is saved. What comes sooner after its last word than any agent says it is dropped."""
    noticed = report.noticed and run.noticed_ns > 0  # a fence tells a run, too, which the log knows nothing of
    soon = run.saved_ns and not noticed and draft.now_ns - run.saved_ns < SAVED_EVERY_NS
    if report.rank or run.ended & 1 or soon:
        return
    note = note_of(report.note)
    event = ev.CheckpointSaved(cause=cause, job=run.job, attempt=run.attempt, note=note, noticed=noticed)
    draft.emit(event, encoded_bytes(note))


def app_serves(draft: PlacerDraft, run: PlacedRun, report: AppSeen, cause: str) -> None:
    """The application of rank 0 serves. Only the first word of an attempt says something new."""
    if not report.rank and not run.ended & 1 and not run.app_ready:
        ready_ns = node_clock(report.at_ns)
        draft.emit(ev.AppReady(cause=cause, job=run.job, attempt=run.attempt, ready_ns=ready_ns))


def rank_ended(
    draft: PlacerDraft, run: PlacedRun, verdict: RankVerdict, clean: bool, cause: str, ended_ns: int = 0
) -> None:
    """A rank whose part is held has ended; the last one ends the run. Ended already, a clean word releases it. `ended_ns`: as of
    RunEnded."""
    rank = verdict.rank
    if run.ended >> rank & 1:
        if clean:
            released(draft, run, rank, cause)
        return
    if run.led_to_its_end:  # it only waited for rank 0's word, and whatever ended it came after that
        verdict = RankVerdict("exited", 0, None, rank, "ended with rank 0", ran_ns=verdict.ran_ns)
    if run.ended | 1 << rank == run.all_ranks:
        ended = _run_ended(draft.state, run, verdict, clean, cause, ended_ns)
        draft.emit(ended, encoded_bytes(ended.message) + names_bytes(ended.alike))
        return
    draft.emit(
        ev.RankEnded(
            cause=cause,
            job=run.job,
            attempt=run.attempt,
            rank=rank,
            outcome=verdict.outcome,
            exit_code=verdict.exit_code,
            signal=verdict.signal,
            message=verdict.message,
            fault=verdict.fault,
            released=clean,
            blames=verdict.blames,
            ran_ns=verdict.ran_ns,
        ),
        encoded_bytes(verdict.message),
    )


def _run_ended(
    state: ClusterState, run: PlacedRun, last: RankVerdict, clean: bool, cause: str, ended_ns: int
) -> ev.RunEnded:
    """The first failure decides; without one every rank has exited with 0 (or ended with rank 0), and so says rank 0."""
    verdict = run.verdict or last
    well = is_success(verdict.outcome, verdict.exit_code, verdict.signal)
    if well and (verdict.rank or verdict.message):
        verdict = verdict._replace(rank=0, message="")
    way = "" if well else way_of(verdict.outcome, verdict.exit_code, verdict.signal)
    return ev.RunEnded(
        cause=cause,
        job=run.job,
        attempt=run.attempt,
        outcome=verdict.outcome,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        rank=verdict.rank,
        message=verdict.message if well else _told(run, verdict, way),
        fault=verdict.fault,
        blames=verdict.blames,
        ran_ns=verdict.ran_ns,
        drained=run.stop == "drained" and verdict.outcome == "stopped",
        noticed_ns=run.noticed_ns,
        saved_ns=run.saved_ns,
        preempted=run.stop == "preempted" and verdict.outcome == "stopped",
        gpu_fault=run.gpu_fault
        if run.stop == "gpu_fault" and not well and verdict.outcome in ("stopped", "exited")
        else "",
        released=(run.parts[last.rank].node,) if clean else (),
        alike=() if well else failed_alike(state, run, RankEnding(verdict.outcome, verdict.rank, way)),
        ended_ns=ended_ns,
    )


def _told(run: PlacedRun, verdict: RankVerdict, way: str) -> str:
    """Return the message of a gang's failure: the first rank to end, its node, and its own message."""
    if len(run.parts) == 1 or run.stop:
        return verdict.message
    return f"rank {verdict.rank} on {run.parts[verdict.rank].node} was the first to end: {verdict.message or way}"


def released(draft: PlacerDraft, run: PlacedRun, rank: int, cause: str) -> None:
    """The devices of an ended rank, still held, are free."""
    node = run.parts[rank].node
    draft.emit(ev.AllocationReleased(cause=cause, job=run.job, attempt=run.attempt, node=node))


def end_all(draft: PlacerDraft, node: ClusterNode, outcome: ev.RunOutcome, clean: bool, cause: str) -> bool:
    """End every living rank of a node (with `clean`, give back all it holds). False when the commit is full first."""
    for key in sorted(node.held):
        if draft.full:
            return False
        run, rank = draft.state.runs[key], node.held[key]
        if clean or not run.ended >> rank & 1:
            rank_ended(draft, run, RankVerdict(outcome, None, None, rank, ""), clean, cause)
    return True
