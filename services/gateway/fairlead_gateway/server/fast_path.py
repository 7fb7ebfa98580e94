"""The door: one ASGI callable before everything else.

The hot routes are found in a table and answered here with two sends; all else goes through FastAPI. Every
answer gets a request id and the log sequence that it is true for.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from itertools import count
from time import monotonic
from typing import Any

import structlog

from fairlead_gateway.errors import HttpError, bad_parameter
from fairlead_gateway.http_messages import LIST_BYTES_MAX, ClientGone, HttpResponse, RequestHead, read_body, read_head
from fairlead_gateway.server.request_guard import CHANGING, RefusalLimit, RequestGuard
from fairlead_gateway.views.fold import Views

log = structlog.get_logger()

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
#: Answers a hot route from the request's head and body.
FastHandler = Callable[[RequestHead, bytes], Awaitable[HttpResponse]]

REQUEST_ID = "fairlead.request_id"
#: Statuses of changes that were refused for what they ask.
REFUSED = frozenset({400, 404, 409, 413, 415, 422})


class FastPath:
    """The first callable. `hot`: {(method, path): handler}; `on_refusal` gets the code of what `guard` refuses."""

    def __init__(
        self,
        views: Views,
        hot: Mapping[tuple[str, str], FastHandler],
        app: Any,
        guard: RequestGuard,
        limit: RefusalLimit,
        on_refusal: Callable[[str], None],
    ) -> None:
        self._views = views
        self._guard = guard
        self._limit = limit
        self._on_refusal = on_refusal
        self._hot = hot
        self._app = app
        self._prefix = os.urandom(4).hex()
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # No route takes anything else, and none may come in past the guard.
            raise RuntimeError(f"expected an HTTP request, found {scope['type']}")
        request_id = f"{self._prefix}-{next(self._numbers):x}"
        refused = self._guard.check(scope)
        if refused is None and scope["method"] in CHANGING:
            refused = self._limit.check(_client(scope), monotonic())
        if refused is not None:
            self._on_refusal(refused.code)
            await self._refuse(refused, send, request_id)
            return
        if scope["method"] == "HEAD":  # the server leaves the body out by itself
            scope = {**scope, "method": "GET"}
        hot = self._hot.get((scope["method"], scope["path"]))
        if hot is None:
            scope[REQUEST_ID] = request_id
            await self._app(scope, receive, self._stamped(send, request_id, scope))
        else:
            await self._answer(hot, scope, receive, send, request_id)

    async def _answer(self, hot: FastHandler, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        try:
            if scope["query_string"]:
                name = scope["query_string"].decode("latin-1").partition("=")[0]
                raise bad_parameter(name[:80], "unknown query parameter; this path takes none")
            head = read_head(scope["headers"])
            if head.length > LIST_BYTES_MAX:
                raise HttpError(
                    413, "too_large", f"the body has {head.length} bytes, at most {LIST_BYTES_MAX} are taken"
                )
            status, body, extra, media_type, refusals = await hot(head, await read_body(receive, LIST_BYTES_MAX))
            if refusals:
                self._limit.count(_client(scope), refusals, monotonic())
            headers = [
                (b"content-type", media_type),
                (b"x-request-id", request_id.encode()),
                (b"x-fairlead-sequence", b"%d" % self._views.sequence),
                *extra,
            ]
        except ClientGone:
            return
        except HttpError as refused:
            self._count(scope, refused.status)
            await self._refuse(refused, send, request_id)
            return
        except Exception:
            log.exception("request failed", path=scope["path"], request=request_id)
            told = "the gateway failed on this request; its log names the request id"
            await self._refuse(HttpError(500, "internal", told), send, request_id)
            return
        await _send_whole(send, status, headers, body)

    async def _refuse(self, refused: HttpError, send: Send, request_id: str) -> None:
        headers = refused.headers(request_id, self._views.sequence)
        await _send_whole(send, refused.status, headers, refused.body(request_id))

    def _count(self, scope: Scope, status: int) -> None:
        """Count an answer that refuses a change; only such answers look at who asked."""
        if status in REFUSED and scope["method"] in CHANGING:
            self._limit.count(_client(scope), 1, monotonic())

    def _stamped(self, send: Send, request_id: str, scope: Scope) -> Send:
        async def stamp(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"])
                names = {name for name, _ in message["headers"]}
                for name, value in ((b"x-request-id", request_id), (b"x-fairlead-sequence", str(self._views.sequence))):
                    if name not in names:
                        message["headers"] = [*message["headers"], (name, value.encode())]
            await send(message)

        return stamp


def _client(scope: Scope) -> tuple[str, str]:
    """Return the address and the user that a request states."""
    peer = scope.get("client")
    user = next((value for name, value in scope["headers"] if name == b"x-fairlead-user"), b"")
    return peer[0] if peer else "", user[:64].decode("latin-1")


async def _send_whole(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
