"""Answers to the app proxies about services: whose key it is, which replicas take requests, and a connection to one of them.

Each answer is from the log of now. The requests in flight that proxies report become commands to the queue, where they matter for the number
of replicas. Start at `ServiceCalls.answer`.
"""

import asyncio
import contextlib
import math

import msgspec

from fairlead_bus.port import Bus, BusError, Unavailable
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import EarlyAnswer, HttpError
from fairlead_gateway.routes.tunnels import NODE_S
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_gateway.views.services import ServiceRow
from fairlead_schemas.jobfile.agent_fields import app_of
from fairlead_schemas.jobfile.job_spec import AppWords
from fairlead_schemas.policies.services import LOAD_AGAIN_NS
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.app_sessions import (
    AppAnswer,
    ConnectReplica,
    FindService,
    RenewServices,
    ReplicaRoute,
    ServiceAnswer,
    ServiceEntry,
    ServicesRenewed,
)
from fairlead_schemas.wire.tunnels import OpenTunnel, TunnelOpened

#: Rows in the bucket CREDENTIAL, by the digest of the key.
KEY_KIND = "service-key"
UNAUTHORIZED, NOT_FOUND, STARTING = 401, 404, 503
_NO_KEY = "this key is not known, has been revoked, or has expired"

_encode = msgspec.json.Encoder().encode
_decode_opened = msgspec.json.Decoder(TunnelOpened).decode


class _JobWords(msgspec.Struct, frozen=True):
    app: str | AppWords = ""


class KeptKey(msgspec.Struct, frozen=True):
    """Row of a key: whose it is. What it may is in the log."""

    service: str
    key: str


def is_serving(row: JobRow) -> bool:
    """Return whether a replica's application has answered in the present run."""
    return row.state == "running" and bool(row.app_ready_ns)


class ServiceCalls:
    """Answers over views and bus."""

    def __init__(self, views: Views, bus: Bus, gate: CommandPublisher, waiter: ResultWaiter) -> None:
        self._views, self._bus, self._gate, self._waiter = views, bus, gate, waiter
        self._rows = ShortLived(bus)
        #: Reports to the queue that are on their way, by service and proxy.
        self._reporting: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def answer(self, question: FindService | ConnectReplica | RenewServices, *, is_current: bool) -> bytes:
        """Answer a question of a proxy. `is_current`: the views have the end of the log."""
        if isinstance(question, RenewServices):
            return _encode(await self._renew(question) if is_current else ServicesRenewed(behind=True))
        if not is_current:
            words = "the gateway does not see the newest of the log; try again"
            return _encode(AppAnswer(status=STARTING, words=words))
        try:
            found = self._find if isinstance(question, FindService) else self._connect
            return _encode(await found(question))  # type: ignore[arg-type]  # as the question is
        except BusError:
            return _encode(AppAnswer(status=STARTING, words="the bus does not answer; try again"))

    async def _find(self, question: FindService) -> ServiceAnswer:
        kept = await self._rows.get(KEY_KIND, question.key, KeptKey)
        row = self._views.services.rows.get(kept.service) if kept is not None else None
        if kept is None or row is None or not self._is_good(row, kept.key):
            return ServiceAnswer(status=UNAUTHORIZED, words=_NO_KEY)
        if question.label and question.label != row.label:
            return ServiceAnswer(status=UNAUTHORIZED, words="this key is of another service")
        key = row.keys[kept.key]
        entry = ServiceEntry(
            service=row.name,
            label=row.label,
            key=key.key,
            per_minute=key.per_minute,
            in_flight=key.in_flight,
            replicas=self._routes(row),
        )
        return ServiceAnswer(entry=entry)

    def _is_good(self, row: ServiceRow, key: str) -> bool:
        found = row.keys.get(key)
        now_ns = int(self._rows.clock() * 1e9)
        return found is not None and (not found.expires_ns or now_ns < found.expires_ns)

    def _routes(self, row: ServiceRow) -> list[ReplicaRoute]:
        """Return the replicas that take requests."""
        found: list[ReplicaRoute] = []
        for job, replica in row.replicas.items():
            run = self._views.jobs.rows.get(job)
            if run is None or replica.retired or not is_serving(run):
                continue
            app = app_of(msgspec.json.decode(self._views.jobs.spec_of(run), type=_JobWords).app)
            if app is not None:
                found.append(ReplicaRoute(job, run.attempt, app.profile.name))
        return found

    async def _connect(self, question: ConnectReplica) -> AppAnswer:
        row, run = self._views.services.rows.get(question.service), self._views.jobs.rows.get(question.job)
        if row is None or run is None or question.job not in row.replicas:
            return AppAnswer(status=NOT_FOUND, words="there is no such replica")
        if run.attempt != question.attempt or run.state not in ("running", "stopping") or not run.parts:
            return AppAnswer(status=STARTING, words=f"replica {run.id} is {run.state}")
        asked = OpenTunnel(
            job=run.id,
            attempt=run.attempt,
            rank=0,
            port=0,
            address=question.address,
            ticket=question.ticket,
            app=True,
        )
        subject = subjects.rpc_node(run.parts[0].node, "tunnel")
        try:
            opened = _decode_opened(await self._bus.request(subject, _encode(asked), timeout_s=NODE_S))
        except (Unavailable, msgspec.MsgspecError):
            return AppAnswer(status=STARTING, words=f"node {run.parts[0].node} does not answer")
        if opened.error:
            return AppAnswer(status=STARTING, words=f"replica {run.id} does not answer: {opened.error}")
        return AppAnswer(token=opened.token)

    async def _renew(self, question: RenewServices) -> ServicesRenewed:
        replicas = {
            name: self._routes(row)
            for name in question.loads
            if (row := self._views.services.rows.get(name)) is not None
        }
        ended: dict[str, tuple[int, str]] = {}
        for digest, service in question.keys.items():
            row = self._views.services.rows.get(service)
            try:
                kept = await self._rows.get(KEY_KIND, digest, KeptKey)
            except BusError:
                return ServicesRenewed(behind=True)
            if kept is None or row is None or kept.service != service or not self._is_good(row, kept.key):
                ended[digest] = UNAUTHORIZED, _NO_KEY
        if is_token(question.proxy):
            for name, in_flight in question.loads.items():
                self._report(name, question.proxy, in_flight)
        return ServicesRenewed(replicas=replicas, ended=ended)

    # ------------------------------------------------------------------ load

    def _report(self, name: str, proxy: str, in_flight: int) -> None:
        """Report a load to the queue, where another number of replicas could come of it; a load that lasts, again and again."""
        row = self._views.services.rows.get(name)
        if row is None or row.is_stopped or row.rules.is_fixed or (name, proxy) in self._reporting:
            return
        before, at_ns = row.loads.get(proxy, (0, 0))
        per = max(1, row.rules.requests)
        is_old = in_flight and self._rows.clock() * 1e9 > at_ns + LOAD_AGAIN_NS
        if math.ceil(in_flight / per) == math.ceil(before / per) and not is_old:
            return
        self._reporting[name, proxy] = asyncio.create_task(self._send(name, proxy, in_flight))

    async def _send(self, name: str, proxy: str, in_flight: int) -> None:
        command = cmd.ReportServiceLoad(id=self._gate.new_id(), service=name, proxy=proxy, in_flight=in_flight)
        try:
            with contextlib.suppress(HttpError, EarlyAnswer):  # the proxy says it again
                await self._waiter.carry_out(self._gate, command)
        finally:
            del self._reporting[name, proxy]
