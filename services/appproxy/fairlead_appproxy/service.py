"""The app proxy as a process: expects tunnels for the gateways, listens, and asks again which tunnels may stay open.

Any number may run. Each keeps its own tunnels in memory and nothing else: when one ends, its tunnels end, and clients ask for new ones.
Start at `AppProxy.run`.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import batched
from typing import NamedTuple, Self

import msgspec
import structlog

from fairlead_appproxy.app_server import AppServer
from fairlead_appproxy.browser_rules import AppHosts
from fairlead_appproxy.service_server import ServiceServer
from fairlead_appproxy.tunnel_server import TunnelServer
from fairlead_appproxy.tunnel_table import Full, TunnelTable
from fairlead_bus.environment_settings import BadSetting, one_of, whole
from fairlead_bus.port import Bus, BusError, Message
from fairlead_bus.tls import Certificate, TlsFiles
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.app_sessions import (
    ENTRIES_MAX,
    AppAddress,
    AppAnswer,
    AppQuestion,
    EntriesEnded,
    FindService,
    RenewEntries,
    RenewServices,
    ServiceAnswer,
    ServicesRenewed,
)
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
APPS = "FAIRLEAD_APPPROXY_APPS"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_GATEWAY_S = 2.0
#: A sign of a person is told for so long: a gateway, or a node's agent, may have been away.
PRESENCE_S = 10.0
#: A gateway answers when the node has dialled out.
_CONNECT_S = 25.0

log = structlog.get_logger()
_decode_question = msgspec.json.Decoder(ExpectTunnel).decode
_decode_answer = msgspec.json.Decoder(AppAnswer).decode
_decode_service = msgspec.json.Decoder(ServiceAnswer).decode
_decode_renewed = msgspec.json.Decoder(ServicesRenewed).decode
_decode_entries = msgspec.json.Decoder(EntriesEnded).decode
_decode_ended = msgspec.json.Decoder(TunnelsEnded).decode
_encode = msgspec.json.Encoder().encode


class ProxySettings(NamedTuple):
    """Settings of the app proxy (docs/reference/settings.md). Port 0 means any free port."""

    host: str = "127.0.0.1"
    port: int = 8443
    #: Addresses that clients and nodes are told; "": that of the socket, and that of clients.
    url: str = ""
    nodes_url: str = ""
    #: Origin below which each app has one: "https://apps.example.org"; "": apps are carried to <label>.localhost.
    apps: str = ""
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
        return cls(host, port, _url(env, URL), _url(env, NODES_URL), _apps(env), tls)


def _url(env: Mapping[str, str], name: str) -> str:
    url = env.get(name, "").rstrip("/")
    if url and not url.startswith(("https://", "http://")):
        raise BadSetting(f'{name}: expected https://HOST[:PORT], found "{url}"')
    return url


def _apps(env: Mapping[str, str]) -> str:
    url = _url(env, APPS)
    if url and (not url.startswith("https://") or "/" in url[8:] or "*" in url):
        raise BadSetting(
            f'{APPS}: expected https://DOMAIN[:PORT], below which each application has a name, found "{url}"; cookies of applications are '
            "bound to their host over https alone"
        )
    return url


class AppProxy:
    """The running service; `run` until `stop`."""

    def __init__(self, bus: Bus, settings: ProxySettings) -> None:
        self._bus, self._settings = bus, settings
        self.table = TunnelTable()
        self.apps = AppServer(AppHosts(settings.apps), self._ask_app)
        self.services = ServiceServer(self.apps, self._ask_service, self._renew_services)
        self.apps.is_known = self.services.table.has_replica
        self.server = TunnelServer(self.table, self.apps, self.services)
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
        self.apps.node_address = self._settings.nodes_url or self.address
        served = [
            await self._bus.serve(subjects.rpc(NAME, "expect"), self._expect, group=NAME),
            await self._bus.serve(subjects.rpc(NAME, "address"), self._where, group=NAME),
            await self._bus.serve(subjects.rpc(NAME, ALIVE), self._alive, group=NAME),
        ]
        log.info("listening", address=self.address)
        watching = [asyncio.create_task(self._ask_again()), asyncio.create_task(self.services.keep_current())]
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
            self.apps.close()
            self.services.close()
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

    async def _where(self, message: Message) -> bytes:
        return _encode(AppAddress(address=self.address, apps=self._settings.apps))

    async def _ask_app(self, question: AppQuestion) -> AppAnswer:
        """Ask a gateway about an app, or for a connection to a replica. Raises ConnectionError."""
        return await self._asked(question, _decode_answer, _CONNECT_S)

    async def _ask_service(self, question: FindService) -> ServiceAnswer:
        """Ask a gateway whose a key is. Raises ConnectionError."""
        return await self._asked(question, _decode_service, _GATEWAY_S)

    async def _renew_services(self, question: RenewServices) -> ServicesRenewed:
        """Ask a gateway which replicas and keys there are. Raises ConnectionError."""
        return await self._asked(question, _decode_renewed, _GATEWAY_S)

    async def _asked[T](self, question: AppQuestion, decode: Callable[[bytes], T], timeout_s: float) -> T:
        try:
            subject = subjects.rpc("gateway", "apps")
            return decode(await self._bus.request(subject, _encode(question), timeout_s=timeout_s))
        except (BusError, msgspec.MsgspecError) as error:
            log.warning("no gateway answers about an application", reason=str(error))
            raise ConnectionError(str(error)) from error

    async def _alive(self, message: Message) -> bytes:
        return encode_alive(Alive(sequence=0))

    def is_blind(self) -> bool:
        """Return True where no gateway has told for long which tunnels may stay open."""
        return bool(len(self.table) or self.apps.table.entries) and time.monotonic() - self._answered_at > BLIND_S

    async def _ask_again(self) -> None:
        """Ask the gateways which tunnels may stay open, and end the others; end all while no gateway answers for long."""
        while True:
            await asyncio.sleep(ASK_AGAIN_S)
            self.server.end_overdue()
            self.apps.sweep()
            if not self.table.open and not self.apps.table.entries:
                self._answered_at = time.monotonic()
                continue
            for some in batched([*self.table.open.values()], TUNNELS_MAX):
                await self._ask(some)
            await self._renew()
            if self.is_blind():
                for tunnel in [*self.table.open]:
                    self.server.end(tunnel, f"no gateway has answered for {BLIND_S:g} s")
                self.apps.close()

    async def _renew(self) -> None:
        """Ask which entries of apps may stay, and tell where somebody has been."""
        now, wall_ns = time.monotonic(), time.time_ns()
        lasts = self.apps.table.active(now - ASK_AGAIN_S - PRESENCE_S)
        active = {label: wall_ns - int((now - last) * 1e9) for label, last in lasts.items()}
        for some in self.apps.table.batches(ENTRIES_MAX):
            question = _encode(RenewEntries(entries=some, active=active))
            try:
                answer = await self._bus.request(subjects.rpc("gateway", "apps"), question, timeout_s=_GATEWAY_S)
                told = _decode_entries(answer)
            except (BusError, msgspec.MsgspecError) as error:
                log.warning("no gateway tells who may stay in an application", reason=str(error))
                return
            if told.behind:
                return
            self._answered_at, active = time.monotonic(), {}
            for cookie, (status, words) in told.ended.items():
                self.apps.end(cookie, some[cookie], status, words)

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
