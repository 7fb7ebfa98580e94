"""Sign-in of local users and by links, sign-out, and refreshed sign-ins of programs.

A browser gets a cookie; a program that asks for JSON gets a session's token and a refresh token. Every answer to a sign-in that
fails is the same, whatever was wrong with it, and nothing that was typed is logged.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import parse_qs

import structlog
from fastapi import Query, Request, Response

from fairlead_gateway.access.accounts import (
    ACCESS_LIFE_NS,
    LINK_LIFE_NS,
    SESSION_LIFE_NS,
    Accounts,
    CliSignIn,
    SignInAt,
)
from fairlead_gateway.access.callers import COOKIES, Callers, caller_of, check_page
from fairlead_gateway.access.passwords import Passwords
from fairlead_gateway.access.people import login_key
from fairlead_gateway.errors import JSON, HttpError, bad_field
from fairlead_gateway.http_messages import HEAD, JsonResponse, decode, head_of, read_body, read_one, read_request
from fairlead_gateway.routes import sign_on_pages as pages
from fairlead_gateway.routes.access import require_sign_on
from fairlead_gateway.routes.account_bodies import LinkRequest, LocalSignInRequest
from fairlead_gateway.routes.request_bodies import EmptyRequest
from fairlead_gateway.routes.router import PUBLIC, SIGNED_IN, Router
from fairlead_gateway.routes.tokens import NO_STORE, require_fresh
from fairlead_gateway.signon.oidc import safe_target
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import accounts as doc
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339

log = structlog.get_logger()

FORM = b"application/x-www-form-urlencoded"
#: Bytes of a body of these routes, and characters of a name or a code that is looked at.
BODY_BYTES_MAX = 4096
#: A job token has up to 16 KiB.
TOKEN_BODY_BYTES_MAX = 20 * 1024
NAME_CHARS_MAX = 64
AGENT_CHARS_MAX = 120

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Sign in to Fairlead</title><h1>Sign in to Fairlead</h1>
<p>This link signs you in once, in this browser.</p>
<form method="post" action="/v1/sign-in/link"><input type="hidden" name="code" value="{code}">
<button>Sign in</button></form></html>"""
_PAGE_HEADERS = {
    **NO_STORE,
    "content-security-policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


class SignInRoutes:
    """Answers to sign-ins, in the form that the client takes."""

    def __init__(self, views: Views, accounts: Accounts, callers: Callers, clock: Callable[[], int]) -> None:
        self._views = views
        self.accounts = accounts
        self.callers = callers
        self._clock = clock

    def require_page(self, request: Request) -> None:
        """Raise HttpError: 409 where sign-on is off, 403 for a sign-in that a page of another origin sends."""
        if self.callers.is_open:
            raise HttpError(409, "sign_on_off", "sign-on is off", hint="set FAIRLEAD_SIGN_ON=local")
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            check_page(request.scope)

    def require_form(self, request: Request) -> bool:
        """Return True for a form. Raise HttpError (403) unless a page of this origin sent it: any page may send a form, and only the
        browser says which one did.
        """
        is_form: bool = request.scope[HEAD].content_type == FORM
        if is_form:
            check_page(request.scope)
        return is_form

    async def answer(self, request: Request, principal: str, provider: str) -> Response:
        """Open a session, and return it as a cookie or as tokens."""
        at = SignInAt(provider, address=address_of(request), agent=agent_of(request))
        if "origin" not in request.headers and "application/json" in request.headers.get("accept", ""):
            return cli_answer(await self.accounts.open_cli(principal, at))
        name = cookie_name(request)
        await self.end_former(request)
        _, text = await self.accounts.open_session(principal, at)
        login = await self.accounts.people.name_of(principal)
        expires = rfc3339(self._clock() + SESSION_LIFE_NS)
        answer = doc.SignedIn(principal=principal, login=login, expires_at=expires, sequence=self._views.sequence)
        response = JsonResponse(answer, headers=NO_STORE)
        response.headers["set-cookie"] = cookie_header(name, text, SESSION_LIFE_NS // SECOND_NS)
        return response

    async def answer_form(self, opening: Awaitable[Response], target: str) -> Response:
        """Return the answer to a form: the way on to a path, or a page with the reason of a refusal."""
        try:
            response = await opening
        except HttpError as error:
            return pages.refused(error, target)
        response.status_code, response.headers["location"] = 303, target
        return response

    async def end_former(self, request: Request) -> None:
        """End the session that the browser had, so that a sign-in never continues one."""
        try:
            former = await self.callers.of(request.scope)
        except HttpError:
            return
        if former.credential and not former.is_token:
            await self.accounts.end_sign_in(former.principal, former.credential, "replaced")


#: Answers a token request of one grant type from its form.
type Grant = Callable[[Request, dict[str, str]], Awaitable[Response]]


def routes(
    sign_in: SignInRoutes,
    views: Views,
    passwords: Passwords,
    grants: Mapping[str, Grant],
    clock: Callable[[], int] = time.time_ns,
) -> Router:
    """Return the routes. `grants`: {grant_type: what answers it}, further ones of `/v1/token`."""
    router, accounts = Router(), sign_in.accounts
    _add_local(router, sign_in, views, passwords)
    _add_links(router, sign_in, views, clock)
    _add_token(router, sign_in, grants)
    _add_sign_out(router, views, accounts)
    return router


def _add_local(router: Router, sign_in: SignInRoutes, views: Views, passwords: Passwords) -> None:
    accounts = sign_in.accounts

    @router.command(
        "POST",
        "/v1/sign-in/local",
        "Sign in as a local user",
        doc.SignedIn,
        doc.CliTokens,
        right=PUBLIC,
        keyed=False,
        body=LocalSignInRequest,
    )
    async def sign_in_local(request: Request) -> Response:
        sign_in.require_page(request)
        is_form = sign_in.require_form(request)
        body = await read_body(request.scope[HEAD], request.receive, BODY_BYTES_MAX, (JSON, FORM))
        form = form_fields(body) if is_form else {}
        if is_form:
            wanted = LocalSignInRequest(login=form.get("login", ""), password=form.get("password", ""))
        else:
            wanted = read_one(body, lambda body: decode(LocalSignInRequest, body))
        opening = open_local(request, wanted)
        return await (sign_in.answer_form(opening, safe_target(form.get("to", "/"))) if is_form else opening)

    async def open_local(request: Request, wanted: LocalSignInRequest) -> Response:
        await passwords.require_room(wanted.login[:NAME_CHARS_MAX], address_of(request))
        principal = await accounts.people.claimed(login_key(wanted.login)) if is_token(wanted.login) else ""
        phc = await accounts.credentials.password(principal) if principal else ""
        matched = await passwords.check(wanted.password, phc)
        if not matched or not views.access.access.principals.get(principal, False):
            log.info("sign-in refused", provider="local", address=address_of(request))
            accounts.note_failure("local", address_of(request), principal)
            raise HttpError(401, "sign_in_failed", "the name or the password is wrong")
        return await sign_in.answer(request, principal, "local")


def _add_links(router: Router, sign_in: SignInRoutes, views: Views, clock: Callable[[], int]) -> None:
    accounts = sign_in.accounts

    @router.command(
        "POST",
        "/v1/sign-in/links",
        "Make a link that signs the caller in once",
        doc.SignInLink,
        right=SIGNED_IN,
        keyed=False,
    )
    async def create_link(request: Request) -> Response:
        head, _ = require_sign_on(head_of(request)), await read_request(request, EmptyRequest)
        await require_fresh(views, accounts, head.caller, clock)
        code = await accounts.make_link(head.caller.principal, head.caller.credential)
        expires_at = rfc3339(clock() + LINK_LIFE_NS)
        return JsonResponse(doc.SignInLink(path=f"/sign-in/link?code={code}", expires_at=expires_at), headers=NO_STORE)

    @router.read("/sign-in/link", "Page that confirms a sign-in by a link", right=PUBLIC, include_in_schema=False)
    async def sign_in_link_page(code: Annotated[str, Query()] = "") -> Response:
        page = _PAGE.format(code=escape(code[:NAME_CHARS_MAX]))
        return Response(page, media_type="text/html; charset=utf-8", headers=_PAGE_HEADERS)

    @router.command(
        "POST",
        "/v1/sign-in/link",
        "Sign in by a link, once",
        doc.SignedIn,
        doc.CliTokens,
        right=PUBLIC,
        keyed=False,
        body=LinkRequest,
    )
    async def use_link(request: Request) -> Response:
        sign_in.require_page(request)
        is_form = sign_in.require_form(request)
        body = await read_body(request.scope[HEAD], request.receive, BODY_BYTES_MAX, (JSON, FORM))
        if is_form:
            code = form_fields(body).get("code", "")
        else:
            code = read_one(body, lambda body: decode(LinkRequest, body)).code
        opening = open_by_link(request, code[:NAME_CHARS_MAX])
        return await (sign_in.answer_form(opening, "/") if is_form else opening)

    async def open_by_link(request: Request, code: str) -> Response:
        return await sign_in.answer(request, await accounts.take_link(code), "link")


def _add_token(router: Router, sign_in: SignInRoutes, grants: Mapping[str, Grant]) -> None:
    @router.command(
        "POST",
        "/v1/token",
        "Refresh a sign-in of a program, or get one by a code or a job token (RFC 6749, RFC 8693; a form)",
        doc.CliTokens,
        right=PUBLIC,
        keyed=False,
        form=(
            "grant_type",
            "refresh_token",
            "code",
            "code_verifier",
            "redirect_uri",
            "subject_token",
            "subject_token_type",
        ),
    )
    async def refresh_token(request: Request) -> Response:
        sign_in.require_page(request)
        form = form_fields(await read_body(request.scope[HEAD], request.receive, TOKEN_BODY_BYTES_MAX, (FORM,)))
        if grant := grants.get(form.get("grant_type", "")):
            return await grant(request, form)
        if form.get("grant_type") != "refresh_token":
            raise bad_field("grant_type", f"expected one of refresh_token, {', '.join(grants)}")
        text = form.get("refresh_token", "")
        return cli_answer(await sign_in.accounts.refresh(text, address_of(request)))


def _add_sign_out(router: Router, views: Views, accounts: Accounts) -> None:
    @router.command("POST", "/v1/sign-out", "End this session", right=SIGNED_IN, keyed=False)
    async def sign_out(request: Request) -> Response:
        head, _ = require_sign_on(head_of(request)), await read_request(request, EmptyRequest)
        caller = caller_of(request)
        if caller.is_token:
            raise HttpError(409, "no_session", "a token has no session", hint="DELETE /v1/tokens/{id} revokes it")
        await accounts.end_sign_in(caller.principal, caller.credential, "signed_out", head)
        response = JsonResponse({"signed_out": True, "sequence": views.sequence}, headers=NO_STORE)
        for name in COOKIES:
            response.headers.append("set-cookie", cookie_header(name.decode(), "", 0))
        return response


def cli_answer(tokens: CliSignIn) -> Response:
    """Return the texts of a program's sign-in."""
    answer = doc.CliTokens(
        access_token=tokens.access, refresh_token=tokens.refresh, expires_in=ACCESS_LIFE_NS // SECOND_NS
    )
    return JsonResponse(answer, headers=NO_STORE)


def address_of(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client else ""


def agent_of(request: Request) -> str:
    """Return the User-Agent, as far as it is kept."""
    agent = request.headers.get("user-agent", "")
    return "".join(each for each in agent if each.isprintable())[:AGENT_CHARS_MAX]


def cookie_name(request: Request) -> str:
    """Return the name of the session's cookie. Raise HttpError (403) where a network would carry it in the clear."""
    if request.url.scheme == "https":
        return COOKIES[0].decode()
    try:
        is_local = ip_address(address_of(request)).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        hint = "set FAIRLEAD_TLS_CERT and FAIRLEAD_TLS_KEY, or sign in with the command"
        raise HttpError(403, "needs_https", "browsers sign in over https, or on the gateway's own machine", hint=hint)
    return COOKIES[1].decode()


def cookie_header(name: str, value: str, seconds: int) -> str:
    """Return a Set-Cookie value; of no seconds it removes the cookie."""
    secure = "; Secure" if name.startswith("__Host-") else ""
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


def form_fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form; of a repeated one the last."""
    try:
        return {name: values[-1] for name, values in parse_qs(body.decode("ascii"), max_num_fields=8).items()}
    except ValueError:
        raise bad_field("", "expected a form of ASCII text") from None
