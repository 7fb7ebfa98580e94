"""GET /v1/pools/{pool}/defrag, and moves carried out by the real queue and placer."""

import asyncio
from typing import Any

import pytest

from fairlead_placer.scheduling import defragment
from tests.gateway.world import GatewayWorld, fragmented
from tests.kit.eventually import eventually_async


async def plan_of(world: GatewayWorld) -> dict[str, Any]:
    """The answer for the default pool."""
    answer = await world.http.get("/v1/pools/default/defrag")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_plan_is_shown_and_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """First the job is too young; then what would be moved where; the pool has not asked for it."""
    monkeypatch.setattr(defragment, "AFTER_NS", 3600 * 10**9)  # however long this takes on a busy machine
    async with GatewayWorld() as world:
        await world.start_explainer()
        _, _, big = await fragmented(world)
        found = await plan_of(world)
        assert (found["pool"], found["on"], found["plans"][0]["why_not"]) == ("default", False, "young")
        monkeypatch.setattr(defragment, "AFTER_NS", 0)
        async with asyncio.timeout(60):  # until the runs have had their slices
            while not (plan := (await plan_of(world))["plans"][0])["moves"]:  # noqa: ASYNC110 -- it is asked, nobody tells
                await asyncio.sleep(0.1)
        [move] = plan["moves"]
        assert (plan["job"], plan["why_not"], plan["nodes"], move["sources"]) == (big, "costs_more", ["n1"], ["n1"])
        assert move["targets"] == ["n2"]
        assert all(row.yielding is None for row in world.gateway.views.jobs.rows.values())


async def test_a_pool_that_asks_for_it_has_it_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run yields, its job waits again and finds the other place; the big job starts; `why` says by which rule."""
    monkeypatch.setattr(defragment, "AFTER_NS", 0)
    monkeypatch.setattr(defragment, "RESTART_S", 0)
    monkeypatch.setattr(defragment, "LOOK_NS", 10**8)
    async with GatewayWorld() as world:
        await world.start_explainer()
        answer = await world.http.post("/v1/queues:apply", json={"pools": {"default": {"defragment": True}}})
        assert answer.status_code == 200, answer.text
        first, _, big = await fragmented(world)
        rows = world.gateway.views.jobs.rows
        await eventually_async(lambda: any(row.yielding is not None for row in rows.values()))
        [moved] = [job for job, row in rows.items() if row.yielding is not None]
        assert "fits elsewhere" in (await world.why(moved))["reason"]["message"]
        await first.stopped(moved)
        await world.in_state(big, "placed")
        await eventually_async(lambda: rows[moved].attempt == 2 and rows[moved].state == "placed")


async def test_an_unknown_pool_is_404() -> None:
    """No such pool."""
    async with GatewayWorld() as world:
        assert (await world.http.get("/v1/pools/nowhere/defrag")).status_code == 404
