"""Roles over HTTP: who am I, who is what where, why may somebody do something, now or at a past moment, grants and groups.

The access service decides about every change. What is checked here again is checked for the sake of the answer, which names what
the caller lacks. Nobody sees grants of others, except where they may grant roles themselves.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

from fastapi import Query, Request, Response

from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.caller import CLUSTER, Caller, target_words
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.targets import job_target, queue_target, volume_target
from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.http_messages import JsonResponse, RequestHead, head_of, read_request
from fairlead_gateway.routes import grammar
from fairlead_gateway.routes.account_bodies import GrantRequest
from fairlead_gateway.routes.query import AnyLimit, At, Continue, page_at, page_by_name
from fairlead_gateway.routes.router import SIGNED_IN, Router, in_body
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.views.fold import Views
from fairlead_gateway.why.dominant_reason import row_or_array
from fairlead_rights.access_list import Grant, Target, right_to_grant
from fairlead_rights.roles import OWNER_VERBS, verbs_of
from fairlead_schemas.http import accounts as doc
from fairlead_schemas.http.api import Page
from fairlead_schemas.policies.rights import GROUP, VERBS, Scope, ScopeError, Verb, is_group, parse_scope
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import commands as cmd

OneSubject = Annotated[str, Query(description="Login name, principal's id, or group:NAME.")]
OneScope = Annotated[str, Query(description='"cluster", "queue:research" and so on.')]


def routes(views: Views, accounts: Accounts, past: HistoricalViews) -> Router:
    """Return the routes."""
    router = Router()
    _add_whoami(router, views, accounts)
    _add_grants(router, views, accounts, past)
    _add_why(router, views, accounts, past)
    _add_groups(router, views, accounts, past)
    return router


def _add_whoami(router: Router, views: Views, accounts: Accounts) -> None:
    @router.read("/v1/whoami", "The caller, with its groups and roles", doc.WhoAmI, right=SIGNED_IN)
    async def whoami(request: Request) -> Response:
        caller = caller_of(request)
        access = views.access.access
        row = None if caller.is_open else await accounts.people.find(caller.principal)
        return JsonResponse(
            doc.WhoAmI(
                principal=caller.user if caller.is_open else caller.principal,
                login=row.login if row else "",
                name=row.name if row else "",
                kind="" if caller.is_open else views.access.kinds.get(caller.principal, ""),
                via=caller.via,
                expires_at=None if caller.is_open else rfc3339(caller.expires_ns),
                groups=[each.removeprefix(GROUP) for each in access.groups_of(caller.principal)],
                roles=[held(grant) for grant in access.held(caller.principal)],
                sequence=views.sequence,
            )
        )


# ------------------------------------------------------------------------------- grants


def _add_grants(router: Router, views: Views, accounts: Accounts, past: HistoricalViews) -> None:
    @router.read("/v1/access", "List grants, now or at a past moment", Page[doc.AccessGrant], right=SIGNED_IN)
    async def list_access(
        request: Request,
        subject: OneSubject = "",
        scope: OneScope = "",
        limit: AnyLimit = None,
        next: Continue = "",
        at: At = "",
    ) -> Response:
        caller, seen = caller_of(request), await page_at(past, at, next)
        wanted = await accounts.people.resolve(subject) if subject else ""
        rows = {
            f"{grant.subject} {grant.role} {grant.scope}": (grant, sources)
            for grant, sources in _grants(seen.views)
            if wanted in ("", grant.subject) and scope in ("", str(grant.scope)) and sees_grant(views, caller, grant)
        }
        shown, token = page_by_name(rows, limit, next, seen)
        items = [await _document(accounts, grant, sources) for grant, sources in shown]
        return JsonResponse(Page(items=items, next=token, sequence=seen.views.sequence), headers=seen.headers)

    async def change(request: Request, kind: type[cmd.GrantRole] | type[cmd.RevokeRole]) -> Response:
        head = require_sign_on(head_of(request))
        wanted = await read_request(request, GrantRequest)
        grant, target = await _readable(views, accounts, head.caller, wanted)
        command_id = accounts.command_id(head, kind.__name__, str(grant))
        await accounts.send(kind(id=command_id, user=head.user, authority=head.authority, grant=_entry(grant, target)))
        sources = views.access.access.grants.get(grant.subject, {}).get((grant.role, grant.scope), frozenset())
        return JsonResponse(await _document(accounts, grant, sources))

    @router.command(
        "POST", "/v1/access:grant", "Grant a role", doc.AccessGrant, right=in_body("rights:grant"), body=GrantRequest
    )
    async def grant_role(request: Request) -> Response:
        return await change(request, cmd.GrantRole)

    @router.command(
        "POST",
        "/v1/access:revoke",
        "Take a role back; `sources` are those that still state it",
        doc.AccessGrant,
        right=in_body("rights:grant"),
        body=GrantRequest,
    )
    async def revoke_role(request: Request) -> Response:
        return await change(request, cmd.RevokeRole)


def _grants(views: Views) -> Iterator[tuple[Grant, frozenset[str]]]:
    for subject, found in views.access.access.grants.items():
        for (role, scope), sources in found.items():
            yield Grant(subject, role, scope), sources


def sees_grant(views: Views, caller: Caller, grant: Grant) -> bool:
    """Return True if a grant is the caller's, or in a scope where it may grant roles, or it may read the whole log."""
    if caller.is_open or grant.subject in (caller.principal, *views.access.access.groups_of(caller.principal)):
        return True
    return caller.may("audit:read", CLUSTER) or caller.may("rights:grant", scope_target(views, grant.scope) or CLUSTER)


