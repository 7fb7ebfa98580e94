"""POST /v1/sql: users, formats, and the end of a query whose client has left."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from fairlead_bus.port import Message
from fairlead_schemas.wire import subjects
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.gatehouse import Gatehouse
from tests.kit.eventually import eventually_async

ROWS = b'{"columns":["x"],"rows":[[1]],"sequence":7}'
HEAD = b'{"columns":[{"name":"x","type":"INTEGER"}],"sequence":7,"truncated":true,"elapsed_ms":1.0,"cut":"the first 1 rows of more","left_out":"uses"}'

type Answer = Callable[[dict[str, Any]], Awaitable[bytes]]


class Asked:
    """A telemetry service played by the test: remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.wishes: list[dict[str, Any]] = []
        self.cancelled: list[dict[str, Any]] = []
        self._answer = answer

    async def serve(self, house: Gatehouse) -> None:
        async def sql(message: Message) -> bytes:
            self.wishes.append(msgspec.json.decode(message.payload))
            return await self._answer(self.wishes[-1])

        async def cancel(message: Message) -> bytes:
            self.cancelled.append(msgspec.json.decode(message.payload))
            return msgspec.json.encode({"cancelled": self.cancelled[-1]["id"] != "gone"})

        bus = house.hub.connect()
        await bus.serve(subjects.rpc("telemetry", "sql"), sql)
        await bus.serve(subjects.rpc("telemetry", "sql_cancel"), cancel)


async def _rows(wish: dict[str, Any]) -> bytes:
    return {"json": ROWS, "csv": HEAD + b"\nx\n1\n", "arrow": HEAD + b"\n\xff\xff"}[wish["format"]]


async def test_a_query_is_passed_on() -> None:
    """With who asks; without telemetry it is a 503. Without sign-on everybody is an admin."""
    async with Gatehouse() as house:
        assert (await house.http.post("/v1/sql", json={"query": "SELECT 1"})).status_code == 503
        asked = Asked(_rows)
        await asked.serve(house)
        good = await house.http.post("/v1/sql", json={"query": "SELECT 1", "limit": 5, "timeout_s": 2.5, "id": "q-1"})
        assert (good.status_code, good.json()["rows"], good.headers["x-fairlead-sequence"]) == (200, [[1]], "7")
        assert asked.wishes == [
            {
                "caller": {"user": "anonymous-admin", "role": "admin"},
                "query": "SELECT 1",
                "format": "json",
                "id": "q-1",
                "limit": 5,
                "timeout_s": 2.5,
            }
        ]


@pytest.mark.parametrize(
    ("accept", "parameter", "form"),
    [
        ("*/*", "", "json"),
        ("", "", "json"),
        ("application/json", "", "json"),
        ("text/csv", "", "csv"),
        ("text/html, text/csv;q=0.9", "", "csv"),
        ("application/vnd.apache.arrow.stream", "", "arrow"),
        ("text/csv", "arrow", "arrow"),
        ("text/html", "json", "json"),
        ("application/*", "", "json"),
        ("text/html, */*", "", "json"),
    ],
)
async def test_forms(accept: str, parameter: str, form: str) -> None:
    """?format= decides, else the first of Accept that there is."""
    async with Gatehouse() as house:
        await Asked(_rows).serve(house)
        params = {"format": parameter} if parameter else {}
        got = await house.http.post("/v1/sql", json={"query": "x"}, params=params, headers={"accept": accept})
        assert got.status_code == 200, got.text
        types = {
            "json": "application/json",
            "csv": "text/csv; charset=utf-8",
            "arrow": "application/vnd.apache.arrow.stream",
        }
        assert got.headers["content-type"] == types[form]
        assert got.content == {"json": ROWS, "csv": b"x\n1\n", "arrow": b"\xff\xff"}[form]
        assert got.headers.get("x-fairlead-truncated", "") == ("" if form == "json" else "the first 1 rows of more")
        assert got.headers.get("x-fairlead-left-out", "") == ("" if form == "json" else "uses")


