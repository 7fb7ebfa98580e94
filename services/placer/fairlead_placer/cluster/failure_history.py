"""Evidence about nodes and jobs from the ends of runs. Folded, so it only notes; `decide/quarantine.py` judges.

A run did well when it exited with 0, or ended by itself after it had run for a while. It failed where its deciding
rank exited otherwise or could not be started; fast, when that took less than two minutes. Stops, losses and reboots are
no evidence, and neither is a start that failed by the job's own fault.

A program that exits with an error is far more often wrong itself than its node is. So a fast failure alone proves nothing.
The node is to blame (`FastFail.blame`) where it refused the start itself, by a check of its own or for want of something
that another node has, or where the same job, or another of the user's with an equal job file, did well on another node afterwards. The job is to blame
where it failed in the same way on another node. A job that fails in the same way on several nodes is reported to the queue with
them.

Nodes that a job does not go to again: it has failed there. Reads state, changes nothing.

A job avoids them as long as enough others could take it, busy ones included; it waits for those. Where there are none
it goes back: with nothing left to try, a retry on the same node is better than none.
"""

import hashlib
from typing import NamedTuple

from fairlead_placer.cluster.capacity.node_allocation import never
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import ClusterNode, FastFail, JobFailure, JobRecord, LastSuccess, PlacedRun
from fairlead_placer.cluster.repartition_demand import is_simple
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.units.hardware import domain_of
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request

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


class RankEnding(NamedTuple):
    """End of the deciding rank, which did not do well."""

    outcome: ev.RunOutcome
    rank: int
    way: str
    fault: ev.StartFault = ""
    #: Another rank, whose node that rank blames.
    blames: int | None = None


def record_failure(state: ClusterState, run: PlacedRun, ending: RankEnding, at_ns: int) -> None:
    """The run is as good as over: its deciding rank has ended, and not well."""
    lasted = run.began_ns and at_ns - run.began_ns >= FAST_NS
    if lasted and ending.outcome == "exited" and not run.stop:
        record_success(state, run, state.job_of(run), at_ns)
    if run.stop or ending.outcome not in AVOIDED:
        return
    node = run.parts[ending.rank if ending.blames is None else ending.blames].node
    others = tuple([each for each in state.failed_on.get(run.job, ()) if each.node != node])
    if state.request_of(run.job) is not None:
        state.put(state.failed_on, run.job, (*others, JobFailure(node, ending.way))[-FAILED_ON_MAX:])
    if ending.blames is not None:
        return  # one node's word about another keeps this job from it, and is no evidence against it for others
    if not lasted and ending.fault != "job":
        _failed_fast(state, run, ending, node, others, at_ns)


def _failed_fast(
    state: ClusterState, run: PlacedRun, ending: RankEnding, node: str, others: tuple[JobFailure, ...], at_ns: int
) -> None:
    """Note it on the node. `others`: where else the job has failed."""
    fail = FastFail(
        at_ns,
        array_of(run.job) or run.job,
        _user_of(state, run),
        run.key,
        ending.way,
        _kind_of(state, run),
        "node" if ending.outcome == "preflight" or ending.fault == "node" else "",
    )
    if not fail.blame:
        alike = _failed_alike_elsewhere(state, fail, node) or any(each.way == ending.way for each in others)
        fail = fail._replace(blame="job" if alike or len(others) >= BLAMED_AFTER else "")
    recent = [old for old in state.failing.get(node, ()) if old.at_ns > at_ns - WINDOW_NS]
    if any(old.job == fail.job and old.blame == "node" for old in recent):
        fail = fail._replace(blame="node")
    recent = [old for old in recent if old.job != fail.job]
    state.put(state.failing, node, (*recent, fail)[-FAILS_MAX:])


def _failed_alike_elsewhere(state: ClusterState, fail: FastFail, node: str) -> bool:
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


def failed_alike(state: ClusterState, run: PlacedRun, ending: RankEnding) -> tuple[str, ...]:
    """The nodes on which the job has failed in the same way by now, sorted; nothing while it is one only."""
    if run.stop or ending.outcome not in FAILURES:
        return ()
    found = {each.node for each in state.failed_on.get(run.job, ()) if each.way == ending.way}
    found.add(run.parts[ending.rank].node)
    return tuple(sorted(found)) if len(found) > 1 else ()


def record_success(state: ClusterState, run: PlacedRun, job: JobRecord | None, at_ns: int) -> None:
    """A run of the job did well, or ran for a while."""
    if state.failing:
        for part in run.parts:
            state.drop(state.failing, part.node)
        _prove(state, run)
    user, well = "" if job is None else job.user, state.well
    if user not in well and len(well) >= USERS_MAX:
        state.drop(well, min(well, key=lambda name: (well[name].at_ns, name)))
    state.put(well, user, LastSuccess(run.parts[0].node, at_ns))


