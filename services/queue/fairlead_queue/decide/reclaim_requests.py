"""Queues that hold more than they may give the excess back, where a person requested that with the change (`reclaim`).

Open offers are withdrawn first, then runs are stopped: the lowest priority first, then those that lose the fewest
GPU-seconds. The stopped jobs wait again and then continue with the rest of their time. The request is part of the state:
it ends when the queue is within its limits.

Stops of idle runs that are reclaimed even when no job waits. Runs that are reclaimed on demand only are the cheapest
victims instead (`preemption_candidates.py`).
"""

from fairlead_bus.core import encoded_bytes
from fairlead_queue.apply.reclaim_requests import OverLimit, excess, find_reclaim
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.decide.offer_review import withdraw
from fairlead_queue.decide.preemption_candidates import lost_gpu_s
from fairlead_queue.fairness.tree import Amounts, QueueNode
from fairlead_queue.fairness.waiting_line import priority_of
from fairlead_queue.waiting.attempts import decisive
from fairlead_queue.waiting.pending import Lane, LiveJob
from fairlead_schemas.wire.events import JobStopRequested


def reclaim_quota(draft: QueueDraft) -> None:
    """Ask for what is not on its way back yet, the deepest queues first: what they give counts above, too."""
    for path in sorted(draft.state.reclaims, key=lambda path: (-path.count("/"), path)):
        over = find_reclaim(draft.state, path)
        if over is not None:
            cause, by = draft.state.reclaims[path]
            _reclaim(draft, over, cause, by)


def _reclaim(draft: QueueDraft, over: OverLimit, cause: str, by: str) -> None:
    left = excess(over.node)
    offers: list[LiveJob] = []
    runs: list[LiveJob] = []
    for lane in _lanes(over.node):
        for job in [*lane.offers.values(), *lane.running.values()]:
            if job.end is not None or job.stop or job.withdrawal or job.yields_to or job.id in draft.states:
                left = [amount - need for amount, need in zip(left, _held(job), strict=True)]
            else:
                (offers if job.open else runs).append(job)
    offers.sort(key=lambda job: -job.rank)
    runs.sort(key=lambda job: (priority_of(job.order), lost_gpu_s(job, draft.now_ns), -job.order))
    for job in _enough([*offers, *runs], left):
        if not draft.has_room():
            return
        if job.open:
            withdraw(draft, job, "quota")
            continue
        event = JobStopRequested(cause=cause, job=job.id, attempt=job.attempt, reason="reclaimed", by=by)
        draft.emit(event, encoded_bytes(by))
        draft.states[job.id] = "stopping"


def _held(job: LiveJob) -> Amounts:
    return job.lane.request_class.pool.holds(job)


def _lanes(node: QueueNode) -> list[Lane]:
    if node.leaf is not None:
        return list(node.leaf.lanes.values())
    return [lane for child in node.children.values() for lane in _lanes(child)]


def _enough(jobs: list[LiveJob], over: list[int]) -> list[LiveJob]:
    """The first of them that give back enough, without those that the ones after them make needless."""
    left = list(over)
    chosen: list[LiveJob] = []
    for job in jobs:
        need = _held(job)
        if any(amount > 0 and more for amount, more in zip(left, need, strict=True)):
            chosen.append(job)
            left = [amount - more for amount, more in zip(left, need, strict=True)]
    for job in reversed(chosen.copy()):
        without = [amount + more for amount, more in zip(left, _held(job), strict=True)]
        if all(amount <= 0 or not asked for amount, asked in zip(without, over, strict=True)):
            chosen.remove(job)
            left = without
    return chosen


def stop_idle_runs(draft: QueueDraft) -> None:
    """Request the stop of idle runs whose stop has not been requested yet, oldest reclaim first."""
    wanted = [
        (decisive(job.idle), job) for job in draft.state.idle.values() if not (job.stop or job.end or job.yields_to)
    ]
    for reclaim, job in sorted(wanted, key=lambda each: (each[0].at_ns, each[1].id)):
        if reclaim.on_demand or job.id in draft.states:
            continue
        if not draft.has_room():
            return
        event = JobStopRequested(cause=reclaim.cause, job=job.id, attempt=job.attempt, reason="idle", save=True)
        draft.emit(event)
        draft.states[job.id] = "stopping"
