"""Request heads and answers, as passed between the door and the code that answers. No rules."""

import hashlib
from typing import Any, NamedTuple

import msgspec

from fairlead_gateway.problems import Refused, invalid
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.validation import FieldError

JSON = b"application/json"
DEFAULT_USER = "anonymous"
KEY_CHARS_MAX = 256

encode = msgspec.json.Encoder().encode


class Head(NamedTuple):
    """The headers of a request that mean something to the hot routes."""

    content_type: bytes
    user: str
    key: str
    length: int


class Answer(NamedTuple):
    """Status, body and headers, without length, type, request id and sequence."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = JSON
    #: Elements of a list that were refused, although the list as a whole was taken.
    refusals: int = 0


def read_head(headers: "list[tuple[bytes, bytes]]") -> Head:
    """Read the headers once. Raises Refused (422) for a user or a key that cannot be one."""
    content_type, user, key, length = b"", DEFAULT_USER, "", 0
    for name, value in headers:
        if name == b"content-type":
            content_type = value.partition(b";")[0].strip().lower()
        elif name == b"content-length":
            length = int(value) if value.isdigit() else 0
        elif name == b"x-fairlead-user":
            user = value.decode("latin-1")
            if not is_token(user):
                raise invalid(
                    [FieldError(field="X-Fairlead-User", message='expected 1 to 63 of a-z 0-9 _ -, such as "ada"')]
                )
        elif name == b"idempotency-key":
            key = value.decode("latin-1").strip()
            if not 0 < len(key) <= KEY_CHARS_MAX:
                raise invalid(
                    [
                        FieldError(
                            field="Idempotency-Key",
                            message=f"expected 1 to {KEY_CHARS_MAX} characters, found {len(key)}",
                        )
                    ]
                )
    return Head(content_type, user, key, length)


def bind_key(user: str, *parts: str) -> str:
    """Return an idempotency key bound to its user, 40 hex digits. It cannot collide with another user's key."""
    return hashlib.sha256("\0".join((user, *parts)).encode()).hexdigest()[:40]


class Gone(Exception):
    """The client closed the connection before its request was complete, so the result is not sent."""


async def read_body(receive: Any, limit: int) -> bytes:
    """The whole body. Raises Refused (413) as soon as it is longer than `limit` bytes, Gone when it is cut off."""
    message = await _next(receive)
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit:
            raise too_large(limit)
        return body
    pieces, size = [body], len(body)
    while message.get("more_body", False):
        message = await _next(receive)
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise too_large(limit)
    return b"".join(pieces)


async def _next(receive: Any) -> Any:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise Gone
    return message


def too_large(limit: int) -> Refused:
    """A 413 that states the limit."""
    return Refused(
        413,
        "too_large",
        f"the body is over {limit} bytes",
        hint="send fewer jobs at once; keep scripts and data in files",
    )
