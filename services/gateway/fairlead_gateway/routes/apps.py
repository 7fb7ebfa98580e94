"""POST /v1/jobs/{job}/entries: a code by which a browser enters the application of a run; and the answers to the app proxy about who may.

Rows of who has entered are short-lived rows of the bucket CREDENTIAL, so all gateways know them and a proxy that starts finds them again.
Each answer is from the rights and the log of now. Start at `AppRoutes.enter`, then `AppRoutes.answer`.
"""

import secrets

import msgspec
from fastapi import Request, Response

from fairlead_bus.port import Bus, BusError, Message, Unavailable
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.guard import RouteGuard
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import JsonResponse, head_of, read_request
from fairlead_gateway.routes.request_bodies import EmptyRequest
from fairlead_gateway.routes.router import Router, on_job
from fairlead_gateway.routes.service_calls import ServiceCalls
from fairlead_gateway.routes.tokens import NO_STORE
from fairlead_gateway.routes.tunnels import NODE_S, PROXY_S, SECRET_BYTES, TunnelRoutes
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_schemas.http.tunnels import NewEntry
from fairlead_schemas.jobfile.agent_fields import app_of
from fairlead_schemas.jobfile.job_spec import AppWords
from fairlead_schemas.policies.apps import App, label_of, parse_label
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.app_sessions import (
    CODE_S,
    ENTRY_S,
    AppAddress,
    AppAnswer,
    AppEntry,
    AppQuestion,
    ConnectApp,
    ConnectReplica,
    EnterApp,
    EntriesEnded,
    FindEntry,
    FindService,
    RenewEntries,
    RenewServices,
    RunPresence,
)
from fairlead_schemas.wire.tunnels import OpenTunnel, Tunnel, TunnelOpened, digest

CODE, ENTRY = "app-code", "app-entry"
ENTER_PATH = "/.fairlead/enter"
GONE, NOT_FOUND, FORBIDDEN, STARTING = 410, 404, 403, 503
_NOT_ENTERED = "you have not entered this application: open it by fairlead open, or from the page of its job"

_encode = msgspec.json.Encoder().encode
_decode_question = msgspec.json.Decoder(AppQuestion).decode
_decode_address = msgspec.json.Decoder(AppAddress).decode
_decode_opened = msgspec.json.Decoder(TunnelOpened).decode


class _JobWords(msgspec.Struct, frozen=True):
    app: str | AppWords = ""


class _Row(msgspec.Struct, frozen=True):
    """Row of a code, or of somebody who has entered."""

    label: str
    job: str
    principal: str = ""
    via: str = ""


