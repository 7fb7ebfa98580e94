"""Reasons shown for waiting jobs: emitted once per lane and reason, and again when another reason has held for a while."""

from heapq import nsmallest

import msgspec

from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.gates import ClosedGate
from fairlead_queue.decide.turns import Turns
from fairlead_queue.limits import DOUBLINGS_MAX, NEWS_MAX, NEWS_NS
from fairlead_queue.waiting.pending import Lane
from fairlead_schemas.wire.events import JobDeferred


def emit_pending_reasons(draft: QueueDraft, turns: Turns) -> None:
    """Emit the reasons of lanes in which a job waits now and no reason has been emitted yet."""
    pool = turns.pool
    if not draft.state.unreported:
        return
    silent = [
        lane for lane in draft.state.unreported if lane.request_class.pool is pool and lane not in turns.exhausted
    ]
    for lane in nsmallest(NEWS_MAX, silent, key=lambda lane: lane.front):
        closed = turns.gates.closed(lane)
        if closed is not None:
            _defer(draft, turns, lane, closed)


def emit_array_reasons(draft: QueueDraft) -> None:
    """Emit the reason of arrays that wait for elements of their own, once each."""
    for array in nsmallest(NEWS_MAX, draft.state.unreported_arrays.values(), key=lambda array: array.order):
        if not draft.has_room():
            return
        if array.id not in draft.states:
            draft.emit(
                JobDeferred(
                    cause=array.cause,
                    job=array.id,
                    attempt=1,
                    reason="array_limit",
                    queue=array.lane.leaf.queue.path,
                    held=len(array.live),
                    needed=1,
                    ceiling=array.limit,
                )
            )


def emit_changed_reasons(draft: QueueDraft, turns: Turns) -> int | None:
    """Emit the reasons of lanes whose present reason differs from the last one, emitted a while ago. Return when more may be
    emitted; None when nothing is left.
    """
    found: list[tuple[Lane, ClosedGate]] = []
    again_ns: int | None = None
    for node in turns.pool.tree.nodes.values():
        for _, job in node.leaf.fronts if node.leaf is not None else ():
            lane = job.lane
            said = lane.deferral
            if said is None or lane in turns.exhausted:
                continue
            closed = turns.gates.closed(lane)
            before = said.reason, said.queue, said.resource
            if closed is None or (closed.reason, closed.queue, closed.resource) == before:
                continue
            due_ns = said.at_ns + (NEWS_NS << min(said.times, DOUBLINGS_MAX))
            if due_ns <= draft.now_ns:
                found.append((lane, closed))
            elif again_ns is None or due_ns < again_ns:
                again_ns = due_ns
    for lane, closed in nsmallest(NEWS_MAX, found, key=lambda each: each[0].front):
        _defer(draft, turns, lane, closed)
    return again_ns if len(found) <= NEWS_MAX else draft.now_ns + 1


def _defer(draft: QueueDraft, turns: Turns, lane: Lane, closed: ClosedGate) -> None:
    """Emit the reason for which the first job of a lane is not offered."""
    job = turns.first_of(lane)
    if job is not None and draft.has_room():
        limit = msgspec.structs.asdict(closed.limit)
        draft.emit(JobDeferred(cause=job.cause, job=job.id, attempt=max(1, job.attempt), reason=closed.reason, **limit))
