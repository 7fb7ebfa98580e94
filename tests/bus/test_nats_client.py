"""What the client puts on the wire, in which order: read by a server that only listens."""

import asyncio

from fairlead_bus.nats_link import Link

INFO = b'INFO {"server_id":"x","version":"2.15.0","proto":1,"headers":true,"max_payload":1048576}\r\n'


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