async def test_unknown_formats_are_refused() -> None:
    """A 406 that names the types, a 422 that names the parameter; no query is sent."""
    async with Gatehouse() as house:
        asked = Asked(_rows)
        await asked.serve(house)
        got = await house.http.post("/v1/sql", json={"query": "x"}, headers={"accept": "image/png"})
        assert (got.status_code, "text/csv" in got.json()["detail"]) == (406, True)
        got = await house.http.post("/v1/sql", json={"query": "x"}, params={"format": "xml"})
        assert (got.status_code, got.json()["errors"][0]["field"]) == (422, "format")
        got = await house.http.post("/v1/sql", json={"query": "x", "id": "a b"})
        assert (got.status_code, got.json()["errors"][0]["field"]) == (422, "id")
        assert not asked.wishes


async def test_errors_are_problems_in_every_form() -> None:
    """A refused query is a 422 that names the field; a busy desk a 503 that asks for patience."""
    told = {"code": "", "message": "", "hint": "look"}

    async def refuse(_: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"error": told})

    async with Gatehouse() as house:
        await Asked(refuse).serve(house)
        for form in ("json", "csv", "arrow"):
            for code, message, status, field in (
                ("sql_syntax", "no such thing", 422, "query"),
                ("bad_request", "timeout_s: expected less", 422, "timeout_s"),
                ("busy", "16 queries are waiting", 503, None),
                ("internal", "x", 503, None),
                ("cancelled", "stopped as asked", 422, "query"),
            ):
                told |= {"code": code, "message": message}
                got = await house.http.post("/v1/sql", json={"query": "x"}, params={"format": form})
                fields = [error["field"] for error in got.json().get("errors", [])]
                assert (got.status_code, fields) == (status, [field] if field else [])
                assert (got.json()["detail"], got.json()["hint"]) == (message, "look"), code


async def test_a_query_is_cancelled_by_its_id() -> None:
    """By who asked; what is not there any more is a 404."""
    async with Gatehouse() as house:
        assert (await house.http.delete("/v1/sql/q-1")).status_code == 503
        asked = Asked(_rows)
        await asked.serve(house)
        assert (await house.http.delete("/v1/sql/q-1")).json() == {"id": "q-1", "cancelled": True}
        assert (await house.http.delete("/v1/sql/gone")).status_code == 404
        assert [one["caller"]["user"] for one in asked.cancelled] == ["anonymous-admin"] * 2


async def test_a_disconnected_client_cancels_its_query() -> None:
    """It is cancelled under its own id."""

    async with Gatehouse() as house:
        ended = asyncio.Event()

        async def patient(_: dict[str, Any]) -> bytes:
            await ended.wait()
            return ROWS

        asked = Asked(patient)
        await asked.serve(house)
        body = [{"type": "http.request", "body": b'{"query": "x"}', "more_body": False}]

        async def receive() -> dict[str, Any]:
            if body:
                return body.pop()
            await eventually_async(lambda: bool(asked.wishes))
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            pass

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/sql",
            "query_string": b"",
            "http_version": "1.1",
            "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "server": ("gateway", 80),
            "client": ("here", 1),
            "root_path": "",
        }
        request = asyncio.create_task(house.gateway.app(scope, receive, send))
        await eventually_async(lambda: bool(asked.cancelled))
        ended.set()
        await request
        assert asked.cancelled[0]["id"] == asked.wishes[0]["id"]
        assert len(asked.cancelled[0]["id"]) == 32


async def test_a_query_that_names_people_has_the_names_that_the_caller_may_know() -> None:
    """An auditor all, a lead those whose roles she sees; no other query carries a name."""
    async with AccountsWorld() as world:
        asked = Asked(_rows)
        await asked.serve(world)
        ids = {login: await world.person(login) for login in ("ann", "bob", "lea")}
        for login, role, scope in (
            ("ann", "member", "project:vision"),
            ("bob", "member", "project:speech"),
            ("lea", "queue-admin", "project:vision"),
        ):
            await world.ask("POST", "/v1/access:grant", {"subject": login, "role": role, "scope": scope})
        _, lea = await world.session(ids["lea"])
        query = {"query": 'SELECT login FROM jobs LEFT JOIN People ON "user" = people.id'}
        for token in (None, lea):
            await world.ask("POST", "/v1/sql", query, token=token)
        await world.ask("POST", "/v1/sql", {"query": "SELECT 1 AS peoples"})
        whole, hers, none = [wish.get("people", {}) for wish in asked.wishes]
        assert {name: ids.get(name) for name in whole.values()} == {**ids, "owner": None} and none == {}
        assert hers == {ids["ann"]: "ann", ids["lea"]: "lea"}
