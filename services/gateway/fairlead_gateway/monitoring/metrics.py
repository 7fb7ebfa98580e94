"""Metrics of the gateway, in Prometheus' format.

Further parts:
- queues, GPUs and nodes for Prometheus: gauges read from the views on request, counters of what was folded since this
  gateway started;
- telemetry's state of samples, on the gateway's page of metrics: what was lost and refused, and how late they come.

Gauges are rebuilt when the log sequence has moved or another node is silent. They are built some nodes at a time,
so that a big cluster's do not delay submits; commits that are folded meanwhile may show in later nodes only.
"""

import asyncio
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from fairlead_bus.log import Folded
from fairlead_bus.port import Bus, BusError
from fairlead_gateway.views.cluster_map import PoolCapacity, map_node
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle import decisive
from fairlead_gateway.views.queue_documents import fair_shares, pool_gpus, queue_documents
from fairlead_gateway.views.rows import JobRow
from fairlead_schemas.queries.cluster_map import GPU_STATES, PoolRoom
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import CONDITIONS, Readiness, Scrubbed
from fairlead_schemas.wire.lifecycle import STATES

NS, MILLI = 1e9, 1000
#: Nodes that are looked at in one go.
NODES_AT_ONCE = 32
MINUTE_S, HOUR_S = 60.0, 3600.0
_WAITS = (
    1.0,
    5.0,
    15.0,
    MINUTE_S,
    5 * MINUTE_S,
    15 * MINUTE_S,
    HOUR_S,
    4 * HOUR_S,
    12 * HOUR_S,
    24 * HOUR_S,
    72 * HOUR_S,
)


class EventCounters:
    """Counters and waits, of events folded while the views were at the log's end: what was there before is history."""

    def __init__(self, registry: CollectorRegistry, views: Views) -> None:
        self._views = views
        self._waits = Histogram(
            "fairlead_admission_wait_seconds",
            "From a job's submit to the placement of its first attempt.",
            ["queue"],
            buckets=_WAITS,
            registry=registry,
        )
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

        # By type, and with children that are looked up once: most events count nothing, and `labels` costs more than counting.
        self._waits_of = _Children(self._waits)
        self._preempted_of, self._requeued_of = _Children(self._preempted), _Children(self._requeued)
        self._ended_of = _Children(self._ended)
        self._handlers: dict[type, Callable[[JobRow, Any, int], None]] = {
            ev.JobPlaced: self._placed,
            ev.JobRequeued: self._went_back,
            ev.JobSucceeded: self._has_ended,
            ev.JobFailed: self._has_ended,
            ev.JobCancelled: self._has_ended,
        }

    def take(self, batch: Iterable[Folded]) -> None:
        """Count these commits; the views have folded them already."""
        handlers, rows = self._handlers, self._views.jobs.rows
        for folded in batch:
            for event in folded.commit.events:
                handle = handlers.get(type(event))
                if handle is not None and (row := rows.get(event.job)) is not None:  # type: ignore[union-attr] -- each has a job
                    handle(row, event, folded.commit.at_ns)

    def _placed(self, row: JobRow, event: ev.JobPlaced, at_ns: int) -> None:
        if event.attempt == 1:
            self._waits_of[row.queue,].observe(max(0, at_ns - row.submitted_ns) / NS)

    def _went_back(self, row: JobRow, event: ev.JobRequeued, at_ns: int) -> None:
        self._requeued_of[row.queue, event.reason].inc()
        if row.has_yielded:
            self._preempted_of[row.queue, row.yielding.rule if row.yielding else ""].inc()

    def _has_ended(self, row: JobRow, event: ev.Event, at_ns: int) -> None:
        self._ended_of[row.queue, row.state].inc()


