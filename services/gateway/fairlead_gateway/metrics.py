"""Metrics of the gateway, in Prometheus' format."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead_bus.port import Bus
from fairlead_gateway.clustermetrics import ClusterCollector, HappenedSince
from fairlead_gateway.telemetrymetrics import TelemetryCollector
from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire.conditions import CONDITIONS, Readiness, Scrubbed
from fairlead_schemas.wire.lifecycle import STATES

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Metrics of one gateway, in a registry of its own, so that tests may build many."""

    def __init__(self, views: Views, bus: Bus, readiness: Callable[[], Readiness]) -> None:
        self.registry = CollectorRegistry()
        self.decision_seconds = Histogram(
            "fairlead_gateway_decision_seconds", "From a command's arrival to its decision in the log.",
            buckets=_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.commands = Gauge(
            "fairlead_gateway_commands", "Commands by service: published, pending, waiting for a decision.",
            ["service", "what"], registry=self.registry,
        )  # fmt: skip
        folded = Gauge(
            "fairlead_gateway_folded_sequence", "Log sequence that the views stand at.", registry=self.registry
        )
        folded.set_function(lambda: views.sequence)
        self.refusals = Counter(
            "fairlead_gateway_refusals", "Requests refused before a route saw them, by reason.",
            ["reason"], registry=self.registry,
        )  # fmt: skip
        self.lag = Gauge(
            "fairlead_gateway_lag", "Commits that the views are behind the log's end.", registry=self.registry
        )
        self.watchers = Gauge("fairlead_gateway_watchers", "Open event watches.", registry=self.registry)
        self.registry.register(ReadinessCollector(readiness))
        self.jobs = Gauge("fairlead_jobs", "Jobs and elements ever, by state.", ["state"], registry=self.registry)
        self._views = views
        self.happened = HappenedSince(self.registry, views)
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
