"""Which node has how much left, kept sorted: so that a placement finds its node without looking at the others.

Derived from the nodes alone; never in a snapshot. Bucket 0 holds nodes without GPUs, bucket k + 1 nodes with
k GPUs free; inside a bucket nodes stand by CPU left, then by name, so that history leaves no trace in the order.
"""

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from fairlead_schemas.resources import Gpu, Request

if TYPE_CHECKING:
    from fairlead_placer.state import Node

type Entry = "tuple[int, str, Node]"
type Constraint = tuple[int, tuple[str, ...], int, int]

#: Distinct constraints whose nodes are remembered at once.
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
    """Buckets of the nodes that take work, and when capacity last grew."""

    def __init__(self, nodes: "dict[str, Node]") -> None:
        self._nodes = nodes
        self.buckets: list[list[Entry]] = [[]]
        #: [total GPUs]: how many nodes that take work have that many.
        self.sizes: list[int] = [0]
        #: Rises with everything that could make a placement possible that was not.
        self.version = 0
        #: [bucket]: the version at which a node there last gained something.
        self._gains: list[int] = [0]
        self._stirred = 0
        #: {constraint: (a request that states it, names of the nodes that suit)}
        self._matches: dict[Constraint, tuple[Request, set[str]]] = {}

    def put(self, node: "Node") -> None:
        """Bring the node to where it belongs now."""
        if node.entry is not None:
            self.remove(node)
        if node.lost or node.duty != "ready":
            return
        size = len(node.inventory.gpus)
        level = node.gpus_free + 1 if size else 0
        self._reach(max(level, size) + 1)
        node.entry = (node.cpu_free_milli, node.name, node)
        node.level = level
        node.size = size
        insort(self.buckets[level], node.entry)
        self.sizes[size] += 1

    def remove(self, node: "Node") -> None:
        """Take the node out of the index, if it is in it."""
        if node.entry is None:
            return
        bucket = self.buckets[node.level]
        del bucket[bisect_left(bucket, node.entry)]
        self.sizes[node.size] -= 1
        node.entry = None

    def _reach(self, length: int) -> None:
        while len(self.buckets) < length:
            self.buckets.append([])
            self.sizes.append(0)
            self._gains.append(0)

    def gained(self, node: "Node") -> None:
        """The node has more than before."""
        self.version += 1
        self._gains[node.level] = self.version

    def stir(self) -> None:
        """A node came, went or changed: every class looks again (its reasons may be others, too)."""
        self.version += 1
        self._stirred = self.version

    def stir_offers(self) -> None:
        """There is an offer more; capacity is what it was."""
        self.version += 1

    def gained_since(self, level: int, version: int) -> bool:
        """True when a node with at least that bucket's GPUs free has gained since `version`."""
        return self._stirred > version or max(self._gains[level:], default=0) > version

    # -- constraints beyond amounts

    def matching(self, request: Request) -> set[str] | None:
        """Nodes whose labels and GPUs suit the request, whatever is free; None when it asks for nothing special."""
        if not (request.selector or request.gpu_memory_mib or request.compute_capability):
            return None
        key = (gpus_of(request), request.selector, request.gpu_memory_mib, request.compute_capability)
        known = self._matches.get(key)
        if known is None:
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            found = {name for name, node in self._nodes.items() if node_suits(node, request)}
            known = self._matches[key] = (request, found)
        return known[1]

    def match(self, node: "Node") -> None:
        """The node's labels or GPUs are others."""
        for request, found in self._matches.values():
            (found.add if node_suits(node, request) else found.discard)(node.name)

    def unmatch(self, node: "Node") -> None:
        """The node is no longer known."""
        for _, found in self._matches.values():
            found.discard(node.name)


def node_suits(node: "Node", request: Request) -> bool:
    """True when an empty node of these labels and GPUs would do, as far as labels and GPUs go."""
    inventory = node.inventory
    return selector_suits(inventory.labels, request.selector) and (
        sum(gpu_suits(gpu, request) for gpu in inventory.gpus) >= gpus_of(request)
    )
