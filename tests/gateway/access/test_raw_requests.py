"""Hundreds of raw requests on a real socket: methods, targets, heads, bodies, framing, cuts. Each has a whole answer, and the gateway lives.

An answer of 400 or more is a problem document; no 5xx but 503; each stored job is answered 201.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator

from tests.gateway.access.socket_world import SocketWorld

JOB = b'{"command":["true"]}'
#: Seconds without a further byte after which an answer is whole; connections are kept open by the gateway.
QUIET_S = 1.0
AT_ONCE = 40
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "FOO", "get", "")
PLACES = ("/", "/v1/jobs", "/v1/jobs/1:cancel", "/v1/queues/a/b", "/v1/events", "/version", "/nosuch", "*")
TARGETS = (
    "//",
    "/v1//jobs",
    "/v1/jobs/%00",
    "/v1/jobs/%2e%2e/x",
    "/../../etc/passwd",
    "/v1/jobs/%",
    "/v1/jobs/%ff%fe",
    "/v1/jobs/" + "9" * 5000,
    "/v1/queues/" + "a/" * 200 + "b",
    "/v1/nodes/%0d%0aX:%20y",
    "/v1/jobs?limit=1&limit=2",
    "/v1/jobs?limit=1e3",
    "/v1/jobs?continue=%00",
    "/v1/jobs?limit=99999999999999999999",
    "/v1/jobs?state=%F0%9F%92%A9",
    "/v1/jobs?" + "a=1&" * 2000,
    "/v1/events?from=99999999999999999999",
    "/v1/events?since=99999w",
    "/v1/map?at=9999-12-31T23:59:59Z",
    "/v1/map?at=0001-01-01T00:00:00Z",
    "/v1/cluster?at=99999999999999w%20ago",
    "/v1/usage?statement=0000-01",
    "/v1/usage?from=9999-01-01",
    "/v1/jobs/1/logs?rank=99999999999999999999",
    "/v1/audit/access?continue=1.1",
    "/v1/commands/" + "a" * 4000,
    "/v1/access/why?verb=job:read&on=" + "queue:" * 100,
    "http://localhost/v1/jobs",
    "http://evil.example/",
    "https://user:pw@localhost/v1/jobs",
    "/v1/jobs#frag",
    "/v1\\jobs",
    "/v1/jobs\x01",
    "/v1/jobs\xff",
)
HEADS = (
    "Host: other",
    "X-A: " + "a" * 70_000,
    "\r\n".join(f"X-{n}: 1" for n in range(200)),
    ": x",
    "X A: 1",
    "XA",
    "X-A: 1\r\n  folded",
    "X-A: a\x00b",
    "X-Fairlead-User: ada",
    "Idempotency-Key: ",
    "Idempotency-Key: " + "k" * 300,
    "Idempotency-Key: \xe4",
    "Expect: 100-continue",
    "Expect: x",
    "Connection: upgrade\r\nUpgrade: h2c",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Transfer-Encoding: gzip",
    "Content-Length: -1",
    "Content-Length: 5, 5",
    "Content-Length: 99999999999999999999999",
    "Content-Encoding: gzip",
    "Content-Type: text/plain",
    "Accept: ////",
    "Range: bytes=" + ",".join(["0-1"] * 1000),
    "Origin: null",
    "Sec-Fetch-Site: cross-site",
    "Authorization: Basic eDp5",
    "Authorization: Bearer a",
    "Cookie: __Host-fairlead=x",
    "If-Match: x",
    "If-None-Match: " + ",".join(f'"{n}"' for n in range(3000)),
    "Last-Event-ID: x",
    "ce-type: x",
    "X-Fairlead-Act-As: nosuch",
    "ce-specversion: 1.0\r\nce-type: fairlead.job.submit.v1\r\nce-source: %\r\nce-id: %ZZ",
    "Connection: keep-alive, X, close",
)
BODIES = (
    b"",
    b"null",
    b"1",
    b"[]",
    b"[null]",
    b"[[]]",
    b"{}",
    b'{"command":["tr',
    JOB + b"x",
    JOB + JOB,
    b"\xef\xbb\xbf" + JOB,
    JOB.decode().encode("utf-16"),
    b'{"command":["\xe4"]}',
    b'{"command":["\\u0000"]}',
    b'{"command":["\\ud800"]}',
    b"[" * 50_000,
    b'{"command":["a"],"command":["b"]}',
    b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    b'{"command":["x"],"priority":' + b"9" * 5000 + b"}",
    b'{"command":["x"],"priority":NaN}',
    b'{"command":["x"],"priority":1e999}',
    b'{"command":["' + b"x" * 70_000 + b'"]}',
    b" " * 60_000 + JOB,
    b"{" + b",".join(b'"k%d":1' % n for n in range(20_000)) + b"}",
    b'{"command":["x"],"array":"0-99999999999"}',
    b"<a/>",
    b'{"command":["x"],"time":{"total":"1e9h"}}',
    b'{"command":["x"],"resources":{"nvidia.com/gpu":-1,"memory":"9999999Pi"}}',
)
TAKERS = (
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs:dryrun"),
    ("POST", "/v1/events"),
    ("POST", "/v1/queues:apply"),
    ("PATCH", "/v1/jobs/1"),
    ("PUT", "/v1/queues/x"),
    ("PUT", "/v1/idle/global"),
    ("POST", "/v1/rollouts"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/access:grant"),
)


def head_of(world: SocketWorld, method: str, target: str, *more: str) -> bytes:
    """Return a head with the owner's token."""
    lines = [
        f"{method} {target} HTTP/1.1",
        "Host: localhost",
        f"Authorization: {world.bearer('owner')['authorization']}",
        *more,
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def sending(world: SocketWorld, method: str, target: str, body: bytes, *more: str) -> bytes:
    """Return a request with a body."""
    return (
        head_of(world, method, target, "Content-Type: application/json", f"Content-Length: {len(body)}", *more) + body
    )


def raw_requests(world: SocketWorld) -> Iterator[tuple[str, list[bytes], list[int] | None]]:
    """Yield a name, the pieces that are sent, and the statuses that are expected; None: any that are right by form."""
    for method in METHODS:
        for place in PLACES:
            yield f"{method} {place}", [head_of(world, method, place)], None
    for target in TARGETS:
        yield target[:60], [head_of(world, "GET", target)], None
    for head in HEADS:
        yield head[:60], [head_of(world, "GET", "/v1/jobs", head)], None
        yield head[:60], [sending(world, "POST", "/v1/jobs", JOB, head)], None
    for method, target in TAKERS:
        for body in BODIES:
            yield f"{method} {target} {body[:40]!r}", [sending(world, method, target, body)], None
    job = sending(world, "POST", "/v1/jobs", JOB)
    chunked = head_of(world, "POST", "/v1/jobs", "Content-Type: application/json", "Transfer-Encoding: chunked")
    whole = b"%x\r\n%s\r\n" % (len(JOB), JOB)
    yield "chunk", [chunked + whole + b"0\r\n\r\n"], [201]
    yield "chunks of one byte", [chunked + b"".join(b"1\r\n%c\r\n" % each for each in JOB) + b"0\r\n\r\n"], [201]
    yield "trailer", [chunked + whole + b"0\r\nX: y\r\n\r\n"], [201]
    yield "two in chunks", [(chunked + whole + b"0\r\n\r\n") * 2], [201, 201]
    for size in (b"zz", b"-1", b"f" * 20, b"0" * 100 + b"14"):
        yield f"chunk of {size!r}", [chunked + size + b"\r\n" + JOB + b"\r\n0\r\n\r\n"], None
    for step in (1, 2, 7):
        yield f"in pieces of {step}", [job[at : at + step] for at in range(0, len(job), step)], [201]
    yield "five at once", [job * 5], [201] * 5
    yield "wrong, then right", [sending(world, "POST", "/v1/jobs", b"{") + job], [422, 201]
    yield "blank lines first", [b"\r\n\r\n" + job], [201]
    for garbage in (
        b"\x16\x03\x01\x02\x00\x01" + b"\0" * 90,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0" * 1000,
        b"GET /" + b"a" * 100_000,
    ):
        yield repr(garbage[:20]), [garbage], None


def answers_of(data: bytes, *, bare: bool) -> list[tuple[int, bytes, bytes]]:
    """Return status, head and body of each answer. Raise AssertionError for bytes that are none. `bare`: answers to HEAD."""
    found: list[tuple[int, bytes, bytes]] = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        first = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        assert first and end, head[:200]
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        chunked = b"transfer-encoding: chunked" in head.lower()
        size = 0 if bare or first[1] in (b"204", b"304") else len(data) if chunked else int(length[1]) if length else 0
        assert len(data) >= size, f"short body: {head[:200]!r}"
        if first[1] != b"100":
            found.append((int(first[1]), head, data[:size]))
        data = data[size:]
    return found


async def exchange(world: SocketWorld, pieces: list[bytes]) -> bytes:
    """Send the pieces, and return all that comes back until the gateway is quiet or ends the connection."""
    found = b""
    async with world.line() as line:
        with contextlib.suppress(TimeoutError, ConnectionError):
            for piece in pieces:
                await line.write(piece)
            while True:
                async with asyncio.timeout(QUIET_S if found else 30):
                    data = await line.reader.read(1 << 20)
                if not data:
                    break
                found += data
    return found


async def test_each_raw_request_has_a_whole_answer_and_the_gateway_lives() -> None:
    """In the form of its status. The jobs that were answered 201 are there, and no others."""
    async with SocketWorld() as world:
        room, made = asyncio.Semaphore(AT_ONCE), list[str]()
        requests = list(raw_requests(world))
        assert len(requests) > 450

        async def check(name: str, pieces: list[bytes], expected: list[int] | None) -> None:
            async with room:
                found = answers_of(await exchange(world, pieces), bare=pieces[0].startswith(b"HEAD "))
            assert found, f"{name}: no answer"
            assert expected in (None, [status for status, _, _ in found]), f"{name}: {found}"
            for status, head, body in found:
                assert status < 500 or status == 503, f"{name}: {status} {body[:200]!r}"
                if status == 201 and b"\r\nlocation: /v1/jobs/" in head.lower():
                    made.append(json.loads(body)["id"])
                if status >= 400 and not pieces[0].startswith(b"HEAD "):
                    problem = json.loads(body)
                    assert b"application/problem+json" in head and problem["status"] == status and problem["detail"], (
                        name
                    )
                assert status != 405 or b"\r\nallow: " in head.lower(), name

        await asyncio.gather(*(check(*each) for each in requests))
        assert sorted(made) == sorted(world.gateway.views.jobs.rows)
        assert (await world.http.get("/healthz")).status_code == 200


async def test_a_connection_that_is_cut_leaves_nothing_behind() -> None:
    """At any byte of a submit: no job, unless all of it had come."""
    async with SocketWorld() as world:
        job = sending(world, "POST", "/v1/jobs", JOB)
        for at in (0, 1, 5, 20, len(job) - 30, len(job) - 1):
            async with world.line() as line:
                await line.write(job[:at])
        async with world.line() as line:
            assert (await line.send(job))[0] == 201
        assert len(world.gateway.views.jobs.rows) == 1
