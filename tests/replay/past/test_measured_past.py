"""Moments that are answered by telemetry and the explainer: statements, use of GPUs, moves, as clusters that stand at the moment answer."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from fairlead_bus.port import Stored
from fairlead_gateway.views.fold import Views
from fairlead_replay.past.kept_log import StandingCluster
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire.commit import decode_commit
from tests.gateway.standing import fold, furnished
from tests.replay.worlds import log_of

MOMENTS = 2


@pytest.fixture(params=[3, 8])
def messages(request: pytest.FixtureRequest) -> list[Stored]:
    """A recorded log with prices."""
    return furnished(log_of(request.param), request.param)


@asynccontextmanager
async def standing(messages: list[Stored]) -> AsyncIterator[StandingCluster]:
    """A whole cluster over a log that nothing writes."""
    cluster = StandingCluster(messages)
    try:
        yield cluster
    finally:
        await cluster.close()


async def ask(cluster: StandingCluster, path: str, at: int = 0) -> httpx.Response:
    """GET a path, at a moment if one is named."""
    query = f"{'&' if '?' in path else '?'}at={at}" if at else ""
    return await cluster.answer(httpx.Request("GET", f"http://localhost{path}{query}"))


def paths(views: Views) -> list[str]:
    """Routes that are not answered from views, with what there was."""
    found = [f"/v1/usage?by={by}" for by in ("user", "queue", "attempt", "model")]
    if jobs := [*views.jobs.rows][-50:]:
        found.append(f"/v1/use?jobs={','.join(jobs)}")
    return found + [f"/v1/pools/{row.name}/defrag" for row in views.queues.pool_rows()]


async def test_answers_are_those_of_then(messages: list[Stored]) -> None:
    """At random moments, byte for byte, with headers that name the moment."""
    chance, charged = random.Random(5), 0
    async with standing(messages) as now:
        for sequence in sorted(chance.sample(range(10, len(messages)), MOMENTS)):
            async with standing(messages[:sequence]) as then:
                for path in paths(fold(messages[:sequence])):
                    expected, found = await ask(then, path), await ask(now, path, sequence)
                    assert expected.status_code == found.status_code == 200, (path, sequence, found.text)
                    assert found.content == expected.content, (path, sequence)
                    assert found.headers["x-fairlead-at"].startswith(f"{sequence} ")
                    charged += expected.json().get("charged", 0)
    assert charged, "some GPU time was charged"


async def test_a_time_means_the_same_moment_for_all(messages: list[Stored]) -> None:
    """For a statement as for views: after the last commit before the first one that is later."""
    async with standing(messages) as now:
        for stored in messages[30:90:20]:
            query = f"?at={rfc3339(decode_commit(stored.payload).at_ns)}"
            usage, views = await ask(now, f"/v1/usage{query}"), await ask(now, f"/v1/cluster{query}")
            assert usage.headers["x-fairlead-at"] == views.headers["x-fairlead-at"]


@pytest.mark.parametrize(
    ("at", "status"), [("0", 400), ("garbage", 400), ("99999", 400), ("1970-01-02T00:00:00Z", 410)]
)
async def test_moments_that_cannot_be(at: str, status: int) -> None:
    """Are refused as for every other route."""
    async with standing(log_of(3)) as now:
        for path in ("/v1/usage?by=user", "/v1/use?jobs=1", "/v1/pools/default/defrag?"):
            found = await now.answer(httpx.Request("GET", f"http://localhost{path}&at={at}"))
            assert found.status_code == status, (path, found.text)
