"""Several requests on one connection without waiting: each has its own answer, in order, and what follows them spoils none."""

import asyncio

import pytest

from tests.gateway.access.socket_world import Line, SocketWorld


def submit(world: SocketWorld, name: str, *more: str) -> bytes:
    """Return a submit as bytes."""
    body = f'{{"command": ["true"], "name": "{name}"}}'
    head = [
        "POST /v1/jobs HTTP/1.1",
        "host: localhost",
        f"authorization: {world.bearer('owner')['authorization']}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *more,
    ]
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


def read(world: SocketWorld, path: str = "/v1/queues") -> bytes:
    """Return a read as bytes, which takes the way through the application."""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {world.bearer('owner')['authorization']}\r\n\r\n".encode()


async def statuses(line: Line, most: int = 10) -> list[int]:
    """Return the statuses of all answers until the connection ends."""
    found: list[int] = []
    while len(found) < most:
        status, _, _ = await line.answer()
        if not status:
            break
        found.append(status)
    return found


#: What is no request: as a whole, in its head, in its body.
GARBAGE = {
    "text": b"garbage\r\n\r\n",
    "binary": bytes(range(256)),
    "head": b"GET / HTTP/1.1\r\nhost localhost\r\n\r\n",
    "version": b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
    "length": b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
    "chunk": b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "both": b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("rest", GARBAGE.values(), ids=GARBAGE.keys())
@pytest.mark.parametrize("before", [1, 2, 3])
async def test_garbage_behind_submits_does_not_hide_their_answers(rest: bytes, before: int) -> None:
    """The jobs are stored, so their clients are told; then a 400 as problem+json, and the end."""
    async with SocketWorld() as world, world.line() as line:
        await line.write(b"".join(submit(world, f"j{number}") for number in range(before)) + rest)
        found = await statuses(line)
        assert found[:before] == [201] * before
        assert found[before:] in ([400], [401, 400], [401])
        names = sorted(row.name for row in world.gateway.views.jobs.rows.values())
        assert names == [f"j{number}" for number in range(before)]


@pytest.mark.parametrize("rest", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_behind_a_read_does_not_hide_its_answer(rest: bytes) -> None:
    """A mixture: a read, a submit, a read."""
    async with SocketWorld() as world, world.line() as line:
        await line.write(read(world) + submit(world, "x") + read(world, "/v1/jobs") + rest)
        found = await statuses(line)
        assert found[:3] == [200, 201, 200]
        assert found[3:] in ([400], [401, 400], [401])


@pytest.mark.parametrize("name", ["text", "head", "chunk"])
async def test_garbage_alone_is_a_problem_document(name: str) -> None:
    """Not plain text."""
    async with SocketWorld() as world, world.line() as line:
        status, head, body = await line.send(GARBAGE[name])
        assert status == 400 or (name, status) == ("chunk", 401)
        assert b"application/problem+json" in head and b"urn:fairlead:problem:" in body


async def test_data_behind_the_last_request_of_a_connection_is_ignored() -> None:
    """It said `connection: close`: one answer, and the end."""
    async with SocketWorld() as world, world.line() as line:
        await line.write(submit(world, "last", "connection: close") + GARBAGE["text"])
        assert await statuses(line) == [201]


async def test_answers_come_in_the_order_of_requests() -> None:
    """Forty at once, of both ways through the gateway."""
    async with SocketWorld() as world, world.line() as line:
        sent = [submit(world, f"n{number}") if number % 3 else read(world) for number in range(40)]
        await line.write(b"".join(sent))
        found = [await line.answer() for _ in sent]
        assert [status for status, _, _ in found] == [201 if number % 3 else 200 for number in range(40)]
        rows = world.gateway.views.jobs.rows
        assert [row.name for row in rows.values()] == [f"n{number}" for number in range(40) if number % 3]


async def test_a_body_that_never_ends_is_refused_behind_the_answers() -> None:
    """The late request waits behind a submit: the submit's own answer comes first."""
    async with SocketWorld() as world, world.line() as line:
        await line.write(submit(world, "a") + submit(world, "b")[:-5])
        assert (await line.answer())[0] == 201
        await asyncio.sleep(0.05)
        for connection in list(world._server.server_state.connections):
            connection.end_late()  # type: ignore[union-attr]
        assert await statuses(line) == [408]
