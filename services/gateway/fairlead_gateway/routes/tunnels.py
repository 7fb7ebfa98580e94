"""POST /v1/jobs/{job}/tunnels: a connection to a port or a command inside a run, and the answer to the app proxy about which may stay open.

The gateway carries no bytes. It asks a proxy to expect both ends and the run's node to dial out to it, and gives the client the
address and a code that is good once. Start at `TunnelRoutes.open`.
"""

import secrets
from typing import Annotated, Literal

import msgspec
from fastapi import Request, Response

from fairlead_bus.port import Bus, Message, Unavailable
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import Callers
from fairlead_gateway.access.guard import RouteGuard
from fairlead_gateway.access.targets import job_target
from fairlead_gateway.errors import HttpError, bad_field
from fairlead_gateway.http_messages import JsonResponse, head_of, read_request
from fairlead_gateway.routes.router import Router, on_job
from fairlead_gateway.routes.tokens import NO_STORE
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_schemas.http.tunnels import NewTunnel
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.tunnels import (
    MEET_S,
    AskTunnels,
    ExpectTunnel,
    OpenTunnel,
    Tunnel,
    TunnelExpected,
    TunnelOpened,
    TunnelsEnded,
    digest,
)

PROXY_S, NODE_S = 2.0, 20.0
#: Of a code and of a ticket.
SECRET_BYTES = 32

_encode = msgspec.json.Encoder().encode
_decode_question = msgspec.json.Decoder(AskTunnels).decode
_decode_expected = msgspec.json.Decoder(TunnelExpected).decode
_decode_opened = msgspec.json.Decoder(TunnelOpened).decode


class TunnelRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /v1/jobs/{job}/tunnels."""

    #: TCP port that the run listens on, on 127.0.0.1 or ::1 of its node or container. Of a connection to a port alone.
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    #: A port of the run; a terminal: one command inside it, which the client names over the connection; or an SSH server for it.
    to: Literal["port", "terminal", "ssh"] = "port"
    #: Of SSH: the public key for which the node makes a certificate.
    public_key: Annotated[str, msgspec.Meta(max_length=200, pattern=r"\A(ssh-ed25519 [A-Za-z0-9+/]{68})?\Z")] = ""
    #: Of a job of several nodes: the rank whose port is meant.
    rank: Annotated[int, msgspec.Meta(ge=0)] = 0


class TunnelRoutes:
    """Handlers over views and bus."""

    def __init__(self, views: Views, bus: Bus, callers: Callers, guard: RouteGuard) -> None:
        self._views, self._bus, self._callers, self._guard = views, bus, callers, guard

    async def open(self, caller: Caller, job: str, wanted: TunnelRequest) -> NewTunnel:
        """Let both ends meet at a proxy; return where, and the code. Raises HttpError."""
        if (wanted.port is None) is (wanted.to == "port"):
            found = "none" if wanted.port is None else str(wanted.port)
            raise bad_field(
                "port", f"expected {'a port' if wanted.port is None else f'no port of a {wanted.to}'}, found {found}"
            )
        if bool(wanted.public_key) is not (wanted.to == "ssh"):
            raise bad_field("public_key", f'expected a key with "to": "ssh" and no other, found "to": "{wanted.to}"')
        row = self._running(job, wanted.rank)
        tunnel = Tunnel(id=secrets.token_hex(8), job=row.id, principal=caller.principal, via=caller.via)
        code, ticket = secrets.token_urlsafe(SECRET_BYTES), secrets.token_urlsafe(SECRET_BYTES)
        expected = await self._expect(ExpectTunnel(tunnel=tunnel, client=digest(code), node=digest(ticket)))
        question = OpenTunnel(
            job=row.id,
            attempt=row.attempt,
            rank=wanted.rank,
            port=wanted.port or 0,
            address=expected.node_address,
            ticket=ticket,
            terminal=wanted.to == "terminal",
            ssh_key=wanted.public_key,
        )
        opened = await self._connect(row, question)
        return NewTunnel(
            tunnel=tunnel.id,
            address=expected.address,
            code=code,
            valid_seconds=MEET_S,
            sequence=self._views.sequence,
            host_key=opened.host_key,
            certificate=opened.certificate,
            user=f"{row.id}.{row.attempt}.{wanted.rank}" if opened.certificate else "",
        )

    def _running(self, job: str, rank: int) -> JobRow:
        row = self._views.jobs.rows.get(job)
        if row is None or row.elements is not None:
            raise HttpError(409, "not_running", f"{job} is an array, or has left the views: name one job that runs")
        if row.state != "running":
            raise HttpError(409, "not_running", f"job {job} is {row.state}; only a job that runs has ports")
        if rank >= len(row.parts):
            raise bad_field("rank", f"expected 0 to {len(row.parts) - 1}, found {rank}")
        return row

    async def _expect(self, question: ExpectTunnel) -> TunnelExpected:
        try:
            answer = await self._bus.request(subjects.rpc("appproxy", "expect"), _encode(question), timeout_s=PROXY_S)
            expected = _decode_expected(answer)
        except (Unavailable, msgspec.MsgspecError):
            hint = "an admin starts one: docs/how-to/reach-a-job.md"
            raise HttpError(503, "no_app_proxy", "no app proxy answers", hint=hint, retry_after_s=2) from None
        if expected.error:
            raise HttpError(503, "app_proxy_full", expected.error, retry_after_s=5)
        return expected

    async def _connect(self, row: JobRow, question: OpenTunnel) -> TunnelOpened:
        node = row.parts[question.rank].node
        try:
            answer = await self._bus.request(subjects.rpc_node(node, "tunnel"), _encode(question), timeout_s=NODE_S)
            opened = _decode_opened(answer)
        except (Unavailable, msgspec.MsgspecError):
            raise HttpError(503, "node_silent", f"node {node} does not answer", retry_after_s=5) from None
        if opened.error:
            raise HttpError(409, "not_connected", opened.error)
        return opened

    def note(self, caller: Caller, job: str, request: Request) -> None:
        """Note that somebody has entered a job of somebody else."""
        self._guard.note_entry(caller, job, request.scope)

    async def may_stay(self, message: Message) -> bytes:
        """Answer the proxy which tunnels must end: those whose person has lost the right, whose sign-in or token has ended, or whose
        job runs no more.
        """
        if not self.is_current:
            return _encode(TunnelsEnded(behind=True))
        asked = _decode_question(message.payload).tunnels
        ended = {tunnel.id: why for tunnel in asked if (why := self.why_ended(tunnel))}
        return _encode(TunnelsEnded(ended=ended))

    @property
    def is_current(self) -> bool:
        """False while the log's end is out of sight for so long that the end of a right could have been missed."""
        return self._callers.is_current()

    def why_ended(self, tunnel: Tunnel) -> str:
        """Return why a connection into a run must end, "" while it may stay."""
        row = self._views.jobs.rows.get(tunnel.job)
        if row is None or row.state != "running":
            return "the job runs no more"
        if self._callers.is_open:
            return ""
        kind, _, credential = tunnel.via.partition(":")
        caller = Caller(
            self._views, principal=tunnel.principal, credential=credential, is_token=kind == "token"
        )  # expiry is an event of the log
        may = caller.may("session:open", job_target(self._views, row, tunnel.job))
        return "" if may else "the right to it, or the sign-in, has ended"


def routes(handlers: TunnelRoutes) -> Router:
    """Return the route."""
    router = Router()

    @router.command(
        "POST",
        "/v1/jobs/{job}/tunnels",
        "Open a connection to a port or a command inside a run: an app proxy's address, and a code that is good once",
        NewTunnel,
        right=on_job("session:open"),
        body=TunnelRequest,
        status=201,
    )
    async def open_tunnel(job: str, request: Request) -> Response:
        caller = head_of(request).caller
        made = await handlers.open(caller, job, await read_request(request, TunnelRequest))
        handlers.note(caller, job, request)
        return JsonResponse(made, status_code=201, headers=NO_STORE)

    return router
