"""Queues, GPUs and nodes for Prometheus: gauges read from the views on request, counters of what was folded since this
gateway started.

Gauges are rebuilt when the log sequence has moved or another node is silent. They are built some nodes at a time,
so that a big cluster's do not delay submits; commits that are folded meanwhile may show in later nodes only.
"""

import asyncio
from collections import Counter as Counts
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead_bus.log import Folded
from fairlead_gateway.views.clustermap import map_node
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.gpushares import fair_shares
from fairlead_gateway.views.idle import decisive
from fairlead_gateway.views.poolroom import Rooms
from fairlead_gateway.views.queuedocs import queue_documents
from fairlead_schemas.queries.cluster_map import GPU_STATES, PoolRoom
from fairlead_schemas.wire import events as ev

NS, MILLI = 1e9, 1000
#: Nodes that are looked at in one go.
NODES_AT_ONCE = 32
MINUTE_S, HOUR_S = 60.0, 3600.0
_WAITS = (
    1.0, 5.0, 15.0, MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, HOUR_S, 4 * HOUR_S, 12 * HOUR_S, 24 * HOUR_S, 72 * HOUR_S,
)  # fmt: skip


class HappenedSince:
    """Counters and waits, of events folded while the views were at the log's end: what was there before is history."""

    def __init__(self, registry: CollectorRegistry, views: Views) -> None:
        self._views = views
        self._waits = Histogram(
            "fairlead_admission_wait_seconds", "From a job's submit to the placement of its first attempt.", ["queue"],
            buckets=_WAITS, registry=registry,
        )  # fmt: skip
        self._preempted = Counter(
            "fairlead_preempted",
            "Attempts that ended by yielding, by the rule.",
            ["queue", "reason"],
            registry=registry,
        )
        self._requeued = Counter(
            "fairlead_requeued", "Jobs that went back to their queue, by why.", ["queue", "reason"], registry=registry
        )
        self._ended = Counter("fairlead_ended", "Jobs that ended, by how.", ["queue", "state"], registry=registry)

    def take(self, batch: Iterable[Folded]) -> None:
        """Count these commits; the views have folded them already."""
        for folded in batch:
            for event in folded.commit.events:
                self._count(event, folded.commit.at_ns)

    def _count(self, event: ev.Event, at_ns: int) -> None:
        row = self._views.jobs.rows.get(getattr(event, "job", ""))
        if row is None:
            return
        match event:
            case ev.JobPlaced(attempt=1):
                self._waits.labels(row.queue).observe(max(0, at_ns - row.submitted_ns) / NS)
            case ev.JobRequeued():
                self._requeued.labels(row.queue, event.reason).inc()
                if row.has_yielded:
                    self._preempted.labels(row.queue, row.yielding.rule if row.yielding else "").inc()
            case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                self._ended.labels(row.queue, row.state).inc()
            case _:
                pass


class ClusterCollector(Collector):
    """Gauges of the views."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._built_of: tuple[int, frozenset[str]] = (-1, frozenset())
        self._built: list[Metric] = []

    async def look(self) -> None:
        """Build them for the sequence that the views stand at, and the nodes that are silent now."""
        views = self._views
        built_of = views.sequence, frozenset(filter(views.silent_s, views.nodes.rows))
        if self._built_of == built_of:
            return
        keepers, counted, states = views.waiting.keepers(), Rooms(), Counts[tuple[str, ...]]()
        for at, row in enumerate(list(views.nodes.rows.values()), start=1):
            node = map_node(views, row, keepers.get(row.id, ""))
            counted.add(node)
            states[node.pool, node.state] += 1
            if not at % NODES_AT_ONCE:
                await asyncio.sleep(0)
        rooms = counted.documents()
        self._built = [*_queues(views, rooms), *_rooms(rooms, states), *_idle(views)]
        self._built_of = built_of

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they were built last."""
        yield from self._built


