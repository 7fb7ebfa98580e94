"""Splice of two real connections: bytes, ends and cuts pass; what one end does not take stops the other."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from fairlead_bus.splice import NewConnection, SpliceEnd, splice
from tests.kit.eventually import eventually_async


class Spliced(NamedTuple):
    """Two clients whose connections are spliced: their streams, and the splice."""

    first: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    second: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ends: list[SpliceEnd]
    work: asyncio.Task[None]


@contextlib.asynccontextmanager
async def spliced(early: bytes = b"", *, half_open_s: float = 60.0, ends_early: bool = False) -> AsyncIterator[Spliced]:
    """Splice two connections. `early`: what the first has sent before; `ends_early`: it has also ended its direction."""
    taken: list[NewConnection] = []

    class Taken(NewConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            taken.append(self)

    server = await asyncio.get_running_loop().create_server(Taken, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    first = await asyncio.open_connection("127.0.0.1", port)
    await eventually_async(lambda: len(taken) == 1)
    first[1].write(early)
    if ends_early:
        first[1].write_eof()
        await eventually_async(lambda: taken[0].has_ended)
    await eventually_async(lambda: taken[0].data == early)
    second = await asyncio.open_connection("127.0.0.1", port)
    await eventually_async(lambda: len(taken) == 2)
    ends = [SpliceEnd(each) for each in taken]
    work = asyncio.create_task(splice(ends[0], ends[1], half_open_s=half_open_s))
    await asyncio.sleep(0)
    try:
        yield Spliced(first, second, ends, work)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        for _, writer in (first, second):
            writer.transport.abort()
        server.close()


async def test_bytes_pass_both_ways_and_each_direction_ends_alone() -> None:
    """What came before the splice is first; the splice ends with the second direction."""
    async with spliced(b"early ") as it:
        it.first[1].write(b"question")
        it.first[1].write_eof()
        assert await it.second[0].read() == b"early question"
        it.second[1].write(b"answer" * 100_000)
        it.second[1].write_eof()
        assert await it.first[0].read() == b"answer" * 100_000
        await asyncio.wait_for(it.work, 30)
        assert [each.carried for each in it.ends] == [14, 600_000]


async def test_an_end_before_the_splice_is_passed_on() -> None:
    """A client may have said all that it has to say before the other end comes."""
    async with spliced(b"all", ends_early=True) as it:
        assert await it.second[0].read() == b"all"
        it.second[1].write(b"answer")
        it.second[1].close()
        assert await it.first[0].read() == b"answer"


@pytest.mark.parametrize("cut", [0, 1])
async def test_a_cut_of_one_end_is_a_cut_of_the_other(cut: int) -> None:
    """Whichever it is."""
    async with spliced() as it:
        ends = (it.first, it.second)
        # A reset, as of a program that was killed with bytes unread; without it the end of one direction is all that shows.
        ends[cut][1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ends[cut][1].transport.abort()
        with contextlib.suppress(ConnectionError):
            assert await ends[1 - cut][0].read() == b""
        await asyncio.wait_for(it.work, 30)


async def test_what_is_not_taken_stops_the_sender() -> None:
    """At most one piece is held for the end that takes nothing; it goes on where it was stopped."""
    async with spliced() as it:
        size = 64 * 2**20
        it.first[1].write(b"x" * size)
        held = it.ends[1].transport
        await eventually_async(lambda: held.get_write_buffer_size() > 0)
        assert held.get_write_buffer_size() <= 256 * 1024 and it.ends[0].carried < size
        assert len(await it.second[0].readexactly(size)) == size


async def test_a_silent_end_of_a_half_open_splice_is_cut() -> None:
    """A client that has gone looks like one that only listens."""
    async with spliced(half_open_s=0.1) as it:
        it.first[1].write_eof()
        await asyncio.wait_for(it.work, 30)
        with contextlib.suppress(ConnectionError):
            assert await it.first[0].read() == b""


async def test_an_answer_without_its_mark_is_no_answer() -> None:
    """Neither one that is too long, nor one that ends before."""
    for early, ends_early in ((b"x" * 100, False), (b"x", True)):
        connection = NewConnection()
        connection.data, connection.has_ended = early, ends_early
        with pytest.raises(ConnectionError):
            await connection.until(b"\r\n\r\n", 50)
