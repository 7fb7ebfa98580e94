"""Refusals by form stay out of the log, and a client that is refused in a loop gets 429."""

import asyncio
import re
from pathlib import Path

import pytest

from fairlead_gateway.errors import REFUSALS
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_gateway.server.request_guard import CLIENTS_MAX, RefusalLimit
from tests.gateway.gatehouse import WAIT_S
from tests.gateway.world import GatewayWorld

ROOT = Path(__file__).parents[3]
#: A CloudEvent that names two jobs to cancel.
CANCEL_TWICE = '{"specversion": "1.0", "type": "fairlead.job.cancel.v1", "source": "x", "id": "1", "data": {"job": "2", "job": "1"}}'
ADA, BOB = ("10.0.0.1", "ada"), ("10.0.0.1", "bob")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/jobs/999:cancel", {}, 404),
        ("/v1/jobs/999_7:hold", {}, 404),
        ("/v1/jobs/999:move", {"queue": "default"}, 404),
        ("/v1/jobs/x:release", {}, 404),
        ("/v1/nodes/nosuch:cordon", {}, 404),
        ("/v1/nodes/nosuch:taint", {"taint": "a=b:NoSchedule"}, 404),
        ("/v1/nodes/n1:taint", {"taint": "a=b:Sometimes"}, 422),
        ("/v1/nodes/n1:taint", {"taint": "=b:NoSchedule"}, 422),
        ("/v1/rollouts/nosuch:pause", {}, 404),
        ("/v1/maintenance/nosuch:cancel", {}, 404),
    ],
)
async def test_meaningless_requests_cost_no_event(path: str, body: dict[str, str], status: int) -> None:
    """Unknown jobs, nodes and plans, and invalid taints, are refused by the gateway: nothing is stored."""
    async with GatewayWorld() as world:
        await world.node("n1", 8)
        await world.submit()
        before = world.commands_stored()
        answer = await world.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        assert world.commands_stored() == before


@pytest.mark.parametrize(
    "job",
    [
        {"queue": "a\nb"},
        {"array": "1\n2"},
        {"dependsOn": [{"job": "1\n2"}]},
        {"resources": {"memory": "1\nGi"}},
        {"gpu": {"computeCapability": "8\n0"}},
        {"tolerations": [{"key": "a\nb"}]},
        {"launcher": "a\nb"},
        {"a\nb": 1},
    ],
)
async def test_the_message_of_a_refusal_is_one_line(job: dict[str, object]) -> None:
    """A line break in the request is escaped: it would break the line in a terminal or a log."""
    async with GatewayWorld() as world:
        answer = await world.http.post("/v1/jobs", json={"command": ["true"], **job})
        assert answer.status_code == 422
        problem = answer.json()
        words = [problem["detail"], *(word for error in problem["errors"] for word in error.values())]
        assert [word for word in words if not word.isprintable()] == []
        assert "\\n" in problem["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/nodes/n1:cordon", '{"reason": "a", "reason": "b"}'),
        ("/v1/nodes/n1:taint", '{"reason": "a", "taint": "a=b:NoSchedule", "reason": "b"}'),
        ("/v1/sql", '{"query": "SELECT 1", "query": "SELECT 2"}'),
        ("/v1/events", CANCEL_TWICE),
        ("/v1/events", f"[{CANCEL_TWICE}]"),
    ],
)
async def test_a_duplicate_key_is_refused(path: str, body: str) -> None:
    """Decoders take the last value, but the first may have been intended. The refusal names the key."""
    async with GatewayWorld() as world:
        await world.node("n1", 8)
        await world.submit()
        before = world.commands_stored()
        media = "application/json"
        if path == "/v1/events":
            media = "application/cloudevents-batch+json" if body[0] == "[" else "application/cloudevents+json"
        answer = await world.http.post(path, content=body, headers={"content-type": media})
        assert (answer.status_code, answer.json()["errors"][0]["message"]) == (
            422,
            "this key is given twice; keep one of them",
        )
        assert world.commands_stored() == before


async def test_names_in_errors_are_one_line() -> None:
    """A name with a line break or an escape sequence is spelled out, so that it cannot forge lines of a terminal or a log."""
    async with GatewayWorld() as world:
        files = await world.http.post("/v1/queues:apply", json={"queues": {"a": {"users": {"bob\n\x1b[31m": {}}}}})
        users = await world.http.get("/v1/jobs", params={"user": "a\nb"})
        for answer in (files, users):
            error = answer.json()["errors"][0]
            assert answer.status_code == 422 and error["field"].isprintable(), error
        assert users.json()["detail"].isprintable()


@pytest.mark.parametrize(
    ("path", "field", "hint"),
    [
        ("/v1/map?pool=nosuch", "pool", "known are: default"),
        ("/v1/map?pool=defautl", "pool", "did you mean default?"),
        ("/v1/map?rack=nosuch", "rack", "known are: none"),
        ("/v1/events?job=x", "job", ""),
        ("/v1/events?follow=1&job=x", "job", ""),
    ],
)
async def test_filters_for_what_is_not_there_are_refused(path: str, field: str, hint: str) -> None:
    """An empty answer would read as "there is nothing there"; a mistyped name is named instead."""
    async with GatewayWorld() as world:
        await world.node("n1", 8)
        async with asyncio.timeout(WAIT_S):  # a watch that is not refused does not end
            answer = await world.http.get(path)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
        assert answer.json().get("hint", "") == hint


