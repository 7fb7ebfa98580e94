"""Telemetry's counters of samples, on the gateway's page of metrics."""

from fairlead_bus.port import Message
from fairlead_schemas.wire import subjects
from tests.agent.node.metrics.promtool import complaints, needs_promtool
from tests.gateway.metrics_page import page
from tests.gateway.world import GatewayWorld

STATE = (
    b'{"sequence":7,"samples_lost":3,"samples_refused":{"garbage":2,"future":1},"sample_delay_ms":{"p50":850,"p99":null},'
    b'"damage":"Corrupt database file (set aside as x)"}'
)


async def test_loss_of_samples_is_exported() -> None:
    """Lost, refused by reason, late, created again; an unknown value has no series."""
    async with GatewayWorld() as world:

        async def answer(_: Message) -> bytes:
            return STATE

        serving = await world.hub.connect().serve(subjects.rpc("telemetry", "warehouse"), answer)
        told = await page(world)
        await serving.close()
        without = await page(world)
    assert told["fairlead_samples_lost_total{}"] == 3
    assert told["fairlead_samples_refused_total{reason=garbage}"] == 2
    assert told["fairlead_sample_delay_seconds{quantile=0.5}"] == 0.85
    assert "fairlead_sample_delay_seconds{quantile=0.99}" not in told
    assert told["fairlead_warehouse_made_anew{}"] == 1
    assert not [name for name in without if "samples_lost" in name]


@needs_promtool
async def test_promtool_has_nothing_to_say_of_it() -> None:
    """Of the whole page, while telemetry answers."""
    async with GatewayWorld() as world:

        async def answer(_: Message) -> bytes:
            return STATE

        serving = await world.hub.connect().serve(subjects.rpc("telemetry", "warehouse"), answer)
        content = (await world.http.get("/metrics")).content
        await serving.close()
    assert b"fairlead_sample_delay_seconds" in content
    assert complaints(content) == []
