"""Proposals to start a job now fit the nodes, not only the pool's sum."""

from typing import Any

import pytest

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import StarvationRow
from tests.gateway.crowded_queue import kinds_of
from tests.gateway.dry_runs import tried
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.eventually import eventually_async


async def full_but_for(world: GatewayWorld, left: int) -> None:
    """Two nodes of 8 GPUs and 64 CPUs, each with so many GPUs left."""
    for name in ("n1", "n2"):
        await world.node(name)
        if left < 8:
            await world.in_state(await world.submit(resources=gpus(8 - left)), "placed")


async def refused(world: GatewayWorld, **spec: Any) -> dict[str, Any]:
    """Return the reason of a job that the placer could not place."""
    job = await world.submit(**spec)
    await eventually_async(lambda: any(refusal.job == job for refusal in world.gateway.views.waiting.refusals.values()))
    return await world.why(job)


async def test_a_smaller_request_that_is_free_on_one_node_is_proposed() -> None:
    """Two and two are free: no node has four or three."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await full_but_for(world, 2)
        assert kinds_of(await refused(world, resources=gpus(4))) == {
            "wait": "starts when 4 GPUs are free on one node",
            "smaller": "could start now with 2 GPUs instead of 4",
        }
        await world.in_state(await world.submit(resources=gpus(2)), "placed")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        # The GPUs are there.
        (
            {"resources": {"nvidia.com/gpu": 1, "cpu": "64"}},
            {"wait": "starts when 1 GPU and 64 CPUs are free on one node"},
        ),
        ({"resources": {"cpu": "64"}}, {"wait": "starts when 64 CPUs are free on one node"}),
        # Five tasks of two GPUs would find room on two nodes of eight, but not beside what runs there.
        ({"tasks": 5, "resources": gpus(2)}, {"wait": "starts when 2 GPUs are free for each of 5 tasks"}),
        # There is no third node, however few GPUs are asked for.
        ({"resources": gpus(2), "nodes": 3}, {"wait": "starts when 2 GPUs are free on each of 3 nodes"}),
    ],
)
async def test_the_missing_resource_is_named(spec: dict[str, Any], told: dict[str, str]) -> None:
    """CPUs that the placer found short; nodes that do not exist."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await full_but_for(world, 2)
        assert kinds_of(await refused(world, **spec)) == told


async def test_an_untried_job_waits_for_the_reason_of_its_equals() -> None:
    """The placer looks ahead over a bounded number; the missing resource is the same."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await full_but_for(world, 2)
        await refused(world, resources=gpus(4))
        last = [await world.submit(resources=gpus(4)) for _ in range(20)][-1]
        told = await world.why(last)
        assert (told["state"], told["reason"]["code"]) == ("queued", "no_place")
        assert kinds_of(told) == {
            "wait": "starts when 4 GPUs are free on one node",
            "smaller": "could start now with 2 GPUs instead of 4",
        }


async def test_a_cordoned_node_takes_nothing() -> None:
    """Its GPUs are free, and that is not enough."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await full_but_for(world, 2)
        for name in ("n1", "n2"):
            await world.http.post(f"/v1/nodes/{name}:cordon", json={"reason": "fan"})
        assert kinds_of(await refused(world, resources=gpus(1))) == {
            "wait": "starts when 1 GPU is free on one node that may take it"
        }


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"nodeSelector": {"nvidia.com/gpu.product": "H900"}},
            "needs 1 GPU on one node; no node that has joined could take it",
        ),
        ({"gpu": {"memory": "81Gi"}}, "needs 1 GPU on one node; no node that has joined could take it"),
        ({"nodes": 3}, "needs 1 GPU on each of 3 nodes; only 2 nodes that have joined could take it"),
    ],
)
async def test_a_request_that_no_node_can_hold_gets_no_start(spec: dict[str, Any], told: str) -> None:
    """It would be accepted, since nodes may join; until then it waits for an unknown time."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await full_but_for(world, 8)
        found = await tried(world, resources=gpus(1), **spec)
        assert found["message"] == f"would be accepted, but {told}, even if nothing ran"
        assert (found["reason"]["code"], found["estimate"]["start_at"]) == ("no_place", None)
        assert found["estimate"]["basis"] == f"it {told}, even if nothing ran"


async def test_a_request_that_fits_no_node_now_does_not_start_at_once() -> None:
    """Four GPUs are free, two on each node; or suitable nodes are cordoned. The time of a change is unknown."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await full_but_for(world, 2)
        found = await tried(world, resources=gpus(4))
        assert (
            found["message"]
            == "would be accepted, but needs 4 GPUs on one node; no node that may take it has as much left"
        )
        assert kinds_of(found) == {
            "wait": "starts when 4 GPUs are free on one node",
            "smaller": "could start now with 2 GPUs instead of 4",
        }
        assert found["estimate"] == {
            "start_at": None,
            "wait_seconds": None,
            "basis": "the pool has as much left, but not on nodes that could take it",
        }
        found = await tried(world, resources={"nvidia.com/gpu": 1, "cpu": "64"})
        assert kinds_of(found) == {"wait": "starts when 1 GPU and 64 CPUs are free on one node"}
        await world.http.post("/v1/nodes/n1:cordon", json={"reason": "fan"})
        await eventually_async(lambda: world.gateway.views.nodes.rows["n1"].cordoned)
        found = await tried(world, resources=gpus(2), nodes=2)
        assert kinds_of(found)["wait"] == "starts when 2 GPUs are free on each of 2 nodes"
        assert (
            found["message"]
            == "would be accepted, but needs 2 GPUs on each of 2 nodes; only 1 node that may take it has as much left"
        )


