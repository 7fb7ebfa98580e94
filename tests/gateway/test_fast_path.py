"""The fast path: what it answers past FastAPI is what the plain form of the same route answers."""

import re
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.routing import Match

from fairlead_bus.memory import MemoryHub
from fairlead_gateway.routes.router import Router
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_gateway.service import Gateway, GatewaySettings
from fairlead_gateway.sources.live_views import LiveViews
from tests.gateway.world import GatewayWorld

JSON = {"content-type": "application/json"}
EVENT = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}
JOB = b'{"command":["true"]}'
SUBMIT = b'{"specversion":"1.0","type":"fairlead.job.submit.v1","source":"/t","id":"1","data":%b}' % JOB
#: Members of an answer that no two requests share.
OWN = {"request_id", "sequence", "command"}


class PlainWorld(GatewayWorld):
    """A world whose gateway answers every request by FastAPI."""

    async def start_gateway(self) -> None:
        await super().start_gateway()
        self.gateway.app.routes.clear()


def shared(document: Any) -> Any:
    """The members of a document that do not depend on the request's number or moment."""
    if isinstance(document, list):
        return [shared(each) for each in document]
    return {key: value for key, value in document.items() if key not in OWN}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/jobs", JOB, JSON),
        ("/v1/jobs", JOB, {**JSON, "idempotency-key": "k", "x-fairlead-user": "ada"}),
        ("/v1/jobs", b"[%b,%b]" % (JOB, JOB), JSON),
        ("/v1/jobs", b"[%b,7]" % JOB, JSON),
        ("/v1/jobs", b'{"command":["true"],"bogus":1}', JSON),
        ("/v1/jobs", b'{"command":["true"],"queue":"nowhere"}', JSON),
        ("/v1/jobs", b"", JSON),
        ("/v1/jobs", JOB, {"content-type": "text/plain"}),
        ("/v1/jobs", JOB, {}),
        ("/v1/jobs", JOB + b" " * 300_000, JSON),
        ("/v1/jobs", JOB, {**JSON, "x-fairlead-user": "Ada L"}),
        ("/v1/jobs", JOB, {**JSON, "idempotency-key": ""}),
        ("/v1/jobs", JOB, {**JSON, "origin": "http://evil.example"}),
        ("/v1/jobs?dryrun=1", JOB, JSON),
        ("/v1/events", SUBMIT, EVENT),
        ("/v1/events", b"[%b]" % SUBMIT, BATCH),
        ("/v1/events", SUBMIT, JSON),
        ("/v1/events", b'{"specversion":"1.0"}', EVENT),
        ("/v1/jobs:dryrun", JOB, JSON),
        ("/v1/jobs:dryrun", b"[%b]" % JOB, JSON),
        ("/v1/jobs:dryrun", b"{}", JSON),
    ],
)
async def test_the_plain_form_of_a_route_answers_alike(path: str, body: bytes, headers: dict[str, str]) -> None:
    """Same status, document, type and place; every answer has a request id and a sequence."""
    found: list[tuple[Any, ...]] = []
    for kind in (GatewayWorld, PlainWorld):
        async with kind() as world:
            answer = await world.http.post(path, content=body, headers=headers)
            assert {"x-request-id", "x-fairlead-sequence", "x-fairlead-version"} <= answer.headers.keys()
            kept = [answer.headers.get(name) for name in ("content-type", "location", "retry-after")]
            found.append((answer.status_code, kept, shared(answer.json())))
    assert found[0] == found[1]


async def test_an_undecided_command_is_202_on_both_ways_and_of_any_kind() -> None:
    """A submit, a verb and an element of a list that were not decided in time name their command and its address."""
    for kind in (GatewayWorld, PlainWorld):
        async with kind(queue=False, decision_wait_s=0.05) as world:
            one = await world.http.post("/v1/jobs", content=JOB, headers=JSON)
            verb = await world.http.put("/v1/queues/q", json={})
            for answer in (one, verb):
                assert answer.status_code == 202
                assert answer.headers["location"] == f"/v1/commands/{answer.json()['command']}"
            several = await world.http.post("/v1/jobs", content=b"[%b]" % JOB, headers=JSON)
            assert (several.status_code, several.json()[0].keys()) == (202, one.json().keys())


