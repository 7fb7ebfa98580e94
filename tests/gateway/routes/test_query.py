"""Lists of jobs by queue, user and state: subtrees, several names, and names that do not exist."""

from typing import Any

import pytest

from fairlead_schemas.units.timestamps import HOUR_NS
from tests.gateway.world import GatewayWorld, gpus


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
    assert await listed(world, user="anonymous") == [], "one's own name is no mistake"


@pytest.mark.parametrize(
    ("query", "field", "hint"),
    [
        ({"queue": "reserch"}, "queue", "research"),
        ({"queue": "sales,research/visio"}, "queue", "research/vision"),
        ({"queue": "resea"}, "queue", "research"),
        ({"queue": "Sales"}, "queue", ""),
        ({"user": "Ada"}, "user", ""),
        ({"user": "ada,bbo"}, "user", "bob"),
        ({"user": "dan"}, "user", ""),
        ({"since": "soon"}, "since", ""),
        ({"label": "=x"}, "label", ""),
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


async def test_names_labels_and_projects_filter_a_list(world: GatewayWorld) -> None:
    """Names by patterns, labels all of them, projects by name; an element has its array's labels."""
    fields = {"name": "train-1", "labels": {"team": "vision", "stage": "x"}, "project": "llm"}
    first = await world.submit(**fields)
    second = await world.submit(name="train-2", labels={"team": "speech"})
    assert await listed(world, name="train-*") == [first, second]
    assert await listed(world, name="train-2,other") == [second]
    assert await listed(world, label="team") == [first, second]
    assert await listed(world, label="team=vision,stage") == [first]
    assert await listed(world, label="team=vision,stage=y") == []
    assert await listed(world, project="llm,vlm") == [first]
    assert await listed(world, project="llm", name="train-2") == []


async def test_a_list_leaves_out_what_ended_long_ago(world: GatewayWorld) -> None:
    """By a time, or by how long ago; jobs that have not ended are always listed."""
    job = await world.submit()
    await world.http.post(f"/v1/jobs/{job}:cancel")
    await world.in_state(job, "cancelled")
    assert job in await listed(world, since="1h")
    assert job in await listed(world, since="2026-01-01T00:00:00Z")
    world.gateway.views.jobs.rows[job].ended_ns -= 2 * HOUR_NS
    assert job not in await listed(world, since="1h")
    assert len(await listed(world, since="1h")) == 4
    assert (await listed(world, since="03:00"))[1] == "since"


async def test_an_array_stands_for_its_elements(world: GatewayWorld) -> None:
    """In lists without elements; it is found by the states of theirs."""
    node = await world.node("n1", 1)
    array = await world.submit(array=3, resources=gpus(1), name="sweep")
    await world.in_state(f"{array}_0", "placed")
    await node.start(f"{array}_0")
    await world.in_state(f"{array}_0", "running")
    assert f"{array}_0" in await listed(world, name="sweep")
    assert await listed(world, name="sweep", elements="false") == [array]
    assert await listed(world, state="running", elements="false") == [array]
    assert await listed(world, state="running") == [f"{array}_0"]
    assert await listed(world, state="failed", elements="false") == []


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/queues/reserch/vison", "research/vision"),
        ("/v1/queues/vision", "research/vision"),
        ("/v1/pools/defalt/packing", "default"),
        ("/v1/pools/defalt/defrag", "default"),
        ("/v1/nodes/gpu-noed-1", "gpu-node-1"),
    ],
)
async def test_an_unknown_name_is_answered_with_the_one_that_was_meant(path: str, meant: str) -> None:
    """Where there is one; a name like no other gets none."""
    async with GatewayWorld() as world:
        await world.configure(research={}, research__vision={})
        await world.node("gpu-node-1")
        answer = await world.http.get(path)
        assert (answer.status_code, answer.json()["detail"].rpartition("; ")[2]) == (404, f"did you mean {meant}?")
        other = await world.http.get("/v1/queues/zzzz")
        assert "did you mean" not in other.json()["detail"]