class AppRefused(Exception):
    """The app cannot be entered; the status and the words say why."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


class AppRoutes:
    """Handlers over views, bus and the rights of tunnels."""

    def __init__(
        self, views: Views, bus: Bus, tunnels: TunnelRoutes, guard: RouteGuard, services: ServiceCalls
    ) -> None:
        """`services`: answers what proxies ask about services."""
        self._views, self._bus, self._tunnels, self._guard = views, bus, tunnels, guard
        self._services = services
        self._rows = ShortLived(bus)

    # ------------------------------------------------------------------ the client's question

    async def enter(self, caller: Caller, job: str) -> NewEntry:
        """Make a code for the app of a job. Raises HttpError."""
        row, app = self._app(job)
        if app is None:
            hint = "its job file names none; fairlead port-forward reaches its ports"
            raise HttpError(409, "no_app", f"job {job} has no application", hint=hint)
        if row is None or row.state != "running":
            state = "unknown" if row is None else row.state
            raise HttpError(409, "not_running", f"job {job} is {state}; only a job that runs has an application")
        if not app.profile.is_http:
            hint = f"fairlead port-forward {job} PORT reaches it"
            raise HttpError(409, "not_http", f"the application of job {job} is no page of a browser", hint=hint)
        try:
            answer = await self._bus.request(subjects.rpc("appproxy", "address"), b"{}", timeout_s=PROXY_S)
            proxy = _decode_address(answer)
        except (Unavailable, msgspec.MsgspecError):
            hint = "an admin starts one: docs/how-to/reach-a-job.md"
            raise HttpError(503, "no_app_proxy", "no app proxy answers", hint=hint, retry_after_s=2) from None
        label, code = self._label(row, app), secrets.token_urlsafe(SECRET_BYTES)
        kept = _Row(label, row.id, caller.principal, caller.via)
        try:
            await self._rows.put(CODE, digest(code), kept, CODE_S)
        except BusError:
            raise HttpError(
                503, "bus_away", "the code cannot be stored: the bus does not answer", retry_after_s=2
            ) from None
        scheme, _, domain = proxy.apps.partition("://")
        return NewEntry(
            label=label,
            origin=f"{scheme}://{label}.{domain}" if domain else "",
            address=proxy.address,
            path=f"{ENTER_PATH}?code={code}",
            valid_seconds=CODE_S,
            ready=bool(row.app_ready_ns),
            sequence=self._views.sequence,
        )

    def note(self, caller: Caller, job: str, request: Request) -> None:
        """Note that somebody enters a job of somebody else."""
        self._guard.note_entry(caller, job, request.scope)

    def _app(self, job: str) -> tuple[JobRow | None, App | None]:
        row = self._views.jobs.rows.get(job)
        if row is None or row.elements is not None:
            return None, None
        return row, app_of(msgspec.json.decode(self._views.jobs.spec_of(row), type=_JobWords).app)

    def _label(self, row: JobRow, app: App) -> str:
        return label_of(app.profile.name, row.id, row.attempt, f"{row.submitted_ns}.{row.offered_seq}")

    # ------------------------------------------------------------------ the proxy's questions

    async def answer(self, message: Message) -> bytes:
        """Answer a question of a proxy."""
        question = _decode_question(message.payload)
        if isinstance(question, FindService | ConnectReplica | RenewServices):
            return await self._services.answer(question, is_current=self._tunnels.is_current)
        if isinstance(question, RenewEntries):
            return _encode(await self._renew(question))
        if not self._tunnels.is_current:
            return _encode(
                AppAnswer(status=STARTING, words="the gateway does not see the newest of the log; try again")
            )
        try:
            return _encode(await self._answered(question))
        except AppRefused as closed:
            return _encode(AppAnswer(status=closed.status, words=closed.words))
        except BusError:
            return _encode(AppAnswer(status=STARTING, words="the bus does not answer; try again"))

    async def _answered(self, question: EnterApp | FindEntry | ConnectApp) -> AppAnswer:
        row, app = self._open(question.label)
        if isinstance(question, EnterApp):
            kept = await self._rows.change(CODE, question.code, _Row, lambda _: None)
            if kept is None or kept.label != question.label:
                raise AppRefused(FORBIDDEN, "this link has been used, or is older than 30 s: open the application anew")
            self._require(kept)
            await self._rows.put(ENTRY, question.cookie, kept, ENTRY_S)
        else:
            kept = await self._rows.get(ENTRY, question.cookie, _Row) if question.cookie else None
            if kept is None or kept.label != question.label:
                raise AppRefused(FORBIDDEN, _NOT_ENTERED)
            self._require(kept)
        if isinstance(question, ConnectApp):
            return AppAnswer(token=await self._connect(row, question))
        own = [each for each in app.background if each not in app.profile.background]
        entry = AppEntry(
            job=row.id, attempt=row.attempt, profile=app.profile.name, background=own, principal=kept.principal
        )
        return AppAnswer(entry=entry)

    def _open(self, label: str) -> tuple[JobRow, App]:
        """Return job and app of a label whose attempt runs. Raises AppRefused."""
        parts = parse_label(label)
        row, app = self._app(parts.job) if parts is not None else (None, None)
        if parts is None or (row is None and self._views.jobs.rows):
            raise AppRefused(NOT_FOUND if parts is None else GONE, "there is no such application, or it has ended")
        if row is None or app is None:
            raise AppRefused(GONE, "there is no such application, or it has ended")
        if row.attempt == parts.attempt and label != self._label(row, app):
            raise AppRefused(NOT_FOUND, "there is no such application")
        if row.attempt != parts.attempt or row.state in ("succeeded", "failed", "cancelled"):
            how = row.state if row.attempt == parts.attempt else f"in its attempt {row.attempt}"
            raise AppRefused(
                GONE, f"this application has ended: job {row.id} is {how}; fairlead session list shows what runs"
            )
        if row.state != "running":
            raise AppRefused(STARTING, f"job {row.id} is {row.state}; this page comes when it runs")
        return row, app

    def _require(self, kept: _Row) -> None:
        tunnel = Tunnel(id="", job=kept.job, principal=kept.principal, via=kept.via)
        if why := self._tunnels.why_ended(tunnel):
            raise AppRefused(FORBIDDEN, why)

    async def _connect(self, row: JobRow, question: ConnectApp) -> str:
        asked = OpenTunnel(
            job=row.id,
            attempt=row.attempt,
            rank=0,
            port=0,
            address=question.address,
            ticket=question.ticket,
            app=True,
        )
        node = row.parts[0].node
        try:
            answer = await self._bus.request(subjects.rpc_node(node, "tunnel"), _encode(asked), timeout_s=NODE_S)
            opened = _decode_opened(answer)
        except (Unavailable, msgspec.MsgspecError):
            raise AppRefused(STARTING, f"node {node} does not answer") from None
        if opened.error:
            raise AppRefused(STARTING, self._not_connected(row, opened.error))
        return opened.token

    def _not_connected(self, row: JobRow, error: str) -> str:
        if row.app_ready_ns:
            return f"the application of job {row.id} does not answer: {error}; its output: fairlead logs {row.id}"
        return f"the application of job {row.id} is starting, and does not listen yet ({error})"

    async def _renew(self, question: RenewEntries) -> EntriesEnded:
        if not self._tunnels.is_current:
            return EntriesEnded(behind=True)
        ended: dict[str, tuple[int, str]] = {}
        for cookie, label in question.entries.items():
            try:
                self._open(label)
                kept = await self._rows.get(ENTRY, cookie, _Row)
                if kept is None:
                    raise AppRefused(FORBIDDEN, _NOT_ENTERED)
                self._require(kept)
            except AppRefused as closed:
                if closed.status != STARTING:
                    ended[cookie] = closed.status, closed.words
            except BusError:
                return EntriesEnded(behind=True)
        await self._pass_on(question.active)
        return EntriesEnded(ended=ended)

    async def _pass_on(self, active: dict[str, int]) -> None:
        """Tell the nodes when somebody was there last."""
        for label, at_ns in active.items():
            try:
                row, _ = self._open(label)
            except AppRefused:
                continue
            presence = RunPresence(job=row.id, attempt=row.attempt, rank=0, at_ns=at_ns)
            try:
                await self._bus.request(
                    subjects.rpc_node(row.parts[0].node, "presence"), _encode(presence), timeout_s=PROXY_S
                )
            except Unavailable:
                continue  # the proxy says it again


def routes(handlers: AppRoutes) -> Router:
    """Return the route."""
    router = Router()

    @router.command(
        "POST",
        "/v1/jobs/{job}/entries",
        "Enter the application of a running job: where it is opened, and a code that is good once",
        NewEntry,
        right=on_job("session:open"),
        body=EmptyRequest,
        status=201,
    )
    async def enter_app(job: str, request: Request) -> Response:
        await read_request(request, EmptyRequest)
        caller = head_of(request).caller
        made = await handlers.enter(caller, job)
        handlers.note(caller, job, request)
        return JsonResponse(made, status_code=201, headers=NO_STORE)

    return router
