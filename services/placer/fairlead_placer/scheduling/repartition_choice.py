"""Choice of the GPU that is repartitioned for a waiting job, and of its layout; and the split of a job of several instances
or whole GPUs over GPUs and nodes: all or nothing. Reads state, changes nothing.

An instance in use is never touched. The same holds for a node that already cuts a GPU. Of the ways to serve one
instance, the one is taken that strands fewest slices for the work that is seen (mig/instance_choice.py). Then all jobs after
it in the order that fit next to it are served at once (mig/repartition.py). A GPU is made whole again only where whole
ones are missing and its instances are not in use.

A split makes the fewest pieces. A piece is a MIG instance, or a GPU that is made whole. The cost of a node's next unit never falls with the units that
the node already gives. Taking the cheapest next unit repeatedly is therefore exact.

A job that requires one domain gets the one where fewest pieces are missing. One GPU of a node is cut at a time; the others follow when its
agent has reported.

For tasks, of which a node may take several, up to UNITS_MAX per node are considered.
"""

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import amounts_short, count_idle, seat
from fairlead_placer.cluster.capacity.node_shape import NodeShape
from fairlead_placer.cluster.capacity.unit_request import several
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.placement.unit_matching import units_in
from fairlead_placer.cluster.repartition_demand import WaitingOffer, demand_seen
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.upcoming_maintenance import barred
from fairlead_placer.mig.instance_choice import MigGpu, choose_gpu, demand_of
from fairlead_placer.mig.layouts import Instance, Layout, remains, room_of
from fairlead_placer.mig.repartition import plan_for
from fairlead_placer.topology.gpu_topology import members_of
from fairlead_schemas.units.hardware import domain_of
from fairlead_schemas.wire.events import MigMode
from fairlead_schemas.wire.resources import MigInstance, MigPlace


class GpuRepartition(NamedTuple):
    """A node's GPU and its planned new layout."""

    node: ClusterNode
    gpu: str
    mode: MigMode
    destroy: tuple[MigInstance, ...]
    create: tuple[MigPlace, ...]
    jobs: tuple[str, ...]
    score: dict[str, int]


def gpus_of(state: ClusterState, node: ClusterNode, now_ns: int) -> list[MigGpu]:
    """Return the node's GPUs in MIG mode, and its whole free GPUs if MIG mode may be turned on there."""
    left, found = node.left, list[MigGpu]()
    legal = left.cuttable & left.cuts.legal if left.cuts is not None else 0
    whole = left.free if left.build.switches else 0
    for place in members_of(legal | whole):
        model, uuid = left.build.mig_models[place], left.uuids[place]
        if model is None or is_backing_off(state, uuid, now_ns):
            continue
        layout = left.cuts.layout(place) if left.cuts is not None and legal >> place & 1 else Layout()
        found.append(MigGpu(uuid, model, layout, enabled=bool(legal >> place & 1)))
    return found


def idle_gpus(state: ClusterState, node: ClusterNode, suits: int, now_ns: int) -> list[int]:
    """Return the places of the unused GPUs in MIG mode among `suits`, if the node may turn MIG mode off."""
    left = node.left
    if not left.build.switches or left.cuts is None:
        return []
    return [
        place
        for place in members_of(left.cuttable & left.cuts.legal & suits)
        if not left.cuts.layout(place).busy and not is_backing_off(state, left.uuids[place], now_ns)
    ]


def is_backing_off(state: ClusterState, uuid: str, now_ns: int) -> bool:
    """True while the GPU is left alone, since plans for it failed."""
    return uuid in state.spoilt and now_ns < state.spoilt[uuid].until_ns


def repartition_for(
    node: ClusterNode, gpu: MigGpu, served: Sequence[WaitingOffer], weights: dict[str, int]
) -> GpuRepartition | None:
    """Return the GPU repartitioned for one instance per want, in order; None if that serves no more wants than now."""
    plan = plan_for(gpu, [want.request.profile for want in served], demand_of(gpu.model, weights))
    if plan is None:
        return None
    new = sorted(set(plan.served_after) - set(plan.served_before))
    jobs, create = (
        tuple(served[position].job for position in new),
        tuple(MigPlace(profile=each.profile, start=each.start) for each in plan.create),
    )
    return GpuRepartition(
        node, gpu.uuid, "" if gpu.enabled else "on", _named(node, gpu.uuid, plan.destroy), create, jobs, plan.reason
    )


def made_whole(node: ClusterNode, places: Sequence[int], want: WaitingOffer, missing: int) -> GpuRepartition:
    """MIG mode turned off on one of these GPUs: the one with the fewest instances, which are soonest made again."""
    assert node.left.cuts is not None
    layouts = {place: node.left.cuts.layout(place).idle for place in places}
    place = min(places, key=lambda place: (len(layouts[place]), place))
    uuid = node.left.uuids[place]
    destroy = _named(node, uuid, layouts[place])
    return GpuRepartition(node, uuid, "off", destroy, (), (want.job,), {"destroyed": len(destroy), "missing": missing})


