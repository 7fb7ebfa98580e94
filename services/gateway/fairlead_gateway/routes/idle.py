"""Verbs of idle runs: extend one, list idle runs, set the policies of a scope. Commands go to telemetry."""

from fastapi import Request, Response

from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.redaction import shown_to
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.command_results import CommandPublisher, ResultWaiter
from fairlead_gateway.errors import HttpError, bad_field, not_found, rejected
from fairlead_gateway.http_messages import JsonResponse, head_of, read_file, read_json, read_request
from fairlead_gateway.routes.jobs import job_or_id
from fairlead_gateway.routes.query import At
from fairlead_gateway.routes.request_bodies import ExtendRequest, duration
from fairlead_gateway.routes.router import Router, in_body, listed, on_job
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle_documents import idle_document, named_scope, scope_document
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_rights.access_list import Target
from fairlead_schemas.http import api
from fairlead_schemas.policies.idle_file import IdleFileWords, IdleScopeWords, is_scope, read_policies, read_policy_file
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire import commands as cmd

HINT = "docs/how-to/idle.md has the fields of a policy and examples"


def idle_refusal(outcome: OutcomeRow) -> HttpError:
    """Return 422 with each problem for what no policy may contain or allow; else the answer as of any verb."""
    if outcome.code in ("invalid", "beyond_bounds"):
        return _each_named(outcome)
    return rejected(outcome.code, outcome.message)


def _each_named(outcome: OutcomeRow) -> HttpError:
    """A line of the refusal is a problem: of several each is named by its field."""
    lines = outcome.message.splitlines()
    if len(lines) == 1:
        return HttpError(422, outcome.code, outcome.message, hint=HINT)
    parts = [line.partition(": ") for line in lines]
    errors = [FieldError(field=field if said else "", message=said or field) for field, _, said in parts]
    return HttpError(422, outcome.code, f"{len(lines)} problems; nothing was changed", errors=errors, hint=HINT)


def _scope_target(scope: str) -> Target:
    """Return the target of a scope of idle policies: the project, or the cluster for "global" and single users."""
    kind, _, name = scope.partition(":")
    return Target(project=name) if kind == "project" else CLUSTER


def _shown(sight: Sight, found: api.IdleOverview) -> api.IdleOverview:
    """Return the overview as the caller sees it: idle runs that it may read, policies of everybody, of its projects and its own."""
    if sight.all_jobs:
        return found
    caller = sight.caller

    def sees(scope: str) -> bool:
        kind, _, name = scope.partition(":")
        return (kind == "project" and sight.project(name)) or (kind == "user" and name == caller.user)

    found.items = [each for each in found.items if sight.job_id(each.job)]
    found.policies = [each for each in found.policies if each.scope == "global" or sees(each.scope)]
    found.savings = [each for each in found.savings if sees(each.scope)]
    return found


class ScopeNames:
    """Scopes of single people: by login name outside, by opaque id in the log."""

    def __init__(self, views: Views, accounts: Accounts) -> None:
        self._views = views
        self._accounts = accounts

    async def stored(self, scope: str, caller: Caller, field: str) -> str:
        """Return a scope as the log has it. Raise HttpError (422) for a name that is nobody's."""
        kind, _, name = scope.partition(":")
        if kind != "user" or caller.is_open:
            return scope
        principal = await self._accounts.people.resolve(name)
        if principal not in self._views.access.kinds:
            raise HttpError(
                422,
                "invalid",
                f'nobody has the login name "{name}"',
                errors=[FieldError(field=field, message=f'nobody has the login name "{name}"')],
                hint="GET /v1/people lists login names",
            )
        await self._accounts.people.find(principal)  # the answer shows its name
        return f"user:{principal}"

    def shown(self, scope: api.IdleScope) -> api.IdleScope:
        """Return the document of a scope with its name outside."""
        scope.scope = named_scope(self._views, scope.scope)
        return scope


def routes(
    views: Views, telemetry: CommandPublisher, waiter: ResultWaiter, accounts: Accounts, past: HistoricalViews
) -> Router:
    """Return all of them."""
    names = ScopeNames(views, accounts)
    router = Router()
    _add_extension(router, views, telemetry, waiter)
    _add_overview(router, views, names, past)
    _add_file(router, views, telemetry, waiter, names)
    _add_scope(router, views, telemetry, waiter, names)
    return router


