"""The door: one ASGI callable before everything else.

The hot routes are found in a table and answered here with two sends; all else goes through FastAPI. Every
answer gets a request id and the log sequence that it is true for.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from itertools import count
from typing import Any

import structlog

from fairlead_gateway.answers import Answer, Gone, Head, read_body, read_head
from fairlead_gateway.bodies import LIST_BYTES_MAX
from fairlead_gateway.problems import Refused, bad_parameter
from fairlead_gateway.views.fold import Views

log = structlog.get_logger()

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
#: Answers a hot route from the request's head and body.
Hot = Callable[[Head, bytes], Awaitable[Answer]]

REQUEST_ID = "fairlead.request_id"
CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Door:
    """`hot`: {(method, path): handler}."""

    def __init__(self, views: Views, hot: Mapping[tuple[str, str], Hot], app: Any) -> None:
        self._views = views
        self._hot = hot
        self._app = app
        self._prefix = os.urandom(4).hex()
        self._numbers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"{self._prefix}-{next(self._numbers):x}"
        if scope["method"] in CHANGING and _is_foreign(scope["headers"]):
            refused = Refused(
                403, "foreign_page", "a page of another origin may not change anything here",
                hint="call the gateway from its own pages, from a program, or without an Origin header",
            )  # fmt: skip
            await self._refuse(refused, send, request_id)
            return
        if scope["method"] == "HEAD":  # the server leaves the body out by itself
            scope = {**scope, "method": "GET"}
        hot = self._hot.get((scope["method"], scope["path"]))
        if hot is None:
            scope[REQUEST_ID] = request_id
            await self._app(scope, receive, self._stamped(send, request_id))
        else:
            await self._answer(hot, scope, receive, send, request_id)

    async def _answer(self, hot: Hot, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        try:
            if scope["query_string"]:
                name = scope["query_string"].decode("latin-1").partition("=")[0]
                raise bad_parameter(name[:80], "unknown query parameter; this path takes none")
            head = read_head(scope["headers"])
            if head.length > LIST_BYTES_MAX:
                raise Refused(413, "too_large", f"the body has {head.length} bytes, at most {LIST_BYTES_MAX} are taken")
            status, body, extra, media_type = await hot(head, await read_body(receive, LIST_BYTES_MAX))
            headers = [
                (b"content-type", media_type),
                (b"x-request-id", request_id.encode()),
                (b"x-fairlead-sequence", b"%d" % self._views.sequence),
                *extra,
            ]
        except Gone:
            return
        except Refused as refused:
            await self._refuse(refused, send, request_id)
            return
        except Exception:
            log.exception("request failed", path=scope["path"], request=request_id)
            told = "the gateway failed on this request; its log names the request id"
            await self._refuse(Refused(500, "internal", told), send, request_id)
            return
        await _send_whole(send, status, headers, body)

    async def _refuse(self, refused: Refused, send: Send, request_id: str) -> None:
        headers = refused.headers(request_id, self._views.sequence)
        await _send_whole(send, refused.status, headers, refused.body(request_id))

    def _stamped(self, send: Send, request_id: str) -> Send:
        async def stamp(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                for name, value in ((b"x-request-id", request_id), (b"x-fairlead-sequence", str(self._views.sequence))):
                    if name not in names:
                        message["headers"] = [*message["headers"], (name, value.encode())]
            await send(message)

        return stamp


async def _send_whole(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_foreign(headers: "list[tuple[bytes, bytes]]") -> bool:
    """A browser says whose page sends: a page that somebody merely visits must not drain nodes on their machine."""
    origin = host = site = b""
    for name, value in headers:
        if name == b"origin":
            origin = value
        elif name == b"host":
            host = value
        elif name == b"sec-fetch-site":
            site = value
    if site:
        return site not in (b"same-origin", b"none")
    return bool(origin) and origin.partition(b"://")[2].lower() != host.lower()
