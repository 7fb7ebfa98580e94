"""Rows about the guard on a running stack: submits with and without it, a flood of sign-ins, and how fast a revocation counts.

Three gateways serve one stack: one without sign-on, and two with it, of which one takes the requests and the other one is asked whether it
knows of a revocation that the first has taken. What is compared is measured in turn. Start at `rows`.
"""

import asyncio
import json
import sys
import time
from itertools import repeat
from pathlib import Path
from statistics import median

from bench import http, jobs
from bench.stack import Stack
from bench.table import Row, percentile
from fairlead.stack import nats_server

ROUNDS, SUBMITS, CONNECTIONS = 40, 800, 64
#: The flood: sign-ins a second, and windows of so many seconds of each kind. Its own is the last kind.
FLOOD_PER_S, WINDOWS, WINDOW_S, FLOOD = 50, 24, 2.0, 2
#: Submits a second whose times are measured, over so many connections.
PACED_PER_S, PACED_CONNECTIONS = 160, 8
#: Sign-ins that may be hashed at once, and as many a minute (`access/passwords.py`).
HASHED_PER_MINUTE = 5
REVOKED, STREAMS = 60, 20

type Headers = dict[str, str]


class _Guarded:
    """Stack with its gateways, and a token of the owner."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.on, self.far = nats_server.free_port(), nats_server.free_port()
        self._owner_file = stack.data / "owner.token"
        self.owner: Headers = {}
        self.token = ""

    async def start(self) -> None:
        """Start everything, and make a service account that may submit."""
        self.stack.control_plane(telemetry=False)
        self.stack.service("access")
        for name, port, more in (
            ("gateway-on", self.on, {"FAIRLEAD_OWNER_FILE": str(self._owner_file)}),
            ("gateway-far", self.far, {}),
        ):
            settings = {"FAIRLEAD_HTTP_PORT": str(port), "FAIRLEAD_SIGN_ON": "local", **more}
            self.stack.spawn(name, [sys.executable, "-m", "fairlead_gateway"], **settings)
        await asyncio.to_thread(self.stack.wait, self._has_owner, "gateway-on")
        self.owner = {"Authorization": f"Bearer {self._owner_file.read_text().strip()}"}
        await self.ask("POST", "/v1/service-accounts", {"login": "bench"})
        grant = {"subject": "bench", "role": "member", "scope": "queue:default"}
        await self.ask("POST", "/v1/access:grant", grant)
        self.token = (await self.make_token())[1]

    def _has_owner(self) -> bool:
        return Path(self._owner_file).exists()

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, str]:
        """Ask as the owner; the document."""
        connection = await http.connect(self.on)
        status, found = await connection.send(http.request(method, path, body, self.owner))
        assert connection.transport is not None
        connection.transport.close()
        if status >= 300:
            raise RuntimeError(f"{method} {path} answered {status}: {found.decode()}")
        return json.loads(found)

    async def make_token(self) -> tuple[str, str]:
        """Make a token of the service account; its id and its text."""
        made = await self.ask("POST", "/v1/tokens", {"name": "bench", "for": "bench", "expires_in": "1d"})
        return made["id"], made["token"]


async def rows() -> list[Row]:
    """All four rows."""
    with Stack() as stack:
        guarded = _Guarded(stack)
        await guarded.start()
        return [await _submits(guarded), await _flood(guarded), await _revoked(guarded), await _streams(guarded)]


async def _submits(guarded: _Guarded) -> Row:
    """Submit one by one to both gateways in turn, from connections that go on. The figure: the median over the rounds of the CPU of the
    gateway, the queue and the bus with the guard off, divided by that with it on."""
    bearer = {"Authorization": f"Bearer {guarded.token}"}
    ways = {
        "gateway": (await _connected(guarded.stack.port), http.post("/v1/jobs", jobs.TRUE)),
        "gateway-on": (await _connected(guarded.on), http.request("POST", "/v1/jobs", jobs.TRUE, bearer)),
    }
    used: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for connections, request in ways.values():
        await _storm(connections, request, SUBMITS)
    for number in range(ROUNDS):
        for name in sorted(ways, reverse=bool(number % 2)):
            connections, request = ways[name]
            before = _cpu_s(guarded.stack, name)
            await _storm(connections, request, SUBMITS)
            after = _cpu_s(guarded.stack, name)
            used[name].append(((after[0] - before[0]) / SUBMITS * 1e6, (sum(after) - sum(before)) / SUBMITS * 1e6))
    off, on = used["gateway"], used["gateway-on"]
    share = median(a[1] / b[1] for a, b in zip(off, on, strict=True)) * 100
    of_gateway = median(a[0] / b[0] for a, b in zip(off, on, strict=True)) * 100
    return Row(
        "submits one by one with sign-on, per CPU of gateway, queue and bus, against sign-on off",
        f"{share:.1f} % ({median(each[1] for each in on):.0f} µs each)",
        "≥ 98 %",
        share >= 98,
        f"in turn, {ROUNDS} rounds of {SUBMITS:,}; without sign-on {median(each[1] for each in off):.0f} µs; the gateway alone: {of_gateway:.1f} %",
    )


def _cpu_s(stack: Stack, gateway: str) -> tuple[float, float, float]:
    return stack.cpu_s(gateway), stack.cpu_s("queue"), stack.cpu_s("nats")


async def _connected(port: int) -> list[http.Connection]:
    return [await http.connect(port) for _ in range(CONNECTIONS)]


async def _storm(connections: list[http.Connection], request: bytes, count: int) -> None:
    statuses = await http.storm_over(connections, repeat(request, count))
    if set(statuses) != {201}:
        raise RuntimeError(f"submits answered {set(statuses)}")


# ------------------------------------------------------------------------------- sign-ins


async def _flood(guarded: _Guarded) -> Row:
    """Submit at a steady pace, in three kinds of windows in turn: alone, with as many harmless requests a second, and while somebody tries
    wrong passwords. A window's p99 is its third slowest submit, so single windows say little.
    """
    bearer = {"Authorization": f"Bearer {guarded.token}"}
    beside: list[bytes | None] = [
        None,
        http.request("GET", "/v1/whoami", None, bearer),
        http.post("/v1/sign-in/local", {"login": "nobody", "password": "a wrong password"}),
    ]
    windows: list[list[list[float]]] = [[] for _ in beside]
    answers: list[int] = []
    began = time.perf_counter()
    await _window(guarded, None, [])
    for number in range(WINDOWS * len(beside)):
        kind = (number + number // len(beside)) % len(beside)  # each kind comes behind each other one
        windows[kind].append(await _window(guarded, beside[kind], answers if kind == FLOOD else []))
    took_s = time.perf_counter() - began
    hashed, allowed = answers.count(401), HASHED_PER_MINUTE + int(took_s * HASHED_PER_MINUTE / 60) + 1
    quiet, harmless, flooded = (median(percentile(window, 0.99) for window in each) for each in windows)
    halves = [median(percentile(window, 0.99) for window in windows[0][half::2]) for half in (0, 1)]
    worse = (flooded / quiet - 1) * 100
    return Row(
        f"submits during {FLOOD_PER_S} sign-ins a second with wrong passwords: p99, median of {WINDOWS} windows",
        f"{flooded:.1f} ms, {worse:+.0f} %; {hashed} of {len(answers):,} sign-ins hashed, the others refused before",
        f"≤ 10 % worse; ≤ {allowed} hashed",
        worse <= 10 and hashed <= allowed and set(answers) <= {401, 429},
        f"in turn with it: without the flood {quiet:.1f} ms (its windows by halves {halves[0]:.1f} and {halves[1]:.1f}), with {FLOOD_PER_S} "
        f"harmless requests a second instead {harmless:.1f} ms ({(harmless / quiet - 1) * 100:+.0f} %)",
    )


async def _window(guarded: _Guarded, beside: bytes | None, answers: list[int]) -> list[float]:
    """Submit for a window, and return the milliseconds of each. `beside`: request that is sent `FLOOD_PER_S` times a second meanwhile;
    `answers`: collects its statuses.
    """
    submit = http.request("POST", "/v1/jobs", jobs.TRUE, {"Authorization": f"Bearer {guarded.token}"})
    took: list[float] = []
    async with asyncio.TaskGroup() as group:
        for _ in range(PACED_CONNECTIONS):
            group.create_task(_paced(guarded.on, submit, PACED_PER_S / PACED_CONNECTIONS, took, []))
        if beside is not None:
            for _ in range(5):
                group.create_task(_paced(guarded.on, beside, FLOOD_PER_S / 5, [], answers))
    return took


async def _paced(port: int, request: bytes, per_s: float, took_ms: list[float], statuses: list[int]) -> None:
    connection = await http.connect(port)
    assert connection.transport is not None
    began, count = time.perf_counter(), int(WINDOW_S * per_s)
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / per_s - time.perf_counter()))
        sent = time.perf_counter()
        status, _ = await connection.send(request)
        took_ms.append((time.perf_counter() - sent) * 1e3)
        statuses.append(status)
    connection.transport.close()


# ------------------------------------------------------------------------------- revocations


async def _revoked(guarded: _Guarded) -> Row:
    """Revoke tokens at one gateway while another one is asked with them again and again, until it refuses."""
    connection, took = await http.connect(guarded.far), list[float]()
    for _ in range(REVOKED):
        token, text = await guarded.make_token()
        request = http.request("GET", "/v1/whoami", None, {"Authorization": f"Bearer {text}"})
        await _until(connection, request, 200)
        began = time.perf_counter()
        revoking = asyncio.create_task(guarded.ask("DELETE", f"/v1/tokens/{token}"))
        await _until(connection, request, 401)
        took.append((time.perf_counter() - began) * 1e3)
        await revoking
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    return Row(
        f"token revoked at one gateway → refused by another, {REVOKED} times",
        f"p50 {p50:.0f} ms, p99 {p99:.0f} ms",
        "p99 ≤ 1 s",
        p99 <= 1000,
        "from the request that revokes it; through the access service and the log",
    )


async def _until(connection: http.Connection, request: bytes, wanted: int) -> None:
    async with asyncio.timeout(30):
        while (await connection.send(request))[0] != wanted:  # noqa: ASYNC110 -- another process refuses, and cannot say when
            await asyncio.sleep(0.002)


async def _streams(guarded: _Guarded) -> Row:
    """Revoke the tokens of open streams of events at the other gateway, one after the other."""
    opened: list[tuple[str, asyncio.StreamReader]] = []
    for _ in range(STREAMS):
        token, text = await guarded.make_token()
        reader, writer = await asyncio.open_connection("127.0.0.1", guarded.far)
        headers = {"Authorization": f"Bearer {text}", "Accept": "text/event-stream"}
        writer.write(http.request("GET", "/v1/events?follow=1", None, headers))
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head:
            raise RuntimeError(f"a stream answered {head.decode()}")
        opened.append((token, reader))
    took = await asyncio.gather(*[_closed(guarded, token, reader) for token, reader in opened])
    return Row(
        f"token revoked at one gateway → its stream of events at another closed, {STREAMS} streams",
        f"p50 {percentile(took, 0.5):.1f} s, at most {max(took):.1f} s",
        "≤ 5 s",
        max(took) <= 5,
        "streams that have nothing to send are looked at every 2 s",
    )


async def _closed(guarded: _Guarded, token: str, reader: asyncio.StreamReader) -> float:
    began = time.perf_counter()
    revoking = asyncio.create_task(guarded.ask("DELETE", f"/v1/tokens/{token}"))
    async with asyncio.timeout(60):
        while not (await reader.read(65536)).endswith(b"0\r\n\r\n"):
            if reader.at_eof():
                break
    took_s = time.perf_counter() - began
    await revoking
    return took_s
