"""Repartition for a job of several instances or whole GPUs, on one node or on several: all or nothing, in one domain
where it requires one, where fewest are missing. One GPU of a node is cut at a time; the others follow when its
agent has reported.

For tasks, of which a node may take several, up to UNITS_MAX per node are considered.
"""

from collections.abc import Iterator
from typing import NamedTuple

from fairlead_placer.capacity.asks import several
from fairlead_placer.capacity.builds import Build
from fairlead_placer.capacity.instances import count_idle
from fairlead_placer.capacity.left import Left
from fairlead_placer.capacity.seating import units_in
from fairlead_placer.capacity.seats import amounts_short, seat
from fairlead_placer.cutting.gpus import Recut, cut, gpus_of, idle_gpus, made_whole
from fairlead_placer.cutting.sharing_out import Share, Supply, share_out
from fairlead_placer.cutting.waiting import Want, demand_seen
from fairlead_placer.entities import Node
from fairlead_placer.mig.choice import MigGpu
from fairlead_placer.mig.layouts import room_of
from fairlead_placer.mig.remains import remains
from fairlead_placer.nodes.ahead import barred
from fairlead_placer.state import State
from fairlead_schemas.units.hardware import domain_of

#: Tasks that one node is looked at for: those of 16 GPUs cut into sevenths, and more.
UNITS_MAX = 128


class _Maker(NamedTuple):
    """A GPU, and how many more instances of the profile it may have; or (a place) one that may be made whole."""

    gpu: MigGpu | int
    more: int


class _Able(NamedTuple):
    node: Node
    makers: list[_Maker]
    supply: Supply


def choose(state: State, want: Want, now_ns: int) -> list[Recut]:
    """Return what to cut; nothing where that would not serve the whole job, or where it has room already."""
    domains: dict[str, list[_Able]] = {}
    for node in nodes_for(state, want, now_ns):
        domain = _domain(node, want.ask.level)
        if domain:
            domains.setdefault(domain, []).append(_able(state, node, want, now_ns))
    wanted = want.request.nodes_min or want.request.nodes
    ways: list[tuple[int, int, str, list[Share]]] = []
    for name, ables in domains.items():
        shares = share_out([able.supply for able in ables], wanted, want.ask.gpus)
        if shares is not None:
            ways.append((sum(share.missing for share in shares), len(shares), name, shares))
    if not ways:
        return []
    *_, name, shares = min(ways)
    weights = demand_seen(state, want.request)
    recuts = [_recut(domains[name][share.place], want, share.missing, weights) for share in shares]
    return [recut for recut in recuts if recut is not None]


def nodes_for(state: State, want: Want, now_ns: int) -> list[Node]:
    """Open nodes that may ever take a unit of the job, kept ones if they are kept for it, by name. Of a job of one unit, those
    alone that may be cut: it has no room on the others."""
    index, beside, ask = state.pools.of(want.request), barred(state, want.job, now_ns), want.ask

    def may(build: Build | None) -> bool:
        return build is not None and (want.request.nodes > 1 or build.recuts) and not ask.verdict(build).cause

    found: list[Node] = []
    for key, masks in zip(index.rows.keys, index.inhabitants, strict=True):
        if masks and may(index.builds.get(key.build)):
            found += [index.members[name] for names in masks.values() for name in names if name not in beside]
    kept = state.reservations.get(want.job)
    for node in map(state.nodes.__getitem__, kept.nodes if kept is not None else ()):
        if node.open and node.name not in beside and may(node.left.build):
            found.append(node)
    return sorted(found, key=lambda node: node.name)


def _domain(node: Node, level: str) -> str:
    """Return the node's domain of the level, "all" without a level; "" where it is in none."""
    if not level:
        return "all"
    return node.name if level == "node" else domain_of(node.inventory.labels, level)


# ---------------------------------------------------------------------------- one node


def _able(state: State, node: Node, want: Want, now_ns: int) -> _Able:
    """Return what the node gives now, and when it is cut; a node that is cutting a GPU already gives only what it has."""
    left, ask, request = node.left, want.ask, want.request
    limit = min(request.nodes, UNITS_MAX) if request.tasks else 1
    ready = units_in(left, ask, limit)
    has = max(_free(left, want), ready * ask.gpus)
    lacking = "free_mig" if request.profile else "free_gpus"
    cuts = left.build.recuts and node.name not in state.layouts
    if not cuts or ready == limit or seat(left, several(ask, ready + 1)) != lacking:
        return _Able(node, [], Supply(ready, ready, has))
    makers = list(_makers(state, node, want, now_ns))
    most, room = ready, has + sum(maker.more for maker in makers)
    while most < limit and (most + 1) * ask.gpus <= room and not amounts_short(left, several(ask, most + 1)):
        most += 1
    return _Able(node, makers, Supply(ready, most, min(has, (ready + 1) * ask.gpus - 1)))


def _free(left: Left, want: Want) -> int:
    """Idle instances of the profile, or free GPUs that suit."""
    if want.request.profile:
        return dict(count_idle(left)).get(want.request.profile, 0)
    return (left.free & want.ask.verdict(left.build).suits).bit_count()


def _makers(state: State, node: Node, want: Want, now_ns: int) -> Iterator[_Maker]:
    profile = want.request.profile
    if not profile:
        yield from (_Maker(at, 1) for at in idle_gpus(state, node, want.ask.verdict(node.left.build).suits, now_ns))
        return
    for gpu in gpus_of(state, node, now_ns):
        index = gpu.model.cut_number(profile)
        if index is not None:
            kept = tuple(instance for instance in gpu.layout.idle if instance.profile == profile)
            yield _Maker(gpu, remains(gpu.model.shape).most(room_of(gpu.model, gpu.layout.busy + kept))[index])


def _recut(able: _Able, want: Want, missing: int, weights: dict[str, int]) -> Recut | None:
    """On the GPU where most of what is missing can be made."""
    wholes = [maker.gpu for maker in able.makers if isinstance(maker.gpu, int)]
    if wholes:
        return made_whole(able.node, wholes, want, missing)
    best = max(able.makers, key=lambda maker: min(maker.more, missing))
    assert isinstance(best.gpu, MigGpu)
    # What is idle of the profile on that GPU is the job's, too: a plan that leaves it out would cut nothing more.
    idle = sum(instance.profile == want.request.profile for instance in best.gpu.layout.idle)
    return cut(able.node, best.gpu, [want] * (idle + missing), weights)
