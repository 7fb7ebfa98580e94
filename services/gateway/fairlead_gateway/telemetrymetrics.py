"""Telemetry's state of samples, on the gateway's page of metrics: what was lost and refused, and how late they come."""

from collections.abc import Iterable, Iterator

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead_bus.port import Bus, BusError
from fairlead_schemas.wire import subjects

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
            "fairlead_samples_refused", "Batches of samples that telemetry has refused since its start.", ["reason"],
            [((reason,), count) for reason, count in state.samples_refused.items()],
        )  # fmt: skip
        # The library's own summaries have no quantiles, which are of no other type.
        name = "fairlead_sample_delay_seconds"
        delay = Metric(name, "From a node's clock into the warehouse, since telemetry's start.", "summary")
        for percent, delay_ms in state.sample_delay_ms.items():
            if delay_ms is not None:
                delay.add_sample(name, {"quantile": str(int(percent.removeprefix("p")) / 100)}, delay_ms / 1000)
        yield delay
        damaged = GaugeMetricFamily(
            "fairlead_warehouse_made_anew",
            "1 where telemetry found its database damaged at its start, and made it anew.",
        )
        damaged.add_metric([], bool(state.damage))
        yield damaged


def _counter(name: str, help: str, labels: list[str], rows: Iterable[tuple[tuple[str, ...], int]]) -> Metric:
    family = CounterMetricFamily(name, help, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family
