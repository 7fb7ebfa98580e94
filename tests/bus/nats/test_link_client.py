"""The client on the wire: what it writes, in which order, and how it reads what comes in pieces."""

import asyncio
import json
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import nats.errors
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_bus.nats.link import CUT_MAX, BurstParser, DirectClient, Link, _ShortWay
from fairlead_bus.port import OutcomeUnknown, TooLarge

INFO = b'INFO {"server_id":"x","version":"2.15.0","proto":1,"headers":true,"max_payload":1048576}\r\n'
#: The subscription with a handler of ours, and one of the library's own kind.
DIRECT, ORDINARY = 1, 2


async def test_a_flush_waits_for_what_was_asked_before_it():
    """SUB and PUB lie before the PING of a flush: when it returns, the server has them."""
    lines: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while line := await reader.readline():
            lines.append(line.split(b" ")[0].strip())
            if lines[-1] == b"PING":
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    link = Link(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", "wire")
    await link.open()
    lines.clear()
    await link.subscribe("fairlead.beat.*", lambda *_: None)
    await link.send("fairlead.beat.n1", b"1")
    await link.client.flush()
    assert lines[:4] == [b"SUB", b"PUB", b"1", b"PING"]
    await link.close()
    server.close()
    await server.wait_closed()


class Spy(DirectClient):
    """A client without a connection, which keeps what the library's own way gets."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, ...]] = []
        self._direct[DIRECT] = lambda *message: self.seen.append(message)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if sid in self._direct:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            self.seen.append(("ordinary", data))

    async def _process_ping(self) -> None:
        self.seen.append(("ping",))


def _written(kind: str, payload: bytes) -> tuple[bytes, tuple[Any, ...] | None]:
    """Build the server's output, and the messages that must be read from it."""
    size = len(payload)
    match kind:
        case "plain":
            return b"MSG a.b %d %d\r\n%b\r\n" % (DIRECT, size, payload), ("a.b", payload, "", "")
        case "reply":
            return b"MSG a.b %d r.1 %d\r\n%b\r\n" % (DIRECT, size, payload), ("a.b", payload, "r.1", "")
        case "headers" | "status":
            headers = b"NATS/1.0\r\nK: v\r\n\r\n" if kind == "headers" else b"NATS/1.0 503\r\n\r\n"
            line = b"HMSG a.b %d r.1 %d %d\r\n" % (DIRECT, len(headers), len(headers) + size)
            return line + headers + payload + b"\r\n", ("a.b", payload, "r.1", "503" if kind == "status" else "")
        case "ordinary":
            return b"MSG c %d %d\r\n%b\r\n" % (ORDINARY, size, payload), ("ordinary", payload)
        case "ping":
            return b"PING\r\n", ("ping",)
        case _:
            return b"+OK\r\n", None


KINDS = st.sampled_from(["plain", "reply", "headers", "status", "ordinary", "ping", "ok"])
PAYLOADS = st.sampled_from([b"", b"x", b"\r\n", b"MSG a.b 1 1\r\n", b"y" * 70, b"z" * (CUT_MAX + 70)])


@settings(deadline=None)
@given(written=st.lists(st.tuples(KINDS, PAYLOADS), max_size=10), data=st.data())
def test_messages_arrive_whole_however_they_are_split(written: list[tuple[str, bytes]], data: st.DataObject):
    """Each once and in order, with any data between them and any split by the network."""
    pairs = [_written(*each) for each in written]
    stream = b"".join(wire for wire, _ in pairs)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))

    pieces = [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]

    async def read() -> list[tuple[Any, ...]]:
        client = Spy()
        for piece in pieces:
            await client._ps.parse(piece)
        return client.seen

    async def read_from_the_socket() -> list[tuple[Any, ...]]:
        client, reader = Spy(), asyncio.StreamReader()
        parser = client._ps
        assert isinstance(parser, BurstParser)
        feed = _ShortWay(reader, parser).feed

        async def loop() -> None:
            while piece := await reader.read(32_768):
                await client._ps.parse(piece)

        reading = asyncio.create_task(loop())
        for piece in pieces:
            if data.draw(st.booleans()):  # else it comes before the task has read the last one
                await asyncio.sleep(0)
            if piece:
                feed(piece)
        reader.feed_eof()
        await reading
        return client.seen

    expected = [seen for _, seen in pairs if seen is not None]
    assert asyncio.run(read()) == expected
    assert asyncio.run(read_from_the_socket()) == expected


