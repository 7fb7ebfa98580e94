"""Sign-in at identity providers, their logout, and grants to commands: routes for browsers, and those of RFC 8628.

A GET changes nothing of the cluster: it begins a sign-in, or finishes the one that its sealed cookie belongs to. Everything that gives
something away is a form that a person sends. Start at `routes`.
"""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import structlog
from fastapi import Query, Request, Response

from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import COOKIES
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import HEAD, JsonResponse, read_body
from fairlead_gateway.routes import sign_on_pages as pages
from fairlead_gateway.routes.router import ANY_QUERY, PUBLIC, SIGNED_IN, Router
from fairlead_gateway.routes.sign_in import (
    BODY_BYTES_MAX,
    FORM,
    TOKEN_BODY_BYTES_MAX,
    Grant,
    SignInRoutes,
    address_of,
    agent_of,
    cli_answer,
    cookie_header,
    form_fields,
)
from fairlead_gateway.routes.tokens import NO_STORE
from fairlead_gateway.signon.command_grants import DEVICE_S, INTERVAL_S, GrantError, require_loopback
from fairlead_gateway.signon.exchange import LIFE_S
from fairlead_gateway.signon.jwt_check import BadToken
from fairlead_gateway.signon.keys import ProviderUnavailable
from fairlead_gateway.signon.oidc import STATE_S, OidcProvider, SignInFailed, safe_target
from fairlead_gateway.signon.sign_on import SignOn
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import accounts as doc

log = structlog.get_logger()

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind of token
_SUBJECT_TYPES = ("urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token")
#: State of a sign-in in the browser: over https, and over plain HTTP on loopback.
_STATE_COOKIES = ("__Host-fairlead-sign-in", "fairlead-sign-in")


class SignOnRoutes:
    """What the routes share: who is signed in, and the cookies."""

    def __init__(self, sign_on: SignOn, sign_in: SignInRoutes) -> None:
        self.sign_on = sign_on
        self.sign_in = sign_in
        self._is_https = sign_on.public_url.startswith("https:")
        self.state_cookie = _STATE_COOKIES[0 if self._is_https else 1]

    def provider(self, name: str) -> OidcProvider:
        """Return a provider. Raise HttpError (404)."""
        found = self.sign_on.providers.get(name)
        if found is None:
            raise HttpError(404, "no_provider", "there is no such identity provider")
        return found

    async def session_of(self, request: Request) -> Caller | None:
        """Return the caller if it is a session in a browser."""
        try:
            caller = await self.sign_in.callers.of(request.scope)
        except HttpError:
            return None
        is_browser = "cookie" in request.headers and "authorization" not in request.headers
        return caller if caller.credential and not caller.is_token and is_browser else None

    async def require_session(self, request: Request) -> Caller:
        """Return the caller's session in a browser. Raise HttpError (403)."""
        caller = await self.session_of(request)
        if caller is None:
            raise HttpError(403, "needs_browser", "only a session in a browser may allow this")
        return caller

    async def provider_of(self, caller: Caller) -> OidcProvider | None:
        """Return the provider where a session began; None for one of ours, and for a provider that is not configured any more."""
        note = await self.sign_in.accounts.credentials.note("session", caller.credential)
        return self.sign_on.providers.get(note.provider) if note else None

    async def form(self, request: Request, most: int = BODY_BYTES_MAX) -> dict[str, str]:
        """Return the fields of a form. Raise HttpError."""
        return form_fields(await read_body(request.scope[HEAD], request.receive, most, (FORM,)))

    def session_cookie(self, text: str, seconds: int) -> str:
        """Return the Set-Cookie value of a session."""
        return cookie_header(COOKIES[0 if self._is_https else 1].decode(), text, seconds)


def routes(sign_on: SignOn, sign_in: SignInRoutes, views: Views) -> Router:
    """Return the routes."""
    router, shared = Router(), SignOnRoutes(sign_on, sign_in)
    _add_providers(router, shared)
    _add_logout(router, shared)
    _add_device(router, shared)
    _add_redirect(router, shared)
    return router


def _page_post(router: Router, path: str, right: Any) -> Any:
    """Decorate a route that takes a form of one of our pages; no part of the API."""
    return router.guarded(right, router.post(path, include_in_schema=False))


