"""The placer's state with the trace's nodes, and its pods as requests: placed as a live placer places them, without a log."""

from collections import Counter

from fairlead_placer.cluster.entities import DEFAULT_POOL, ClusterNode
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.packing.policy import ARRIVAL, WHOLE_MILLI, Arrivals, EmptyNode, Population, RequestShape
from fairlead_placer.scheduling.node_selection import NodeSelection, find
from fairlead_schemas.queuefile.settings import MODEL_LABEL
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.resources import Gpu, Inventory, Request


class Cluster:
    """Nodes are named by their numbers, GPUs by theirs on the node."""

    def __init__(self, machines: list[EmptyNode], policy: str, typical: list[RequestShape]) -> None:
        """`typical`: work that the placer has seen before."""
        self._state = ClusterState()
        #: Jobs placed so far; {number of one that has not ended: its node, and what it holds}.
        self.placed = 0
        self._running: dict[int, tuple[ClusterNode, Part]] = {}
        for number, machine in enumerate(machines):
            self._state.add_node(ClusterNode(f"{number:04d}", "i", "b", _inventory(number, machine)))
        self._index = self._state.pools.of(Request())
        self._index.choose_by(policy)
        if typical:
            weights = Counter(map(request_of, typical))
            self._state.arrivals[DEFAULT_POOL] = Arrivals(
                {each: ARRIVAL * n for each, n in weights.items()}, len(typical)
            )

    @property
    def pool(self) -> Population:
        """Free resources."""
        return self._index.settled().rows

    def place(self, pod: RequestShape) -> tuple[int, tuple[int, ...]] | None:
        """Learn from the pod, choose for it, and take what was chosen: the node, and GPUs; None when no node has room."""
        request = self._state.intern(request_of(pod))
        self._state.arrive(request)
        self._index.tidy(self._state.pools.version)
        found = find(self._state, request)
        if not isinstance(found, NodeSelection):
            return None
        node, part = found.nodes[0], found.parts[0]
        self.placed += 1
        self._running[self.placed] = node, part
        self._state.take(node, str(self.placed), 0, part)
        return int(node.name), tuple(int(uuid.rpartition("-")[2]) for uuid in part.gpus)

    def end(self, job: int) -> None:
        """The job of that number, which `placed` was right after it was placed, has ended: what it held is free again."""
        node, part = self._running.pop(job)
        self._state.give(node, str(job), part)


def request_of(pod: RequestShape) -> Request:
    """Return the request as a person would submit it. A pod without GPUs goes to any node."""
    models = pod.models if pod.gpu_count else ()
    return Request(
        cpu_milli=pod.cpu_milli,
        memory_mib=pod.memory_mib,
        gpu_milli=pod.gpu_count * pod.gpu_milli,
        gpu_parts=pod.gpu_count if pod.gpu_count and pod.gpu_milli < WHOLE_MILLI else 0,
        selector=(f"{MODEL_LABEL} in ({','.join(models)})",) if models else (),
    )


def _inventory(number: int, machine: EmptyNode) -> Inventory:
    gpus = tuple(
        Gpu(uuid=f"{number}-{at}", index=at, model=machine.model, memory_mib=0, compute_capability=0)
        for at in range(machine.gpus)
    )
    return Inventory(
        gpus=gpus, cpu_milli=machine.cpu_milli, memory_mib=machine.memory_mib, labels={MODEL_LABEL: machine.model}
    )
