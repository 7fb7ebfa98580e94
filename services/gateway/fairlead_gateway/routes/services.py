"""Services over HTTP: submit one by its job file, scale, stop, and its keys. The queue decides about every change.

A service that the caller may not see is answered like one that is not there; who may do what is a matter of roles over its queue and project, and
of who submitted it. Start at `ServiceRoutes`.
"""

import contextlib
import os
import secrets
import time
from typing import Annotated

import msgspec
from fastapi import Request, Response

from fairlead_bus.port import Bus, BusError
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.submits import require_submit
from fairlead_gateway.access.targets import service_target
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import HttpError, not_found
from fairlead_gateway.http_messages import JsonResponse, RequestHead, head_of, read_json, read_one, read_request
from fairlead_gateway.routes.job_translator import container_field, runtime_error
from fairlead_gateway.routes.query import AnyLimit, Continue, page_by_name
from fairlead_gateway.routes.request_bodies import duration
from fairlead_gateway.routes.router import Router, in_body, listed, on_service
from fairlead_gateway.routes.service_calls import KEY_KIND, KeptKey, is_serving
from fairlead_gateway.routes.tokens import NO_STORE
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.services import KeyRow, ServiceRow
from fairlead_schemas.http import services as doc
from fairlead_schemas.http.api import Page
from fairlead_schemas.jobfile.job_spec import JobSpec
from fairlead_schemas.jobfile.resolve import decode_and_check
from fairlead_schemas.jobfile.service_file import ServiceFile, replicas_of, resolve_service
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.policies.services import IN_FLIGHT_MAX, NAME_CHARS_MAX, PER_MINUTE_MAX
from fairlead_schemas.units import token_text
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.units.timestamps import DAY_NS, SECOND_NS, rfc3339
from fairlead_schemas.units.validation import ErrorCollector, InvalidJob
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.app_sessions import AppAddress

HINT = "docs/how-to/services.md has the words of a service"
SERVICE_VERBS: tuple[Verb, ...] = ("job:read", "job:cancel", "session:share")
#: Life of the row of a key that does not expire: it goes with the key.
_LONG_S = 50 * 365 * 86400.0
_KEY_DAYS_MAX = 3650
_PROXY_S = 2.0
_decode_address = msgspec.json.Decoder(AppAddress).decode


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of a scale: 3, or "0-4"."""

    replicas: int | str


class ServiceKeyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of a new key. `expires`: after a duration such as "30d"; "": when it is revoked. 0: no bound."""

    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""
    per_minute: Annotated[int, msgspec.Meta(ge=0, le=PER_MINUTE_MAX)] = 0
    in_flight: Annotated[int, msgspec.Meta(ge=0, le=IN_FLIGHT_MAX)] = 0
    expires: str | int = ""


