"""Nodes of any make, what is held on them, and a naive way to say what fits: `seat` over all nodes, and every choice."""

from itertools import count
from typing import Any

import msgspec
from hypothesis import strategies as st

from bench.vectors.allocation import descriptions
from fairlead_placer.cluster.capacity.free_resources import FreeResources
from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, part_of, seat
from fairlead_placer.cluster.capacity.node_shape import NodeShape, NodeShapes
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.entities import ClusterNode, PlacedRun, pool_of
from fairlead_placer.cluster.placement.gangs import Shortfall
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.scheduling.node_selection import NodeSelection, find
from fairlead_schemas.wire.resources import UNKNOWN_TOPOLOGY, Inventory, NodeTopology, Request
from tests.kit.placer_world import inventory

BUILDS = NodeShapes()


def machine(name: str = "n1", gpus: int = 8, *, inside: NodeTopology = UNKNOWN_TOPOLOGY, **more: Any) -> Inventory:
    """A node; with an inside, of as many GPUs as that has."""
    taints: tuple[str, ...] = more.pop("taints", ())
    found = inventory(name, inside.gpus or gpus, **more)
    return msgspec.structs.replace(found, inside=inside, taints=taints)


def build(found: Inventory, taints: tuple[str, ...] = ()) -> NodeShape:
    """Of an inventory."""
    return BUILDS.of(found, taints or found.taints)


def empty(found: Inventory) -> FreeResources:
    """The node with nothing on it."""
    left = FreeResources(build(found), tuple(gpu.uuid for gpu in found.gpus))
    left.where = found.labels
    return left


class Ground:
    """A state with nodes, and runs placed on them without a log."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self._jobs = count(1)

    def join(self, found: Inventory, **fields: object) -> ClusterNode:
        """A node of its hostname, with these fields set."""
        node = ClusterNode(found.hostname, "i", "b", found)
        self.state.add_node(node)
        if fields:
            self.state.change(node, **fields)
        return node

    def put(self, found: NodeSelection) -> str:
        """A run in that place; its key."""
        job = str(next(self._jobs))
        run = PlacedRun(job, 1, f"{job}.1", 1, found.parts, tuple(part.node for part in found.parts))
        self.state.runs[run.key] = run
        for rank, part in enumerate(found.parts):
            self.state.take(self.state.nodes[part.node], run.key, rank, part)
        return run.key

    def place(self, request: Request) -> NodeSelection | None:
        """The same where it fits."""
        found = find(self.state, request)
        if isinstance(found, Shortfall):
            return None
        self.put(found)
        return found

    def end(self, key: str) -> None:
        """All parts of the run are free again."""
        run = self.state.runs[key]
        for part in run.parts:
            self.state.give(self.state.nodes[part.node], key, part)
        del self.state.runs[key]

    def fitting(self, request: Request) -> set[str]:
        """Nodes that would take one unit of the request's first kind: every node is asked."""
        ask = unit_requests(request)[0]
        return {
            name
            for name, node in self.state.nodes.items()
            if node.open
            and not node.keeper
            and node.pool == pool_of(request)
            and isinstance(seat(node.left, ask), NodeAllocation)
        }


def units_on(left: FreeResources, request: Request, kind: int = 0) -> int:
    """How many units of a kind the node takes one after the other, each on GPUs of its own."""
    ask, rest, taken = unit_requests(request)[kind], left.copy(), 0
    while taken < request.kinds[kind].nodes:
        found = seat(rest, ask)
        if not isinstance(found, NodeAllocation):
            return taken
        part = part_of("", rest, ask, found)
        rest.take(part)
        rest.parts -= 1  # of the same job
        for at in found.gpus:  # no two units of a part share a GPU
            rest.free &= ~(1 << at)
            rest.milli[at] = 0
        taken += 1
    return taken


PROFILES = sorted(name for name, found in descriptions().items() if found.gpus <= 8)
insides = st.sampled_from(
    [
        UNKNOWN_TOPOLOGY,
        UNKNOWN_TOPOLOGY,
        *(descriptions()[name] for name in ("dgx-h100", "dgx1-v100", "rtx4090x8-pcie")),
    ]
)


@st.composite
def requests(draw: st.DrawFn, *, units: int = 1) -> Request:
    """Any request that a small node may have room for."""
    share = draw(st.sampled_from([False, False, True]))
    gpus = draw(st.sampled_from([0, 1, 1, 2, 3, 4, 8]))
    require = draw(st.sampled_from([(), (), (), ("numa",), ("nvlink",), ("switch",)]))
    fields: dict[str, Any] = {"gpu_milli": gpus * 1000, "require": () if share else require}
    if share:
        fields |= {"gpu_milli": draw(st.sampled_from([125, 250, 500, 700])), "gpu_parts": 1}
        fields["gpu_memory_mib"] = draw(st.sampled_from([0, 0, 4000, 20000, 30000]))
    return Request(
        nodes=units,
        cpu_milli=draw(st.sampled_from([0, 500, 1000, 4000, 30000])),
        memory_mib=draw(st.sampled_from([0, 1024])),
        exclusive=draw(st.sampled_from([False, False, False, True])),
        **fields,
    )


@st.composite
def grounds(draw: st.DrawFn) -> Ground:
    """Up to five nodes of up to three makes, some with faults or of no use now, and what was placed and ended there."""
    ground = Ground()
    for at in range(draw(st.integers(1, 5))):
        name = f"n{at}"
        inside, gpus = draw(insides), draw(st.sampled_from([0, 2, 4, 8]))
        labels = draw(st.sampled_from([{}, {}, {"fairlead/rack": f"r{at % 2}"}, {"zone": "b"}]))
        count = inside.gpus or gpus
        faults = draw(st.sets(st.integers(0, max(0, count - 1)), max_size=1)) if count else set()
        fields = draw(st.sampled_from([{}, {}, {}, {"quarantined": True}, {"keeper": "77"}]))
        found = machine(
            name, gpus, inside=inside, labels=labels, taints=draw(st.sampled_from([(), (), ("a:NoSchedule",)]))
        )
        ground.join(found, faulted={f"{name}-g{each}": "x" for each in faults}, **fields)
    keys: list[str] = []
    for request in draw(st.lists(requests(), max_size=12)):
        place = find(ground.state, request)
        if isinstance(place, NodeSelection):
            keys.append(ground.put(place))
        if keys and draw(st.booleans()):
            ground.end(keys.pop(draw(st.integers(0, len(keys) - 1))))
    return ground
