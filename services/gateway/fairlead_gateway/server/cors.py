"""Cross-origin requests of browsers' pages: which origins may call the gateway, and what their pages may read.

Off unless origins are listed. A listed page sends a token of its own in `Authorization`; the cookie of a session is never for other
origins, so no answer allows credentials. Without sign-on, a listed page may do what any client may. Pure. Start at `Cors.answering`.
"""

import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from fairlead_gateway.errors import HttpResponse

SETTING = "FAIRLEAD_CORS_ORIGINS"
_ORIGIN = re.compile(r"https?://(?:[a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_SENT = (
    b"authorization, content-type, idempotency-key, if-match, if-none-match, last-event-id, x-fairlead-user, x-fairlead-act-as, "
    b"ce-specversion, ce-id, ce-source, ce-type, ce-time, ce-subject"
)
_READ = b"etag, location, retry-after, allow, www-authenticate, x-request-id, x-fairlead-sequence, x-fairlead-version, x-fairlead-at"
#: Seconds for which a browser may remember the answer to a preflight.
_REMEMBERED_S = b"600"
_VARY = (b"vary", b"Origin")


def read_origins(text: str) -> tuple[str, ...]:
    """Return origins separated by commas. Raise ValueError for one that is none; "*" is none: pages are listed one by one."""
    found = tuple(each.strip().lower() for each in text.split(",") if each.strip())
    for each in found:
        if not _ORIGIN.fullmatch(each):
            raise ValueError(
                f'expected origins separated by commas, such as https://board.example.org, found "{each[:80]}"'
            )
    return found


class Cors:
    """Origins whose pages may call the gateway."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)

    def __bool__(self) -> bool:
        return bool(self._origins)

    def allows(self, origin: bytes) -> bool:
        """Return True for a listed origin."""
        return origin in self._origins

    def origin_of(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the listed origin of a request's page; b"" for any other request, also one with two origins."""
        found = [value for name, value in headers if name == b"origin"]
        return found[0] if len(found) == 1 and found[0] in self._origins else b""

    def preflight(self, scope: Mapping[str, Any]) -> HttpResponse | None:
        """Return the answer to a browser's question whether a listed page may send a request; None for any other request."""
        if scope["method"] != "OPTIONS" or not self.origin_of(scope["headers"]):
            return None
        if all(name != b"access-control-request-method" for name, _ in scope["headers"]):
            return None
        headers = (
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _SENT),
            (b"access-control-max-age", _REMEMBERED_S),
        )
        return HttpResponse(204, b"", headers)

    def answering(self, scope: Mapping[str, Any], send: Any) -> Any:
        """Return a `send` that adds what a browser needs to hand the answer to a listed page."""
        origin = self.origin_of(scope["headers"])
        added: list[tuple[bytes, bytes]] = [_VARY]
        if origin:
            added += (b"access-control-allow-origin", origin), (b"access-control-expose-headers", _READ)

        async def add(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        return add