def known_principals(views: Views, caller: Caller) -> set[str]:
    """Return the principals whose names a caller may know: all for whom may read the record or grant roles in the cluster, else those
    whose roles the caller sees, and itself.
    """
    access = views.access
    if caller.is_open:
        return set()
    if caller.may("audit:read", CLUSTER) or caller.may("rights:grant", CLUSTER):
        return set(access.kinds)
    seen = {grant.subject for grant, _ in _grants(views) if sees_grant(views, caller, grant)}
    return (seen | {caller.principal}) & access.kinds.keys()


async def _document(accounts: Accounts, grant: Grant, sources: frozenset[str]) -> doc.AccessGrant:
    name = await _subject_name(accounts, grant.subject)
    return doc.AccessGrant(
        subject=grant.subject, subject_name=name, role=grant.role, scope=str(grant.scope), sources=sorted(sources)
    )


async def _readable(views: Views, accounts: Accounts, caller: Caller, wanted: GrantRequest) -> tuple[Grant, Target]:
    """Return the grant of a body with the thing that its scope names. Raise HttpError: 422 and 404 for what cannot be, 403 with the
    verb that the caller lacks.
    """
    try:
        scope = parse_scope(wanted.scope)
    except ScopeError as error:
        raise bad_field("scope", str(error)) from None
    if not verbs_of(wanted.role, scope.kind):
        raise bad_field("role", f"{wanted.role} cannot be given in a {scope.kind}")
    target = scope_target(views, scope)
    hidden = not_found(scope.kind, scope.name[:80])
    if target is None:
        raise hidden
    if not _may_know(caller, scope, target):
        raise hidden
    require_grantable(views, caller, wanted.role, scope, target)
    return Grant(await subject_of(views, accounts, wanted.subject), wanted.role, scope), target


async def _subject_name(accounts: Accounts, subject: str) -> str:
    return subject if is_group(subject) else await accounts.people.name_of(subject)


def _may_know(caller: Caller, scope: Scope, target: Target) -> bool:
    """Return True unless a scope names a job, queue or volume that the caller may not see, which is answered like one that is not
    there.
    """
    if scope.kind == "job":
        return caller.may("job:read", target)
    if scope.kind == "volume":
        return caller.may("volume:read", target)
    return scope.kind != "queue" or caller.may("queue:read", target)


