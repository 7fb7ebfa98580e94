"""Room that nodes would have without some runs: nodes on which a candidate runs, or that are kept for the job."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, gpus_short, never, seat
from fairlead_placer.cluster.capacity.unit_request import UnitRequest, unit_requests
from fairlead_placer.cluster.entities import ClusterNode, Offer, pool_of, run_key
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.scheduling.preemption.candidates import VictimCandidate, is_stopping, living_parts
from fairlead_schemas.wire.events import Part, Victim


class CandidatePart(NamedTuple):
    """A part of a candidate (by its place among them) in a room."""

    at: int
    part: Part


class NodeWhatIf:
    """A node without the runs that are stopping there, and the candidates that live on it."""

    __slots__ = ("left", "node", "tenants")

    def __init__(self, node: ClusterNode, left: FreeResources) -> None:
        self.node = node
        self.left = left
        self.tenants: list[CandidatePart] = []

    def without(self, gone: Collection[int]) -> FreeResources:
        """Return the room left without these candidates, given by their places. The caller must not change it."""
        if not gone:
            return self.left
        left = self.left.copy()
        for tenant in self.tenants:
            if tenant.at in gone:
                left.give(tenant.part)
        return left


def what_if_nodes(
    state: ClusterState,
    offer: Offer,
    victims: Sequence[Victim],
    candidates: Sequence[VictimCandidate],
    beside: Collection[str],
) -> list[NodeWhatIf]:
    """The rooms, by name, none of `beside`. The nodes of victims that are stopping already are among them."""
    runs = [run for victim in victims if (run := state.runs.get(run_key(victim.job, victim.attempt))) is not None]
    names = {part.node for run in runs for part in living_parts(run)}
    if offer.job in state.reservations:
        names.update(state.reservations[offer.job].nodes)
    nodes = map(state.nodes.__getitem__, sorted(names.difference(beside)))
    rooms = {node.name: _room(state, node) for node in nodes if _serves(node, offer)}
    for at, candidate in enumerate(candidates):
        for part in candidate.parts:
            if part.node in rooms:
                rooms[part.node].tenants.append(CandidatePart(at, part))
    return list(rooms.values())


def _serves(node: ClusterNode, offer: Offer) -> bool:
    """Return True if the node, empty, would take a unit of some kind, and is kept for no other job."""
    if not node.serving or node.keeper not in ("", offer.job) or node.pool != pool_of(offer.request):
        return False
    return any(not never(node.left, ask) for ask in unit_requests(offer.request))


def _room(state: ClusterState, node: ClusterNode) -> NodeWhatIf:
    room = NodeWhatIf(node, node.left.copy())
    for key, rank in node.held.items():
        run = state.runs[key]
        if is_stopping(run) and not run.ended >> rank & 1:
            room.left.give(run.parts[rank])
    return room


def free_beside(
    state: ClusterState, offer: Offer, rooms: Sequence[NodeWhatIf], beside: Collection[str]
) -> list[ClusterNode]:
    """Return the nodes outside `rooms` and `beside` that would take a unit of some kind now."""
    index = state.pools.of(offer.request)
    others = {room.node.name for room in rooms}.union(beside)
    names = {name for ask in unit_requests(offer.request) for name in _fitting(state, offer, index, ask)}
    return [index.members[name] for name in sorted(names - others)]


def _fitting(state: ClusterState, offer: Offer, index: PoolIndex, ask: UnitRequest) -> Iterator[str]:
    _, line = index.line(ask, state.work_of(offer.request))
    for row, masks in enumerate(index.inhabitants):
        if not masks or not line.takes(index.rows, row):
            continue
        for names in masks.values():
            if not gpus_short(index.members[names[0]].left, ask):
                yield from (name for name in names if isinstance(seat(index.members[name].left, ask), NodeAllocation))
