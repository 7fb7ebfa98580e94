"""GET /v1/changes: the events that lead from one moment's state to another's."""

from typing import Any

import msgspec
import pytest

from fairlead_bus.port import Stored
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire.commit import decode_commit
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.standing import StandingGateway
from tests.gateway.world import gpus
from tests.replay.worlds import log_of


@pytest.fixture
def messages() -> list[Stored]:
    """A recorded log."""
    return log_of(3)


async def pages(gateway: StandingGateway, query: str, limit: int) -> list[Any]:
    """All items of all pages."""
    path = f"/v1/changes?limit={limit}"
    answer = await gateway.http.get(f"{path}&{query}")
    assert answer.status_code == 200, answer.text
    page = answer.json()
    items, end = page["items"], page["sequence"]
    while page["next"] is not None:
        again = await gateway.http.get(f"{path}&{query}&continue={page['next']}")
        assert again.status_code == 200, again.text
        page = again.json()
        assert page["sequence"] == end, "all pages are of the same moments"
        items += page["items"]
    return items


async def test_changes_are_the_events_between_two_moments(messages: list[Stored]) -> None:
    """Behind the first, up to the last, each once and in order, whatever the size of the pages."""
    async with StandingGateway(messages) as gateway:
        for begin, end in ((1, len(messages)), (40, 90), (90, 91), (60, 60)):
            expected = [
                f"{stored.sequence}.{index}"
                for stored in messages[begin:end]
                for index in range(len(decode_commit(stored.payload).events))
            ]
            for limit in (7, 1000):
                found = await pages(gateway, f"from={begin}&to={end}", limit)
                assert [item["id"] for item in found] == expected
        newest = await pages(gateway, f"from={len(messages) - 3}", 100)
        assert newest[-1]["sequence"] == str(len(messages)), "without `to`: up to now"


async def test_moments_are_times_and_ages(messages: list[Stored]) -> None:
    """A time means the last commit before the first one that is later, as `at` does."""
    async with StandingGateway(messages) as gateway:
        begin_ns = decode_commit(messages[60].payload).at_ns
        times = [rfc3339(begin_ns), rfc3339(begin_ns + 5 * 10**9)]
        sequences = [(await gateway.get("/v1/breaker", at)).json()["sequence"] for at in times]
        by_time = await pages(gateway, f"from={times[0]}&to={times[1]}", 1000)
        by_sequence = await pages(gateway, f"from={sequences[0]}&to={sequences[1]}", 1000)
        assert by_time == by_sequence
        assert by_time
        ages = await gateway.http.get("/v1/changes?from=1 minute ago")
        assert ages.status_code in (200, 410)


async def test_changes_are_filtered_as_events_are(messages: list[Stored]) -> None:
    """By type, job, node, user and queue."""
    async with StandingGateway(messages) as gateway:
        every = await pages(gateway, "from=1", 1000)
        kinds = await pages(gateway, "from=1&type=JobPlaced", 1000)
        assert kinds == [item for item in every if item["type"] == "fairlead.job.placed.v1"]
        assert kinds
        job = kinds[0]["data"]["job"]
        of_job = await pages(gateway, f"from=1&job={job}", 1000)
        assert of_job
        assert {item["data"]["job"] for item in of_job} <= {job, *(f"{job}_{n}" for n in range(100))}
        assert (await gateway.http.get("/v1/changes?from=1&type=nope")).status_code == 422


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("", 422, "from"),
        ("from=0", 400, "from: sequences of the log start at 1"),
        ("from=-3", 400, "from: sequences of the log start at 1"),
        ("from=garbage", 400, "from: expected a log sequence"),
        ("from=1&to=2026-01-01T00:00:00", 400, "to: expected a log sequence"),
        ("from=1&to=99999", 400, "to: the log is at sequence"),
        ("from=1&to=2199-01-01T00:00:00Z", 400, "to: this is in the future"),
        ("from=9&to=4", 400, "from: expected a moment that is not after `to`"),
        ("from=1970-01-02T00:00:00Z", 410, "the earliest is sequence 1"),
        ("from=1&continue=x", 422, "continue"),
        ("from=1&continue=5-999999", 422, "continue"),
        ("from=1&continue=5", 422, "continue"),
        ("from=1&at=4", 422, "at: unknown query parameter"),
        ("from=1&from=2&limit=3", 422, "from: expected the query parameter once, found it 2 times"),
    ],
)
async def test_moments_that_cannot_be_are_refused(messages: list[Stored], query: str, status: int, words: str) -> None:
    """By the name of the parameter."""
    async with StandingGateway(messages) as gateway:
        answer = await gateway.http.get(f"/v1/changes?{query}")
        assert answer.status_code == status, answer.text
        assert words in msgspec.json.decode(answer.content)["detail"]


async def test_changes_of_others_are_not_shown() -> None:
    """As events are shown, by the rights of now."""
    async with SignedWorld() as world:
        await world.configure(mine={}, secretqueue={})
        await world.person("mia", member="queue:mine")
        for queue, name in (("mine", "own"), ("secretqueue", "secretjob")):
            body = {"command": ["true"], "queue": queue, "resources": gpus(1), "name": name}
            assert (await world.ask("owner", "POST", "/v1/jobs", json=body)).status_code == 201
        whole = await world.ask("owner", "GET", "/v1/changes?from=1&limit=1000")
        assert "secretjob" in whole.text
        seen = await world.ask("mia", "GET", "/v1/changes?from=1&limit=1000")
        assert seen.status_code == 200
        assert '"own"' in seen.text
        assert "secret" not in seen.text
        await world.revoke("mia", "member", "queue:mine")
        assert '"own"' not in (await world.ask("mia", "GET", "/v1/changes?from=1&limit=1000")).text
