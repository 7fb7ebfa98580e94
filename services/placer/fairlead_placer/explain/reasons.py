"""Reasons a request fits nowhere now: one dominant cause per node of its pool, counted. The output of the decision itself.

A node's cause is the first that holds, in the order of `placement_causes.CAUSES`. Nodes that would take a unit are counted
as fitting (a gang wants more of them).

Near misses are nodes that would take a unit once a single job there has ended. They are computed only for a published
refusal, and bounded: of the rows of nodes that the unit could ever use, those that lack least are examined, NODES_MAX nodes
in all, and at most RUNS_MAX runs of each.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, islice

import numpy as np

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, gpus_short, never, seat
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import CORDONED, ClusterNode, Offer, pool_of
from fairlead_placer.cluster.failure_history import avoided
from fairlead_placer.cluster.placement.gangs import Shortfall
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.earliest_start import NEVER_NS
from fairlead_placer.cluster.timeline.run_ends import end_of
from fairlead_placer.cluster.timeline.upcoming_maintenance import UpcomingMaintenance, barred
from fairlead_placer.packing.rows import Key
from fairlead_schemas.wire.events import JobUnplaceable, NearMiss
from fairlead_schemas.wire.placement_causes import CAUSES
from fairlead_schemas.wire.resources import Request

#: Windows that are named.
WINDOWS_MAX = 3
NONE: Mapping[str, FreeResources] = {}


def cause_of(node: ClusterNode, ask: UnitRequest, job: str) -> str:
    """Return the cause that keeps the node from taking a unit of the job, "" if there is none."""
    if not node.open:
        return _closed(node)
    reserved = "reserved" if node.keeper not in ("", job) else ""
    return never(node.left, ask) or reserved or _lacking(node.left, ask)


def _lacking(left: FreeResources, ask: UnitRequest) -> str:
    found = seat(left, ask)
    return "" if isinstance(found, NodeAllocation) else found


def _closed(node: ClusterNode) -> str:
    if node.lost:
        return "lost"
    if not node.on_duty:
        return "cordoned" if node.duty == CORDONED else "draining"
    return "quarantined" if node.quarantined else "suspect"


def refusal(
    state: ClusterState,
    offer: Offer,
    short: Shortfall | None = None,
    now_ns: int = 0,
    then: Mapping[str, FreeResources] = NONE,
) -> JobUnplaceable:
    """Return the refusal of an offer, without near misses: the causes counted over all nodes of the request's pool, and what is
    free on those that take work of the job. Of several kinds of units, for the one that the fewest nodes take. `now_ns` 0:
    whatever windows are ahead. `then`: what some nodes that take work of the job would have; the causes are counted as if
    they had.
    """
    request, job = offer.request, offer.job
    index, asks = state.pools.of(request), unit_requests(request)
    counts, fitting = min((_count(index, ask, job, then) for ask in asks), key=lambda each: each[1])
    failed, met = avoided(state, job), UpcomingMaintenance(state).met(job, now_ns)
    barred = {name: "maintenance" for window in met for name in window.nodes} | dict.fromkeys(failed, "avoided")
    spared: set[str] = set()
    for name, cause in barred.items():
        node = state.nodes[name]
        if node.pool == pool_of(request) and not any(cause_of(node, ask, job) for ask in asks):
            fitting -= 1
            counts[cause] = counts.get(cause, 0) + 1
            spared.add(name)
    ahead = sorted(met, key=lambda window: (window.starts_ns, window.name))
    return JobUnplaceable(
        cause=offer.cause,
        job=job,
        attempt=offer.attempt,
        reasons={cause: counts[cause] for cause in CAUSES if counts.get(cause)},
        nodes=len(index.members),
        fitting=fitting,
        gpu_milli_free=_free_milli(index, asks[0], job),
        gpu_milli_total=1000 * index.gpus,
        level=short.level if short else "",
        best=short.best if short else 0,
        windows=tuple(
            [window.name for window in ahead if not (spared - failed).isdisjoint(window.nodes)][:WINDOWS_MAX]
        ),
    )


def _free_milli(index: PoolIndex, ask: UnitRequest, job: str) -> int:
    """Return the free GPU thousandths on nodes open to the job, judged by taints and reservations."""
    kept = sum(node.left.free_milli for node in index.aside.values() if node.open and node.keeper == job)
    barred = [build.number for build in index.builds.values() if ask.verdict(build).cause == "taint"]
    if not barred:
        return kept + index.rows.free_milli
    free = index.rows.states.free_milli * index.rows.counts
    builds = [index.rows.keys[row].build for row in map(int, index.rows.filled)]
    return kept + int(free[~np.isin(builds, barred)].sum())


def _count(
    index: PoolIndex, ask: UnitRequest, job: str, then: Mapping[str, FreeResources]
) -> tuple[dict[str, int], int]:
    """({cause: nodes}, nodes that fit). Nodes that are alike are looked at once."""
    counts: dict[str, int] = {}
    for row, masks in enumerate(index.inhabitants):
        for names in masks.values() if masks else ():
            now = [name for name in names if name not in then] if then else names
            if now:
                _count_names(index, row, now, ask, counts)
    causes = [cause_of(node, ask, job) for node in index.aside.values() if node.name not in then]
    for cause in causes + [_lacking(left, ask) for left in then.values()]:
        counts[cause] = counts.get(cause, 0) + 1
    return counts, counts.pop("", 0)


def _count_names(index: PoolIndex, row: int, names: list[str], ask: UnitRequest, counts: dict[str, int]) -> None:
    """Nodes of one row and one set of free GPUs: at once, where what the row says of them settles it."""
    left = index.members[names[0]].left
    cause = ask.verdict(left.build).cause
    key, request = index.rows.keys[row], ask.request
    if not cause and not ask.stands:  # nodes that are alike stand elsewhere
        cause = gpus_short(left, ask) or _amounts_short(key, request)
    if cause:
        counts[cause] = counts.get(cause, 0) + len(names)
        return
    for name in names:
        each = _lacking(index.members[name].left, ask)
        counts[each] = counts.get(each, 0) + 1


def _amounts_short(key: Key, request: Request) -> str:
    """Return the resource that no node of the row has enough of: the row's amounts are rounded up."""
    if key.cpu_milli < request.cpu_milli:
        return "free_cpu"
    return "free_memory" if key.memory_mib < request.memory_mib else ""


