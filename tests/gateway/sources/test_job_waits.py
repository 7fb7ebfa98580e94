"""Requests that wait for a job's start or end: answered as it comes, bounded in time and number, and within their caller's rights."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fairlead_gateway.sources import job_waits
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async

#: A wait that would fail its test by its time.
LONG_S = 20


async def test_a_job_is_answered_when_it_starts_and_when_it_ends() -> None:
    """Both requests are open before it happens, and each answer has the state that was waited for."""
    async with GatewayWorld() as world:
        job = await world.submit()
        path = f"/v1/jobs/{job}?wait_s={LONG_S}&until="
        started = asyncio.create_task(world.http.get(path + "started"))
        ended = asyncio.create_task(world.http.get(path + "ended"))
        await eventually_async(lambda: len(world.gateway.job_waits._open) == 2)
        node = await world.node("n1")
        await world.in_state(job, "placed")
        await node.start(job)
        assert (await started).json()["state"] == "running"
        assert not ended.done()
        await node.exit(job, 3)
        assert (await ended).json()["exit_code"] == 3
        assert not world.gateway.job_waits._open


async def test_a_wait_ends_with_its_time_and_with_its_job() -> None:
    """A job that stays as it is is answered as it is; one that nothing knows is not waited for."""
    async with GatewayWorld() as world:
        job = await world.submit()
        assert (await world.http.get(f"/v1/jobs/{job}?until=started&wait_s=1")).json()["state"] in ("queued", "offered")
        assert (await world.http.get(f"/v1/jobs/99?until=ended&wait_s={LONG_S}")).status_code == 404


@pytest.mark.parametrize(
    ("query", "field"),
    [("until=over&wait_s=1", "until"), ("until=ended", "wait_s"), ("wait_s=1", "until"), ("wait_s=21", "wait_s")],
)
async def test_a_wait_that_means_nothing_is_refused(query: str, field: str) -> None:
    """By the name of the parameter that is wrong or missing."""
    async with GatewayWorld() as world:
        job = await world.submit()
        answer = await world.http.get(f"/v1/jobs/{job}?{query}")
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


async def test_too_many_waits_are_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks again, as it does without waits."""
    monkeypatch.setattr(job_waits, "WAITS_MAX", 0)
    async with GatewayWorld() as world:
        job = await world.submit()
        assert (await world.http.get(f"/v1/jobs/{job}?until=ended&wait_s={LONG_S}")).status_code == 200


async def _suspend(world: SignedWorld) -> None:
    world.gateway.callers.ended = lambda caller: "suspended"


async def _revoke(world: SignedWorld) -> None:
    await world.revoke("bob", "viewer", "queue:default")


@pytest.mark.parametrize(("act", "status"), [(_suspend, 401), (_revoke, 404)])
async def test_a_right_that_ended_during_the_wait_is_missing(
    act: Callable[[SignedWorld], Awaitable[None]], status: int
) -> None:
    """The answer is that of a request which comes after the revocation."""
    async with SignedWorld() as world:
        await world.person("bob", viewer="queue:default")
        job = await world.submit(queue="default")
        asked = asyncio.create_task(
            world.http.get(
                f"/v1/jobs/{job}?until=started&wait_s={LONG_S}", headers={"authorization": "Bearer bob-token"}
            )
        )
        await eventually_async(lambda: bool(world.gateway.job_waits._open))
        await act(world)
        world.gateway.views.jobs.rows[job].state = "running"
        world.gateway.job_waits.look()
        assert (await asked).status_code == status