class ServiceRoutes:
    """Checks of requests, and the commands that they become."""

    def __init__(
        self, views: Views, bus: Bus, gate: CommandPublisher, waiter: ResultWaiter, registries: Registries | None
    ) -> None:
        self.views = views
        self._bus, self._gate, self._waiter, self._registries = bus, gate, waiter, registries
        self._rows = ShortLived(bus)

    async def send(self, head: RequestHead, kind: type[cmd.CommandBase], *content: str, **fields: object) -> None:
        """Send a command and wait until it is carried out. `content`: what differs between commands under one Idempotency-Key.
        Raise HttpError.
        """
        command_id = self._waiter.command_id(self._gate, head, kind.__name__, *content)
        await self._waiter.carry_out(
            self._gate, kind(id=command_id, user=head.user, authority=head.authority, **fields)
        )

    async def apply(self, head: RequestHead, body: bytes) -> ServiceRow:
        """Make a service of a job file, or another one of the one of its name. Raise HttpError."""
        wanted: ServiceFile = read_one(body, self._file, HINT)
        caller = head.caller
        require_submit(self.views, caller, wanted.queue, wanted.template.project, "queue")
        target = service_target(self.views, wanted.name)
        if target is not None:  # its replicas are ended for the new ones
            taken = HttpError(409, "conflict", f"name: the name {wanted.name} is taken; choose another one")
            caller.require("job:cancel", target, hidden=taken, sees="job:read")
        fields = {"queue": wanted.queue, "template": wanted.template, "rules": wanted.rules}
        await self.send(
            head, cmd.ApplyService, wanted.name, token_text.digest(body.decode()), service=wanted.name, **fields
        )
        return self.row(wanted.name)

    def _file(self, body: bytes) -> ServiceFile:
        spec = decode_and_check(body, self._registries)
        error = runtime_error(bool(spec.image), container_field(spec), self.views.nodes.runtimes())
        if error is not None:
            raise InvalidJob([error])
        return resolve_service(spec, self._registries)

    def row(self, name: str) -> ServiceRow:
        """Return the row of a service. Raise HttpError (404)."""
        row = self.views.services.rows.get(name)
        if row is None:
            raise not_found("service", name[:80], hint="GET /v1/services lists them")
        return row

    def seen(self, caller: Caller) -> dict[str, ServiceRow]:
        """Return the services that the caller may see, by name."""
        return {
            name: row
            for name, row in self.views.services.rows.items()
            if (target := service_target(self.views, name)) is not None and caller.may("job:read", target)
        }

    # ------------------------------------------------------------------ keys

    async def issue(self, head: RequestHead, service: str, wanted: ServiceKeyRequest) -> doc.NewServiceKey:
        """Make a key. Its digest is stored first: a key that the queue knows works. Raise HttpError."""
        self.row(service)
        life_ns = duration("expires", wanted.expires) if wanted.expires != "" else 0
        if life_ns > _KEY_DAYS_MAX * DAY_NS:
            raise HttpError(422, "invalid", f"expires: expected at most {_KEY_DAYS_MAX}d")
        token, key = token_text.make("a", os.urandom(token_text.RANDOM_BYTES)), secrets.token_hex(5)
        kept = KeptKey(service=service, key=key)
        digest = token_text.digest(token)
        try:
            await self._rows.put(KEY_KIND, digest, kept, life_ns / SECOND_NS or _LONG_S)
        except BusError:
            raise HttpError(
                503, "bus_away", "the key cannot be stored: the bus does not answer", retry_after_s=2
            ) from None
        try:
            await self.send(
                head,
                cmd.IssueServiceKey,
                key,
                service=service,
                key=key,
                name=wanted.name,
                per_minute=wanted.per_minute,
                in_flight=wanted.in_flight,
                expires_ns=time.time_ns() + life_ns if life_ns else 0,
            )
        except HttpError:
            with contextlib.suppress(BusError):
                await self._rows.change(KEY_KIND, digest, KeptKey, lambda _: None)
            raise
        row = self.row(service).keys[key]
        return doc.NewServiceKey(token=token, **msgspec.structs.asdict(self.key_document(row)))

    def key_document(self, row: KeyRow) -> doc.ServiceKeyInfo:
        """Return the document of a key."""
        return doc.ServiceKeyInfo(
            key=row.key,
            name=row.name,
            per_minute=row.per_minute,
            in_flight=row.in_flight,
            created_at=rfc3339(row.at_ns),
            created_by=self.views.name_of(row.by),
            expires_at=rfc3339(row.expires_ns) if row.expires_ns else None,
            sequence=self.views.sequence,
        )

    # ------------------------------------------------------------------ documents

    async def address(self) -> AppAddress:
        """Return where an app proxy is reached; "" where none answers."""
        try:
            answer = await self._bus.request(subjects.rpc("appproxy", "address"), b"{}", timeout_s=_PROXY_S)
            return _decode_address(answer)
        except (BusError, msgspec.MsgspecError):
            return AppAddress(address="")

    def document(self, caller: Caller, row: ServiceRow, proxy: AppAddress) -> doc.ServiceInfo:
        """Return the document of a service."""
        target = service_target(self.views, row.name)
        scheme, _, domain = proxy.apps.partition("://")
        replicas = [self._replica(row, job) for job in row.replicas]
        return doc.ServiceInfo(
            name=row.name,
            queue=row.queue,
            user=self.views.name_of(row.user),
            project=row.project,
            revision=row.revision,
            replicas_min=row.rules.replicas_min,
            replicas_max=row.rules.replicas_max,
            wanted=0 if row.is_stopped else row.wanted,
            serving=sum(each.state == "serving" for each in replicas),
            requests=row.rules.requests,
            label=row.label,
            url=f"{scheme}://{row.label}.{domain}" if domain else "",
            address=proxy.address,
            created_at=rfc3339(row.created_ns),
            applied_at=rfc3339(row.applied_ns),
            stopping=row.is_stopped,
            blocked=row.blocked,
            replicas=replicas,
            may=[verb for verb in SERVICE_VERBS if target is not None and caller.may(verb, target)],
            sequence=self.views.sequence,
        )

    def _replica(self, row: ServiceRow, job: str) -> doc.ServiceReplica:
        replica, run = row.replicas[job], self.views.jobs.rows[job]
        state: doc.ReplicaState = "waiting"
        if replica.retired or run.state == "stopping":
            state = "leaving"
        elif is_serving(run):
            state = "serving"
        elif run.state in ("placed", "running"):
            state = "starting"
        node = run.parts[0].node if run.parts else ""
        return doc.ServiceReplica(job=job, revision=replica.revision, state=state, node=node, retired=replica.retired)