def _named(node: ClusterNode, gpu: str, instances: Collection[Instance]) -> tuple[MigInstance, ...]:
    """Return these instances of the GPU with their UUIDs, by start."""
    cuts, place = node.left.cuts, node.left.at[gpu]
    cells = [] if cuts is None else [(uuid, cell) for uuid, cell in cuts.cells.items() if cell.place == place]
    return tuple(
        MigInstance(uuid=uuid, profile=cell.instance.profile, start=cell.instance.start)
        for uuid, cell in cells
        if cell.instance in instances
    )


class Supply(NamedTuple):
    """Units and pieces that one node can give."""

    #: Units as it is, units at most when it is repartitioned, and the free pieces that it has for both.
    ready: int
    most: int
    has: int


class RepartitionShare(NamedTuple):
    """A node, by its place, to be repartitioned, and the number of pieces that it lacks for its units."""

    place: int
    missing: int


def share_out(supplies: Sequence[Supply], wanted: int, each: int) -> list[RepartitionShare] | None:
    """Return the nodes to repartition for `wanted` units of `each` pieces, by place.

    The list is empty if the nodes have room as they are. The result is None if they have no room even when repartitioned.
    Ties go to a node that is already repartitioned, then to the node with the most to give, so that few nodes are
    repartitioned, then to the first.
    """
    short = wanted - sum(supply.ready for supply in supplies)
    # (pieces that the next unit lacks, more units with their sign turned, place); of one that is cut, less than of any other
    heads = [
        (_lacks(one, one.ready + 1, each), one.ready - one.most, place)
        for place, one in enumerate(supplies)
        if one.most > one.ready
    ]
    heapify(heads)
    units: dict[int, int] = {}
    while short > 0 and heads:
        *_, place = heads[0]
        supply = supplies[place]
        units[place] = units.get(place, supply.ready) + 1
        short -= 1
        if units[place] < supply.most:
            heapreplace(heads, (each, -wanted, place))
        else:
            heappop(heads)
    if short > 0:
        return None
    return [RepartitionShare(place, _lacks(supplies[place], units[place], each)) for place in sorted(units)]


def _lacks(supply: Supply, units: int, each: int) -> int:
    return units * each - supply.has


#: Tasks that one node is looked at for: those of 16 GPUs cut into sevenths, and more.
UNITS_MAX = 128


class _Maker(NamedTuple):
    """A GPU, and how many more instances of the profile it may have; or (a place) one that may be made whole."""

    gpu: MigGpu | int
    more: int


class _Able(NamedTuple):
    node: ClusterNode
    makers: list[_Maker]
    supply: Supply


def choose_for_units(state: ClusterState, want: WaitingOffer, now_ns: int) -> list[GpuRepartition]:
    """Return what to cut; nothing where that would not serve the whole job, or where it has room already."""
    domains: dict[str, list[_Able]] = {}
    for node in nodes_for(state, want, now_ns):
        domain = _domain(node, want.ask.level)
        if domain:
            domains.setdefault(domain, []).append(_able(state, node, want, now_ns))
    wanted = want.request.nodes_min or want.request.nodes
    ways: list[tuple[int, int, str, list[RepartitionShare]]] = []
    for name, ables in domains.items():
        shares = share_out([able.supply for able in ables], wanted, want.ask.gpus)
        if shares is not None:
            ways.append((sum(share.missing for share in shares), len(shares), name, shares))
    if not ways:
        return []
    *_, name, shares = min(ways)
    weights = demand_seen(state, want.request)
    repartitions = [_repartition(domains[name][share.place], want, share.missing, weights) for share in shares]
    return [repartition for repartition in repartitions if repartition is not None]


def nodes_for(state: ClusterState, want: WaitingOffer, now_ns: int) -> list[ClusterNode]:
    """Open nodes that may ever take a unit of the job, kept ones if they are kept for it, by name. Of a job of one unit, those
    alone that may be cut: it has no room on the others."""
    index, beside, ask = state.pools.of(want.request), barred(state, want.job, now_ns), want.ask

    def may(build: NodeShape | None) -> bool:
        return build is not None and (want.request.nodes > 1 or build.repartitions) and not ask.verdict(build).cause

    found: list[ClusterNode] = []
    for key, masks in zip(index.rows.keys, index.inhabitants, strict=True):
        if masks and may(index.builds.get(key.build)):
            found += [index.members[name] for names in masks.values() for name in names if name not in beside]
    kept = state.reservations.get(want.job)
    for node in map(state.nodes.__getitem__, kept.nodes if kept is not None else ()):
        if node.open and node.name not in beside and may(node.left.build):
            found.append(node)
    return sorted(found, key=lambda node: node.name)


def _domain(node: ClusterNode, level: str) -> str:
    """Return the node's domain of the level, "all" without a level; "" where it is in none."""
    if not level:
        return "all"
    return node.name if level == "node" else domain_of(node.inventory.labels, level)


# ---------------------------------------------------------------------------- one node