async def test_a_cloudevent_for_an_unknown_job_costs_no_event() -> None:
    """The same by the other way in."""
    async with GatewayWorld() as world:
        before = world.commands_stored()
        event = {
            "specversion": "1.0",
            "type": "fairlead.job.cancel.v1",
            "source": "x",
            "id": "1",
            "data": {"job": "999"},
        }
        headers = {"content-type": "application/cloudevents+json"}
        answer = await world.http.post("/v1/events", json=event, headers=headers)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "data.job")
        assert world.commands_stored() == before


async def test_an_element_that_was_not_offered_yet_is_the_queues_to_judge() -> None:
    """The array is there, so the element may be."""
    async with GatewayWorld() as world:
        job = await world.submit(array="0-99999")
        answer = await world.http.post(f"/v1/jobs/{job}_99999:hold", json={})
        assert answer.status_code == 409 and "not been offered" in answer.json()["detail"]


async def test_a_loop_of_mistakes_is_answered_429() -> None:
    """Beyond the bound further changes of that client wait; reading, others' dry runs and other clients continue."""
    async with GatewayWorld(http=HttpSettings(refusals_per_minute=5)) as world:
        for _ in range(5):
            assert (await world.http.post("/v1/jobs/999:cancel", json={})).status_code == 404
        limited = await world.http.post("/v1/jobs", json={"command": ["true"]})
        assert (limited.status_code, limited.json()["title"]) == (429, "Too Many Requests")
        assert int(limited.headers["retry-after"]) >= 1
        assert (await world.http.get("/v1/jobs")).status_code == 200
        other = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers={"x-fairlead-user": "bob"})
        assert other.status_code == 201
        count = world.gateway.metrics.registry.get_sample_value(
            "fairlead_gateway_refusals_total", {"reason": "too_many_refusals"}
        )
        assert count == 1


async def test_refused_elements_of_a_list_count_each() -> None:
    """A list of jobs for a queue that is not there makes as many events as it has elements."""
    async with GatewayWorld(http=HttpSettings(refusals_per_minute=5)) as world:
        answer = await world.http.post("/v1/jobs", json=[{"command": ["true"], "queue": "nosuch"}] * 6)
        assert answer.status_code == 200
        assert (await world.http.post("/v1/jobs", json={"command": ["true"]})).status_code == 429


def test_the_bound_decays_evenly_and_is_each_clients_own() -> None:
    """After a second a sixtieth of a minute's refusals is free again."""
    limit = RefusalLimit(60)
    limit.count(ADA, 60, now_s=0.0)
    assert limit.check(ADA, 0.5) is not None and limit.check(BOB, 0.5) is None
    assert limit.check(ADA, 1.0) is None
    limit.count(ADA, 20_000, now_s=2.0)
    refused = limit.check(ADA, 2.0)
    assert refused is not None and refused.retry_after_s <= 62
    assert limit.check(ADA, 63.1) is None


def test_invented_users_do_not_lift_the_bound() -> None:
    """An address that claims ever new users is bounded as a whole; other addresses continue."""
    limit = RefusalLimit(10)
    for number in range(99):
        limit.count(("10.0.0.2", f"u{number}"), 1, now_s=0.0)
    assert limit.check(("10.0.0.2", "new"), 0.0) is None
    limit.count(("10.0.0.2", "u99"), 1, now_s=0.0)
    assert limit.check(("10.0.0.2", "newer"), 0.0) is not None
    assert limit.check(("10.0.0.3", "new"), 0.0) is None


def test_a_client_over_its_bound_does_not_close_its_address_to_others() -> None:
    """Many people share the address of a proxy. Requests that were sent at once count before the first is answered, and a
    client that continues for an hour counts for no more than one client."""
    limit = RefusalLimit(60)
    for _ in range(100):
        limit.count(ADA, 1000, now_s=0.0)
    assert limit.check(ADA, 0.0) is not None and limit.check(BOB, 0.0) is None
    for second in range(3600):
        limit.count(ADA, 10, now_s=float(second))
        assert limit.check(BOB, float(second)) is None
    for number in range(5):
        assert limit.check(BOB, 3600.0) is None
        limit.count(("10.0.0.1", f"u{number}"), 1000, now_s=3600.0)
    refused = limit.check(BOB, 3600.0)
    assert refused is not None and "over 600 changes of all clients of this address together" in refused.detail
    assert limit.check(BOB, 3608.0) is None


def test_no_bound_and_no_refusals_cost_nothing() -> None:
    """0 switches it off."""
    limit = RefusalLimit(0)
    limit.count(ADA, 10_000, now_s=0.0)
    assert limit.check(ADA, 0.0) is None


def test_remembered_clients_are_bounded() -> None:
    """A client that states ever new users does not fill the memory, and those over their bound are kept."""
    limit = RefusalLimit(10)
    limit.count(ADA, 20, now_s=0.0)
    for number in range(CLIENTS_MAX + 5):
        limit.count(("10.0.0.2", str(number)), 1, now_s=0.0)
    assert len(limit._levels) <= CLIENTS_MAX  # pyright: ignore[reportPrivateUsage]
    assert limit.check(ADA, 0.0) is not None


def test_commands_that_cannot_be_meant_are_422() -> None:
    """The table of statuses has each code by which the placer refuses what is malformed; a code without a row would be a 409."""
    sources = (ROOT / "services/placer/fairlead_placer/decide").glob("*.py")
    codes = {code for path in sources for code in re.findall(r'CommandRefusal\(\s*"(bad_\w+)"', path.read_text())}
    assert dict.fromkeys(codes, 422) == {code: REFUSALS.get(code) for code in codes} != {}
