"""The first ASGI callable: the guard, the bound on refusals and the request's head for every request, and the fast path.

Submits are answered here, past FastAPI, whose routing, dependencies and response objects cost several times the CPU of all
that the gateway does for a submit; `python -m bench fast-path` measures both. A route on this path (`routes.router.FastRoute`)
has a handler for head and body, and a plain form in the application, which answers the same; a request with a query string
takes the plain form.

The web server may also call `respond` itself, past ASGI, for a small request to a fast route that it has read as a whole
(`server/http_server.py`): `admits` first says whether there is anything to refuse.

Every answer gets a request id, the log sequence that it is true for, and the version of the gateway.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from importlib.metadata import version
from itertools import count
from time import monotonic
from typing import Any

import structlog

from fairlead_gateway.access.caller import OPEN_CALLER
from fairlead_gateway.access.callers import CALLER
from fairlead_gateway.access.guard import RouteGuard
from fairlead_gateway.access.passwords import client_network
from fairlead_gateway.access.rate_limit import RateLimit
from fairlead_gateway.directories.scim_errors import error_answer
from fairlead_gateway.errors import EarlyAnswer, HttpError, HttpResponse, internal_error
from fairlead_gateway.http_messages import (
    HEAD,
    LIST_BYTES_MAX,
    REFUSED_ELEMENTS,
    ClientGone,
    check_body,
    owned_head,
    read_body,
    read_head,
)
from fairlead_gateway.routes.router import FastRoute
from fairlead_gateway.server.cors import Cors
from fairlead_gateway.server.request_guard import CHANGING, RefusalLimit, RequestGuard
from fairlead_gateway.views.fold import Views

log = structlog.get_logger()

type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
type Headers = list[tuple[bytes, bytes]]
type Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

REQUEST_ID = "fairlead.request_id"
VERSION = version("fairlead-cluster").encode()
#: With sign-on an answer is one caller's: a cache in front of the gateway would give it to the next one that has a cookie.
_OWN = (b"cache-control", b"no-store")
_NO_CORS = Cors()
_NO_RATE = RateLimit(0, "", "", "")
_METHODS = CHANGING | {"GET", "HEAD", "OPTIONS"}
#: Paths that are asked by machines which watch the gateway.
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
#: Statuses of changes that were refused for what they ask.
REFUSED = frozenset({400, 404, 409, 413, 415, 422})


class FastPath:
    """The first callable. `on_refusal` gets the code of what `guard` and `limit` refuse."""

    def __init__(
        self,
        views: Views,
        routes: dict[tuple[str, str], FastRoute],
        app: Any,
        guard: RequestGuard,
        limit: RefusalLimit,
        on_refusal: Callable[[str], None],
        rights: RouteGuard,
        stated: Sequence[tuple[bytes, bytes]] = (),
        *,
        cors: Cors = _NO_CORS,
        rate: RateLimit = _NO_RATE,
    ) -> None:
        """`stated`: further headers of every answer; `cors`: pages of other origins; `rate`: of the requests of one caller."""
        self._cors = cors
        self._rate = rate
        self._views = views
        self._rights = rights
        self._callers = rights.callers
        self._guard = guard
        self._limit = limit
        self._on_refusal = on_refusal
        #: {(method, path): route}; those that are not here are answered by `app`.
        self.routes = routes
        self._app = app
        self._stated = stated
        self._prefix = os.urandom(4).hex()
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # No route takes anything else, and none may come in past the guard.
            raise RuntimeError(f"expected an HTTP request, found {scope['type']}")
        request_id = self._new_id()
        refused = self._check(scope)
        if self._cors:
            send = self._cors.answering(scope, send)
            if refused is None and (preflight := self._cors.preflight(scope)) is not None:
                await self._send(send, preflight, request_id)
                return
        if refused is None and not self._callers.is_open:
            if scope["method"] in _METHODS:
                refused = await self._identify(scope)
            else:  # no route has it, whoever sends it
                scope[CALLER] = self._callers.nobody
        if refused is None and self._rate:
            refused = self._take(scope)
        if refused is not None:
            self._on_refusal(refused.code)
            await self._send(send, error_answer(scope["path"], refused, request_id), request_id)
            return
        if scope["method"] == "HEAD":  # the server leaves the body out by itself
            scope = {**scope, "method": "GET"}
        route = None if scope["query_string"] else self.routes.get((scope["method"], scope["path"]))
        if route is None or scope[HEAD].matched:  # the application says which routes take If-Match
            scope[REQUEST_ID] = request_id
            await self._app(scope, receive, self._stamped(send, request_id, scope))
        else:
            await self._answer(route, scope, receive, send, request_id)

    async def _identify(self, scope: Scope) -> HttpError | None:
        """Note the caller in the scope, and in the head of a change. Return the refusal of a credential that does not count."""
        try:
            caller = scope[CALLER] = await self._callers.of(scope)
        except HttpError as refused:
            return refused
        if scope["method"] not in CHANGING:
            return None
        scope[HEAD] = owned_head(scope[HEAD], caller)
        return self._limit.check(_client(scope), monotonic())

    def _take(self, scope: Scope) -> HttpError | None:
        """Count a request. Return the refusal of one beyond its caller's rate; probes are always answered."""
        if scope["path"] in _PROBES:
            return None
        caller = scope.get(CALLER, OPEN_CALLER)
        return self._rate.take(caller.principal or _address(scope), 1, monotonic())

    def _new_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers):x}"

    def _check(self, scope: Scope) -> HttpError | None:
        """Return the refusal of a request by its head and its client, else None. Reads the head of a change into the scope.

        The client is the address with the user that the head states: with sign-on it is not known yet who sent it, and
        `_identify` looks again."""
        refused = self._guard.check(scope)
        if refused is None and scope["method"] in CHANGING:
            scope[HEAD] = read_head(scope["headers"])
            refused = self._limit.check(_client(scope), monotonic())
        return refused

    def admits(self, scope: Scope, body_bytes_max: int) -> bool:
        """Return True if a change to a fast route has a body of a stated length up to `body_bytes_max`, and nothing about
        its head is refused. The scope needs method, headers, client and server, and then has the head.

        All of it depends on the scope alone, except for what `still_admits` looks at."""
        if self._cors and any(name == b"origin" for name, _ in scope["headers"]):
            return False
        return self._check(scope) is None and 0 < scope[HEAD].length <= body_bytes_max and not scope[HEAD].matched

    def still_admits(self, scope: Scope) -> bool:
        """Return True while the client of an admitted scope is within its bound on refusals, and its credential counts.
        Notes the caller in the scope; one that is not in memory is not looked up here."""
        if not self._callers.is_open:
            caller = scope.get(CALLER)
            if caller is None:
                caller = self._callers.cached(scope["headers"])
                if caller is None:
                    return False
                scope[CALLER], scope[HEAD] = caller, owned_head(scope[HEAD], caller)
            elif not self._callers.renew(caller):
                return False
        if self._limit.check(_client(scope), monotonic()) is not None:
            return False
        return not self._rate or self._take(scope) is None

    async def respond(self, route: FastRoute, scope: Scope, body: bytes) -> tuple[HttpResponse, Headers]:
        """Answer a request that `admits` has let pass, and whose body is complete."""
        request_id = self._new_id()
        response = await self._response(route, scope, None, body, request_id)
        assert response is not None, "the body is here"
        return response, self._headers(response, request_id)

    async def _answer(self, route: FastRoute, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        response = await self._response(route, scope, receive, b"", request_id)
        if response is not None:
            await self._send(send, response, request_id)

    async def _response(
        self, route: FastRoute, scope: Scope, receive: Receive | None, body: bytes, request_id: str
    ) -> HttpResponse | None:
        """Return the answer of a fast route; None where the client has gone. `receive`: reads a body that is not here yet."""
        try:
            if not self._callers.is_open and not self._rights.admits_known(route.right, scope):
                await self._rights.admit(route.right, scope)
            head = scope[HEAD].require_valid()
            if receive is not None:
                body = await read_body(head, receive, LIST_BYTES_MAX, route.media_types)
            else:
                check_body(head, body, LIST_BYTES_MAX, route.media_types)
            response = await route.answer(head, body)
        except ClientGone:
            return None
        except EarlyAnswer as early:
            self._note_denial(early, scope)
            response = early.response(request_id)
        except Exception:
            log.exception("request failed", path=scope["path"], request=request_id)
            response = internal_error().response(request_id)
        self._count(scope, response.status, response.refusals)
        return response

    def _note_denial(self, early: EarlyAnswer, scope: Scope) -> None:
        if isinstance(early, HttpError):
            self._rights.note_denial(early, scope)

    def _headers(self, response: HttpResponse, request_id: str) -> Headers:
        return [
            (b"content-type", response.media_type),
            (b"x-request-id", request_id.encode()),
            (b"x-fairlead-sequence", b"%d" % self._views.sequence),
            (b"x-fairlead-version", VERSION),
            (b"content-length", b"%d" % len(response.body)),
            *self._stated,
            *response.headers,
        ]

    async def _send(self, send: Send, response: HttpResponse, request_id: str) -> None:
        headers = self._headers(response, request_id)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    def _count(self, scope: Scope, status: int, refused_elements: int) -> None:
        """Count a refused change, or the refused elements of a list; only such answers look at the client."""
        refusals = int(status in REFUSED) or refused_elements
        if refusals and scope["method"] in CHANGING:
            self._limit.count(_client(scope), refusals, monotonic())

    def _stamped(self, send: Send, request_id: str, scope: Scope) -> Send:
        async def stamp(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"], scope.get(REFUSED_ELEMENTS, 0))
                names = {name for name, _ in message["headers"]}
                for name, value in (
                    (b"x-request-id", request_id.encode()),
                    (b"x-fairlead-sequence", b"%d" % self._views.sequence),
                    (b"x-fairlead-version", VERSION),
                    (b"x-content-type-options", b"nosniff"),
                    *(() if self._callers.is_open else (_OWN,)),
                    *self._stated,
                ):
                    if name not in names:
                        message["headers"] = [*message["headers"], (name, value)]
            await send(message)

        return stamp


def _client(scope: Scope) -> tuple[str, str]:
    """Return the network and the user that a changing request states."""
    return _address(scope), scope[HEAD].user[:64]


def _address(scope: Scope) -> str:
    peer = scope.get("client")
    return client_network(peer[0]) if peer else ""