class _Children[M: MetricWrapperBase](dict[tuple[str, ...], M]):
    """Children of a metric by the values of their labels, each looked up once."""

    def __init__(self, metric: M) -> None:
        super().__init__()
        self._metric = metric

    def __missing__(self, values: tuple[str, ...]) -> M:
        child = self[values] = self._metric.labels(*values)
        return child


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
        keepers, counted, states = views.waiting.keepers(), PoolCapacity(), Counts[tuple[str, ...]]()
        for at, row in enumerate(list(views.nodes.rows.values()), start=1):
            node = map_node(views, row, keepers.get(row.id, ""))
            counted.add(node)
            states[node.pool, node.state] += 1
            if not at % NODES_AT_ONCE:
                await asyncio.sleep(0)
        rooms = counted.documents()
        self._built = [*_queues(views), *_rooms(rooms, states), *_idle(views)]
        self._built_of = built_of

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they were built last."""
        yield from self._built


def _gauge(name: str, help: str, labels: list[str], rows: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _queues(views: Views) -> Iterator[Metric]:
    documents = queue_documents(views, list(views.queues.existing()))
    shares = fair_shares(views, pool_gpus(views))
    amounts = {
        "deserved": ("that the queue is guaranteed", {d.path: d.guaranteed.get("gpu", 0) for d in documents}),
        "allocated": ("charged to the queue and those below: open offers, and what has a place", {d.path: d.charged.get("gpu", 0) for d in documents}),
        "usage": ("that runs of the queue and those below have", {d.path: d.used.get("gpu", 0) for d in documents}),
        "fair_share": ("of the queue's fair share: guarantee and weight among queues with jobs", shares),
        "borrowed": ("used beyond the guarantee, where there is one", {d.path: d.borrowed.get("gpu", 0) for d in documents}),
    }  # fmt: skip
    for name, (words, milli) in amounts.items():
        yield _gauge(
            f"fairlead_queue_{name}_gpus",
            f"GPUs {words}.",
            ["queue", "pool"],
            (((d.path, d.pool), milli[d.path] / MILLI) for d in documents),
        )
    yield _gauge(
        "fairlead_queue_maximum_gpus",
        "GPUs that the queue may hold at most, where it sets a maximum.",
        ["queue", "pool"],
        (((d.path, d.pool), d.gpu_quota_milli / MILLI) for d in documents if d.gpu_quota_milli is not None),
    )
    yield _gauge(
        "fairlead_pending_jobs",
        "Jobs and elements that wait, of the queue and those below.",
        ["queue", "pool"],
        (((d.path, d.pool), d.waiting) for d in documents),
    )
    yield _gauge(
        "fairlead_running_jobs",
        "Jobs and elements that have a place, of the queue and those below.",
        ["queue", "pool"],
        (((d.path, d.pool), d.running) for d in documents),
    )
    yield _gauge(
        "fairlead_queue_budget_used_ratio",
        "Part of the budget that was used when the queue last reported it.",
        ["queue", "pool"],
        (((d.path, d.pool), d.budget.percent_reached / 100) for d in documents if d.budget is not None),
    )


def _idle(views: Views) -> Iterator[Metric]:
    jobs, milli = Counts[tuple[str, ...]](), Counts[tuple[str, ...]]()
    for row in (row for job in views.idle.idle if (row := views.jobs.rows.get(job)) is not None):
        seen = decisive(row)
        if seen is not None:
            label = (row.queue, seen.mode, "asked" if seen.reclaim_requested_ns else "told")
            jobs[label] += 1
            milli[label] += row.holds.gpu_milli_total
    labels = ["queue", "mode", "state"]
    yield _gauge(
        "fairlead_idle_jobs", "Runs that are idle under a policy: reported, or asked back.", labels, jobs.items()
    )
    yield _gauge(
        "fairlead_idle_gpus", "GPUs that these hold.", labels, ((key, each / MILLI) for key, each in milli.items())
    )


def _rooms(rooms: list[PoolRoom], nodes: Counts[tuple[str, ...]]) -> Iterator[Metric]:
    """`nodes`: {(pool, state): how many}."""
    yield _gauge(
        "fairlead_gpus",
        "GPUs by what may be done with them.",
        ["pool", "state"],
        (((room.pool, state), room.states[state]) for room in rooms for state in GPU_STATES),
    )
    yield _gauge(
        "fairlead_gpus_fragmented",
        "Free GPUs on nodes that are not wholly free.",
        ["pool"],
        (((room.pool,), room.gpus_fragmented) for room in rooms),
    )
    yield _gauge(
        "fairlead_gpus_largest_startable",
        "GPUs of the largest job that could start on one node now.",
        ["pool"],
        (((room.pool,), room.largest_on_one_node.gpus if room.largest_on_one_node else 0) for room in rooms),
    )
    yield _gauge("fairlead_nodes", "Nodes by state.", ["pool", "state"], nodes.items())


#: A page of metrics must not wait long for a service that is away.
TIMEOUT_S = 1.0


class TelemetryState(msgspec.Struct):
    """Answer to rpc("telemetry", "warehouse")."""

    samples_lost: int = 0
    samples_refused: dict[str, int] = {}
    sample_delay_ms: dict[str, int | None] = {}
    damage: str = ""


class TelemetryCollector(Collector):
    """Nothing of it while telemetry does not answer."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._state: TelemetryState | None = None

    async def look(self) -> None:
        """Ask."""
        try:
            answer = await self._bus.request(subjects.rpc("telemetry", "warehouse"), b"{}", timeout_s=TIMEOUT_S)
            self._state = msgspec.json.decode(answer, type=TelemetryState)
        except (BusError, msgspec.MsgspecError):
            self._state = None

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the state that telemetry reported last."""
        state = self._state
        if state is None:
            return
        yield _counter(
            "fairlead_samples_lost", "Batches of samples that never arrived.", [], [((), state.samples_lost)]
        )
        yield _counter(
            "fairlead_samples_refused",
            "Batches of samples that telemetry has refused since its start.",
            ["reason"],
            [((reason,), count) for reason, count in state.samples_refused.items()],
        )
        # The library's own summaries have no quantiles, which are of no other type.
        name = "fairlead_sample_delay_seconds"
        delay = Metric(name, "From a node's clock into the warehouse, since telemetry's start.", "summary")
        for percent, delay_ms in state.sample_delay_ms.items():
            if delay_ms is not None:
                delay.add_sample(name, {"quantile": str(int(percent.removeprefix("p")) / 100)}, delay_ms / 1000)
        yield delay
        damaged = GaugeMetricFamily(
            "fairlead_warehouse_made_anew",
            "1 where telemetry found its database damaged at its start and rebuilt it.",
        )
        damaged.add_metric([], bool(state.damage))
        yield damaged


def _counter(name: str, help: str, labels: list[str], rows: Iterable[tuple[tuple[str, ...], int]]) -> Metric:
    family = CounterMetricFamily(name, help, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Metrics of one gateway, in a registry of its own, so that tests may build many."""

    def __init__(self, views: Views, bus: Bus, readiness: Callable[[], Readiness]) -> None:
        self.registry = CollectorRegistry()
        self.decision_seconds = Histogram(
            "fairlead_gateway_decision_seconds",
            "From a command's arrival to its decision in the log.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.commands = Gauge(
            "fairlead_gateway_commands",
            "Commands by service: published, pending, waiting for a decision.",
            ["service", "what"],
            registry=self.registry,
        )
        folded = Gauge("fairlead_gateway_folded_sequence", "Log sequence of the views.", registry=self.registry)
        folded.set_function(lambda: views.sequence)
        self.refusals = Counter(
            "fairlead_gateway_refusals",
            "Requests refused before a route saw them, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.lag = Gauge(
            "fairlead_gateway_lag", "Commits that the views are behind the log's end.", registry=self.registry
        )
        self.watchers = Gauge("fairlead_gateway_watchers", "Open event watches.", registry=self.registry)
        self.past_answers = Counter(
            "fairlead_gateway_past_answers",
            "Requests about past moments, by who folds: the process for the past, or the gateway without it.",
            ["by"],
            registry=self.registry,
        )
        self.registry.register(ReadinessCollector(readiness))
        self.jobs = Gauge("fairlead_jobs", "Jobs and elements ever, by state.", ["state"], registry=self.registry)
        self._views = views
        self.happened = EventCounters(self.registry, views)
        self.cluster = ClusterCollector(views)
        self.registry.register(self.cluster)
        self.telemetry = TelemetryCollector(bus)
        self.registry.register(self.telemetry)

    def count_refusal(self, reason: str) -> None:
        """Count a request that no route saw; `reason` is the problem's code."""
        self.refusals.labels(reason).inc()

    def text(self) -> bytes:
        """The exposition."""
        counts = self._views.job_counts()
        for state in STATES:
            self.jobs.labels(state).set(counts.get(state, 0))
        return generate_latest(self.registry)


