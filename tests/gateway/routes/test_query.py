"""Lists of jobs by queue, user and state: subtrees, several names, and names that do not exist."""

from typing import Any

import pytest

from tests.gateway.world import GatewayWorld


async def listed(world: GatewayWorld, **query: str) -> Any:
    """Ids of the listed jobs in order of submission; for a refusal its field and words."""
    answer = await world.http.get("/v1/jobs", params=query)
    if answer.status_code != 200:
        problem = answer.json()
        return answer.status_code, problem["errors"][0]["field"], problem.get("hint", "")
    return sorted(job["id"] for job in answer.json()["items"])


@pytest.fixture
async def world():
    """Jobs 1 to 4 of three users in research/vision, research/speech, sales and default."""
    async with GatewayWorld() as world:
        for path in ("research/vision", "research/speech", "sales"):
            answer = await world.http.put(f"/v1/queues/{path}", json={})
            assert answer.status_code in (200, 201), answer.text
        for user, queue in (
            ("ada", "research/vision"),
            ("bob", "research/speech"),
            ("cyd", "sales"),
            ("ada", "default"),
        ):
            answer = await world.http.post(
                "/v1/jobs", json={"command": ["true"], "queue": queue}, headers={"x-fairlead-user": user}
            )
            assert answer.status_code == 201, answer.text
        yield world


async def test_a_queue_means_all_below_it(world: GatewayWorld) -> None:
    """A lead asks for the team's queue, whose jobs are in its leaves."""
    assert await listed(world, queue="research") == ["1", "2"]
    assert await listed(world, queue="research/vision") == ["1"]
    assert await listed(world, queue="research/speech,sales") == ["2", "3"]
    assert await listed(world, queue="default") == ["4"]
    assert await listed(world, queue="sales", state="succeeded") == []


async def test_several_users_are_one_list(world: GatewayWorld) -> None:
    """Joined by commas, as squeue takes them."""
    assert await listed(world, user="ada,cyd") == ["1", "3", "4"]
    assert await listed(world, user="ada", queue="research") == ["1"]
    assert await listed(world, user="dan") == []


@pytest.mark.parametrize(
    ("query", "field", "hint"),
    [
        ({"queue": "reserch"}, "queue", "research"),
        ({"queue": "sales,research/visio"}, "queue", "research/vision"),
        ({"queue": "resea"}, "queue", "research"),
        ({"queue": "Sales"}, "queue", ""),
        ({"user": "Ada"}, "user", ""),
        ({"state": "asleep"}, "state", ""),
    ],
)
async def test_a_name_that_is_not_there_is_an_error(
    world: GatewayWorld, query: dict[str, str], field: str, hint: str
) -> None:
    """An empty list would say that nothing waits."""
    status, found, words = await listed(world, **query)
    assert (status, found) == (422, field) and hint in words


async def test_a_removed_queue_still_finds_its_jobs(world: GatewayWorld) -> None:
    """Jobs outlive the queue that they were in."""
    assert (await world.http.post("/v1/jobs/3:cancel")).status_code == 200
    assert (await world.http.delete("/v1/queues/sales")).status_code == 200
    assert await listed(world, queue="sales") == ["3"]