async def test_messages_of_one_turn_are_one_write() -> None:
    """Small messages that are sent together leave together, in order, and after a message that the library sends."""
    pieces: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while piece := await reader.read(65_536):
            pieces.append(piece)
            if b"PING\r\n" in piece:
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    link = Link(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", "wire")
    await link.open()
    pieces.clear()
    for n in range(3):
        await link.send("a.b", b"%d" % n)
    await link.send("a.c", b"x", reply="r", headers={"Nats-Msg-Id": "7"})
    await link.client.flush()
    head = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"
    last = b"HPUB a.c r %d %d\r\n%bx\r\n" % (len(head), len(head) + 1, head)
    expected = b"".join(b"PUB a.b  1\r\n%d\r\n" % n for n in range(3)) + last
    assert b"".join(pieces).startswith(expected)
    assert pieces[0].startswith(expected)
    with pytest.raises(ValueError, match="one line"):
        await link.send("a.b", b"", headers={"Nats-Msg-Id": "7\r\nX: y"})
    with pytest.raises(nats.errors.BadSubjectError):
        await link.send("a.b 0\r\nPUB c", b"")
    await link.close()
    server.close()
    await server.wait_closed()


async def test_a_message_that_was_not_written_before_a_drop_is_not_sent_later() -> None:
    """Its sender has been answered that the outcome is unknown; the next connection does not carry it behind the sender's back."""
    pieces: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(INFO)
        while piece := await reader.read(65_536):
            pieces.append(piece)
            if b"PING\r\n" in piece:
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    link = Link(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", "wire")
    back = asyncio.Event()
    link.on_back.append(back.set)
    await link.open()
    asked = asyncio.create_task(link.ask("a.b", b"asked"))
    await asyncio.sleep(0)  # it waits for its batch
    await link.client._process_op_err(OSError("the connection drops in the same turn"))
    with pytest.raises(OutcomeUnknown):
        await asked
    await asyncio.wait_for(back.wait(), 60)
    await link.send("a.b", b"later")
    await link.client.flush()
    assert len(writers) == 2
    assert b"later" in b"".join(pieces)
    assert b"asked" not in b"".join(pieces)
    await link.close()
    server.close()
    await server.wait_closed()


async def test_headers_count_towards_the_largest_message() -> None:
    """The server ends the connection for a message over its bound, headers included; the sender learns it before."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        while piece := await reader.read(65_536):
            if b"PING\r\n" in piece:
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    link = Link(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", "wire")
    await link.open()
    most = link.client.max_payload
    headers = {"Nats-Msg-Id": "7"}
    head = len(b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n")
    await link.send("a.b", b"x" * (most - head), headers=headers)
    with pytest.raises(TooLarge):
        await link.send("a.b", b"x" * (most - head + 1), headers=headers)
    await link.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "sent",
    [
        b"PUB odd.a \xff\xfe 1\r\nx\r\n",
        b"PUB odd.\xff 1\r\nx\r\n",
        b"PUB odd.\x0b1 1\r\nx\r\n",
        b"PUB odd.a r\x0cr 1\r\nx\r\n",
        b"HPUB odd.a 16 17\r\nNATS/1.0 \xff\xff\xff\r\n\r\nx\r\n",
        b"HPUB odd.a 4 5\r\n\xff\xff\r\nx\r\n",
    ],
    ids=["reply", "subject", "blank-in-subject", "blank-in-reply", "status", "short-headers"],
)
async def test_odd_bytes_of_one_client_do_not_end_the_connection_of_another(nats_url: str, sent: bytes) -> None:
    """The server passes on subjects and headers as they are; what comes behind them still arrives on the same connection."""
    link, seen = Link(nats_url, "reader"), asyncio.Queue[bytes]()
    await link.open()
    await link.subscribe("odd.>", lambda subject, payload, reply, status: seen.put_nowait(payload))
    await link.client.flush()
    address = urlsplit(nats_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    await reader.readline()
    options = {"verbose": False, "headers": True, "auth_token": address.username or ""}
    writer.write(b"CONNECT %b\r\n%bPUB odd.b 4\r\nnext\r\n" % (json.dumps(options).encode(), sent))
    async with asyncio.timeout(30):
        assert [await seen.get(), await seen.get()] == [b"x", b"next"]
    assert link.client.stats["reconnects"] == 0
    writer.close()
    await link.close()


async def test_a_fault_while_reading_is_followed_by_a_reconnection(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library alone would log it, and never read again."""
    link, seen, back = Link(nats_url, "reader"), asyncio.Queue[bytes](), asyncio.Event()
    link.on_back.append(back.set)
    await link.open()
    await link.subscribe("fault.a", lambda subject, payload, reply, status: seen.put_nowait(payload))
    await link.client.flush()

    def fail(data: bytes) -> tuple[int, bool]:
        monkeypatch.undo()
        raise RuntimeError("not expected")

    monkeypatch.setattr(link.client._burst_parser, "burst", fail)
    await link.send("fault.a", b"1")
    await asyncio.wait_for(back.wait(), 30)
    await link.send("fault.a", b"2")
    assert await asyncio.wait_for(seen.get(), 30) == b"2"
    await link.close()
