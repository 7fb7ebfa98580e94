"""The gateway's page for Prometheus, parsed."""

from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.world import GatewayWorld


async def page(world: GatewayWorld) -> dict[str, float]:
    """{series as it is written: value}."""
    text = (await world.http.get("/metrics")).text
    return {
        f"{s.name}{{{','.join(f'{k}={v}' for k, v in sorted(s.labels.items()))}}}": s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