class ReadinessCollector(Collector):
    """The judgement of `/readyz`, as gauges: one for the whole, one for each condition of the list."""

    def __init__(self, readiness: Callable[[], Readiness]) -> None:
        self._readiness = readiness

    def describe(self) -> Iterator[Metric]:
        """Nothing: registering must not ask, as no event loop may run yet."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield readiness, conditions and scrub state as they are now."""
        readiness = self._readiness()
        ready = GaugeMetricFamily("fairlead_ready", "1 while jobs are accepted and run, as /readyz answers.")
        ready.add_metric([], readiness.ready)
        yield ready
        holding = {each.code for each in readiness.conditions}
        conditions = GaugeMetricFamily(
            "fairlead_condition", "1 while a condition of docs/how-to/troubleshooting.md holds.", labels=["condition"]
        )
        for code in CONDITIONS:
            conditions.add_metric([code], code in holding)
        yield conditions
        if readiness.scrub is not None:
            yield from _scrub(readiness.scrub)


def _scrub(scrub: Scrubbed) -> Iterator[Metric]:
    rows = {
        "fairlead_scrub_passes": ("Passes of the scrub over the whole log, since the explainer's start.", scrub.passes),
        "fairlead_scrub_sequence": ("Log sequence that the pass in progress has checked.", scrub.sequence),
        "fairlead_scrub_damaged_sequence": ("First damaged sequence that the scrub found; 0: none.", scrub.damaged),
    }
    for name, (words, value) in rows.items():
        yield GaugeMetricFamily(name, words, value=value)
