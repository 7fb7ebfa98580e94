"""Learned durations of runs: for each user and size, and for each queue. Folded as runs end.

Only runs that ended without being stopped or lost count: a stopped or lost run shows no full duration.
"""

from fairlead_placer.entities import Job, Run
from fairlead_placer.state import State
from fairlead_placer.timeline.spans import SECOND_NS, Spans, typical_s, with_one
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.events import RunOutcome

#: Kinds of runs that are remembered; a new one takes the place of the one that was seen longest ago.
KINDS_MAX = 1024
NOTHING = Spans()


def job_of(state: State, run: Run) -> Job | None:
    """The job, or the array of an element; None once the queue has forgotten it."""
    return state.jobs.get(array_of(run.job) or run.job)


def kinds_of(job: Job) -> tuple[str, ...]:
    """Return the keys under which a job's runs are remembered, the most specific first."""
    return f"user:{job.user}:{job.request.gpu_milli_total}", f"queue:{job.queue}"


def learn(state: State, run: Run, outcome: RunOutcome, at_ns: int) -> None:
    """The run has ended."""
    job = job_of(state, run)
    if job is None or not run.began_ns or run.stop or outcome != "exited":
        return
    for kind in kinds_of(job):
        if kind not in state.spans and len(state.spans) >= KINDS_MAX:
            state.drop(state.spans, min(state.spans, key=lambda name: (state.spans[name].last_ns, name)))
        known = state.spans.get(kind, NOTHING)
        state.put(state.spans, kind, with_one(known, max(0, at_ns - run.began_ns) // SECOND_NS, at_ns))


def expected_ns(state: State, job: Job, elapsed_ns: int) -> int:
    """Return the total duration of a run of the job that has taken `elapsed_ns` by now, in nanoseconds; 0: not known."""
    for kind in kinds_of(job):
        known = state.spans.get(kind)
        seconds = typical_s(known, elapsed_ns // SECOND_NS) if known is not None else 0
        if seconds:
            return seconds * SECOND_NS
    return 0
