"""GET /v1/queues?shares=true: fair share, kept amounts and budgets of queues, as one explainer counts them."""

from typing import Any

from tests.gateway.world import GatewayWorld, gpus


async def queues_of(world: GatewayWorld, query: str = "?shares=true") -> dict[str, dict[str, Any]]:
    """{path: document}."""
    answer = await world.http.get(f"/v1/queues{query}")
    assert answer.status_code == 200, answer.text
    return {each["path"]: each for each in answer.json()["items"]}


async def test_shares_are_there_where_they_are_asked_for() -> None:
    """Four of eight GPUs each for two queues with jobs, two kept, and a budget with its first seconds."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.configure(speech={"guaranteed": gpus(4), "lending": gpus(2), "budget": {"gpuHours": 10}}, vision={})
        node = await world.node("n1", 8)
        await world.run(node, queue="vision", resources=gpus(2))
        found = await queues_of(world)
        assert found["vision"]["share"] == {
            "fair_share_gpu_milli": 8000,
            "kept": {},
            "past_use": None,
            "spent_gpu_hours": None,
            "spent_percent": None,
        }
        assert found["speech"]["share"]["kept"] == {"gpu": 2000}
        assert found["speech"]["share"]["fair_share_gpu_milli"] == 0  # no jobs
        await world.run(node, queue="speech", resources=gpus(4))
        found = await queues_of(world)
        share = found["speech"]["share"]
        assert (share["fair_share_gpu_milli"], share["kept"], share["spent_percent"]) == (6000, {}, 0.0)
        assert found["vision"]["share"]["fair_share_gpu_milli"] == 2000
        one = await world.http.get("/v1/queues/speech?shares=true")
        assert one.json()["share"] == share
        assert all(each["share"] is None for each in (await queues_of(world, "")).values())


async def test_they_are_those_of_the_metrics() -> None:
    """One function counts both."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.configure(a={"weight": 2}, b={"maximum": gpus(3)}, c={"guaranteed": gpus(1)})
        await world.node("n1", 8)
        for queue in "abc":
            await world.submit(queue=queue, resources=gpus(1))
        found = await queues_of(world)
        text = (await world.http.get("/metrics")).text
        for path, each in found.items():
            share = each["share"]["fair_share_gpu_milli"] / 1000
            assert f'fairlead_queue_fair_share_gpus{{pool="default",queue="{path}"}} {share}' in text
        assert sum(each["share"]["fair_share_gpu_milli"] for each in found.values()) >= 7990


async def test_without_an_explainer_the_list_is_answered() -> None:
    """The shares are null, all else is there."""
    async with GatewayWorld() as world:
        assert (await queues_of(world))["default"]["share"] is None
