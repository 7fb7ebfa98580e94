"""What the end of a run says about its node and its job. Folded, so it only notes; `blackhole.py` judges.

A run did well when it exited with 0, or ended by itself after it had run for a while. It failed where its deciding
rank exited otherwise or could not be started; fast, when that took less than two minutes. What was stopped, lost or
rebooted says nothing, and of a start that failed by the job's own fault the node is not to blame. One that its node would not start,
because it failed a check of its own, speaks against the node and never against the job. A job that fails in the same way on
several nodes is told to the queue with them: that is the job's doing.
"""

from typing import NamedTuple

from fairlead_placer.entities import Failed, FastFail, Run, Well
from fairlead_placer.state import State
from fairlead_schemas import events as ev
from fairlead_schemas.ids import array_of

SECOND_NS = 1_000_000_000
FAST_NS = 120 * SECOND_NS
#: How long a fast failure counts against its node.
WINDOW_NS = 600 * SECOND_NS
#: Kept of each node, newest last; of each job; users whose last good run is known.
FAILS_MAX = 8
FAILED_ON_MAX = 8
USERS_MAX = 256
#: Failed on so many other nodes, a job is to blame itself, and counts against no node.
BLAMED_AFTER = 2
#: Ends that are failures; all others are not the run's own doing.
FAILURES: tuple[ev.RunOutcome, ...] = ("exited", "start_failed")
#: Ends after which the job goes elsewhere.
AVOIDED: tuple[ev.RunOutcome, ...] = (*FAILURES, "preflight")


class Ending(NamedTuple):
    """How the deciding rank ended."""

    outcome: ev.RunOutcome
    well: bool
    rank: int
    way: str
    fault: ev.StartFault = ""
    #: Another rank, whose node that rank blames.
    blames: int | None = None


def note(state: State, run: Run, ending: Ending, at_ns: int) -> None:
    """The run is as good as over: its deciding rank has ended."""
    lasted = run.began_ns and at_ns - run.began_ns >= FAST_NS
    if ending.well or (lasted and ending.outcome == "exited" and not run.stop):
        _went_well(state, run, at_ns)
    if ending.well or run.stop or ending.outcome not in AVOIDED:
        return
    node = run.parts[ending.rank if ending.blames is None else ending.blames].node
    others = tuple([each for each in state.failed_on.get(run.job, ()) if each.node != node])
    if state.request_of(run.job) is not None:
        state.put(state.failed_on, run.job, (*others, Failed(node, ending.way))[-FAILED_ON_MAX:])
    if ending.blames is not None:
        return  # one node's word about another keeps this job from it, and is no evidence against it for others
    if not lasted and ending.fault != "job" and (ending.outcome not in FAILURES or len(others) < BLAMED_AFTER):
        fail = FastFail(at_ns, array_of(run.job) or run.job, _user_of(state, run))
        recent = [old for old in state.failing.get(node, ()) if old.at_ns > at_ns - WINDOW_NS]
        state.put(state.failing, node, (*recent, fail)[-FAILS_MAX:])


def way_of(outcome: ev.RunOutcome, exit_code: int | None, signal: int | None) -> str:
    """How it ended, as far as two ends can be the same: "exited 1", "exited by signal 9", "start_failed"."""
    if signal is not None:
        return f"{outcome} by signal {signal}"
    return outcome if exit_code is None else f"{outcome} {exit_code}"


def failed_alike(state: State, run: Run, ending: Ending) -> tuple[str, ...]:
    """The nodes on which the job has failed in the same way by now, sorted; nothing while it is one only."""
    if ending.well or run.stop or ending.outcome not in FAILURES:
        return ()
    found = {each.node for each in state.failed_on.get(run.job, ()) if each.way == ending.way}
    found.add(run.parts[ending.rank].node)
    return tuple(sorted(found)) if len(found) > 1 else ()


def _went_well(state: State, run: Run, at_ns: int) -> None:
    if state.failing:
        for part in run.parts:
            state.drop(state.failing, part.node)
    user = _user_of(state, run)
    if user not in state.well and len(state.well) >= USERS_MAX:
        state.drop(state.well, min(state.well, key=lambda name: (state.well[name].at_ns, name)))
    state.put(state.well, user, Well(run.parts[0].node, at_ns))


def _user_of(state: State, run: Run) -> str:
    job = state.jobs.get(array_of(run.job) or run.job)
    return "" if job is None else job.user
