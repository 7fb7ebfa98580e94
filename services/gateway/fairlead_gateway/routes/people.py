"""People and service accounts over HTTP: list, make, suspend, admit, forget, and passwords of local users."""

from fastapi import Request, Response
from msgspec import structs

from fairlead_gateway.access.accounts import Accounts, NewPerson
from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.passwords import Passwords
from fairlead_gateway.access.people import PersonRow
from fairlead_gateway.errors import HttpError, not_found
from fairlead_gateway.http_messages import JsonResponse, RequestHead, head_of, read_request
from fairlead_gateway.routes.access import require_sign_on
from fairlead_gateway.routes.account_bodies import (
    PasswordRequest,
    PersonRequest,
    ServiceRequest,
    require_login,
    require_text,
)
from fairlead_gateway.routes.query import AnyLimit, Continue, page_by_name
from fairlead_gateway.routes.request_bodies import EmptyRequest
from fairlead_gateway.routes.router import SIGNED_IN, Router, on_cluster, on_cluster_either
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import accounts as doc
from fairlead_schemas.http.api import Page
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire.events.access import PrincipalKind

_KNOW_THEM = on_cluster("rights:grant")
#: Auditors read who people are, since the record of access names them.
_SEE_THEM = on_cluster_either("rights:grant", "audit:read")


def routes(views: Views, accounts: Accounts, passwords: Passwords) -> Router:
    """Return the routes."""
    router = Router()
    _add_lists(router, views, accounts)
    _add_creation(router, views, accounts, passwords)
    _add_verbs(router, views, accounts)
    _add_password(router, views, accounts, passwords)
    return router


async def _document(views: Views, accounts: Accounts, principal: str) -> doc.Person:
    access, row = views.access, await accounts.people.find(principal) or PersonRow()
    return doc.Person(
        id=principal,
        login=row.login,
        name=row.name,
        email=row.email,
        kind=access.kinds[principal],
        state="active" if access.access.principals[principal] else "suspended",
        source=row.source,
        tokens=len(access.tokens_of.get(principal, ())),
        sessions=len(access.sessions_of.get(principal, ())),
        sequence=views.sequence,
    )


async def _known(views: Views, accounts: Accounts, who: str) -> str:
    """Return the principal with a login name or id. Raise HttpError (404)."""
    principal = await accounts.people.resolve(who)
    if principal not in views.access.kinds:
        raise not_found("principal", who[:80], hint="GET /v1/people lists them")
    return principal


def _add_lists(router: Router, views: Views, accounts: Accounts) -> None:
    async def listed(kind: PrincipalKind, limit: int | None, token: str) -> Response:
        rows = {principal: principal for principal, each in views.access.kinds.items() if each == kind}
        principals, following = page_by_name(rows, limit or 100, token)
        items = [await _document(views, accounts, principal) for principal in principals]
        return JsonResponse(Page(items=items, next=following, sequence=views.sequence))

    @router.read("/v1/people", "List people, 100 at a time unless a limit is given", Page[doc.Person], right=_SEE_THEM)
    async def list_people(limit: AnyLimit = None, next: Continue = "") -> Response:
        return await listed("person", limit, next)

    @router.read("/v1/service-accounts", "List service accounts", Page[doc.Person], right=_SEE_THEM)
    async def list_service_accounts(limit: AnyLimit = None, next: Continue = "") -> Response:
        return await listed("service", limit, next)

    @router.read("/v1/people/{who}", "One person or service account", doc.Person, right=SIGNED_IN)
    async def get_person(who: str, request: Request) -> Response:
        caller = caller_of(request)
        principal = await accounts.people.resolve(who)
        if principal != caller.principal and not any(caller.may(verb, CLUSTER) for verb in _SEE_THEM.verbs):
            raise not_found("principal", who[:80], hint="GET /v1/people lists them")
        return JsonResponse(await _document(views, accounts, await _known(views, accounts, principal)))


