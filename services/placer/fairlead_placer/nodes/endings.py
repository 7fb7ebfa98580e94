"""Evidence about nodes and jobs from the ends of runs. Folded, so it only notes; `blackhole.py` judges.

A run did well when it exited with 0, or ended by itself after it had run for a while. It failed where its deciding
rank exited otherwise or could not be started; fast, when that took less than two minutes. Stops, losses and reboots are
no evidence, and neither is a start that failed by the job's own fault.

A program that exits with an error is far more often wrong itself than its node is. So a fast failure alone proves nothing.
The node is to blame (`FastFail.blame`) where it refused the start itself, by a check of its own or for want of something
that another node has, or where the same job, or another of the user's with an equal job file, did well on another node afterwards. The job is to blame
where it failed in the same way on another node. A job that fails in the same way on several nodes is reported to the queue with
them.
"""

import hashlib
from typing import NamedTuple

from fairlead_placer.entities import Failed, FastFail, Run, Well
from fairlead_placer.state import State
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev

SECOND_NS = 1_000_000_000
FAST_NS = 120 * SECOND_NS
#: How long a fast failure counts against its node.
WINDOW_NS = 600 * SECOND_NS
#: Kept of each node, newest last; of each job; users whose last good run is known.
FAILS_MAX = 8
FAILED_ON_MAX = 8
USERS_MAX = 256
#: Failed on so many other nodes, in whatever ways, a job is to blame itself.
BLAMED_AFTER = 2
#: Ends that are failures; all others are not the run's own doing.
FAILURES: tuple[ev.RunOutcome, ...] = ("exited", "start_failed")
#: Ends after which the job goes elsewhere.
AVOIDED: tuple[ev.RunOutcome, ...] = (*FAILURES, "preflight")


class Ending(NamedTuple):
    """End of the deciding rank."""

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
    if not lasted and ending.fault != "job":
        _failed_fast(state, run, ending, node, others, at_ns)


def _failed_fast(
    state: State, run: Run, ending: Ending, node: str, others: tuple[Failed, ...], at_ns: int
) -> None:  # fmt: skip
    """Note it on the node. `others`: where else the job has failed."""
    fail = FastFail(
        at_ns, array_of(run.job) or run.job, _user_of(state, run), run.key, ending.way, _kind_of(state, run),
        "node" if ending.outcome == "preflight" or ending.fault == "node" else "",
    )  # fmt: skip
    if not fail.blame:
        alike = _failed_alike_elsewhere(state, fail, node) or any(each.way == ending.way for each in others)
        fail = fail._replace(blame="job" if alike or len(others) >= BLAMED_AFTER else "")
    recent = [old for old in state.failing.get(node, ()) if old.at_ns > at_ns - WINDOW_NS]
    if any(old.job == fail.job and old.blame == "node" for old in recent):
        fail = fail._replace(blame="node")
    recent = [old for old in recent if old.job != fail.job]
    state.put(state.failing, node, (*recent, fail)[-FAILS_MAX:])


def _failed_alike_elsewhere(state: State, fail: FastFail, node: str) -> bool:
    """True where such a job failed in the same way on another node; its failures there are then the job's own, too."""
    found = False
    for other in [name for name in state.failing if name != node]:
        fails = state.failing[other]
        alike = [each.way == fail.way and each.blame != "node" and each.is_like(fail) for each in fails]
        if any(alike):
            found = True
            noted = tuple(
                [each._replace(blame="job") if same else each for each, same in zip(fails, alike, strict=True)]
            )
            state.put(state.failing, other, noted)
    return found


def way_of(outcome: ev.RunOutcome, exit_code: int | None, signal: int | None) -> str:
    """Return the way of the end, precise enough to compare two ends: "exited 1", "exited by signal 9", "start_failed"."""
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
        _prove(state, run)
    user = _user_of(state, run)
    if user not in state.well and len(state.well) >= USERS_MAX:
        state.drop(state.well, min(state.well, key=lambda name: (state.well[name].at_ns, name)))
    state.put(state.well, user, Well(run.parts[0].node, at_ns))


def _prove(state: State, run: Run) -> None:
    """Blame the other nodes for fast failures of the job there: it does well on this one."""
    job, kind = array_of(run.job) or run.job, _kind_of(state, run)
    for node in list(state.failing):
        fails = state.failing[node]
        proven = tuple([each._replace(blame="node") if each.is_of(job, kind) else each for each in fails])
        if proven != fails:
            state.put(state.failing, node, proven)


def _kind_of(state: State, run: Run) -> str:
    """A digest of the job file and its user, whose files it may need; "" where the job is not kept any more."""
    job = state.jobs.get(array_of(run.job) or run.job)
    if job is None:
        return ""
    return hashlib.blake2b(job.user.encode() + b"\0" + bytes(job.spec), digest_size=8).hexdigest()


def _user_of(state: State, run: Run) -> str:
    job = state.jobs.get(array_of(run.job) or run.job)
    return "" if job is None else job.user