def _prove(state: ClusterState, run: PlacedRun) -> None:
    """Blame the other nodes for fast failures of the job there: it does well on this one."""
    job, kind = array_of(run.job) or run.job, _kind_of(state, run)
    for node in list(state.failing):
        fails = state.failing[node]
        proven = tuple([each._replace(blame="node") if each.is_of(job, kind) else each for each in fails])
        if proven != fails:
            state.put(state.failing, node, proven)


def _kind_of(state: ClusterState, run: PlacedRun) -> str:
    """A digest of the job file and its user, whose files it may need; "" where the job is not kept any more."""
    job = state.jobs.get(array_of(run.job) or run.job)
    if job is None:
        return ""
    return hashlib.blake2b(job.user.encode() + b"\0" + bytes(job.spec), digest_size=8).hexdigest()


def _user_of(state: ClusterState, run: PlacedRun) -> str:
    job = state.jobs.get(array_of(run.job) or run.job)
    return "" if job is None else job.user


NOWHERE: frozenset[str] = frozenset()


def avoided(state: ClusterState, job: str) -> frozenset[str]:
    """Nodes on which the job has failed and to which it shall not go; none when it has nowhere else to go."""
    failed = state.failed_on.get(job)
    request = state.request_of(job) if failed else None
    if not failed or request is None:
        return NOWHERE
    names = frozenset(each.node for each in failed)
    return names if _others_serve(state, request, names) else NOWHERE


def _others_serve(state: ClusterState, request: Request, failed: frozenset[str]) -> bool:
    """Return True if open nodes outside `failed`, empty, would take all units of the request, within the domain that it
    requires.
    """
    # Several of the tasks may fit on a node. How many would fit after repartitioning is unknown; the present
    # layout is sure.
    asks, cuts = unit_requests(request), is_simple(request) and not request.tasks
    least = [ask.request.nodes_min or ask.request.nodes for ask in asks]
    domains: dict[str, list[tuple[int, ...]]] = {}
    for node in state.pools.of(request).members.values():
        domain = _domain(node, asks[0].level) if node.serving and node.name not in failed else ""
        if domain:
            units = tuple([0 if never(node.left, ask) else _units(node, ask, cuts=cuts) for ask in asks])
            able = domains.setdefault(domain, [])
            if any(units):
                able.append(units)
                if _take_all(able, least):
                    return True
    return False


def _domain(node: ClusterNode, level: str) -> str:
    """Return the node's domain at the level, "" if it is in none."""
    if not level:
        return "all"
    return node.name if level == "node" else domain_of(node.inventory.labels, level)


def _units(node: ClusterNode, ask: UnitRequest, *, cuts: bool) -> int:
    """Return the units that the empty node takes, judged by amounts only: one at most, or several tasks. `cuts`: its GPUs
    would be repartitioned for them, or made whole.
    """
    build, request = node.left.build, ask.request
    if cuts:
        return 1
    gpus = _gpus(node, ask) if ask.gpus else 0
    amounts = (gpus, ask.gpus), (build.cpu_milli, request.cpu_milli), (build.memory_mib, request.memory_mib)
    units = min([has // wants for has, wants in amounts if wants], default=request.nodes)
    return units if request.tasks else min(1, units)


def _gpus(node: ClusterNode, ask: UnitRequest) -> int:
    """GPUs (of each, one share of a job) or instances of the empty node, as its GPUs are cut now."""
    build, verdict = node.left.build, ask.verdict(node.left.build)
    if verdict.cut:
        found = (
            each.profile
            for at, gpu in enumerate(node.inventory.gpus)
            if verdict.suits >> at & 1
            for each in gpu.instances
        )
        return sum(not ask.request.profile or profile == ask.request.profile for profile in found)
    return (verdict.suits & ~build.cut).bit_count()


def _take_all(nodes: list[tuple[int, ...]], least: list[int]) -> bool:
    """Return True if each kind finds its units on nodes of its own (Hall, 1935: every subset of kinds together finds enough
    nodes).
    """
    if len(least) == 1:
        return sum(units for (units,) in nodes) >= least[0]
    for some in range(1, 1 << len(least)):
        kinds = [at for at in range(len(least)) if some >> at & 1]
        if sum(any(units[at] for at in kinds) for units in nodes) < sum(least[at] for at in kinds):
            return False
    return True