def _to_sign_in(request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return _redirect("/sign-in?" + urlencode({"to": request.url.path + query}))


def _redirect(address: str) -> Response:
    return Response(status_code=303, headers={"location": address, **NO_STORE})


# ------------------------------------------------------------------------------- providers


def _add_providers(router: Router, shared: SignOnRoutes) -> None:
    @router.read("/sign-in", "Page with the ways to sign in", right=PUBLIC, include_in_schema=False)
    async def sign_in_page(to: Annotated[str, Query()] = "/") -> Response:
        target = safe_target(to)
        return pages.ways(list(shared.sign_on.providers), target)

    @router.read("/sign-in/{provider}", "Begin a sign-in", right=PUBLIC, include_in_schema=False)
    async def begin_sign_in(provider: str, to: Annotated[str, Query()] = "/") -> Response:
        try:
            address, cookie = await shared.provider(provider).begin(to)
        except ProviderUnavailable as error:
            return _unavailable(provider, error)
        response = _redirect(address)
        response.headers["set-cookie"] = cookie_header(shared.state_cookie, cookie, STATE_S)
        return response

    @router.read("/sign-in/{provider}/callback", "Finish a sign-in", right=PUBLIC, include_in_schema=False)
    async def finish_sign_in(request: Request, provider: str) -> Response:
        response = await _finish(request, shared, shared.provider(provider))
        response.headers.append("set-cookie", cookie_header(shared.state_cookie, "", 0))
        return response

    ANY_QUERY.add(finish_sign_in)


async def _finish(request: Request, shared: SignOnRoutes, provider: OidcProvider) -> Response:
    name, params = provider.settings.name, request.query_params.multi_items()
    answer = dict(params)
    try:
        if len(answer) < len(params):
            raise SignInFailed("the answer repeats a parameter")
        text, life_s, target = await shared.sign_on.sessions.sign_in(
            provider, answer, request.cookies.get(shared.state_cookie, ""), address_of(request), agent_of(request)
        )
    except ProviderUnavailable as error:
        return _unavailable(name, error)
    except SignInFailed as error:
        log.info("sign-in refused", provider=name, address=address_of(request), reason=error.reason[:300])
        shared.sign_in.accounts.note_failure(name, address_of(request))
        return pages.failed(error.hint)
    except HttpError as error:
        log.info("sign-in refused", provider=name, address=address_of(request), reason=error.code)
        shared.sign_in.accounts.note_failure(name, address_of(request))
        return pages.failed(error.detail, error.status)
    await shared.sign_in.end_former(request)
    response = _redirect(target)
    response.headers["set-cookie"] = shared.session_cookie(text, life_s)
    return response


def _unavailable(provider: str, error: ProviderUnavailable) -> Response:
    log.warning("identity provider unavailable", provider=provider, reason=str(error)[:300])
    return pages.failed("the identity provider does not answer; try again in a minute", 503)


# ------------------------------------------------------------------------------- logout


def _add_logout(router: Router, shared: SignOnRoutes) -> None:
    @router.read("/sign-out", "Page that asks before a sign-out", right=PUBLIC, include_in_schema=False)
    async def sign_out_page(request: Request) -> Response:
        caller = await shared.session_of(request)
        provider = await shared.provider_of(caller) if caller else None
        address = await provider.logout_url() if provider else ""
        return pages.sign_out([_origin(address)] if address else [])

    @_page_post(router, "/sign-out", SIGNED_IN)
    async def sign_out_everywhere(request: Request) -> Response:
        caller = await shared.require_session(request)
        await shared.form(request)
        accounts, provider = shared.sign_in.accounts, await shared.provider_of(caller)
        await accounts.end_sign_in(caller.principal, caller.credential, "signed_out")
        response = _redirect((await provider.logout_url() if provider else "") or "/sign-in")
        response.headers["set-cookie"] = shared.session_cookie("", 0)
        return response

    @_page_post(router, "/sign-in/{provider}/back-channel-logout", PUBLIC)
    async def back_channel_logout(request: Request, provider: str) -> Response:
        found = shared.provider(provider)
        form = await shared.form(request, TOKEN_BODY_BYTES_MAX)
        try:
            await shared.sign_on.sessions.logout(found, form.get("logout_token", ""))
        except BadToken as error:
            log.info("logout refused", provider=provider, address=address_of(request), reason=str(error)[:300])
            shared.sign_in.accounts.note_refused_token(provider, address_of(request))
            return _oauth_error("invalid_request")
        except ProviderUnavailable as error:
            return _unavailable(provider, error)
        return Response(status_code=200, headers=NO_STORE)


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


# ------------------------------------------------------------------------------- a command without a browser


def _add_device(router: Router, shared: SignOnRoutes) -> None:
    grants = shared.sign_on.grants

    @router.command(
        "POST",
        "/v1/device/code",
        "Begin a sign-in of a command without a browser (RFC 8628; a form)",
        doc.DeviceCode,
        right=PUBLIC,
        keyed=False,
        form=("machine",),
    )
    async def begin_device(request: Request) -> Response:
        shared.sign_in.require_page(request)
        form = await shared.form(request)
        device_code, user_code = await grants.begin(form.get("machine", ""), address_of(request))
        origin = shared.sign_on.public_url or f"{request.url.scheme}://{request.url.netloc}"
        answer = doc.DeviceCode(
            device_code=device_code,
            user_code=user_code,
            verification_uri=f"{origin}/device",
            expires_in=DEVICE_S,
            interval=INTERVAL_S,
        )
        return JsonResponse(answer, headers=NO_STORE)

    @router.command(
        "POST",
        "/v1/device/token",
        "Get the tokens of a sign-in that a person has allowed (RFC 8628; a form)",
        doc.CliTokens,
        right=PUBLIC,
        keyed=False,
        form=("grant_type", "device_code"),
    )
    async def device_tokens(request: Request) -> Response:
        shared.sign_in.require_page(request)
        return await _device_tokens(shared, await shared.form(request))

    @router.read("/device", "Page to type a command's code", right=PUBLIC, include_in_schema=False)
    async def device_page(request: Request) -> Response:
        return pages.type_code() if await shared.session_of(request) else _to_sign_in(request)

    @_page_post(router, "/device", SIGNED_IN)
    async def show_device(request: Request) -> Response:
        caller, form = await shared.require_session(request), await shared.form(request)
        code = form.get("user_code", "")
        try:
            device = await grants.waiting(code, caller)
        except HttpError as error:
            return pages.type_code(error.detail, error.status)
        who = await shared.sign_in.accounts.people.name_of(caller.principal)
        return pages.confirm_device(code, device.machine, device.address, who)

    @_page_post(router, "/device/answer", SIGNED_IN)
    async def answer_device(request: Request) -> Response:
        caller, form = await shared.require_session(request), await shared.form(request)
        allow = form.get("answer") == "allow"
        try:
            await grants.answer(form.get("user_code", ""), caller, allow=allow)
        except HttpError as error:
            return pages.type_code(error.detail, error.status)
        return pages.done("The command is signed in." if allow else "The command was refused.")


async def _device_tokens(shared: SignOnRoutes, form: Mapping[str, str]) -> Response:
    try:
        return cli_answer(await shared.sign_on.grants.poll(form.get("device_code", "")))
    except GrantError as error:
        return _oauth_error(str(error))


def _oauth_error(code: str) -> Response:
    """Return an error in the form of RFC 6749, section 5.2."""
    return JsonResponse({"error": code}, 400, headers=NO_STORE)


# ------------------------------------------------------------------------------- a command with a browser


def _add_redirect(router: Router, shared: SignOnRoutes) -> None:
    @router.read("/sign-in-command", "Page that asks before a command signs in", right=PUBLIC, include_in_schema=False)
    async def command_page(
        request: Request,
        redirect_uri: Annotated[str, Query()] = "",
        code_challenge: Annotated[str, Query()] = "",
        state: Annotated[str, Query()] = "",
    ) -> Response:
        try:
            require_loopback(redirect_uri, code_challenge)
        except HttpError as error:
            return pages.failed(error.detail)
        caller = await shared.session_of(request)
        if caller is None:
            return _to_sign_in(request)
        who = await shared.sign_in.accounts.people.name_of(caller.principal)
        return pages.confirm_command(redirect_uri, code_challenge, state[:200], who, _origin(redirect_uri))

    @_page_post(router, "/sign-in-command", SIGNED_IN)
    async def allow_command(request: Request) -> Response:
        caller, form = await shared.require_session(request), await shared.form(request)
        address = form.get("redirect_uri", "")
        code = await shared.sign_on.grants.allow(caller, address, form.get("code_challenge", ""))
        return _redirect(f"{address}?code={code}&state={quote(form.get('state', '')[:200], safe='')}")


def token_grants(sign_on: SignOn, sign_in: SignInRoutes) -> dict[str, Grant]:
    """Return what answers the further grant types of `/v1/token`."""
    shared = SignOnRoutes(sign_on, sign_in)

    async def by_code(request: Request, form: dict[str, str]) -> Response:
        try:
            tokens = await sign_on.grants.redeem(
                form.get("code", ""), form.get("code_verifier", ""), form.get("redirect_uri", ""), address_of(request)
            )
        except GrantError as error:
            sign_in.accounts.note_refused_token("authorization_code", address_of(request))
            return _oauth_error(str(error))
        return cli_answer(tokens)

    async def by_device(_: Request, form: dict[str, str]) -> Response:
        return await _device_tokens(shared, form)

    async def by_job_token(request: Request, form: dict[str, str]) -> Response:
        if form.get("subject_token_type") not in _SUBJECT_TYPES:
            return _oauth_error("invalid_request")
        try:
            text = await sign_on.exchange.exchange(form.get("subject_token", ""))
        except GrantError as error:
            sign_in.accounts.note_refused_token("token-exchange", address_of(request))
            return _oauth_error(str(error))
        answer = {
            "access_token": text,
            "issued_token_type": _ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": LIFE_S,
        }
        return JsonResponse(answer, headers=NO_STORE)

    return {"authorization_code": by_code, DEVICE_GRANT: by_device, EXCHANGE_GRANT: by_job_token}