NODES_MAX = 8
RUNS_MAX = 16
NEAR_MAX = 3


def near_misses(state: ClusterState, request: Request, job: str, now_ns: int) -> tuple[NearMiss, ...]:
    """Return the earliest near misses, each on another node. For several kinds of units, the first kind counts."""
    index, ask = state.pools.of(request), unit_requests(request)[0]
    away = barred(state, job, now_ns)
    misses = [list(_on(state, node, ask, now_ns)) for node in _closest(index, ask) if node.name not in away]
    first = [min(each, key=lambda miss: (miss.at_ns or NEVER_NS, miss.job)) for each in misses if each]
    return tuple(sorted(first, key=lambda miss: (miss.at_ns or NEVER_NS, miss.node))[:NEAR_MAX])


def _closest(index: PoolIndex, ask: UnitRequest) -> list[ClusterNode]:
    """Busy nodes that take work, those that lack least first."""
    rows: list[tuple[int, int, int, int]] = []
    for row, masks in enumerate(index.inhabitants):
        if not masks:
            continue
        key, build = index.rows.keys[row], index.builds[index.rows.keys[row].build]
        if not ask.verdict(build).cause:
            gpus = max(0, ask.gpus - key.whole) if ask.whole else 0
            cpu, memory = ask.request.cpu_milli - key.cpu_milli, ask.request.memory_mib - key.memory_mib
            rows.append((gpus, max(0, cpu), max(0, memory), row))
    by_row = (sorted(chain.from_iterable(index.inhabitants[row].values())) for *_, row in sorted(rows))
    return [index.members[name] for name in islice(chain.from_iterable(by_row), NODES_MAX)]


def _on(state: ClusterState, node: ClusterNode, ask: UnitRequest, now_ns: int) -> Iterator[NearMiss]:
    """The runs of the node each of which is all that is in the way."""
    if isinstance(seat(node.left, ask), NodeAllocation):
        return
    for key in sorted(node.held)[:RUNS_MAX]:
        run, rank = state.runs[key], node.held[key]
        part = run.parts[rank]
        left = node.left.copy()
        left.give(part)
        if isinstance(seat(left, ask), NodeAllocation):
            end = end_of(state, run, rank, now_ns)
            yield NearMiss(
                node=node.name,
                job=run.job,
                at_ns=end.at_ns,
                basis=end.basis,
                gpu_milli=len(part.gpus) * (part.gpu_milli or 1000),
                cpu_milli=part.cpu_milli,
                memory_mib=part.memory_mib,
            )
