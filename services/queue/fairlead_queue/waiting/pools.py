"""A pool: nodes of one kind of use, the tree of queues that share them, and the order in which they do.

A request belongs to one pool, so everything about who goes first is decided inside it.

Total capacity of the nodes, as the queue knows it. Only the placer knows the free part of it.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from fairlead_queue.fairness.ordering import Ranking
from fairlead_queue.fairness.tree import Amounts, JobCharge, QueueNode, QueueTree, parts
from fairlead_queue.fairness.waiting_line import order_of
from fairlead_queue.sequencers.fifo import MissingSequencer
from fairlead_queue.sequencers.registry import sequencer_named
from fairlead_queue.waiting.jobs import LiveJob
from fairlead_queue.waiting.lanes import Lane, RequestClass
from fairlead_schemas.queuefile.settings import (
    DEFAULT_POOL,
    GPU_CLASS_PREFIX,
    MODEL_LABEL,
    RESOURCES,
    PoolSettings,
    gpu_class,
)
from fairlead_schemas.wire.resources import Request

_MODEL = MODEL_LABEL + "="
#: Requests of which it is remembered what they need.
NEEDS_MAX = 4096


def pool_of(request: Request) -> str:
    """The name of the pool that a request is for."""
    return request.pool or DEFAULT_POOL


def model_of(request: Request) -> str:
    """The GPU model that a request names by its selector; "" when it takes any."""
    for each in request.selector:
        if each.startswith(_MODEL):
            return each[len(_MODEL) :]
    return ""


class PoolState:
    """The queues of one pool. `State` owns it and keeps its counts true."""

    def __init__(self, name: str, settings: PoolSettings) -> None:
        self.name = name
        self.settings = settings
        #: Classes with live jobs.
        self.classes: dict[Request, RequestClass] = {}
        #: Rises with every event that gives capacity back.
        self.capacity_count = 0
        #: Time at which a run last ended without a request to yield.
        self.freed_ns = 0
        #: Open offers of classes that are parked.
        self.parked_open = 0
        self.parked_classes = 0
        #: Open offers {id: job}, the oldest first, and the number of lanes with a waiting job.
        self.offers: dict[str, LiveJob] = {}
        self.waiting = 0
        #: The job with an open offer for which places are kept because of its long wait ("": none).
        self.claimant = ""
        self.shape(RESOURCES)

    def shape(self, resources: Iterable[str]) -> None:
        """An empty tree over these resources; the owner puts queues and charges back."""
        self.resources = tuple(resources)
        #: {request: what it is charged}: worked out once, for classes come and go.
        self._needs: dict[Request, JobCharge] = {}
        self.tree = QueueTree(self.resources)
        try:
            self.sequencer = sequencer_named(self.settings.sequencer, self.tree, self.settings)
        except ValueError as error:  # the fold continues; the decider stops
            self.sequencer = MissingSequencer(f"pool {self.name}: {error}")
        self.past = self.sequencer.past
        self.ranking = Ranking(self.tree, self.sequencer)

    def order(
        self, priority: int, place: int, offset: int = 0, *, deadline_ns: int, submitted_ns: int, total_ns: int
    ) -> int:
        """Return the position of a job in its line. Where the sequencer makes promises, a promised end acts like the job's own
        deadline.
        """
        stretch = self.sequencer.stretch
        if stretch and total_ns:
            promised_ns = submitted_ns + stretch * total_ns
            deadline_ns = min(deadline_ns, promised_ns) if deadline_ns else promised_ns
        return order_of(priority, place, offset, deadline_ns, newest_first=self.sequencer.newest_first)

    # ------------------------------------------------------------------ amounts

    def need(self, request: Request) -> JobCharge:
        """Return the charge of one job of this request, in the order of `resources`."""
        known = self._needs.get(request)
        if known is not None:
            return known
        found = [request.gpu_milli_total, request.cpu_milli_total, request.memory_mib_total]
        for name in self.resources[len(RESOURCES) :]:
            kinds = [kind for kind in request.kinds if gpu_class(model_of(kind)) == name]
            found.append(sum(kind.nodes * kind.gpu_milli for kind in kinds))
        if len(self._needs) >= NEEDS_MAX:
            self._needs.clear()
        known = self._needs[request] = JobCharge.of(tuple(found))
        return known

    def holds(self, job: LiveJob) -> Amounts:
        """Return the charge of a job: its requested amounts, reduced where its placement has fewer units."""
        need = job.lane.klass.need
        if not job.missing:
            return need
        return tuple(all_ - less for all_, less in zip(need, self._missing(job).amounts, strict=True))

    def _missing(self, job: LiveJob) -> JobCharge:
        """Return the need of the units that an elastic job's placement lacks."""
        request = job.lane.klass.request
        return self.need(msgspec.structs.replace(request, nodes=job.missing, nodes_min=0, also=()))

    def models(self) -> list[str]:
        """GPU models that some queue of the pool limits."""
        return [name[len(GPU_CLASS_PREFIX) :] for name in self.resources[len(RESOURCES) :]]

    # ------------------------------------------------------------------ charges

    def charge(self, lane: Lane, times: int) -> None:
        """`times` jobs of the lane more (or less) are offered, placed or running."""
        node, klass = lane.leaf.node, lane.klass
        if times == 1:
            self.tree.carry(node, klass.gain)
        elif times == -1:
            self.tree.carry(node, klass.loss)
        else:
            self.tree.carry(node, parts(klass.need, times))
        if self.ranking.views:
            self.ranking.touch(node)
        if times < 0:
            self.forget_refusals(node)

    def charge_missing(self, job: LiveJob, times: int) -> None:
        """Units that a placement has not are charged no longer (-1), or again, before all of it goes (1)."""
        node = job.lane.leaf.node
        self.tree.carry(node, parts(self._missing(job).amounts, times))
        if self.ranking.views:
            self.ranking.touch(node)
        if times < 0:
            self.forget_refusals(node)

    @staticmethod
    def forget_refusals(node: QueueNode | None) -> None:
        """Something came free under every limit from this node up."""
        while node is not None:
            if node.waiters:
                node.waiters.clear()
            node = node.parent

    def forget_all(self) -> None:
        """Limits or capacity are others."""
        self.forget_refused()
        self.ranking.forget()

    def forget_refused(self) -> None:
        """Clear all recorded refusals, so that each is checked again."""
        for node in self.tree.nodes.values():
            if node.waiters:
                node.waiters.clear()

    def is_known(self) -> bool:
        """Return True if any node of the pool has ever joined."""
        return any(self.tree.capacity)


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
