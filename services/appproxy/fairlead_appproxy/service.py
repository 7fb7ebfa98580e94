"""The app proxy as a process: expects tunnels for the gateways, listens, and asks again which tunnels may stay open.

Any number may run. Each keeps its own tunnels in memory and nothing else: when one ends, its tunnels end, and clients ask for new ones.
Start at `AppProxy.run`.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from itertools import batched
from typing import NamedTuple, Self

import msgspec
import structlog

from fairlead_appproxy.tunnel_server import TunnelServer
from fairlead_appproxy.tunnel_table import Full, TunnelTable
from fairlead_bus.environment_settings import BadSetting, one_of, whole
from fairlead_bus.port import Bus, BusError, Message
from fairlead_bus.tls import Certificate, TlsFiles
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import ALIVE, Alive, encode_alive
from fairlead_schemas.wire.tunnels import (
    ASK_AGAIN_S,
    BLIND_S,
    TUNNELS_MAX,
    AskTunnels,
    ExpectTunnel,
    Tunnel,
    TunnelExpected,
    TunnelsEnded,
)

NAME = "appproxy"
HOST, PORT = "FAIRLEAD_APPPROXY_HOST", "FAIRLEAD_APPPROXY_PORT"
URL, NODES_URL, TLS = "FAIRLEAD_APPPROXY_URL", "FAIRLEAD_APPPROXY_NODES_URL", "FAIRLEAD_APPPROXY_TLS"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_GATEWAY_S = 2.0

log = structlog.get_logger()
_decode_question = msgspec.json.Decoder(ExpectTunnel).decode
_decode_ended = msgspec.json.Decoder(TunnelsEnded).decode
_encode = msgspec.json.Encoder().encode


class ProxySettings(NamedTuple):
    """Settings of the app proxy (docs/reference/settings.md). Port 0 means any free port."""

    host: str = "127.0.0.1"
    port: int = 8443
    #: Addresses that clients and nodes are told; "": that of the socket, and that of clients.
    url: str = ""
    nodes_url: str = ""
    tls: TlsFiles | None = None

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """Read FAIRLEAD_APPPROXY_* and FAIRLEAD_TLS_*. Raises BadSetting."""
        host, tls = env.get(HOST) or "127.0.0.1", TlsFiles.from_environment(env)
        if tls is None and host not in _LOOPBACK and one_of(env, TLS, ("on", "off"), "on") == "on":
            raise BadSetting(
                f"{HOST}: {host} is reached from other machines, and tunnels carry what people type: set FAIRLEAD_TLS_CERT and "
                f"FAIRLEAD_TLS_KEY; or, where something in front has TLS, {TLS}=off"
            )
        port = whole(env, PORT, 8443, unit="port number", least=0, most=65535)
        return cls(host, port, _url(env, URL), _url(env, NODES_URL), tls)


def _url(env: Mapping[str, str], name: str) -> str:
    url = env.get(name, "").rstrip("/")
    if url and not url.startswith(("https://", "http://")):
        raise BadSetting(f'{name}: expected https://HOST[:PORT], found "{url}"')
    return url


class AppProxy:
    """The running service; `run` until `stop`."""

    def __init__(self, bus: Bus, settings: ProxySettings) -> None:
        self._bus, self._settings = bus, settings
        self.table = TunnelTable()
        self.server = TunnelServer(self.table)
        self.address = ""
        self._certificate = Certificate(settings.tls) if settings.tls is not None else None
        self._answered_at = time.monotonic()
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Carry until stopped; return the exit code."""
        tls = self._certificate.context if self._certificate is not None else None
        port = await self.server.open(self._settings.host, self._settings.port, tls)
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        self.address = self._settings.url or f"{'https' if tls else 'http'}://{host}:{port}"
        served = [
            await self._bus.serve(subjects.rpc(NAME, "expect"), self._expect, group=NAME),
            await self._bus.serve(subjects.rpc(NAME, ALIVE), self._alive, group=NAME),
        ]
        log.info("listening", address=self.address)
        watching = [asyncio.create_task(self._ask_again())]
        if self._certificate is not None:
            watching.append(asyncio.create_task(self._certificate.watch()))
        try:
            stopping = asyncio.create_task(self._stopping.wait())
            done, _ = await asyncio.wait([*watching, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # the others end by a fault of their own only
            return 0
        finally:
            for subscription in served:
                await subscription.close()
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            await self.server.close()

    async def stop(self) -> None:
        """Request `run` to end; open tunnels are cut."""
        self._stopping.set()

    async def _expect(self, message: Message) -> bytes:
        try:
            if self.is_blind():
                raise Full("the app proxy has no answer of a gateway about its tunnels, so it opens no new ones")
            self.table.expect(_decode_question(message.payload), time.monotonic())
        except (msgspec.MsgspecError, Full) as error:
            return _encode(TunnelExpected(error=str(error)))
        return _encode(TunnelExpected(address=self.address, node_address=self._settings.nodes_url or self.address))

    async def _alive(self, message: Message) -> bytes:
        return encode_alive(Alive(sequence=0))

    def is_blind(self) -> bool:
        """Return True where no gateway has told for long which tunnels may stay open."""
        return bool(len(self.table)) and time.monotonic() - self._answered_at > BLIND_S

    async def _ask_again(self) -> None:
        """Ask the gateways which tunnels may stay open, and end the others; end all while no gateway answers for long."""
        while True:
            await asyncio.sleep(ASK_AGAIN_S)
            self.server.end_overdue()
            if not self.table.open:
                self._answered_at = time.monotonic()
                continue
            for some in batched([*self.table.open.values()], TUNNELS_MAX):
                await self._ask(some)
            if self.is_blind():
                for tunnel in [*self.table.open]:
                    self.server.end(tunnel, f"no gateway has answered for {BLIND_S:g} s")

    async def _ask(self, tunnels: Iterable[Tunnel]) -> None:
        question = _encode(AskTunnels(tunnels=[*tunnels]))
        try:
            told = _decode_ended(
                await self._bus.request(subjects.rpc("gateway", "tunnels"), question, timeout_s=_GATEWAY_S)
            )
        except (BusError, msgspec.MsgspecError) as error:
            log.warning("no gateway tells which tunnels may stay open", reason=str(error))
            return
        if told.behind:
            return
        self._answered_at = time.monotonic()
        for tunnel, reason in told.ended.items():
            self.server.end(tunnel, reason)


async def build(bus: Bus) -> AppProxy:
    """Return the service with the settings of its environment. Raises BadSetting."""
    return AppProxy(bus, ProxySettings.from_environment(os.environ))
