"""Programs' end of services: takes requests with a key at the host of a service, or at the proxy's own address, and passes each to the least busy
replica over connections that nodes make.

The key is taken out before the replica. Answers pass as they come, piece by piece. A request that no replica could be connected for goes to another
one, since nothing of it was sent; where there is none, it waits for one, bounded. Start at `ServiceServer.serve`.
"""

import asyncio
import contextlib
import json
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from itertools import batched

import structlog

from fairlead_appproxy.app_pages import REASONS
from fairlead_appproxy.app_server import AppServer, NotConnected, RequestRefused, serve_requests
from fairlead_appproxy.browser_rules import AppHost
from fairlead_appproxy.connection import HttpConnection
from fairlead_appproxy.head import CarriedRequest, HeadRefused
from fairlead_appproxy.service_table import AVOID_S, KnownKey, KnownService, RoutedReplica, ServiceTable
from fairlead_schemas.policies.services import parse_service_label
from fairlead_schemas.units import token_text
from fairlead_schemas.wire.app_sessions import (
    ENTRIES_MAX,
    FindService,
    RenewServices,
    ServiceAnswer,
    ServicesRenewed,
)
from fairlead_schemas.wire.tunnels import BLIND_S, PATH

#: Between two questions about services and keys: a key that is revoked is refused within a second.
RENEW_S = 0.4
#: For so long a request waits for a replica, so many of one service.
WAIT_S, WAITING_MAX = 120.0, 1000
#: Between two looks whether a replica that was avoided takes requests again, and whether the client has gone.
LOOK_S = 0.25
#: A key that is none is asked for again after it.
UNKNOWN_S, UNKNOWN_MAX = 1.0, 10_000
QUESTIONS_MAX = 100

type AskService = Callable[[FindService], Awaitable[ServiceAnswer]]
type AskRenewal = Callable[[RenewServices], Awaitable[ServicesRenewed]]

log = structlog.get_logger()


class KeyRefused(RequestRefused):
    """Request that a key does not allow; after `again_s` seconds it may."""

    def __init__(self, status: int, words: str, again_s: float = 0.0) -> None:
        super().__init__(status, words)
        self.again_s = again_s


