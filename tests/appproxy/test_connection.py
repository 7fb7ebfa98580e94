"""Connections of the proxy by themselves: heads with their time limits, bodies that flow, and what stops each."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fairlead_appproxy.body_end import BadFraming
from fairlead_appproxy.connection import CutOff, HttpConnection, Silent, pass_body
from fairlead_appproxy.head import CHUNKED, UNTIL_CLOSE, Body
from tests.kit.eventually import eventually_async

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Pair:
    """Connection of the proxy, and the client's end of it."""

    def __init__(self, own: HttpConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.own, self.reader, self.writer = own, reader, writer


@contextlib.asynccontextmanager
async def pairs(count: int) -> AsyncIterator[list[Pair]]:
    """Open so many connections."""
    taken: list[HttpConnection] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpConnection(taken.append), "127.0.0.1", 0)
    found: list[Pair] = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        await eventually_async(lambda number=number: len(taken) > number)
        found.append(Pair(taken[number], reader, writer))
    try:
        yield found
    finally:
        for each in found:
            each.own.abort()
            each.writer.transport.abort()
        server.close()


async def test_heads_are_read_one_after_the_other() -> None:
    """Also where several come at once, and where one comes in parts; what is behind the last stays."""
    async with pairs(1) as [pair]:
        pair.writer.write(HEAD + HEAD + HEAD[:9])
        assert [await pair.own.head(60, 60) for _ in range(2)] == [HEAD, HEAD]
        pair.writer.write(HEAD[9:] + b"rest")
        assert await pair.own.head(60, 60) == HEAD
        await eventually_async(lambda: pair.own.data == b"rest")
        assert not pair.own.is_reusable


async def test_more_heads_than_are_held_are_all_read() -> None:
    """A client that sends far ahead is stopped, and read on when there is room."""
    async with pairs(1) as [pair]:
        count = 20_000
        pair.writer.write(HEAD * count)
        for _ in range(count):
            assert await pair.own.head(60, 60) == HEAD


@pytest.mark.parametrize(("sent", "limits"), [(b"", (0.05, 60)), (b"GET /", (60, 0.05))])
async def test_a_head_that_does_not_come_is_silent(sent: bytes, limits: tuple[float, float]) -> None:
    """Each limit counts by itself, also behind a longer one."""
    async with pairs(1) as [pair]:
        pair.writer.write(HEAD)
        await pair.own.head(3600, 3600)
        pair.writer.write(sent)
        with pytest.raises(Silent):
            await pair.own.head(*limits)


async def test_an_end_within_a_head_is_a_cut() -> None:
    """An end before one is none."""
    async with pairs(2) as [first, second]:
        first.writer.write(b"GET /")
        first.writer.write_eof()
        with pytest.raises(CutOff):
            await first.own.head(60, 60)
        second.writer.write_eof()
        assert await second.own.head(60, 60) == b""


@pytest.mark.parametrize(
    ("body", "framed"),
    [
        (Body(300_000), b"x" * 300_000),
        (CHUNKED, b"3\r\nabc\r\n" * 50_000 + b"0\r\n\r\n"),
    ],
)
async def test_a_body_flows_to_its_end_and_no_further(body: Body, framed: bytes) -> None:
    """Behind its head; what follows is the next message's."""
    async with pairs(2) as [source, target]:
        source.writer.write(framed + HEAD)
        passing = asyncio.create_task(pass_body(source.own, target.own, body, b"head "))
        assert await target.reader.readexactly(5 + len(framed)) == b"head " + framed
        await passing
        assert await source.own.head(60, 60) == HEAD


async def test_a_body_until_the_close_ends_with_it() -> None:
    """Unless it is cut."""
    async with pairs(3) as [source, cut, target]:
        source.writer.write(b"all")
        source.writer.write_eof()
        await pass_body(source.own, target.own, UNTIL_CLOSE)
        assert await target.reader.readexactly(3) == b"all"
        passing = asyncio.create_task(pass_body(cut.own, target.own, UNTIL_CLOSE))
        cut.writer.write(b"part")
        assert await target.reader.readexactly(4) == b"part"
        cut.own.connection_lost(ConnectionResetError())
        with pytest.raises(CutOff):
            await passing


async def test_a_body_that_cannot_go_on_fails() -> None:
    """Its source ends, its framing is wrong, or its target is cut."""
    async with pairs(4) as [ended, wrong, endless, target]:
        ended.writer.write(b"x")
        ended.writer.write_eof()
        with pytest.raises(CutOff):
            await pass_body(ended.own, target.own, Body(10))
        passing = asyncio.create_task(pass_body(wrong.own, target.own, CHUNKED))
        wrong.writer.write(b"1\r\na\r\n")
        await eventually_async(lambda: target.own.feeder is wrong.own)
        wrong.writer.write(b"no size\r\n")
        with pytest.raises(BadFraming):
            await passing
        passing = asyncio.create_task(pass_body(endless.own, target.own, Body(10**12)))
        endless.writer.write(b"x")
        await eventually_async(lambda: target.own.feeder is endless.own)
        target.own.abort()
        with pytest.raises(ConnectionError):
            await passing


async def test_a_target_that_takes_nothing_stops_the_source() -> None:
    """What is held for it is bounded; another request may be cancelled meanwhile."""
    async with pairs(2) as [source, target]:
        source.writer.write(b"x" * 64 * 2**20)
        passing = asyncio.create_task(pass_body(source.own, target.own, Body(64 * 2**20)))
        await eventually_async(lambda: target.own.is_full)
        assert target.own.transport.get_write_buffer_size() <= 256 * 1024
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)
        assert target.own.feeder is None
