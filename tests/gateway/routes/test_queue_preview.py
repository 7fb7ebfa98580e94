"""POST /v1/queues:dryrun: whom a queue file would concern at once; nothing is sent."""

from typing import Any

from fairlead_replay.explainer.service import Explainer
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import GatewayWorld, gpus

PATH = "/v1/queues:dryrun"


def file(gpus: int, queue: str = "mine") -> dict[str, Any]:
    """A queue file with one maximum."""
    return {"queues": {queue: {"maximum": {"nvidia.com/gpu": gpus}}}}


async def test_a_lowered_maximum_names_the_runs_that_would_yield() -> None:
    """With reclaim only; the log and the commands stay as they are, and what is applied then does that."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        node = await world.node("n1")
        assert (await world.http.post("/v1/queues:apply", json=file(8))).status_code == 200
        job = await world.run(node, queue="mine", name="train", resources=gpus(3))
        before = world.commands_stored(), world.log_length()
        without = (await world.http.post(PATH, json=file(2))).json()
        assert (without["configured"], without["yields"], without["hidden"]) == (1, [], 0)
        found = (await world.http.post(f"{PATH}?reclaim=true", json=file(2))).json()
        assert found["yields"] == [
            {"id": job, "name": "train", "user": "anonymous", "queue": "mine", "gpu_milli": 3000}
        ]
        assert (world.commands_stored(), world.log_length()) == before
        assert (await world.http.post("/v1/queues:apply?reclaim=true", json=file(2))).status_code == 200
        await world.in_state(job, "stopping")


async def test_refusals_are_those_of_the_change() -> None:
    """Of the file's words, and of the present tree, each with the field that it is about."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        for body in (
            {"queues": {"mine": {"maximun": {}}}},
            {"queues": {"a": {"guaranteed": {"nvidia.com/gpu": 4}, "maximum": {"nvidia.com/gpu": 2}}}},
            {
                "queues": {
                    "a": {"maximum": {"nvidia.com/gpu": 2}, "queues": {"b": {"guaranteed": {"nvidia.com/gpu": 4}}}}
                }
            },
            [],
        ):
            tried = await world.http.post(PATH, json=body)
            applied = await world.http.post("/v1/queues:apply", json=body)
            assert tried.status_code == applied.status_code >= 400, applied.text
            assert tried.json()["errors"] == applied.json()["errors"]
        refused = await world.http.post(PATH, json=file(2), params={"reclaim": "maybe"})
        assert refused.status_code == 422


async def test_without_the_explainer_nothing_is_known() -> None:
    """503 that says whose answer it is, and may be asked again."""
    async with GatewayWorld() as world:
        answer = await world.http.post(PATH, json=file(2))
        assert (answer.status_code, answer.json()["hint"]) == (503, "the explainer answers this")


async def test_only_who_may_set_a_queue_may_try_it_and_sees_own_jobs_alone() -> None:
    """403 or 404 as for the change itself; jobs of others are a number."""
    async with SignedWorld() as world:
        world.spawn(Explainer(world.hub.connect()))
        await world.configure(mine={"maximum": {"nvidia.com/gpu": 8}}, other={})
        await world.person("mia", operator="queue:mine")
        node = await world.node("n1", 8)
        await world.run(node, queue="mine", name="train", resources=gpus(3))
        for path in (PATH, "/v1/queues:apply"):
            assert (await world.ask("mia", "POST", path, json=file(2, "other"))).status_code in (403, 404)
        allowed = await world.ask("mia", "POST", f"{PATH}?reclaim=true", json=file(2))
        changed = await world.ask("mia", "POST", "/v1/queues:apply?reclaim=true", json=file(2))
        assert allowed.status_code == changed.status_code
        whole = await world.ask("owner", "POST", f"{PATH}?reclaim=true", json=file(2, "other"))
        assert whole.status_code == 200 and whole.json()["hidden"] == 0