async def test_refused_elements_count_against_the_client_on_both_ways() -> None:
    """A list whose elements were refused is a 200, and counts as many refusals."""
    for kind in (GatewayWorld, PlainWorld):
        async with kind(http=HttpSettings(refusals_per_minute=5)) as world:
            answer = await world.http.post("/v1/jobs", json=[{"command": ["true"], "queue": "nosuch"}] * 6)
            assert answer.status_code == 200
            assert (await world.http.post("/v1/jobs", content=JOB, headers=JSON)).status_code == 429


HUGE = b"9" * 5000
MANY = b",".join(b'{"job":"x%d"}' % n for n in range(3000))


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/events", SUBMIT.replace(JOB, b'{"a":%b}' % HUGE), EVENT),
        ("/v1/events", b"[%b]" % SUBMIT.replace(JOB, b'{"a":%b}' % HUGE), BATCH),
        ("/v1/jobs", b'{"command":["true"],"dependsOn":[%b]}' % MANY, JSON),
        ("/v1/jobs:dryrun", b'{"command":["true"],"dependsOn":[%b]}' % MANY, JSON),
        ("/v1/jobs", b'{"command":["true"],"%b":1}' % (b"k" * 60_000), JSON),
        ("/v1/jobs", b"[%b]" % b",".join([b'{"nodes":0}'] * 2000), JSON),
    ],
)
async def test_an_answer_to_a_wrong_body_is_bounded(path: str, body: bytes, headers: dict[str, str]) -> None:
    """Numbers of thousands of digits and thousands of mistakes are a 422 of some kilobytes, on both ways."""
    for kind in (GatewayWorld, PlainWorld):
        async with kind() as world:
            answer = await world.http.post(path, content=body, headers=headers)
            assert answer.status_code == 422
            assert len(answer.content) < 50_000
            assert 1 <= len(answer.json()["errors"]) <= 100


async def test_a_length_of_thousands_of_digits_is_no_error_of_the_server() -> None:
    """The server's parser accepts leading zeros; Python refuses to read so many digits."""
    async with GatewayWorld() as world:
        length = b"0" * 4999 + str(len(JOB)).encode()
        answer = await world.http.post("/v1/jobs", content=JOB, headers={**JSON, "content-length": length.decode()})
        assert answer.status_code == 201


def test_a_router_is_passed_over_only_where_none_of_its_routes_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path of the gateway, and some of none, meets the same routers as with FastAPI's own search, and most of them unasked."""
    bus = MemoryHub().connect()
    api = Gateway(bus, GatewaySettings(), LiveViews(bus)).api
    routers: list[Any] = [each for each in api.router.routes if hasattr(each, "original_router")]
    templates = [route.path for router in routers for route in router.original_router.routes]
    paths = [re.sub(r"\{\w+:path\}", "a/b", template) for template in templates]
    paths = [re.sub(r"\{\w+\}", "a", path) for path in paths]
    paths += [
        "",
        "/",
        "/v1",
        "/v1/nothing",
        "/v1/jobs/",
        "//v1/jobs",
        "/v1:x/jobs",
        "/v1/jobs:x",
        "/v1/jobs/7:x",
        "/{page}",
    ]

    def met() -> list[tuple[str, int, Match]]:
        scopes = [{"type": "http", "method": "GET", "path": path, "root_path": "", "headers": []} for path in paths]
        return [
            (scope["path"], number, router.matches({**scope})[0])
            for scope in scopes
            for number, router in enumerate(routers)
        ]

    asked: list[str] = []
    search = APIRouter.matches
    monkeypatch.setattr(
        APIRouter, "matches", lambda router, scope: (asked.append(scope["path"]), search(router, scope))[1]
    )
    ours = met()
    count = len(asked)
    monkeypatch.delattr(Router, "matches")
    assert ours == met()
    assert len(templates) > 90
    assert count < (len(asked) - count) / 4
