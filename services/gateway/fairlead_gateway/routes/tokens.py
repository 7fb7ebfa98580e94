"""Tokens over HTTP: list, make, revoke. A token is made in a young session or with the file of the owner, never with a token."""

import time
from collections.abc import Callable
from typing import Annotated

from fastapi import Query, Request, Response

from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.callers import ACT_AS, caller_of
from fairlead_gateway.access.credentials import CredentialNote
from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.http_messages import JsonResponse, head_of, read_request
from fairlead_gateway.routes.access import require_sign_on
from fairlead_gateway.routes.account_bodies import TokenRequest, require_text
from fairlead_gateway.routes.query import AnyLimit, At, Continue, page_at, page_by_name
from fairlead_gateway.routes.request_bodies import duration
from fairlead_gateway.routes.router import SIGNED_IN, Router
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.views.fold import Views
from fairlead_rights.state import Token
from fairlead_schemas.http import accounts as doc
from fairlead_schemas.http.api import Page
from fairlead_schemas.policies.rights import ScopeError, parse_scope
from fairlead_schemas.units.timestamps import MINUTE_NS, rfc3339

#: After so long since the sign-in a session makes no tokens: a stolen cookie must not become a lasting one.
FRESH_NS = 15 * MINUTE_NS
#: Answers with secrets are kept by no cache.
NO_STORE = {"cache-control": "no-store"}

type Clock = Callable[[], int]


def routes(views: Views, accounts: Accounts, past: HistoricalViews, clock: Clock = time.time_ns) -> Router:
    """Return the routes."""
    router = Router()
    _add_list(router, accounts, past)
    _add_changes(router, views, accounts, clock)
    return router


async def require_fresh(views: Views, accounts: Accounts, caller: Caller, clock: Clock) -> None:
    """Raise HttpError (403) unless the caller may make credentials: by a young session, or the file of the owner, and for itself.
    A credential of somebody else would act in their name without naming the admin.
    """
    if caller.act_as:
        raise HttpError(403, "acting", "who acts for somebody makes no tokens and links", hint=f"leave {ACT_AS} out")
    if caller.is_token:
        if not views.access.may_issue(caller.credential):
            hint = "sign in for that: fairlead login"
            raise HttpError(403, "token_makes_no_token", "a token never makes a token", hint=hint)
    elif await accounts.signed_in_ns(caller.credential) < clock() - FRESH_NS:
        detail = f"this needs a sign-in of the last {FRESH_NS // MINUTE_NS} minutes"
        raise HttpError(403, "sign_in_again", detail, hint="fairlead login")


def _add_list(router: Router, accounts: Accounts, past: HistoricalViews) -> None:
    @router.read(
        "/v1/tokens",
        "List tokens in force, one's own or those of another; now or at a past moment, then without their names",
        Page[doc.TokenInfo],
        right=SIGNED_IN,
    )
    async def list_tokens(
        request: Request,
        of: Annotated[str, Query(description="Login name or id; needs rights:grant on the cluster.")] = "",
        limit: AnyLimit = None,
        next: Continue = "",
        at: At = "",
    ) -> Response:
        caller, then = caller_of(request), await page_at(past, at, next)
        principal = await accounts.people.resolve(of) if of else caller.principal
        if principal != caller.principal:
            caller.require("rights:grant", CLUSTER)
        rights = then.views.access
        tokens = {token: rights.tokens[token] for token in rights.tokens_of.get(principal, ())}
        shown, following = page_by_name(tokens, limit, next, then)
        items = [_document(token, CredentialNote(), 0) for token in shown]
        if not then.is_past:  # names and uses of tokens are not in the log: of the past there is what the log has
            notes = await accounts.credentials.notes("token", [token.id for token in shown])
            items = [
                _document(
                    token, notes.get(token.id, CredentialNote()), await accounts.credentials.last_use_ns(token.id)
                )
                for token in shown
            ]
        return JsonResponse(Page(items=items, next=following, sequence=then.views.sequence), headers=then.headers)


def _document(token: Token, note: CredentialNote, used_ns: int) -> doc.TokenInfo:
    return doc.TokenInfo(
        id=token.id,
        name=note.name,
        kind=token.kind,
        principal=token.principal,
        verbs=list(token.verbs),
        scopes=list(token.scopes),
        expires_at=rfc3339(token.expires_ns),
        made_at=rfc3339(note.made_ns) if note.made_ns else None,
        used_at=rfc3339(used_ns) if used_ns else None,
    )


def _add_changes(router: Router, views: Views, accounts: Accounts, clock: Clock) -> None:
    @router.command(
        "POST",
        "/v1/tokens",
        "Make a token; its text is shown once",
        doc.NewToken,
        status=201,
        right=SIGNED_IN,
        keyed=False,
        body=TokenRequest,
    )
    async def create_token(request: Request) -> Response:
        head, wanted = require_sign_on(head_of(request)), await read_request(request, TokenRequest)
        require_text("name", wanted.name)
        for at, text in enumerate(wanted.scopes):
            try:
                parse_scope(text)
            except ScopeError as error:
                raise bad_field(f"scopes[{at}]", str(error)) from None
        life_ns = duration("expires_in", wanted.expires_in)
        await require_fresh(views, accounts, head.caller, clock)
        principal = await accounts.people.resolve(wanted.for_) if wanted.for_ else head.user
        if wanted.for_ and views.access.kinds.get(principal) != "service":
            raise not_found("service-account", wanted.for_[:80], hint="GET /v1/service-accounts lists them")
        kind = wanted.kind or ("service" if wanted.for_ else "person")
        expires_ns = clock() + life_ns
        token, text = await accounts.issue_token(
            principal, kind, wanted.name, expires_ns, verbs=tuple(wanted.verbs), scopes=tuple(wanted.scopes), head=head
        )
        answer = doc.NewToken(id=token, token=text, expires_at=rfc3339(expires_ns), sequence=views.sequence)
        return JsonResponse(answer, status_code=201, headers=NO_STORE)

    @router.command("DELETE", "/v1/tokens/{token}", "Revoke a token", right=SIGNED_IN, keyed=False)
    async def revoke_token(token: str, request: Request) -> Response:
        head = require_sign_on(head_of(request))
        held, caller = views.access.tokens.get(token), head.caller
        if held is None or (held.principal != head.user and not caller.may("rights:grant", CLUSTER)):
            raise not_found("token", token[:80], hint="GET /v1/tokens lists them")
        if caller.is_token and not views.access.may_revoke(caller.credential, token):
            raise HttpError(403, "token_is_limited", "a token with limits revokes itself alone", hint="fairlead login")
        await accounts.revoke_token(token, head)
        return JsonResponse({"id": token, "revoked": True, "sequence": views.sequence})
