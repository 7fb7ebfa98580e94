"""Verbs of idle runs: extend one, list idle runs, set the policies of a scope. Commands go to telemetry."""

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from fairlead_gateway.command_results import CommandPublisher
from fairlead_gateway.errors import HttpError, invalid, not_found, rejected
from fairlead_gateway.http_messages import read_head
from fairlead_gateway.routes.command_client import CommandClient, body_schema, read_json, read_request
from fairlead_gateway.routes.documents import job_document
from fairlead_gateway.routes.query import JsonResponse, answers_with
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle_documents import idle_document, scope_document
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.http.api import IdleFileResult, SubmitResult
from fairlead_schemas.policies.idle_file import InvalidPolicies, is_scope, read_policies, read_policy_file
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.validation import FieldError, decode_object, field_error
from fairlead_schemas.wire import commands as cmd

HINT = "docs/how-to/idle.md has the fields of a policy and examples"


class ExtendRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """Body of an extension. `for`: how long, such as "2h"; without it for as long as the job's policy allows."""

    for_: str | int = 0


def idle_refusal(outcome: OutcomeRow) -> HttpError:
    """Return 403 for another user's job, 422 for what no policy may contain or allow, 404 and 409 as for any verb."""
    if outcome.code == "denied":
        return HttpError(403, outcome.code, outcome.message)
    if outcome.code in ("invalid", "beyond_bounds"):
        return _each_named(outcome)
    return rejected(outcome.code, outcome.message, submit=False)


def _each_named(outcome: OutcomeRow) -> HttpError:
    """A line of the refusal is a problem: of several each is named by its field."""
    lines = outcome.message.splitlines()
    if len(lines) == 1:
        return HttpError(422, outcome.code, outcome.message, hint=HINT)
    parts = [line.partition(": ") for line in lines]
    errors = [FieldError(field=field if said else "", message=said or field) for field, _, said in parts]
    return HttpError(422, outcome.code, f"{len(lines)} problems; nothing was changed", errors=errors, hint=HINT)


class IdleRoutes:
    """Sends one command to telemetry and answers with the document that it changed."""

    def __init__(self, views: Views, telemetry: CommandPublisher, asking: CommandClient) -> None:
        self._views = views
        self._telemetry = telemetry
        self._asking = asking

    async def extend(self, request: Request, job: str) -> Response:
        """Let no policy act on a run for a while."""
        head = read_head(request.scope["headers"])
        if not is_job_id(job):
            raise not_found("job", job[:80])
        wish = await read_request(request, ExtendRequest)
        try:
            for_ns = parse_duration(wish.for_)
        except QuantityError as error:
            raise invalid([FieldError(field="for", message=str(error))]) from None
        row = self._views.jobs.rows.get(job)
        if row is None:
            raise not_found("job", job, hint="GET /v1/jobs lists them")
        command_id = self._asking.command_id(self._telemetry, head, "extend", job, str(for_ns))
        command = cmd.ExtendJob(id=command_id, user=head.user, job=job, for_ns=for_ns)
        if await self._asking.outcome(self._telemetry, command, refusal=idle_refusal) is None:
            return self._asking.undecided(command)
        row = self._views.jobs.rows.get(job)
        if row is None:
            return JsonResponse(SubmitResult(id=job, sequence=self._views.sequence))
        return JsonResponse(job_document(self._views, row, self._views.at_ns))

    async def put(self, request: Request, scope: str) -> Response:
        """Set all policies of one scope."""
        head = read_head(request.scope["headers"])
        if not is_scope(scope):
            told = f'expected "global", "project:<name>" or "user:<name>", found "{scope[:80]}"'
            raise invalid([FieldError(field="scope", message=told)])
        body = await read_json(request)
        policies = _read(body, read_policies)
        command_id = self._asking.command_id(self._telemetry, head, "idle", scope, body.decode("latin-1"))
        command = cmd.SetIdlePolicies(id=command_id, user=head.user, scope=scope, policies=policies)
        if await self._asking.outcome(self._telemetry, command, refusal=idle_refusal) is None:
            return self._asking.undecided(command)
        return JsonResponse(scope_document(self._views, scope))

    async def apply(self, request: Request) -> Response:
        """Set all policies of several scopes, or of none."""
        head = read_head(request.scope["headers"])
        body = await read_json(request)
        scopes = _read(body, read_policy_file)
        command_id = self._asking.command_id(self._telemetry, head, "idle-apply", body.decode("latin-1"))
        command = cmd.ApplyIdlePolicies(id=command_id, user=head.user, scopes=scopes)
        if await self._asking.outcome(self._telemetry, command, refusal=idle_refusal) is None:
            return self._asking.undecided(command)
        items = [scope_document(self._views, scope) for scope in scopes]
        return JsonResponse(IdleFileResult(items=items, sequence=self._views.sequence))


def _read[T](body: bytes, read: Callable[[Any], T]) -> T:
    """Decode a body as policies. Raise Refused with every mistake."""
    try:
        return read(decode_object(body))
    except msgspec.MsgspecError as error:
        raise invalid([FieldError(field="", message=field_error(error).message)]) from None
    except InvalidPolicies as error:
        detail = "" if len(error.errors) == 1 else f"{len(error.errors)} mistakes; nothing was changed"
        raise invalid(error.errors, detail=detail, hint=HINT) from None


def routes(verbs: IdleRoutes, views: Views) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    @router.post(
        "/v1/jobs/{job}:extend",
        summary="Extend an idle job",
        operation_id="extend_job",
        responses=answers_with("Job", "SubmitResult"),
        openapi_extra=body_schema("ExtendRequest", required=False),
    )
    async def extend(job: str, request: Request) -> Response:
        return await verbs.extend(request, job)

    @router.get(
        "/v1/idle",
        summary="Idle runs, their policies, and what dry runs would have saved",
        responses=answers_with("Idle"),
    )
    async def get_idle() -> Response:
        return JsonResponse(idle_document(views))

    @router.post(
        "/v1/idle:apply",
        summary="Set the idle policies of several scopes, all or none",
        openapi_extra=body_schema("IdleFileWords"),
        responses=answers_with("IdleApplied"),
    )
    async def apply_idle(request: Request) -> Response:
        return await verbs.apply(request)

    @router.put(
        "/v1/idle/{scope}",
        summary="Set the idle policies of a scope",
        responses=answers_with("IdleScope"),
        openapi_extra=body_schema("IdleScopeWords"),
    )
    async def put_idle(scope: str, request: Request) -> Response:
        return await verbs.put(request, scope)

    return router
