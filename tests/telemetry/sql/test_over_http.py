"""Attacks through a real port: a gateway under uvicorn, the telemetry service, and clients that send too much, leave, or come in crowds."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_gateway.service import GatewaySettings, build
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_telemetry.service import Telemetry
from tests.kit.eventually import eventually_async
from tests.telemetry.service_on_bus import ask, reaches
from tests.telemetry.sql.asking import ENDLESS
from tests.telemetry.story import Story, morning

TOKENS = {"root": "admin", "ada": "member", "bob": "member"}
#: Commits of the story and the one with the people.
COMMITS = 34


class House(NamedTuple):
    """The service under test, and its gateway."""

    http: httpx.AsyncClient
    telemetry: Telemetry
    hub: MemoryHub

    async def sql(self, query: str, who: str = "root", **more: object) -> httpx.Response:
        headers = {"authorization": f"Bearer {who}-token"}
        return await self.http.post("/v1/sql", json={"query": query, **more}, headers=headers)

    async def code(self, query: str, who: str = "root", **more: object) -> str:
        answer = await self.sql(query, who, **more)
        return "" if answer.status_code == 200 else answer.json()["type"].rpartition(":")[2]


def _port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _admit(hub: MemoryHub, story: Story) -> None:
    """Write people, their roles and tokens into the log and the bucket, as the access service and the gateway would."""
    bus, events = hub.connect(), list[ev.AccessEvent]()
    for number, (user, role) in enumerate(TOKENS.items()):
        events.append(ev.PrincipalAdmitted(cause=f"cmd:a{number}", principal=user, kind="person"))
        scope = "cluster" if role == "admin" else "queue:nosuch"
        grant = ev.RoleGranted(cause=f"cmd:b{number}", subject=user, role="viewer", scope=scope, source="person")
        issued = ev.TokenIssued(cause=f"cmd:c{number}", token=user, principal=user, kind="person", expires_ns=1 << 62)
        events += [grant, issued]
        digest = hashlib.sha256(f"{user}-token".encode()).hexdigest()
        row = msgspec.json.encode({"kind": "token", "id": user, "principal": user})
        await bus.put(subjects.CREDENTIAL, f"digest.{digest}", row)
    story.at(3600, *events)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    story = morning()
    await _admit(hub, story)
    await story.append_to(bus)
    telemetry = Telemetry(hub.connect(), tmp_path / "telemetry", sql_deadline_s=60.0)
    port = _port()
    gateway = await build(hub.connect(), GatewaySettings(http=HttpSettings(port=port), sign_on="local"))
    running = [asyncio.create_task(telemetry.run()), asyncio.create_task(gateway.run())]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
        await reaches(bus, COMMITS)

        async def caught_up() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return (await http.get("/readyz")).json()["sequence"] >= COMMITS
            return False

        await eventually_async(caught_up)
        yield House(http, telemetry, hub)
    await gateway.stop()
    await telemetry.stop()
    await asyncio.gather(*running)


async def test_a_crowd_of_attacks_leaves_the_service_unharmed(house: House) -> None:
    """Files, settings, bombs, endless recursion, ten megabytes, many at once: each refused or stopped, then people are answered."""
    attacks = [
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY jobs TO '/tmp/x.csv'",
        "ATTACH '/tmp/x' AS x",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '100GB'",
        "PRAGMA database_list",
        "SELECT 1; DROP TABLE events",
        "SELECT repeat(repeat('x', 1000000), 100000)",
        "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT count(*) FROM t",
        ENDLESS,
        "SELECT getenv('HOME')",
    ]
    answers = await asyncio.gather(*(house.sql(attack, who, timeout_s=1) for attack in attacks for who in TOKENS))
    assert {answer.status_code for answer in answers} <= {422, 503}
    assert not any("root:" in answer.text for answer in answers)
    async with asyncio.timeout(60):
        assert (await house.sql("SELECT count(*) FROM events")).json()["rows"] == [[46 + 3 * len(TOKENS)]]
    assert (await ask(house.hub.connect(), "warehouse"))["sequence"] == COMMITS


async def test_a_query_that_is_too_long_is_refused(house: House) -> None:
    """Ten megabytes are refused by the web server; a smaller excess by the gateway."""
    assert (await house.sql("SELECT '" + "x" * 10_000_000 + "'")).status_code == 413
    assert await house.code("SELECT " + "(" * 20_000 + "1" + ")" * 20_000) in (
        "syntax",
        "forbidden",
        "query_failed",
        "worker_died",
    )
    assert await house.code("SELECT 1") == ""


async def test_members_see_their_own(house: House) -> None:
    """Each token its rows; no token none."""
    for who, rows in (("ada", [["ada"]]), ("bob", [["bob"]]), ("root", [["ada"], ["bob"]])):
        assert (await house.sql('SELECT DISTINCT "user" FROM jobs ORDER BY 1', who)).json()["rows"] == rows
    assert (await house.sql("SELECT 1", "eve")).status_code == 401


async def test_a_closed_connection_frees_the_worker(house: House) -> None:
    """A client that disconnects during an endless query does not occupy its worker for the minute that it might take."""
    for _ in range(4):
        asking = asyncio.create_task(house.sql(ENDLESS, "ada"))
        await asyncio.sleep(0.3)  # whenever it is: waiting, starting or running
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    async with asyncio.timeout(60):
        assert await house.code("SELECT 1", "ada") == ""


async def test_a_query_is_cancelled_by_its_id(house: House) -> None:
    """By its user or an admin only."""
    asked = asyncio.create_task(house.code(ENDLESS, "ada", id="slow"))
    bob, ada = ({"authorization": f"Bearer {who}-token"} for who in ("bob", "ada"))

    async def cancelled() -> bool:
        assert (await house.http.delete("/v1/sql/slow", headers=bob)).status_code == 404
        return (await house.http.delete("/v1/sql/slow", headers=ada)).status_code == 200

    await eventually_async(cancelled)
    assert await asked == "cancelled"
