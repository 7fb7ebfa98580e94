"""Conditions that a job waits for before it is in line: the ends of other jobs, then its start time. Called by `evolve`
only.
"""

from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import NEVER, End, Job
from fairlead_schemas.wire import events as ev


def pending(state: State, after: tuple[ev.Dependency, ...]) -> dict[str, str] | None:
    """Return the dependencies still to be waited for, among jobs that are live or have ended lately; None if there are none."""
    found: dict[str, str] = {}
    for each in after:
        end = state.finished.get(each.job)
        if end is None:
            found[each.job] = each.state
        elif not is_met(each.state, end):
            found[each.job] = NEVER
    return found or None


def is_met(wanted: str, end: str) -> bool:
    """Return True if this end of a job satisfies the wanted state."""
    return wanted == "ended" or wanted == end or (wanted == "failed" and end == "cancelled")


def wait(state: State, job: Job, id_: str, at_ns: int) -> None:
    """Set the job to wait for other jobs, then for its start time, then in line."""
    if job.after:
        if NEVER in job.after.values():
            job.end = End(id_, None)
            state.owe(job)
        else:
            job.wait = "jobs"
    elif job.start_at_ns > at_ns:
        state.wait_until(job, job.start_at_ns)
    else:
        state.wait_in_line(job)


def dependency_ended(state: State, ended: str, end_state: str, id_: str, at_ns: int) -> None:
    """Let the jobs that waited for this one continue after its end, or mark them as never able to."""
    for job in state.dependents.of(ended):
        after = job.after
        assert after is not None
        if not is_met(after[ended], end_state):
            after[ended] = NEVER
        elif len(after) > 1:
            state.dependents.drop_one(job, ended)
            continue
        else:
            state.dependents.drop(job)
        if job.wait == "jobs":
            _go_on(state, job, id_, at_ns)


def _go_on(state: State, job: Job, id_: str, at_ns: int) -> None:
    if not job.after and job.start_at_ns > at_ns:
        state.wait_until(job, job.start_at_ns)
    else:
        job.end = End(id_, None)
        state.owe(job)