def require_grantable(views: Views, caller: Caller, role: doc.Role, scope: Scope, target: Target) -> None:
    """Raise HttpError (403) that names a verb which the caller lacks there. Nobody grants more than they hold."""
    token = caller.credential if caller.is_token else ""
    if views.access.may_grant(caller.user, role, scope, target, token):
        return
    needed: list[Verb] = [right_to_grant(scope), *sorted(verbs_of(role, scope.kind))]
    lacking: list[Verb] = [verb for verb in needed if not caller.may(verb, target)]
    missing: Verb = lacking[0] if lacking else needed[0]
    refused = caller.denial(missing, target)
    refused.detail = f"nobody grants more than they hold: you may not {missing} on {target_words(target)}"
    raise refused


async def subject_of(views: Views, accounts: Accounts, text: str) -> str:
    """Return the subject of a login name, an id or a group. Raise HttpError (404)."""
    if is_group(text):
        return text
    principal = await accounts.people.resolve(text)
    if principal not in views.access.kinds:
        raise not_found("principal", text[:80], hint="a login name, a principal's id, or group:NAME")
    return principal


def scope_target(views: Views, scope: Scope) -> Target | None:
    """Return the thing that a scope names; None where there is none."""
    match scope.kind:
        case "job":
            row = row_or_array(views, scope.name)
            return None if row is None else job_target(views, row, scope.name)
        case "queue":
            queue = views.queues.rows.get(scope.name)
            return queue_target(views, scope.name) if queue is not None and queue.exists else None
        case "volume":
            return volume_target(views, scope.name)
        case _:
            return Target(
                pool=scope.name if scope.kind == "pool" else "", project=scope.name if scope.kind == "project" else ""
            )


def _entry(grant: Grant, target: Target) -> cmd.RoleEntry:
    is_narrow = bool(target.job or target.volume)
    place = {"queue": target.queue, "project": target.project, "owner": target.owner} if is_narrow else {}
    return cmd.RoleEntry(
        subject=grant.subject,
        role=grant.role,
        scope=str(grant.scope),
        **place,
        pool=target.pool if grant.scope.kind in ("job", "queue", "volume") else "",
    )


def held(grant: Grant) -> doc.RoleHeld:
    """Return a grant's document."""
    return doc.RoleHeld(subject=grant.subject, role=grant.role, scope=str(grant.scope))


# ------------------------------------------------------------------------------- why


def _add_why(router: Router, views: Views, accounts: Accounts, past: HistoricalViews) -> None:
    @router.read(
        "/v1/access/why",
        "Why somebody may do something, or may not; now or at a past moment",
        doc.AccessAnswer,
        right=SIGNED_IN,
    )
    async def why_access(
        request: Request,
        verb: Annotated[str, Query(json_schema_extra=grammar.RIGHT, description="Such as job:cancel.")],
        on: Annotated[str, Query(description='"queue:research/vision", "job:812", or "cluster".')] = "cluster",
        subject: OneSubject = "",
        at: At = "",
    ) -> Response:
        caller = caller_of(request)
        if verb not in VERBS:
            raise bad_field("verb", f'expected one of {", ".join(VERBS)}, found "{verb[:40]}"')
        try:
            scope = parse_scope(on)
        except ScopeError as error:
            raise bad_field("on", str(error)) from None
        target = scope_target(views, scope)
        asked = await accounts.people.resolve(subject) if subject else caller.principal
        if target is None or not _may_know(caller, scope, target):
            raise not_found(scope.kind, scope.name[:80])
        if not caller.is_open and asked != caller.principal and not caller.may("audit:read", CLUSTER):
            caller.require("rights:grant", target)
        then = await past.moment(at)

        def seen(grant: Grant) -> bool:
            return asked == caller.principal or sees_grant(views, caller, grant)

        document = await _answer(then.views, accounts, asked, VERBS[VERBS.index(verb)], scope, target, seen)
        return JsonResponse(document, headers=then.headers)


