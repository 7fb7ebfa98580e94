"""Request heads and answers, as passed between the door and the code that answers. No rules.

Common handling of bodies that hold one thing or a list: their bounds, and errors at their place in the list. Pure.
"""

import hashlib
from typing import Any, NamedTuple

import msgspec

from fairlead_gateway.errors import HttpError, invalid
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.validation import FieldError, field_error, repeated_keys

JSON = b"application/json"
DEFAULT_USER = "anonymous"
KEY_CHARS_MAX = 256

encode = msgspec.json.Encoder().encode


class RequestHead(NamedTuple):
    """The headers of a request that mean something to the hot routes."""

    content_type: bytes
    user: str
    key: str
    length: int


class HttpResponse(NamedTuple):
    """Status, body and headers, without length, type, request id and sequence."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = JSON
    #: Elements of a list that were refused, although the list as a whole was taken.
    refusals: int = 0


def read_head(headers: "list[tuple[bytes, bytes]]") -> RequestHead:
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
    return RequestHead(content_type, user, key, length)


def bind_key(user: str, *parts: str) -> str:
    """Return an idempotency key bound to its user, 40 hex digits. It cannot collide with another user's key."""
    return hashlib.sha256("\0".join((user, *parts)).encode()).hexdigest()[:40]


class ClientGone(Exception):
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
        raise ClientGone
    return message


def too_large(limit: int) -> HttpError:
    """A 413 that states the limit."""
    return HttpError(
        413,
        "too_large",
        f"the body is over {limit} bytes",
        hint="send fewer jobs at once; keep scripts and data in files",
    )


ONE_BYTES_MAX = 256 * 1024
LIST_BYTES_MAX = 8 * 1024 * 1024
#: Errors that one answer names.
ERRORS_MAX = 100
HINT = "GET /v1/schemas/job shows the fields of a job file"


def is_list(body: bytes) -> bool:
    """Return True if a body is a JSON list, by its first character."""
    return body[:64].lstrip()[:1] == b"["


def check_count(count: int, most: int) -> None:
    """Raises Refused for a list that is empty or too long."""
    if not 0 < count <= most:
        raise invalid([FieldError(field="", message=f"expected 1 to {most} elements, found {count}")])


def refuse_list(errors: list[FieldError], count: int) -> None:
    """Raises Refused where anything is wrong with a list: then all of it is refused."""
    if errors:
        detail = f"{len(errors)} error{'' if len(errors) == 1 else 's'} in a list of {count}; nothing was stored"
        raise invalid(errors[:ERRORS_MAX], detail=detail)


def repeated_key_errors(body: bytes) -> list[FieldError]:
    """Name each key that an object of valid JSON has more than once; decoders silently take the last."""
    return [
        FieldError(field=path, message="this key is given twice; keep one of them")
        for path in repeated_keys(body)[:ERRORS_MAX]
    ]


def errors_at(index: int, errors: list[FieldError]) -> list[FieldError]:
    """Errors of one element, named at its place."""
    return [error_inside(f"[{index}]", error) for error in errors]


def error_inside(where: str, error: FieldError) -> FieldError:
    """An error, named as part of something larger."""
    return FieldError(field=f"{where}.{error.field}" if error.field else where, message=error.message)


def decode_error(error: Exception) -> FieldError:
    """Return the error of a body that cannot be decoded."""
    if isinstance(error, msgspec.MsgspecError):
        return field_error(error)
    return FieldError(field="", message=f"expected JSON in UTF-8 of ordinary depth: {type(error).__name__}")
