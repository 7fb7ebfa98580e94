"""Which node of a pool has how much left, kept sorted: so that a placement finds its node without looking at others.

Derived from the nodes alone; never in a snapshot. Bucket 0 holds nodes without GPUs, bucket k + 1 nodes with
k GPUs free; inside a bucket nodes stand by CPU left, then by name, so that history leaves no trace in the order.
"""

from bisect import bisect_left, insort

from fairlead_placer.entities import READY, Node
from fairlead_schemas.resources import Gpu, Request

type Entry = tuple[int, str, Node]
type Constraint = tuple[int, tuple[str, ...], int, int]

#: Distinct constraints whose nodes are remembered at once, of each pool.
MATCHES_MAX = 1024


def gpus_of(request: Request) -> int:
    """Whole GPUs per node; a share counts as one (shares cannot be asked for yet)."""
    return -(-request.gpu_milli // 1000)


def level_of(request: Request) -> int:
    """The first bucket whose nodes have enough GPUs free."""
    gpus = gpus_of(request)
    return gpus + 1 if gpus else 0


def gpu_suits(gpu: Gpu, request: Request) -> bool:
    """True when the GPU is large and new enough."""
    return gpu.memory_mib >= request.gpu_memory_mib and gpu.compute_capability >= request.compute_capability


def selector_suits(labels: dict[str, str], selector: tuple[str, ...]) -> bool:
    """True when every "key=value" of the selector is among the labels."""
    for wanted in selector:
        key, _, value = wanted.partition("=")
        if labels.get(key) != value:
            return False
    return True


class Index:
    """One pool's nodes: buckets of those that take work, and when each bucket last gained."""

    def __init__(self) -> None:
        #: Every node of the pool, and those of them that stand in no bucket (few).
        self.members: dict[str, Node] = {}
        self.aside: dict[str, Node] = {}
        self.buckets: list[list[Entry]] = [[]]
        #: [total GPUs]: how many nodes in the buckets have that many.
        self.sizes: list[int] = [0]
        #: [bucket]: the version at which a node there last gained something.
        self._gains: list[int] = [0]
        #: The version at which a node last came, went or changed.
        self.stirred = 0
        #: {constraint: (a request that states it, names of the nodes that suit)}
        self._matches: dict[Constraint, tuple[Request, set[str]]] = {}

    def add(self, node: Node) -> None:
        """A node that is new here."""
        self.members[node.name] = node
        for request, found in self._matches.values():
            if node_suits(node, request):
                found.add(node.name)
        self.put(node)

    def discard(self, node: Node) -> None:
        """The node belongs elsewhere."""
        if node.entry is not None:
            self._lift(node)
        self.aside.pop(node.name, None)
        del self.members[node.name]
        for _, found in self._matches.values():
            found.discard(node.name)

    def put(self, node: Node) -> None:
        """Bring the node to where it belongs now."""
        if node.entry is not None:
            self._lift(node)
        if node.lost or node.keeper or node.duty != READY or (node.marked and (node.taints or not node.open)):
            self.aside[node.name] = node
            return
        if self.aside:
            self.aside.pop(node.name, None)
        size = len(node.inventory.gpus)
        level = node.gpus_free + 1 if size else 0
        if len(self.buckets) < size + 2:
            self._reach(size + 2)
        node.entry = (node.cpu_free_milli, node.name, node)
        node.level = level
        node.size = size
        insort(self.buckets[level], node.entry)
        self.sizes[size] += 1

    def _lift(self, node: Node) -> None:
        assert node.entry is not None
        bucket = self.buckets[node.level]
        del bucket[bisect_left(bucket, node.entry)]
        self.sizes[node.size] -= 1
        node.entry = None

    def _reach(self, length: int) -> None:
        while len(self.buckets) < length:
            self.buckets.append([])
            self.sizes.append(0)
            self._gains.append(0)

    def gained(self, node: Node, version: int) -> None:
        """A node that stands in a bucket has more than before."""
        self._gains[node.level] = version

    def gained_since(self, level: int, version: int) -> bool:
        """True when a node with at least that bucket's GPUs free has gained since `version`."""
        return self.stirred > version or max(self._gains[level:], default=0) > version

    def matching(self, request: Request) -> set[str] | None:
        """Nodes whose labels and GPUs suit the request, whatever is free; None when it asks for nothing special."""
        if not (request.selector or request.gpu_memory_mib or request.compute_capability):
            return None
        key = (gpus_of(request), request.selector, request.gpu_memory_mib, request.compute_capability)
        known = self._matches.get(key)
        if known is None:
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            found = {name for name, node in self.members.items() if node_suits(node, request)}
            known = self._matches[key] = (request, found)
        return known[1]


def node_suits(node: Node, request: Request) -> bool:
    """True when an empty node of these labels and GPUs would do, as far as labels and GPUs go."""
    inventory = node.inventory
    return selector_suits(inventory.labels, request.selector) and (
        sum(gpu_suits(gpu, request) for gpu in inventory.gpus) >= gpus_of(request)
    )
