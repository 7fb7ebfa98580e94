"""Total capacity of the nodes, as the queue knows it. Only the placer knows the free part of it."""

from typing import NamedTuple

from fairlead_schemas.queuefile.settings import DEFAULT_POOL


class NodeCapacity(NamedTuple):
    """Total capacity of one node, and its pool."""

    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    pool: str = DEFAULT_POOL
    model: str = ""


class Nodes:
    """Every node that has joined and was not removed, and how many of a shape there are in each pool."""

    def __init__(self) -> None:
        self.shapes: dict[str, NodeCapacity] = {}
        #: Nodes that get no new work, and whose runs are to end.
        self.draining: set[str] = set()
        #: {pool: {shape: how many nodes have it}} (derived).
        self._counts: dict[str, dict[NodeCapacity, int]] = {}

    def set(self, node: str, shape: NodeCapacity) -> None:
        """A node is there with this much."""
        self.remove(node)
        self.shapes[node] = shape
        counts = self._counts.setdefault(shape.pool, {})
        counts[shape] = counts.get(shape, 0) + 1

    def remove(self, node: str) -> None:
        """A node is there no more, if it was."""
        old = self.shapes.pop(node, None)
        if old is not None:
            counts = self._counts[old.pool]
            counts[old] -= 1
            if not counts[old]:
                del counts[old]

    def pool_of(self, node: str) -> str:
        """Return the pool of a node; an unknown node belongs to the default pool."""
        shape = self.shapes.get(node)
        return shape.pool if shape is not None else DEFAULT_POOL

    def model_of(self, node: str) -> str:
        """Return the model of the node's GPUs; "" where it is not known."""
        shape = self.shapes.get(node)
        return shape.model if shape is not None else ""

    def count(self, pool: str) -> dict[NodeCapacity, int]:
        """{shape: how many nodes of the pool have it}."""
        return self._counts.get(pool, {})
