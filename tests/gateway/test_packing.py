"""GET /v1/pools/{pool}/packing, answered from the log by an explainer; and a policy that the queue file sets."""

from datetime import UTC, datetime
from typing import Any

from fairlead_schemas.queuefile.settings import PACKINGS
from tests.gateway.world import GatewayWorld, gpus


async def packing_of(world: GatewayWorld, at: str = "", expected: int = 200) -> dict[str, Any]:
    """The answer for the default pool."""
    answer = await world.http.get("/v1/pools/default/packing", params={"at": at} if at else {})
    assert answer.status_code == expected, answer.text
    return answer.json()


async def test_the_free_capacity_of_a_pool() -> None:
    """Two nodes of two, one job of one: a pair fits one node, and a GPU is free next to the job."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        empty = await packing_of(world)
        assert (empty["policy"], empty["nodes"], empty["largest_on_one_node"]) == ("fragmentation", 0, None)
        first = await world.node("n1", 2)
        await world.run(first, resources=gpus(1))
        await world.node("n2", 2)
        found = await packing_of(world)
        assert (found["nodes"], found["gpus"], found["gpu_milli_free"], found["gpu_milli_aside"]) == (2, 4, 3000, 0)
        assert (found["requests_seen"], found["gpu_milli_unusable"]) == (1, 0)
        assert found["largest_on_one_node"] == {"node": "n2", "gpus": 2}
        assert found["largest_gangs"] == {
            "pool": [
                {"domain": "default", "nodes": 1, "gpus_per_node": 2},
                {"domain": "default", "nodes": 2, "gpus_per_node": 1},
            ]
        }


async def test_the_packing_policy_is_a_setting_of_the_pool() -> None:
    """It reaches the placer: the next job goes to the emptier node; another name is refused with the list of valid
    ones."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        answer = await world.http.post("/v1/queues:apply", json={"pools": {"default": {"packing": "spread"}}})
        assert answer.status_code == 200, answer.text
        await world.run(await world.node("n1", 2), resources=gpus(1))
        await world.node("n2", 2)
        job = await world.submit(resources=gpus(1))
        await world.in_state(job, "placed")
        assert [part.node for part in world.gateway.views.jobs.rows[job].parts] == ["n2"]
        assert (await packing_of(world))["policy"] == "spread"
        [pool] = (await world.http.get("/v1/pools")).json()["items"]
        assert pool["settings"]["packing"] == "spread"
        wrong = await world.http.post("/v1/queues:apply", json={"pools": {"default": {"packing": "dense"}}})
        assert wrong.status_code == 422
        [error] = wrong.json()["errors"]
        assert error["field"] == "pools.default.packing"
        assert error["message"] == f'expected one of {", ".join(PACKINGS)}, found "dense"; take one of them'


async def test_the_free_capacity_of_a_pool_in_the_past() -> None:
    """As of a sequence the answer is the one that was current then; as of a time, that of the last commit by then."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        said: list[dict[str, Any]] = []
        times: list[str] = []

        async def look() -> None:
            said.append(await packing_of(world))
            times.append(datetime.now(UTC).isoformat())

        first = await world.node("n1", 2)
        await look()
        await world.run(first, resources=gpus(1))
        await look()
        await world.node("n2", 4)
        await look()
        assert [found["gpu_milli_free"] for found in said] == [2000, 1000, 5000]
        for found in (*said, *reversed(said)):
            then = await packing_of(world, at=str(found["sequence"]))
            assert then == found | {"at": then["at"]}
            assert found["at"] is None
            assert then["at"].endswith("Z")
        assert [(await packing_of(world, at=time))["gpu_milli_free"] for time in times] == [2000, 1000, 5000]
        for moment in ("2100-01-01T00:00:00Z", "yesterday"):
            refused = await packing_of(world, at=moment, expected=400)
            assert refused["errors"][0]["field"] == "at"
        gone = await packing_of(world, at="1970-01-02T00:00:00Z", expected=410)
        assert gone["detail"].startswith("the log begins later than this moment: the earliest is sequence 1")


async def test_an_unknown_pool_is_404() -> None:
    """No such pool, now or then."""
    async with GatewayWorld() as world:
        assert (await world.http.get("/v1/pools/nowhere/packing")).status_code == 404
        await world.node("n1", 2)
        assert (await world.http.get("/v1/pools/nowhere/packing?at=1")).status_code == 404
