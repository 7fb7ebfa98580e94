"""GPUs of a node that may be repartitioned, and the result for each. The module reads the state and changes nothing."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fairlead_placer.cutting.waiting import Want
from fairlead_placer.entities import Node
from fairlead_placer.mig.choice import MigGpu
from fairlead_placer.mig.demand import demand_of
from fairlead_placer.mig.layouts import Instance, Layout
from fairlead_placer.mig.plans import plan_for
from fairlead_placer.state import State
from fairlead_placer.topology.masks import members_of
from fairlead_schemas.wire.events import MigMode
from fairlead_schemas.wire.resources import MigInstance, MigPlace


class Recut(NamedTuple):
    """A node's GPU and its planned new layout."""

    node: Node
    gpu: str
    mode: MigMode
    destroy: tuple[MigInstance, ...]
    create: tuple[MigPlace, ...]
    jobs: tuple[str, ...]
    score: dict[str, int]


def gpus_of(state: State, node: Node, now_ns: int) -> list[MigGpu]:
    """Return the node's GPUs in MIG mode, and its whole free GPUs if MIG mode may be turned on there."""
    left, found = node.left, list[MigGpu]()
    legal = left.cuttable & left.cuts.legal if left.cuts is not None else 0
    whole = left.free if left.build.switches else 0
    for place in members_of(legal | whole):
        model, uuid = left.build.mig_models[place], left.uuids[place]
        if model is None or is_spoilt(state, uuid, now_ns):
            continue
        layout = left.cuts.layout(place) if left.cuts is not None and legal >> place & 1 else Layout()
        found.append(MigGpu(uuid, model, layout, enabled=bool(legal >> place & 1)))
    return found


def idle_gpus(state: State, node: Node, suits: int, now_ns: int) -> list[int]:
    """Return the places of the unused GPUs in MIG mode among `suits`, if the node may turn MIG mode off."""
    left = node.left
    if not left.build.switches or left.cuts is None:
        return []
    return [
        place for place in members_of(left.cuttable & left.cuts.legal & suits)
        if not left.cuts.layout(place).busy and not is_spoilt(state, left.uuids[place], now_ns)
    ]  # fmt: skip


def is_spoilt(state: State, uuid: str, now_ns: int) -> bool:
    """True while the GPU is left alone, since plans for it failed."""
    return uuid in state.spoilt and now_ns < state.spoilt[uuid].until_ns


def cut(node: Node, gpu: MigGpu, served: Sequence[Want], weights: dict[str, int]) -> Recut | None:
    """Return the GPU repartitioned for one instance per want, in order; None if that serves no more wants than now."""
    plan = plan_for(gpu, [want.request.profile for want in served], demand_of(gpu.model, weights))
    if plan is None:
        return None
    new = sorted(set(plan.served_after) - set(plan.served_before))
    jobs, create = tuple(served[position].job for position in new), tuple(
        MigPlace(profile=each.profile, start=each.start) for each in plan.create
    )  # fmt: skip
    return Recut(
        node, gpu.uuid, "" if gpu.enabled else "on", _named(node, gpu.uuid, plan.destroy), create, jobs, plan.reason
    )


def made_whole(node: Node, places: Sequence[int], want: Want, missing: int) -> Recut:
    """MIG mode turned off on one of these GPUs: the one with the fewest instances, which are soonest made again."""
    assert node.left.cuts is not None
    layouts = {place: node.left.cuts.layout(place).idle for place in places}
    place = min(places, key=lambda place: (len(layouts[place]), place))
    uuid = node.left.uuids[place]
    destroy = _named(node, uuid, layouts[place])
    return Recut(node, uuid, "off", destroy, (), (want.job,), {"destroyed": len(destroy), "missing": missing})


def _named(node: Node, gpu: str, instances: Collection[Instance]) -> tuple[MigInstance, ...]:
    """Return these instances of the GPU with their UUIDs, by start."""
    cuts, place = node.left.cuts, node.left.at[gpu]
    cells = [] if cuts is None else [(uuid, cell) for uuid, cell in cuts.cells.items() if cell.place == place]
    return tuple(
        MigInstance(uuid=uuid, profile=cell.instance.profile, start=cell.instance.start)
        for uuid, cell in cells if cell.instance in instances
    )  # fmt: skip