async def _answer(
    then: Views,
    accounts: Accounts,
    principal: str,
    verb: Verb,
    scope: Scope,
    target: Target,
    seen: Callable[[Grant], bool],
) -> doc.AccessAnswer:
    """Return the answer as of some views. The thing is as it is now, if it was not there then. `seen`: True for a grant that the caller
    may see; of others only is said that there are some.
    """
    access, target = then.access.access, scope_target(then, scope) or target
    grants = access.why(principal, verb, target)
    allowed = access.may(principal, verb, target)
    denial = access.why_not(principal, verb, target)
    name = await accounts.people.name_of(principal)
    on = target_words(target)

    async def named(held: Iterable[Grant]) -> str:
        return "; ".join([str(each._replace(subject=await _subject_name(accounts, each.subject))) for each in held])

    if allowed and not grants:
        assert verb in OWNER_VERBS, "only owners need no grant"
        sentence = f"{name} may {verb} on {on}: it is their own"
    elif allowed:
        sentence = f"{name} may {verb} on {on}: {await named(grants)}"
    elif denial.principal != "active":
        sentence = f"{name} may not {verb} on {on}: this principal is {denial.principal}"
    else:
        shown = [each for each in denial.holds if seen(each)]
        more = "roles elsewhere" if len(shown) < len(denial.holds) else ""
        roles = "; ".join(filter(None, (await named(shown), more))) or "no role"
        sentence = f"{name} may not {verb} on {on}: no role there has it (holds: {roles})"
    return doc.AccessAnswer(
        allowed=allowed,
        sentence=sentence,
        grants=[held(grant) for grant in grants],
        missing="" if allowed else verb,
        givers=[] if allowed else [await _subject_name(accounts, each) for each in denial.givers],
        sequence=then.sequence,
    )


# ------------------------------------------------------------------------------- groups


def _add_groups(router: Router, views: Views, accounts: Accounts, past: HistoricalViews) -> None:
    @router.read(
        "/v1/groups",
        "List groups, now or at a past moment: all for whom may grant roles or read the record, else one's own",
        Page[doc.Group],
        right=SIGNED_IN,
    )
    async def list_groups(request: Request, limit: AnyLimit = None, next: Continue = "", at: At = "") -> Response:
        caller, then = caller_of(request), await page_at(past, at, next)
        own = set(views.access.access.groups_of(caller.principal))
        seen = {
            group: sources
            for group, sources in then.views.access.access.groups.items()
            if group in own or caller.may_anywhere("rights:grant") or caller.may("audit:read", CLUSTER)
        }
        names, token = page_by_name({group: group for group in seen}, limit, next, then)
        knows_members = caller.may("rights:grant", CLUSTER) or caller.may("audit:read", CLUSTER)
        items: list[doc.Group] = []
        for group in names:
            members = {member for each in seen[group].values() for member in each} if knows_members else set[str]()
            logins = [await accounts.people.name_of(member) for member in members]
            items.append(doc.Group(name=group.removeprefix(GROUP), members=sorted(logins), sources=sorted(seen[group])))
        return JsonResponse(Page(items=items, next=token, sequence=then.views.sequence), headers=then.headers)


def require_sign_on(head: RequestHead) -> RequestHead:
    """Return a head. Raise HttpError (409) where sign-on is off, so that there are no accounts to change."""
    require_signed_in(head.caller)
    return head


def require_signed_in(caller: Caller) -> Caller:
    """Return a caller. Raise HttpError (409) where sign-on is off."""
    if caller.is_open:
        raise HttpError(
            409, "sign_on_off", "sign-on is off: there are no people and roles", hint="set FAIRLEAD_SIGN_ON=local"
        )
    return caller
