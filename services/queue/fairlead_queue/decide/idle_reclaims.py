"""Stops of idle runs that are reclaimed even when no job waits. Runs that are reclaimed on demand only are the cheapest
victims instead (`preemption_candidates.py`).
"""

from fairlead_queue.decide.plan import Plan
from fairlead_queue.waiting.idle import decisive
from fairlead_schemas.wire.events import JobStopRequested


def stop_idle(plan: Plan) -> None:
    """Request the stop of idle runs whose stop has not been requested yet, oldest reclaim first."""
    wanted = [
        (decisive(job.idle), job) for job in plan.state.idle.values() if not (job.stop or job.end or job.yields_to)
    ]
    for wish, job in sorted(wanted, key=lambda each: (each[0].at_ns, each[1].id)):
        if wish.on_demand or job.id in plan.states:
            continue
        if plan.room() <= 0:
            plan.full = True
            return
        event = JobStopRequested(cause=wish.cause, job=job.id, attempt=job.attempt, reason="idle", save=True)
        plan.emit(event)
        plan.states[job.id] = "stopping"