def _add_extension(router: Router, views: Views, telemetry: CommandPublisher, waiter: ResultWaiter) -> None:
    @router.command(
        "POST",
        "/v1/jobs/{job}:extend",
        "Extend an idle job",
        api.Job,
        api.SubmitResult,
        right=on_job("job:cancel"),
        body=ExtendRequest,
        required=False,
        operation_id="extend_job",
    )
    async def extend(job: str, request: Request) -> Response:
        head = head_of(request)
        if not is_job_id(job):
            raise not_found("job", job[:80])
        for_ns = duration("for", (await read_request(request, ExtendRequest)).for_)
        if job not in views.jobs.rows:
            raise not_found("job", job, hint="GET /v1/jobs lists them")
        command_id = waiter.command_id(telemetry, head, "extend", job, str(for_ns))
        command = cmd.ExtendJob(id=command_id, user=head.user, authority=head.authority, job=job, for_ns=for_ns)
        await waiter.carry_out(telemetry, command, shown_to(views, head.caller, idle_refusal))
        return job_or_id(views, job, head.caller)


def _add_overview(router: Router, views: Views, names: ScopeNames, past: HistoricalViews) -> None:
    @router.read(
        "/v1/idle",
        "Idle runs, their policies, and what dry runs would have saved, now or at a past moment",
        api.IdleOverview,
        right=listed("job:read"),
    )
    async def get_idle(request: Request, at: At = "") -> Response:
        seen = await past.moment(at)
        found = _shown(Sight(views, caller_of(request), seen.views), idle_document(seen.views))
        for policies in found.policies:
            names.shown(policies)
        for saving in found.savings:
            saving.scope = named_scope(views, saving.scope)
        return JsonResponse(found, headers=seen.headers)


def _add_file(
    router: Router, views: Views, telemetry: CommandPublisher, waiter: ResultWaiter, names: ScopeNames
) -> None:
    @router.command(
        "POST",
        "/v1/idle:apply",
        "Set the idle policies of several scopes, all or none",
        api.IdleFileResult,
        right=in_body("queue:set"),
        body=IdleFileWords,
    )
    async def apply_idle(request: Request) -> Response:
        head, body = head_of(request), await read_json(request)
        scopes = read_file(body, read_policy_file, HINT)
        for scope in scopes:
            head.caller.require("queue:set", _scope_target(scope))
        stored = {await names.stored(scope, head.caller, scope): policies for scope, policies in scopes.items()}
        if len(stored) < len(scopes):
            raise bad_field("user", "expected each person once, found one by login name and by id")
        command_id = waiter.command_id(telemetry, head, "idle-apply", body.decode("latin-1"))
        command = cmd.ApplyIdlePolicies(id=command_id, user=head.user, authority=head.authority, scopes=stored)
        await waiter.carry_out(telemetry, command, shown_to(views, head.caller, idle_refusal))
        items = [names.shown(scope_document(views, scope)) for scope in stored]
        return JsonResponse(api.IdleFileResult(items=items, sequence=views.sequence))


def _add_scope(
    router: Router, views: Views, telemetry: CommandPublisher, waiter: ResultWaiter, names: ScopeNames
) -> None:
    @router.command(
        "PUT",
        "/v1/idle/{scope}",
        "Set the idle policies of a scope",
        api.IdleScope,
        right=in_body("queue:set"),
        body=IdleScopeWords,
    )
    async def put_idle(scope: str, request: Request) -> Response:
        head = head_of(request)
        if not is_scope(scope):
            message = f'expected "global", "project:<name>" or "user:<name>", found "{scope[:80]}"'
            raise bad_field("scope", message)
        body = await read_json(request)
        head.caller.require("queue:set", _scope_target(scope))
        policies = read_file(body, read_policies, HINT)
        scope = await names.stored(scope, head.caller, "scope")
        command_id = waiter.command_id(telemetry, head, "idle", scope, body.decode("latin-1"))
        command = cmd.SetIdlePolicies(
            id=command_id, user=head.user, authority=head.authority, scope=scope, policies=policies
        )
        await waiter.carry_out(telemetry, command, shown_to(views, head.caller, idle_refusal))
        return JsonResponse(names.shown(scope_document(views, scope)))