def _gauge(name: str, help: str, labels: list[str], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _queues(views: Views, rooms: list[PoolRoom]) -> Iterator[Metric]:
    documents = queue_documents(views, list(views.queues.existing()))
    shares = fair_shares(views, {room.pool: room.gpus * MILLI for room in rooms})
    amounts = {
        "deserved": ("that the queue is guaranteed", {d.path: d.guaranteed.get("gpu", 0) for d in documents}),
        "allocated": ("charged to the queue and those below: open offers, and what has a place", {d.path: d.charged.get("gpu", 0) for d in documents}),
        "usage": ("that runs of the queue and those below have", {d.path: d.used.get("gpu", 0) for d in documents}),
        "fair_share": ("of the queue's fair share: guarantee and weight among queues with jobs", shares),
        "borrowed": ("used beyond the guarantee, where there is one", {d.path: d.borrowed.get("gpu", 0) for d in documents}),
    }  # fmt: skip
    for name, (words, milli) in amounts.items():
        yield _gauge(f"fairlead_queue_{name}_gpus", f"GPUs {words}.", ["queue", "pool"], (
            ((d.path, d.pool), milli[d.path] / MILLI) for d in documents
        ))  # fmt: skip
    yield _gauge("fairlead_queue_maximum_gpus", "GPUs that the queue may hold at most, where it says so.", ["queue", "pool"], (
        ((d.path, d.pool), d.gpu_quota_milli / MILLI) for d in documents if d.gpu_quota_milli is not None
    ))  # fmt: skip
    yield _gauge("fairlead_pending_jobs", "Jobs and elements that wait, of the queue and those below.", ["queue", "pool"], (
        ((d.path, d.pool), d.waiting) for d in documents
    ))  # fmt: skip
    yield _gauge("fairlead_running_jobs", "Jobs and elements that have a place, of the queue and those below.", ["queue", "pool"], (
        ((d.path, d.pool), d.running) for d in documents
    ))  # fmt: skip
    yield _gauge("fairlead_queue_budget_used_ratio", "Part of the budget that was used when the queue last said so.", ["queue", "pool"], (
        ((d.path, d.pool), d.budget.percent_reached / 100) for d in documents if d.budget is not None
    ))  # fmt: skip


def _idle(views: Views) -> Iterator[Metric]:
    jobs, milli = Counts[tuple[str, ...]](), Counts[tuple[str, ...]]()
    for row in (row for job in views.idle.idle if (row := views.jobs.rows.get(job)) is not None):
        seen = decisive(row)
        if seen is not None:
            label = (row.queue, seen.mode, "asked" if seen.asked_ns else "told")
            jobs[label] += 1
            milli[label] += row.holds.gpu_milli_total
    labels = ["queue", "mode", "state"]
    yield _gauge("fairlead_idle_jobs", "Runs that lie idle by a policy: told so, or asked back.", labels, jobs.items())
    yield _gauge(
        "fairlead_idle_gpus", "GPUs that these hold.", labels, ((key, each / MILLI) for key, each in milli.items())
    )


def _rooms(rooms: list[PoolRoom], nodes: Counts[tuple[str, ...]]) -> Iterator[Metric]:
    """`nodes`: {(pool, state): how many}."""
    yield _gauge("fairlead_gpus", "GPUs by what may be done with them.", ["pool", "state"], (
        ((room.pool, state), room.states[state]) for room in rooms for state in GPU_STATES
    ))  # fmt: skip
    yield _gauge("fairlead_gpus_fragmented", "Free GPUs on nodes that are not wholly free.", ["pool"], (
        ((room.pool,), room.gpus_fragmented) for room in rooms
    ))  # fmt: skip
    yield _gauge("fairlead_gpus_largest_startable", "GPUs of the largest job that could start on one node now.", ["pool"], (
        ((room.pool,), room.largest_on_one_node.gpus if room.largest_on_one_node else 0) for room in rooms
    ))  # fmt: skip
    yield _gauge("fairlead_nodes", "Nodes by state.", ["pool", "state"], nodes.items())
