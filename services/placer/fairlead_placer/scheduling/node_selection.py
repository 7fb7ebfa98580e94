"""Choice of nodes for all units of an attempt, and the parts and the score that record it. The module reads the state and
changes nothing.
"""

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, part_of, seat
from fairlead_placer.cluster.capacity.topology_domains import LEVELS
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.placement.gangs import Shortfall, choose
from fairlead_placer.cluster.placement.node_choice import NOBODY, NodeChoice, best
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.resources import Request


class NodeSelection(msgspec.Struct, frozen=True):
    """Nodes in the order of the ranks, what each gives, and the score."""

    nodes: list[ClusterNode]
    parts: tuple[Part, ...]
    score: dict[str, int]


def find(state: ClusterState, request: Request, avoided: Collection[str] = NOBODY) -> NodeSelection | Shortfall:
    """A place for the request in its pool now, on none of the avoided nodes; or what is short. Suspect nodes are used only
    where the other nodes have no place for all of it."""
    index = state.pools.of(request)
    if state.suspects:
        suspects = _open_suspects(state, index)
        chosen = _choose(state, index, request, suspects.union(avoided)) if suspects else None
        if isinstance(chosen, list):
            return found_on(index, chosen)
    chosen = _choose(state, index, request, avoided)
    return chosen if isinstance(chosen, Shortfall) else found_on(index, chosen)


def _open_suspects(state: ClusterState, index: PoolIndex) -> frozenset[str]:
    """Suspect nodes of the pool that take work now."""
    return frozenset(name for name in state.suspects if name in index.members and state.nodes[name].open)


def _choose(
    state: ClusterState, index: PoolIndex, request: Request, avoided: Collection[str]
) -> list[NodeChoice] | Shortfall:
    work = state.work_of(request)
    if request.nodes == 1 and not request.also:
        one = best(index, unit_requests(request)[0], work, avoided)
        return Shortfall(0, "", 0) if one is None else [one]
    return choose(index, request, work, avoided)


def find_kept(
    state: ClusterState, request: Request, kept: Sequence[ClusterNode], avoided: Collection[str] = NOBODY
) -> NodeSelection | None:
    """Find a place for a job that these nodes are kept for: on them if they take work and have room now, else on others.
    Return None also if the kept nodes have no room at all: then the job is placed in the turn of its class.
    """
    asks = unit_requests(request)
    ask = asks[0]
    if request.also or request.tasks or request.nodes_min or ask.level:
        # How its units divide over nodes is the general choice's to know, which may then take others for some.
        if not any(node.open and isinstance(seat(node.left, each), NodeAllocation) for node in kept for each in asks):
            return None
        with state.lent(kept):
            found = find(state, request, avoided)
        return found if isinstance(found, NodeSelection) else None
    able = [node for node in kept if node.open and node.name not in avoided]
    own = [
        NodeChoice(node, ask, place, (0, 0))
        for node in able
        if isinstance(place := seat(node.left, ask), NodeAllocation)
    ]
    own.sort(key=lambda each: (each.node.suspect, each.node.gpus_free, each.node.left.cpu_milli, each.node.name))
    own = own[: request.nodes]
    if not own:
        return None
    index = state.pools.of(request)
    if len(own) < request.nodes:
        others = _choose(state, index, msgspec.structs.replace(request, nodes=request.nodes - len(own)), avoided)
        if isinstance(others, Shortfall):
            return None
        own += others
    return found_on(index, sorted(own, key=lambda choice: choice.node.name))


def found_on(index: PoolIndex, chosen: Sequence[NodeChoice]) -> NodeSelection:
    """The choices, recorded."""
    if len(chosen) == 1:  # most jobs
        return _found_alone(chosen[0])
    nodes: list[ClusterNode] = []
    parts: list[Part] = []
    # The parts of the score, of all nodes together: higher costs are worse, more links are better.
    unusable = scarce = cpu_left = gpus_left = links = numa_nodes = 0
    for choice in chosen:
        node, place = choice.node, choice.seat
        left = node.left
        part = part_of(node.name, left, choice.ask, place, choice.tasks)
        nodes.append(node)
        parts.append(part)
        each_unusable, each_scarce = choice.cost
        unusable += each_unusable
        scarce += each_scarce
        cpu_left += left.cpu_milli - part.cpu_milli
        gpus_left += left.free.bit_count() - (0 if place.milli else len(place.gpus))
        if place.link_score:
            links += place.link_score
            numa_nodes += place.numa_nodes
    score = {
        "unusable_milli": unusable,
        "scarce_milli": scarce,
        "cpu_left_milli": cpu_left,
        "gpus_left": gpus_left,
    }
    if links:
        score["links"], score["numa_nodes"] = links, numa_nodes
    score.update(spanned(index, nodes))
    return NodeSelection(nodes, tuple(parts), score)


def _found_alone(choice: NodeChoice) -> NodeSelection:
    """The only choice, recorded as `found_on` does."""
    node, place, cost = choice.node, choice.seat, choice.cost
    left = node.left
    part = part_of(node.name, left, choice.ask, place, choice.tasks)
    score = {
        "unusable_milli": cost[0],
        "scarce_milli": cost[1],
        "cpu_left_milli": left.cpu_milli - part.cpu_milli,
        "gpus_left": left.free.bit_count() - (0 if place.milli else len(place.gpus)),
    }
    if place.link_score:
        score["links"], score["numa_nodes"] = place.link_score, place.numa_nodes
    return NodeSelection([node], (part,), score)


def spanned(index: PoolIndex, nodes: Sequence[ClusterNode]) -> dict[str, int]:
    """{level: how many of its domains the nodes lie in}, of the levels that all of them name."""
    found: dict[str, int] = {}
    slots = np.array([node.slot for node in nodes], np.int64)
    for level in LEVELS:
        if index.domains.known(level):
            domains = set(index.domains.of[level].take(slots).tolist())
            if -1 not in domains:
                found[f"{level}s"] = len(domains)
    return found
