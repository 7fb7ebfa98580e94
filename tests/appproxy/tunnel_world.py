"""A real app proxy on the in-memory bus, a gateway that says what a test wants, and both ends of tunnels over real sockets."""

import asyncio
import ssl
from typing import Any, NamedTuple, Self

import msgspec

from fairlead_appproxy.service import AppProxy, ProxySettings
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Message
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.tunnels import (
    CLIENT_END,
    NODE_END,
    PATH,
    AskTunnels,
    ExpectTunnel,
    Tunnel,
    TunnelExpected,
    TunnelsEnded,
    digest,
)
from tests.kit.eventually import eventually_async


class End(NamedTuple):
    """One end of a tunnel, and the head that the proxy answered with."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answer: bytes

    async def is_cut(self, within_s: float = 8.0) -> bool:
        """Wait until the proxy has closed or cut the connection."""
        try:
            async with asyncio.timeout(within_s):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


class TunnelWorld:
    """Use `async with TunnelWorld() as world`."""

    def __init__(self, settings: ProxySettings | None = None, trust: ssl.SSLContext | None = None) -> None:
        self.hub = MemoryHub()
        self.proxy = AppProxy(self.hub.connect(), settings or ProxySettings(port=0))
        #: Answer of the gateway about open tunnels, and what it was asked.
        self.ended = TunnelsEnded()
        self.asked: list[Tunnel] = []
        self._bus, self._trust = self.hub.connect(), trust
        self._ends: list[End] = []

    async def __aenter__(self) -> Self:
        await self._bus.serve(subjects.rpc("gateway", "tunnels"), self._may_stay)
        self._running = asyncio.create_task(self.proxy.run())
        await eventually_async(lambda: self.proxy.address)
        return self

    async def __aexit__(self, *_: Any) -> None:
        for end in self._ends:
            end.writer.transport.abort()
        await self.proxy.stop()
        assert await self._running == 0

    async def _may_stay(self, message: Message) -> bytes:
        self.asked += msgspec.json.decode(message.payload, type=AskTunnels).tunnels
        return msgspec.json.encode(self.ended)

    async def expect(self, name: str, principal: str = "ann") -> TunnelExpected:
        """Expect a tunnel whose secrets are its name with c- and n-."""
        tunnel = Tunnel(id=name, job="7", principal=principal)
        asked = ExpectTunnel(tunnel=tunnel, client=digest(f"c-{name}"), node=digest(f"n-{name}"))
        subject = subjects.rpc("appproxy", "expect")
        return msgspec.json.decode(
            await self._bus.request(subject, msgspec.json.encode(asked), timeout_s=2), type=TunnelExpected
        )

    async def send(self, request: bytes) -> End:
        """Send bytes over a new connection and read a head."""
        host, _, port = self.proxy.address.partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=self._trust)
        end = End(reader, writer, b"")
        self._ends.append(end)
        writer.write(request)
        return end._replace(answer=await reader.readuntil(b"\r\n\r\n"))

    async def come(self, secret: str, *, is_client: bool, behind: bytes = b"") -> End:
        """Come as one end with a secret."""
        name = CLIENT_END if is_client else NODE_END
        head = f"GET {PATH} HTTP/1.1\r\nHost: proxy\r\nConnection: Upgrade\r\nUpgrade: {name}\r\nAuthorization: Bearer {secret}"
        return await self.send(head.encode() + b"\r\n\r\n" + behind)

    async def tunnel(self, name: str = "a") -> tuple[End, End]:
        """Return (client, node) of an open tunnel."""
        await self.expect(name)
        node = await self.come(f"n-{name}", is_client=False)
        return await self.come(f"c-{name}", is_client=True), node