def routes(services: ServiceRoutes) -> Router:
    """Return all of them."""
    router = Router()
    _add_reads(router, services)
    _add_changes(router, services)
    _add_keys(router, services)
    return router


def _add_reads(router: Router, services: ServiceRoutes) -> None:
    views = services.views

    @router.read("/v1/services", "List services", Page[doc.ServiceInfo], right=listed("job:read"))
    async def list_services(request: Request, limit: AnyLimit = None, next: Continue = "") -> Response:
        caller = caller_of(request)
        rows, token = page_by_name(services.seen(caller), limit, next)
        proxy = await services.address() if rows else AppAddress(address="")
        items = [services.document(caller, row, proxy) for row in rows]
        return JsonResponse(Page(items=items, next=token, sequence=views.sequence))

    @router.read("/v1/services/{service}", "One service", doc.ServiceInfo, right=on_service("job:read"))
    async def get_service(service: str, request: Request) -> Response:
        row = services.row(service)
        proxy = await services.address()
        return JsonResponse(services.document(caller_of(request), row, proxy))


def _add_changes(router: Router, services: ServiceRoutes) -> None:
    views = services.views

    @router.command(
        "POST",
        "/v1/services",
        "Submit a service by its job file, or replace the one of its name",
        doc.ServiceInfo,
        right=in_body("job:submit"),
        body=JobSpec,
    )
    async def apply_service(request: Request) -> Response:
        head = head_of(request)
        row = await services.apply(head, await read_json(request))
        return JsonResponse(services.document(head.caller, row, await services.address()))

    @router.command(
        "POST",
        "/v1/services/{service}:scale",
        "Give a service another number of replicas",
        doc.ServiceInfo,
        right=on_service("job:cancel"),
        body=ScaleRequest,
    )
    async def scale_service(service: str, request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, ScaleRequest)
        reading = ErrorCollector()
        low, high = replicas_of(wanted.replicas, reading, "replicas")
        reading.refuse(InvalidJob)
        await services.send(
            head, cmd.ScaleService, f"{service} {low}-{high}", service=service, replicas_min=low, replicas_max=high
        )
        return JsonResponse(services.document(head.caller, services.row(service), await services.address()))

    @router.command(
        "DELETE",
        "/v1/services/{service}",
        "Stop a service, with all its replicas and keys",
        doc.ServiceChanged,
        right=on_service("job:cancel"),
    )
    async def stop_service(service: str, request: Request) -> Response:
        await services.send(head_of(request), cmd.StopService, service, service=service)
        return JsonResponse(doc.ServiceChanged(name=service, sequence=views.sequence))


def _add_keys(router: Router, services: ServiceRoutes) -> None:
    views = services.views

    @router.read(
        "/v1/services/{service}/keys",
        "List the keys of a service",
        Page[doc.ServiceKeyInfo],
        right=on_service("session:share"),
    )
    async def list_service_keys(service: str, limit: AnyLimit = None, next: Continue = "") -> Response:
        rows, token = page_by_name(services.row(service).keys, limit, next)
        items = [services.key_document(row) for row in rows]
        return JsonResponse(Page(items=items, next=token, sequence=views.sequence))

    @router.command(
        "POST",
        "/v1/services/{service}/keys",
        "Make a key by which programs use a service; its text is shown once",
        doc.NewServiceKey,
        right=on_service("session:share"),
        body=ServiceKeyRequest,
        status=201,
        keyed=False,
    )
    async def issue_service_key(service: str, request: Request) -> Response:
        head, wanted = head_of(request), await read_request(request, ServiceKeyRequest)
        made = await services.issue(head, service, wanted)
        return JsonResponse(made, status_code=201, headers=NO_STORE)

    @router.command(
        "DELETE",
        "/v1/services/{service}/keys/{key}",
        "Revoke a key of a service",
        doc.ServiceChanged,
        right=on_service("session:share"),
    )
    async def revoke_service_key(service: str, key: str, request: Request) -> Response:
        await services.send(head_of(request), cmd.RevokeServiceKey, f"{service} {key}", service=service, key=key)
        return JsonResponse(doc.ServiceChanged(name=key, sequence=views.sequence))
