"""Runs that may be moved, and the cost of a move in GPU-seconds.

A batch job whose file names `time.slice` may be interrupted after that slice: it saves and resumes. No other job is
moved. A move loses the time since the last reported save or since the start. This time is at most a slice (earlier work
was worth an interruption already) or the job's own save interval. The time in which the job works in neither place is
added.
"""

from fairlead_placer.entities import Run
from fairlead_placer.making_room.candidates import is_stopping
from fairlead_placer.state import State
from fairlead_placer.timeline.learning import job_of
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.events import Victim

SECOND_NS = 1_000_000_000
#: Notice, grace, start and reading what was saved.
RESTART_S = 120


def slice_of(state: State, job: str) -> int:
    """The slice of a kept job, or an element's array, in ns; 0: it is not to be moved."""
    kept = state.jobs.get(array_of(job) or job)
    return 0 if kept is None else kept.slice_ns


def movable(state: State, pool: str, now_ns: int) -> list[Victim]:
    """Return the pool's runs that have had their slice and run undisturbed, the cheapest first, with the cost of moving each."""
    found = [victim for run in state.runs.values() if (victim := _victim(state, run, pool, now_ns)) is not None]
    return sorted(found, key=lambda victim: (victim.gpu_s, victim.job))


def _victim(state: State, run: Run, pool: str, now_ns: int) -> Victim | None:
    slice_ns = slice_of(state, run.job)
    if not slice_ns or is_stopping(run) or run.ended or run.started != run.all_ranks:
        return None
    if run.began_ns + slice_ns > now_ns or state.nodes[run.parts[0].node].pool != pool:
        return None
    request = state.request_of(run.job)
    assert request is not None
    job = job_of(state, run)
    every_ns = job.checkpoint.every_ns if job is not None and job.checkpoint is not None else 0
    lost_ns = min(now_ns - max(run.began_ns, run.saved_ns), slice_ns, every_ns or slice_ns)
    lost_s = lost_ns // SECOND_NS + RESTART_S
    return Victim(
        job=run.job, attempt=run.attempt, rule="defragmentation", gpu_s=request.gpu_milli_total * lost_s // 1000
    )
