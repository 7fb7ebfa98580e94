"""Log lines of a failing connection: errors without text are described by their name."""

import asyncio
from typing import Any

import nats.errors
import pytest

from fairlead_bus.nats import link
from fairlead_bus.nats.adapter import NatsBus
from fairlead_bus.nats.link import Link
from fairlead_bus.port import Unavailable


async def test_a_silent_server_is_distinguished_from_one_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout has no text; the line would end with a colon."""
    monkeypatch.setattr(link, "CONNECT_S", 0.2)
    silent = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    try:
        with pytest.raises(Unavailable, match=rf"^no NATS server answers at 127\.0\.0\.1:{port}: TimeoutError$"):
            await Link(f"nats://secret@127.0.0.1:{port}", "test").open()
    finally:
        silent.close()


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(), "OSError"), (OSError("no route"), "no route"), (nats.errors.Error(), "Error")]
)
async def test_failures_are_described_by_text_or_name(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    """Objects and flushes alike."""

    async def fail(*_: Any, **__: Any) -> Any:
        raise error

    bus = NatsBus(Link("nats://127.0.0.1:1", "test"))
    monkeypatch.setattr(bus, "_store", fail)
    monkeypatch.setattr(bus.link.client, "flush", fail)
    for work in (bus.put_object("S", "a", b""), bus.flush()):
        with pytest.raises(Unavailable, match=f": {told}$"):
            await work


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), nats.errors.ConnectionClosedError()])
async def test_a_connection_that_breaks_while_it_is_closed_is_closed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A service that ends because its server has ended prints no traceback."""

    async def fail() -> None:
        raise error

    bus = NatsBus(Link("nats://127.0.0.1:1", "test"))
    monkeypatch.setattr(bus.link.client, "close", fail)
    await bus.close()
