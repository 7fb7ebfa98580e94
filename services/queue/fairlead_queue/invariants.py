"""What must be true of the queue's state after every commit; for tests, the simulator and replay."""

from fairlead_queue.jobs import Array, Job
from fairlead_queue.state import State
from fairlead_schemas.lifecycle import CHARGED_STATES, END_STATES


def check(state: State) -> None:
    """Raises AssertionError naming the job or queue whose bookkeeping is not true."""
    for job in state.jobs.values():
        problem = _problem(state, job)
        if problem:
            raise AssertionError(f"job {job.id} is {job.state}, waits in {job.wait!r}: {problem}")
    _check_counts(state)
    for queue in state.queues.values():
        holding = sum(job.lane.klass.need for job in state.jobs.values() if job.lane.queue is queue and charged(job))
        if holding != queue.charged:
            raise AssertionError(f"queue {queue.path} is charged {queue.charged}, its jobs hold {holding} milli-GPU")


def charged(job: Job) -> bool:
    """Whether a job counts against its queue's quota: from its offer until its run has ended."""
    return job.state in CHARGED_STATES and job.end is None and not isinstance(job, Array)


def _problem(state: State, job: Job) -> str:
    if job.id in state.finished or job.state in END_STATES:
        return "live and finished at once"
    if job.open != (job.id in job.lane.offers) or (job.open and job.state not in ("offered", "stopping")):
        return f"open is {job.open}"
    if (job.wait == "owed") != (job.id in state.owed) or (job.wait == "owed") != (job.end is not None):
        return f"owed with end {job.end}"
    if bool(job.timer_ns) != ((job.timer_ns, job.id) in state.timers):
        return f"timer {job.timer_ns} is not among the timers"
    if job.state == "queued" and not job.wait and not (isinstance(job, Array) and not job.unborn):
        return "nothing will ever move it"
    if job.state == "scheduled" and job.wait != "timer":
        return "nothing will ever queue it"
    return ""


def _check_counts(state: State) -> None:
    lanes = [lane for queue in state.queues.values() for lane in queue.lanes.values()]
    lines = [line for lane in lanes for line in lane.lines.values()]
    expected = {
        "in_line": sum(job.wait == "line" for job in state.jobs.values()),
        "lines": sum(len(line) for line in lines),
        "open": sum(job.open for job in state.jobs.values()),
        "parked_open": sum(klass.open for klass in state.classes.values() if state.parked(klass)),
        "parked_classes": sum(state.parked(klass) for klass in state.classes.values()),
        "lane jobs": len(state.jobs),
        "fronts": sorted((first.rank, first) for lane in lanes if (first := lane.first()) is not None),
    }
    found = {
        "in_line": state.in_line,
        "lines": state.in_line,
        "open": state.open,
        "parked_open": state.parked_open,
        "parked_classes": state.parked_classes,
        "lane jobs": sum(lane.jobs for lane in lanes),
        "fronts": state.fronts,
    }
    if expected != found:
        raise AssertionError(f"counts should be {expected}, are {found}")
    for line in lines:
        ranks = [job.rank for job in line]
        if ranks != sorted(ranks) or not ranks:
            raise AssertionError(f"a line is empty or out of order: {ranks[:20]}")