async def test_a_reserved_node_is_not_free() -> None:
    """Only the job with the reservation may have its GPUs, however many are idle."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await full_but_for(world, 3)
        keeper = (await refused(world, resources=gpus(8)))["id"]
        views = world.gateway.views
        views.jobs.rows[keeper].room = StarvationRow(1, nodes=("n1",))
        views.waiting.rooms.add(keeper)
        await world.in_state(await world.submit(resources=gpus(2)), "placed")
        on = max((row for row in views.jobs.rows.values() if row.parts), key=lambda row: int(row.id)).parts[0].node
        views.jobs.rows[keeper].room = StarvationRow(1, nodes=("n1" if on == "n2" else "n2",))
        told = kinds_of(await refused(world, resources=gpus(4)))
        assert told["smaller"] == "could start now with 1 GPU instead of 4"
        assert kinds_of(await world.why(keeper))["smaller"] == "could start now with 3 GPUs instead of 8"
        again = Views.restore(views.snapshot())
        assert again is not None and again.waiting.kept_nodes("") == views.waiting.kept_nodes("") != set()


async def test_no_queue_and_no_limit_is_named_where_no_node_has_room() -> None:
    """The limit is in the way, and so are the nodes."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.configure(team={"maximum": gpus(5)}, shared={})
        await full_but_for(world, 3)
        await world.in_state(await world.submit(queue="team", resources=gpus(2)), "placed")
        job = await world.submit(queue="team", resources=gpus(4))
        assert kinds_of(await world.why(job)) == {
            "wait": "starts when 1 GPU of team is given back",
            "smaller": "could start now with 3 GPUs instead of 4",
        }


async def test_an_old_refusal_does_not_block_a_dry_run() -> None:
    """A refusal in a full cluster does not matter in an empty one; while it still holds, it does."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        node = await world.node("n1")
        job = await world.run(node, resources=gpus(8))
        waits = (await refused(world, resources=gpus(8)))["id"]
        found = await tried(world, resources=gpus(8))
        said = "would be accepted, but needs 8 GPUs on one node; of 1 node 1 lacks free GPUs"
        assert found["message"] == f"{said}; n1 fits after job {job} ends"
        await world.http.post(f"/v1/jobs/{waits}:cancel", json={})
        await world.in_state(waits, "cancelled")
        await node.exit(job)
        await world.in_state(job, "succeeded")
        assert (await tried(world, resources=gpus(8)))["message"] == "would be accepted, and offered at once"


async def test_a_refusal_in_one_pool_is_none_in_another() -> None:
    """The trial is of the pool that its queue is in."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.http.post("/v1/queues:apply", json={"pools": {"other": {}}, "queues": {"far": {"pool": "other"}}})
        await full_but_for(world, 2)
        await refused(world, resources=gpus(4))
        found = await tried(world, queue="far", resources=gpus(4))
        assert (found["pool"], "2 lack free GPUs" in found["message"]) == ("other", False)