def _add_creation(router: Router, views: Views, accounts: Accounts, passwords: Passwords) -> None:
    async def create(head: RequestHead, kind: PrincipalKind, new: NewPerson, phc: str = "") -> Response:
        principal = await accounts.create(head, kind, new, phc)
        return JsonResponse(await _document(views, accounts, principal), status_code=201)

    @router.command(
        "POST", "/v1/people", "Make a local user, without any role", right=_KNOW_THEM, keyed=False, body=PersonRequest
    )
    async def create_person(request: Request) -> Response:
        head, wanted = require_sign_on(head_of(request)), await read_request(request, PersonRequest)
        require_login(wanted.login)
        require_text("name", wanted.name)
        require_text("email", wanted.email)
        phc = await passwords.hash(wanted.password) if wanted.password else ""
        return await create(head, "person", NewPerson(wanted.login, wanted.name, wanted.email), phc)

    @router.command(
        "POST",
        "/v1/service-accounts",
        "Make a service account, without any role",
        right=_KNOW_THEM,
        keyed=False,
        body=ServiceRequest,
    )
    async def create_service_account(request: Request) -> Response:
        head, wanted = require_sign_on(head_of(request)), await read_request(request, ServiceRequest)
        require_login(wanted.login)
        require_text("name", wanted.name)
        return await create(head, "service", NewPerson(wanted.login, wanted.name))


def _add_verbs(router: Router, views: Views, accounts: Accounts) -> None:
    async def send(request: Request, who: str, kind: type[cmd.AdmitPrincipal] | type[cmd.SuspendPrincipal]) -> Response:
        head, _ = require_sign_on(head_of(request)), await read_request(request, EmptyRequest)
        principal = await _known(views, accounts, who)
        command_id = accounts.command_id(head, kind.__name__, principal)
        command = kind(id=command_id, user=head.user, authority=head.authority, principal=principal)
        if isinstance(command, cmd.AdmitPrincipal):
            command = structs.replace(command, kind=views.access.kinds[principal])
        await accounts.send(command)
        return JsonResponse(await _document(views, accounts, principal))

    @router.command(
        "POST",
        "/v1/people/{who}:suspend",
        "Take all rights from a principal, and end its tokens and sessions",
        doc.Person,
        right=_KNOW_THEM,
        body=EmptyRequest,
        required=False,
        operation_id="suspend_person",
    )
    async def suspend(who: str, request: Request) -> Response:
        return await send(request, who, cmd.SuspendPrincipal)

    @router.command(
        "POST",
        "/v1/people/{who}:admit",
        "End a suspension; the principal has the roles of before",
        doc.Person,
        right=_KNOW_THEM,
        body=EmptyRequest,
        required=False,
        operation_id="admit_person",
    )
    async def admit(who: str, request: Request) -> Response:
        return await send(request, who, cmd.AdmitPrincipal)

    @router.command(
        "POST",
        "/v1/people/{who}:forget",
        "Suspend a principal and erase everything about it; only its opaque id is left, in the log",
        right=_KNOW_THEM,
        keyed=False,
        body=EmptyRequest,
        required=False,
        operation_id="forget_person",
    )
    async def forget(who: str, request: Request) -> Response:
        head, _ = require_sign_on(head_of(request)), await read_request(request, EmptyRequest)
        principal = await _known(views, accounts, who)
        await accounts.forget(head, principal)
        return JsonResponse({"id": principal, "forgotten": True, "sequence": views.sequence})


def _add_password(router: Router, views: Views, accounts: Accounts, passwords: Passwords) -> None:
    @router.command(
        "POST",
        "/v1/people/{who}:password",
        "Set the password of a local user: one's own by the current one, that of others as an admin. All other sessions of the user end",
        right=SIGNED_IN,
        keyed=False,
        body=PasswordRequest,
        operation_id="set_password",
    )
    async def set_password(who: str, request: Request) -> Response:
        head, wanted = require_sign_on(head_of(request)), await read_request(request, PasswordRequest)
        caller = head.caller
        principal = await accounts.people.resolve(who)
        address = request.client.host if request.client else ""
        if principal == caller.user:
            await passwords.require_room(principal, address)
            if not await passwords.check(wanted.current, await accounts.credentials.password(principal)):
                raise HttpError(403, "wrong_password", "the current password is another one")
        else:
            _require_admin(views, caller)
            principal = await _known(views, accounts, who)
        if views.access.kinds[principal] != "person":
            raise HttpError(409, "no_person", "service accounts sign in by tokens alone")
        await accounts.set_password(principal, await passwords.hash(wanted.password), caller, address)
        ended = await accounts.end_other_sign_ins(principal, kept=caller.credential if principal == caller.user else "")
        return JsonResponse({"id": principal, "sessions_ended": ended, "sequence": views.sequence})


def _require_admin(views: Views, caller: Caller) -> None:
    """Raise HttpError (403) unless the caller is an admin of the cluster in a session: who sets a password gets all that it opens."""
    caller.require("rights:grant", CLUSTER)
    if caller.is_token or all(grant.role != "admin" for grant in views.access.access.held(caller.user)):
        raise HttpError(403, "admins_only", "passwords of others are set by a signed-in admin of the cluster")
