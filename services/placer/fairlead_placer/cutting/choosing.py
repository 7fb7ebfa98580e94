"""Which GPU is cut anew for a job that waits, and how. Reads state, changes nothing.

An instance in use is never touched, nor is a node that already cuts a GPU. Of the ways to serve one instance the one is taken
that strands fewest slices for the work that is seen (mig/choice.py); then everybody after it in the order who fits beside
it is served at once (mig/plans.py). A GPU is made whole again where only whole ones are missing and nobody uses its instances.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fairlead_placer.capacity.instances import count_idle
from fairlead_placer.capacity.seats import Seat, amounts_short, seat
from fairlead_placer.cutting.waiting import Want, demand_seen
from fairlead_placer.entities import Node
from fairlead_placer.mig.choice import MigGpu, choose_gpu
from fairlead_placer.mig.demand import demand_of
from fairlead_placer.mig.layouts import Instance, Layout, room_of
from fairlead_placer.mig.plans import plan_for
from fairlead_placer.mig.remains import remains
from fairlead_placer.nodes.ahead import barred
from fairlead_placer.state import State
from fairlead_placer.topology.masks import members_of
from fairlead_schemas.events import MigMode
from fairlead_schemas.resources import MigInstance, MigPlace


class Recut(NamedTuple):
    """One GPU of a node, and what becomes of it."""

    node: Node
    gpu: str
    mode: MigMode
    destroy: tuple[MigInstance, ...]
    create: tuple[MigPlace, ...]
    jobs: tuple[str, ...]
    score: dict[str, int]


def choose(state: State, want: Want, beside: Sequence[Want], now_ns: int) -> list[Recut]:
    """What to cut anew for the want; nothing where that would not serve it. `beside`: who may be served at once."""
    request = want.request
    nodes = list(_candidates(state, want, now_ns))
    if not request.profile:
        return _made_whole(state, want, nodes, now_ns)
    if request.nodes == 1 and request.gpu_parts == 1:
        return _for_one(state, want, beside, nodes, now_ns)
    return _for_several(state, want, nodes, now_ns)


def _candidates(state: State, want: Want, now_ns: int) -> Iterator[Node]:
    """Nodes that lack nothing but what cutting could give, by name; each cuts one GPU at a time."""
    lacking = "free_mig" if want.request.profile else "free_gpus"
    for node in sorted(_serving(state, want, now_ns), key=lambda node: node.name):
        lacks = node.name not in state.layouts and seat(node.left, want.ask) == lacking
        if lacks and not amounts_short(node.left, want.ask):
            yield node


def _serving(state: State, want: Want, now_ns: int) -> Iterator[Node]:
    """Nodes that may ever take a unit of the job, and whose GPUs may be cut anew."""
    index, beside = state.pools.of(want.request), barred(state, want.job, now_ns)
    for key, masks in zip(index.rows.keys, index.inhabitants, strict=True):
        build = index.builds.get(key.build)
        if not masks or build is None or not build.recuts or want.ask.verdict(build).cause:
            continue
        for names in masks.values():
            yield from (index.members[name] for name in names if name not in beside)
    if want.job in state.reservations:
        for name in state.reservations[want.job].nodes:
            node = state.nodes[name]
            if node.open and node.left.build.recuts and not want.ask.verdict(node.left.build).cause:
                yield node


def _gpus(state: State, node: Node, now_ns: int) -> list[MigGpu]:
    """The GPUs of a node that may be cut anew now: those in MIG mode, and whole free ones where MIG mode may be turned on."""
    left, found = node.left, list[MigGpu]()
    legal = left.cuttable & left.cuts.legal if left.cuts is not None else 0
    whole = left.free if left.build.switches else 0
    for place in members_of(legal | whole):
        model, uuid = left.build.mig_models[place], left.uuids[place]
        if model is None or _is_spoilt(state, uuid, now_ns):
            continue
        layout = left.cuts.layout(place) if left.cuts is not None and legal >> place & 1 else Layout()
        found.append(MigGpu(uuid, model, layout, enabled=bool(legal >> place & 1)))
    return found


def _is_spoilt(state: State, uuid: str, now_ns: int) -> bool:
    return uuid in state.spoilt and now_ns < state.spoilt[uuid].until_ns


# ---------------------------------------------------------------------------- one instance


def _for_one(state: State, want: Want, beside: Sequence[Want], nodes: Sequence[Node], now_ns: int) -> list[Recut]:
    weights = demand_seen(state, want.request)
    home = {gpu.uuid: (node, gpu) for node in nodes for gpu in _gpus(state, node, now_ns)}
    grant = choose_gpu((gpu for _, gpu in home.values()), want.request.profile, weights)
    if grant is None:
        return []
    node, gpu = home[grant.uuid]
    return _plan(node, gpu, _served_here(state, node, beside, now_ns), weights)


def _served_here(state: State, node: Node, beside: Sequence[Want], now_ns: int) -> list[Want]:
    """Those who could run on the node together, by its CPU and memory."""
    cpu_milli, memory_mib, found = node.left.cpu_milli, node.left.memory_mib, list[Want]()
    for want in beside:
        request = want.request
        if request.cpu_milli <= cpu_milli and request.memory_mib <= memory_mib and _takes(state, node, want, now_ns):
            found.append(want)
            cpu_milli, memory_mib = cpu_milli - request.cpu_milli, memory_mib - request.memory_mib
    return found


def _takes(state: State, node: Node, want: Want, now_ns: int) -> bool:
    free = node.keeper in ("", want.job) and node.name not in barred(state, want.job, now_ns)
    return free and not want.ask.verdict(node.left.build).cause


def _plan(node: Node, gpu: MigGpu, served: Sequence[Want], weights: dict[str, int]) -> list[Recut]:
    plan = plan_for(gpu, [want.request.profile for want in served], demand_of(gpu.model, weights))
    if plan is None:
        return []
    new = sorted(set(plan.served_after) - set(plan.served_before))
    jobs = tuple(served[position].job for position in new)
    return [Recut(node, gpu.uuid, "" if gpu.enabled else "on", _named(node, gpu.uuid, plan.destroy), _places(plan.create), jobs, plan.reason)]  # fmt: skip


def _places(instances: Sequence[Instance]) -> tuple[MigPlace, ...]:
    return tuple(MigPlace(profile=each.profile, start=each.start) for each in instances)


def _named(node: Node, gpu: str, instances: Collection[Instance]) -> tuple[MigInstance, ...]:
    """These instances of the GPU by their UUIDs, by start."""
    cuts, place = node.left.cuts, node.left.at[gpu]
    cells = [] if cuts is None else [(uuid, cell) for uuid, cell in cuts.cells.items() if cell.place == place]
    return tuple(
        MigInstance(uuid=uuid, profile=cell.instance.profile, start=cell.instance.start)
        for uuid, cell in cells if cell.instance in instances
    )  # fmt: skip


# ---------------------------------------------------------------------------- several instances


def _for_several(state: State, want: Want, nodes: Sequence[Node], now_ns: int) -> list[Recut]:
    """Several on one node, or on several nodes: all or nothing, where fewest are missing. One GPU of a node at a time; the
    others follow when its agent has reported."""
    request = want.request
    able = [lack for node in nodes if (lack := _lack(state, node, want, now_ns)) is not None]
    ready = sum(isinstance(seat(node.left, want.ask), Seat) for node in _ready(state, want, now_ns))
    wanted = (request.nodes_min or request.nodes) - ready
    chosen = sorted(able, key=lambda lack: (lack.missing, lack.node.name))[: max(0, wanted)]
    if wanted > len(chosen):
        return []
    weights = demand_seen(state, request)
    found: list[Recut] = []
    for lack in chosen:
        # What is idle of the profile on that GPU is the job's, too: a plan that leaves it out would cut nothing more.
        idle = sum(instance.profile == request.profile for instance in lack.gpu.layout.idle)
        found += _plan(lack.node, lack.gpu, [want] * (idle + lack.missing), weights)
    return found


def _ready(state: State, want: Want, now_ns: int) -> Iterator[Node]:
    """Nodes that have the instances of a unit as they are."""
    index, beside = state.pools.of(want.request), barred(state, want.job, now_ns)
    for masks in index.inhabitants:
        for names in masks.values():
            if not want.ask.verdict(index.members[names[0]].left.build).cause:
                yield from (index.members[name] for name in names if name not in beside)


class _Lack(NamedTuple):
    node: Node
    #: Where most of what is missing can be made.
    gpu: MigGpu
    missing: int


def _lack(state: State, node: Node, want: Want, now_ns: int) -> _Lack | None:
    """What a node lacks to serve a unit; None where it never could as it is now."""
    profile, best, most, room = want.request.profile, None, 0, 0
    missing = want.ask.gpus - dict(count_idle(node.left)).get(profile, 0)
    for gpu in _gpus(state, node, now_ns):
        index = gpu.model.cut_number(profile)
        if index is None:
            continue
        kept = tuple(instance for instance in gpu.layout.idle if instance.profile == profile)
        more = remains(gpu.model.shape).most(room_of(gpu.model, gpu.layout.busy + kept))[index]
        room += more
        if min(more, missing) > most:
            best, most = gpu, min(more, missing)
    return _Lack(node, best, missing) if best is not None and room >= missing else None


# ---------------------------------------------------------------------------- a whole GPU


class _Idle(NamedTuple):
    """How many whole GPUs a node lacks for a unit, and which in MIG mode nobody uses."""

    missing: int
    node: Node
    places: list[int]


def _made_whole(state: State, want: Want, nodes: Sequence[Node], now_ns: int) -> list[Recut]:
    """MIG mode is turned off on GPUs that nobody uses: on the nodes where fewest must be, one GPU of a node at a time."""
    request = want.request
    able = [idle for node in nodes if (idle := _idle(state, node, want, now_ns)) is not None]
    wanted = request.nodes_min or request.nodes
    if wanted > 1:
        wanted -= sum(isinstance(seat(node.left, want.ask), Seat) for node in _ready(state, want, now_ns))
    chosen = sorted(able, key=lambda idle: (idle.missing, idle.node.name))[: max(0, wanted)]
    return [_whole(idle, want) for idle in chosen] if wanted <= len(chosen) else []


def _idle(state: State, node: Node, want: Want, now_ns: int) -> _Idle | None:
    """None where making GPUs whole would not do."""
    left = node.left
    if not left.build.switches or left.cuts is None:
        return None
    suits = want.ask.verdict(left.build).suits
    places = [
        place for place in members_of(left.cuttable & left.cuts.legal & suits)
        if not left.cuts.layout(place).busy and not _is_spoilt(state, left.uuids[place], now_ns)
    ]  # fmt: skip
    missing = want.ask.gpus - (left.free & suits).bit_count()
    return _Idle(missing, node, places) if 0 < missing <= len(places) else None


def _whole(idle: _Idle, want: Want) -> Recut:
    """The GPU with the fewest instances: those are soonest made again."""
    node = idle.node
    assert node.left.cuts is not None
    layouts = {place: node.left.cuts.layout(place).idle for place in idle.places}
    place = min(idle.places, key=lambda place: (len(layouts[place]), place))
    uuid = node.left.uuids[place]
    destroy = _named(node, uuid, layouts[place])
    return Recut(node, uuid, "off", destroy, (), (want.job,), {"destroyed": len(destroy), "missing": idle.missing})
