"""GET and POST /v1/prices: a price from a moment on, its mistakes, and its right."""

from typing import Any

import pytest

from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.world import GatewayWorld

H100: dict[str, Any] = {"model": "NVIDIA-H100-80GB-HBM3", "per_gpu_hour": "2.49", "currency": "EUR"}


async def test_prices_are_set_and_listed() -> None:
    """By model, then the oldest first; a number does for a price, and of one moment the last price holds."""
    async with GatewayWorld() as world:
        now = await world.http.post("/v1/prices", json=H100)
        assert now.status_code == 200, now.text
        assert now.json()["valid_from"].startswith("20")
        for price, begin in ((3, "2100-01-01"), (2.5, "2100-01-01T00:00:00Z"), ("0", "2100-02-01T01:00:00+01:00")):
            later = await world.http.post("/v1/prices", json={**H100, "per_gpu_hour": price, "from": begin})
            assert later.status_code == 200, later.text
        assert (await world.http.post("/v1/prices", json={**H100, "model": "*", "per_gpu_hour": 1})).status_code == 200
        found = (await world.http.get("/v1/prices")).json()["items"]
        assert [(each["model"], each["per_gpu_hour"]) for each in found] == [
            ("*", "1"),
            (H100["model"], "2.49"),
            (H100["model"], "2.5"),
            (H100["model"], "0"),
        ]
        assert [each["valid_from"] for each in found[2:]] == ["2100-01-01T00:00:00.000Z", "2100-02-01T00:00:00.000Z"]
        page = (await world.http.get("/v1/prices?limit=1")).json()
        assert [each["model"] for each in page["items"]] == ["*"] and page["next"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": ""}, "model"),
        ({"model": "x" * 101}, "model"),
        ({"per_gpu_hour": "cheap"}, "per_gpu_hour"),
        ({"per_gpu_hour": "-1"}, "per_gpu_hour"),
        ({"per_gpu_hour": "0.0000001"}, "per_gpu_hour"),
        ({"per_gpu_hour": "NaN"}, "per_gpu_hour"),
        ({"currency": "euro"}, "currency"),
        ({"from": "2026-02-30"}, "from"),
        ({"from": "Monday"}, "from"),
        ({"from": "2026-11-02T08:00:00"}, "from"),
    ],
)
async def test_mistakes_are_named(change: dict[str, Any], field: str) -> None:
    """By their field; nothing is sent."""
    async with GatewayWorld() as world:
        refused = await world.http.post("/v1/prices", json={**H100, **change})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
        assert (await world.http.get("/v1/prices")).json()["items"] == []


async def test_only_who_may_set_all_queues_sets_a_price() -> None:
    """A person without a role is refused; the admin's name is for those who see everything."""
    async with AccountsWorld(queue=True) as world:
        ann = await world.person("ann")
        _, session = await world.session(ann)
        refused = await world.ask("POST", "/v1/prices", H100, token=session, status=403)
        assert "queue:set" in str(refused)
        await world.ask("POST", "/v1/prices", H100, status=200)