class ServiceServer:
    """Server of services. Both questions raise ConnectionError."""

    def __init__(
        self,
        apps: AppServer,
        ask: AskService,
        renew: AskRenewal,
        clock: Callable[[], float] = time.monotonic,
        wait_s: float = WAIT_S,
    ) -> None:
        """`apps`: carries requests to replicas as it does to apps."""
        self._apps, self._ask, self._renew, self._clock, self._wait_s = apps, ask, renew, clock, wait_s
        self.table = ServiceTable()
        self.name = f"p{secrets.token_hex(4)}"
        #: {digest: until when it is known to be no key, status, words}
        self._unknown: OrderedDict[tuple[str, str], tuple[float, int, str]] = OrderedDict()
        self._questions = asyncio.Semaphore(QUESTIONS_MAX)
        self._answered_at = clock()

    def takes(self, head: CarriedRequest) -> bool:
        """Return whether a connection is of a service, by its first request."""
        host = self._apps.hosts.of(head.values(b"host")[0])
        if host is not None:
            return bool(parse_service_label(host.label))
        return head.target != PATH.encode() and _token(head).startswith("fla_")

    async def serve(self, head: CarriedRequest, client: HttpConnection) -> None:
        """Handle a connection from its first request on."""
        await serve_requests(head, client, self._request, _refused)

    async def _request(self, head: CarriedRequest, client: HttpConnection) -> tuple[bool, bool]:
        if head.is_websocket:
            raise RequestRefused(501, "services take no WebSockets")
        host = self._apps.hosts.of(head.values(b"host")[0])
        key = await self._key(_token(head), host.label if host is not None else "")
        service = self.table.services[key.entry.service]
        words, again_s = key.begin(self._clock())
        if words:
            raise KeyRefused(429, words, again_s)
        service.begin(self._clock())
        cut = object()
        key.cuts[cut] = client.abort
        try:
            public = host or AppHost(key.entry.label, head.values(b"host")[0].decode("latin-1"), "http")
            return await self._pass_on(head, public, client, service, key, cut)
        finally:
            key.cuts.pop(cut, None)
            key.in_flight -= 1
            service.end(self._clock())

    async def _pass_on(
        self,
        head: CarriedRequest,
        host: AppHost,
        client: HttpConnection,
        service: KnownService,
        key: KnownKey,
        cut: object,
    ) -> tuple[bool, bool]:
        until = self._clock() + self._wait_s
        while True:
            replica = await self._replica(service, client, until)
            service.use(replica)
            try:
                return await self._apps.exchange(head, host, client, replica, cut)
            except NotConnected as failed:
                replica.avoid_until = self._clock() + AVOID_S
                log.info("replica not connected", service=service.name, job=replica.entry.job, reason=failed.words)
            finally:
                replica.run.open -= 1
                replica.cuts.pop(cut, None)

    async def _replica(self, service: KnownService, client: HttpConnection, until: float) -> RoutedReplica:
        """Return the least busy replica; wait for one where there is none. Raises RequestRefused."""
        found = service.least_busy(self._clock())
        if found is not None:
            return found
        if service.waiting >= WAITING_MAX:
            raise KeyRefused(503, f"{WAITING_MAX} requests wait for a replica already", 1.0)
        service.waiting += 1
        try:
            while (found := service.least_busy(self._clock())) is None:
                if client.has_gone:
                    raise ConnectionResetError
                if self._clock() >= until:
                    raise KeyRefused(503, f"no replica of service {service.name} takes requests", 1.0)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await service.changed.wait()
            return found
        finally:
            service.waiting -= 1

    # ------------------------------------------------------------------ keys

    async def _key(self, token: str, label: str) -> KnownKey:
        """Return the key of a request. Raises RequestRefused."""
        if token_text.check(token) != "a":
            raise RequestRefused(401, "expected Authorization: Bearer with a key of this service (fla_…)")
        digest, now = token_text.digest(token), self._clock()
        found = self.table.keys.get(digest)
        if found is not None and label in ("", found.entry.label):
            return found
        known = self._unknown.get((digest, label))
        if known is not None and now < known[0]:
            raise RequestRefused(*known[1:])
        if self._questions.locked():
            raise KeyRefused(503, "the app proxy is busy; try again", 1.0)
        async with self._questions:
            try:
                answer = await self._ask(FindService(key=digest, label=label))
            except ConnectionError:
                raise KeyRefused(503, "no gateway answers the app proxy; try again", 1.0) from None
        if answer.entry is not None:
            # Another request with the key may have asked at the same time.
            return self.table.keys.get(digest) or self.table.admit(digest, answer.entry, now)
        if answer.status != 503:
            if len(self._unknown) >= UNKNOWN_MAX:
                self._unknown.popitem(last=False)
            self._unknown[digest, label] = now + UNKNOWN_S, answer.status, answer.words
        raise RequestRefused(answer.status, answer.words)

    # ------------------------------------------------------------------ upkeep

    async def keep_current(self) -> None:
        """Ask again and again which replicas there are and which keys are good, without end."""
        while True:
            await asyncio.sleep(RENEW_S)
            now = self._clock()
            self.table.sweep(now)
            if not self.table.services:
                self._answered_at = now
                continue
            loads = {name: service.load(now) for name, service in self.table.services.items()}
            of_keys = [(digest, key.entry.service) for digest, key in self.table.keys.items()]
            for some in [*batched(of_keys, ENTRIES_MAX)] or [()]:
                await self._renew_some(RenewServices(proxy=self.name, loads=loads, keys=dict(some)))
            if self._clock() - self._answered_at > BLIND_S:
                log.warning("no gateway tells about services for long; their requests are cut")
                self.close()

    async def _renew_some(self, question: RenewServices) -> None:
        try:
            told = await self._renew(question)
        except ConnectionError:
            return
        if told.behind:
            return
        self._answered_at = self._clock()
        for name in question.loads:
            if (service := self.table.services.get(name)) is not None:
                service.set_replicas(told.replicas.get(name, ()))
        for digest, (_, words) in told.ended.items():
            log.info("key ended", service=question.keys.get(digest, ""), reason=words)
            self.table.end(digest)

    def close(self) -> None:
        """Cut everything."""
        for digest in [*self.table.keys]:
            self.table.end(digest)


def _token(head: CarriedRequest) -> str:
    """Return the bearer token of a request, "" for none and for several."""
    found = head.values(b"authorization")
    scheme, _, token = (found[0] if len(found) == 1 else b"").partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def _refused(refused: RequestRefused | HeadRefused, head: CarriedRequest | None) -> bytes:
    """Return an answer as clients of OpenAI's API read errors."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(
        refused.status, "server_error" if refused.status >= 500 else "invalid_request_error"
    )
    body = json.dumps({"error": {"message": refused.words, "type": kind, "code": refused.status}}).encode()
    again_s = getattr(refused, "again_s", 0.0)
    fields = f"Retry-After: {max(1, math.ceil(again_s))}\r\n" if again_s else ""
    fields += 'WWW-Authenticate: Bearer error="invalid_token"\r\n' if refused.status == 401 else ""
    fields += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
    fields += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {refused.status} {REASONS.get(refused.status, 'Refused')}\r\n{fields}\r\n".encode() + body