def _able(state: ClusterState, node: ClusterNode, want: WaitingOffer, now_ns: int) -> _Able:
    """Return what the node gives now, and when it is cut; a node that is cutting a GPU already gives only what it has."""
    left, ask, request = node.left, want.ask, want.request
    limit = min(request.nodes, UNITS_MAX) if request.tasks else 1
    ready = units_in(left, ask, limit)
    has = max(_free(left, want), ready * ask.gpus)
    lacking = "free_mig" if request.profile else "free_gpus"
    cuts = left.build.repartitions and node.name not in state.layouts
    if not cuts or ready == limit or seat(left, several(ask, ready + 1)) != lacking:
        return _Able(node, [], Supply(ready, ready, has))
    makers = list(_makers(state, node, want, now_ns))
    most, room = ready, has + sum(maker.more for maker in makers)
    while most < limit and (most + 1) * ask.gpus <= room and not amounts_short(left, several(ask, most + 1)):
        most += 1
    return _Able(node, makers, Supply(ready, most, min(has, (ready + 1) * ask.gpus - 1)))


def _free(left: FreeResources, want: WaitingOffer) -> int:
    """Idle instances of the profile, or free GPUs that suit."""
    if want.request.profile:
        return dict(count_idle(left)).get(want.request.profile, 0)
    return (left.free & want.ask.verdict(left.build).suits).bit_count()


def _makers(state: ClusterState, node: ClusterNode, want: WaitingOffer, now_ns: int) -> Iterator[_Maker]:
    profile = want.request.profile
    if not profile:
        yield from (_Maker(at, 1) for at in idle_gpus(state, node, want.ask.verdict(node.left.build).suits, now_ns))
        return
    for gpu in gpus_of(state, node, now_ns):
        index = gpu.model.cut_number(profile)
        if index is not None:
            kept = tuple(instance for instance in gpu.layout.idle if instance.profile == profile)
            yield _Maker(gpu, remains(gpu.model.shape).most(room_of(gpu.model, gpu.layout.busy + kept))[index])


def _repartition(able: _Able, want: WaitingOffer, missing: int, weights: dict[str, int]) -> GpuRepartition | None:
    """On the GPU where most of what is missing can be made."""
    wholes = [maker.gpu for maker in able.makers if isinstance(maker.gpu, int)]
    if wholes:
        return made_whole(able.node, wholes, want, missing)
    best = max(able.makers, key=lambda maker: min(maker.more, missing))
    assert isinstance(best.gpu, MigGpu)
    # What is idle of the profile on that GPU is the job's, too: a plan that leaves it out would cut nothing more.
    idle = sum(instance.profile == want.request.profile for instance in best.gpu.layout.idle)
    return repartition_for(able.node, best.gpu, [want] * (idle + missing), weights)


__all__ = ["GpuRepartition", "choose"]


def choose(
    state: ClusterState, want: WaitingOffer, beside: Sequence[WaitingOffer], now_ns: int
) -> list[GpuRepartition]:
    """Return what to cut for the want; nothing where that would not serve it. `beside`: wants that may be served at once."""
    request = want.request
    if request.profile and request.nodes == 1 and request.gpu_parts == 1:
        return _for_one(state, want, beside, now_ns)
    return choose_for_units(state, want, now_ns)


def _for_one(
    state: ClusterState, want: WaitingOffer, beside: Sequence[WaitingOffer], now_ns: int
) -> list[GpuRepartition]:
    weights = demand_seen(state, want.request)
    nodes = _candidates(state, want, now_ns)
    home = {gpu.uuid: (node, gpu) for node in nodes for gpu in gpus_of(state, node, now_ns)}
    grant = choose_gpu((gpu for _, gpu in home.values()), want.request.profile, weights)
    if grant is None:
        return []
    node, gpu = home[grant.uuid]
    repartition = repartition_for(node, gpu, _served_here(state, node, beside, now_ns), weights)
    return [] if repartition is None else [repartition]


def _candidates(state: ClusterState, want: WaitingOffer, now_ns: int) -> Iterator[ClusterNode]:
    """Nodes that lack nothing but what cutting could give, by name; each cuts one GPU at a time."""
    for node in nodes_for(state, want, now_ns):
        lacks = node.name not in state.layouts and seat(node.left, want.ask) == "free_mig"
        if lacks and not amounts_short(node.left, want.ask):
            yield node


def _served_here(
    state: ClusterState, node: ClusterNode, beside: Sequence[WaitingOffer], now_ns: int
) -> list[WaitingOffer]:
    """Return the wants that could run on the node together, by its CPU and memory."""
    cpu_milli, memory_mib, found = node.left.cpu_milli, node.left.memory_mib, list[WaitingOffer]()
    for want in beside:
        request = want.request
        if request.cpu_milli <= cpu_milli and request.memory_mib <= memory_mib and _takes(state, node, want, now_ns):
            found.append(want)
            cpu_milli, memory_mib = cpu_milli - request.cpu_milli, memory_mib - request.memory_mib
    return found


def _takes(state: ClusterState, node: ClusterNode, want: WaitingOffer, now_ns: int) -> bool:
    free = node.keeper in ("", want.job) and node.name not in barred(state, want.job, now_ns)
    return free and not want.ask.verdict(node.left.build).cause
