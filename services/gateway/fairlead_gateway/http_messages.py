"""Requests as routes read them, and documents as they answer: head, body, idempotency key, lists. The same for every route.

`server/fast_path.py` reads the head once and keeps it in the ASGI scope. Every body is read by `read_body`, which holds
it to its bound and its media type, and decoded by `decode`. A route that takes one thing or a list uses `read_one` and
`read_list`: what is wrong is named at its place, and nothing of a list is taken unless all of it is well formed. Each
raises HttpError. No rules about jobs, nodes or queues.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from fastapi import Request, Response

from fairlead_gateway.access.caller import ANYBODY, OPEN_CALLER, Caller
from fairlead_gateway.errors import JSON, HttpResponse, bad_field, invalid, too_large, wrong_media_type
from fairlead_schemas.policies.idle_file import InvalidPolicies
from fairlead_schemas.queuefile.parse import InvalidQueues
from fairlead_schemas.units import validation
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.type_errors import type_errors
from fairlead_schemas.units.validation import FieldError, InvalidJob, decode_object, field_error, repeated_keys
from fairlead_schemas.wire.authority import Authority

DEFAULT_USER = ANYBODY
KEY_CHARS_MAX = 256
#: Bytes of a body: of a verb, of one job, of a list of jobs.
BODY_BYTES_MAX = 64 * 1024
ONE_BYTES_MAX = 256 * 1024
LIST_BYTES_MAX = 8 * 1024 * 1024
#: Errors that one answer names.
ERRORS_MAX = 100
#: Elements of a list that are read before other requests get the loop.
BREATH = 500
#: Keys in the ASGI scope: the request's head, and how many elements of its list were refused.
HEAD, REFUSED_ELEMENTS = "fairlead.head", "fairlead.refused_elements"

_KEY = re.compile("[ -~]+")

encode = msgspec.json.Encoder().encode
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class RequestHead(NamedTuple):
    """Headers of a request that change something, as they were sent."""

    content_type: bytes = b""
    user: str = DEFAULT_USER
    #: None: no Idempotency-Key was sent.
    key: str | None = None
    length: int = 0
    #: Attributes of a CloudEvent in binary mode, without "ce-".
    event: dict[str, str] | None = None
    #: Sender; `user` is its name.
    caller: Caller = OPEN_CALLER
    #: True where If-Match names a version.
    matched: bool = False

    @property
    def authority(self) -> Authority | None:
        """Right by which a command of this request is sent; None without sign-on."""
        return self.caller.authority()

    def require_valid(self) -> "RequestHead":
        """Raise HttpError (422) for a user or a key that cannot be one."""
        if not is_token(self.user):
            message = 'expected 1 to 63 of a-z 0-9 _ -, such as "ada"'
            raise bad_field("X-Fairlead-User", message)
        if self.key is not None and not (len(self.key) <= KEY_CHARS_MAX and _KEY.fullmatch(self.key)):
            message = f"expected 1 to {KEY_CHARS_MAX} printable ASCII characters, found {len(self.key)}"
            raise bad_field("Idempotency-Key", message)
        return self


def read_head(headers: list[tuple[bytes, bytes]]) -> RequestHead:
    """Read the headers, in one pass."""
    content_type, user, key, length, event, matched = b"", DEFAULT_USER, None, 0, None, False
    for name, value in headers:
        if name == b"content-type":
            content_type = value.partition(b";")[0].strip().lower()
        elif name == b"content-length":
            # Python refuses to read thousands of digits; 20 are more than any bound.
            length = int(value.lstrip(b"0")[:20] or b"0") if value.isdigit() else 0
        elif name == b"x-fairlead-user":
            user = value.decode("latin-1")
        elif name == b"idempotency-key":
            key = value.decode("latin-1").strip()
        elif name == b"if-match":
            matched = value.strip() != b"*"
        elif name[:3] == b"ce-":
            event = {} if event is None else event
            event[name[3:].decode("latin-1")] = unquote(value.decode("latin-1"))
    return RequestHead(content_type, user, key, length, event, matched=matched)


def owned_head(head: RequestHead, caller: Caller) -> RequestHead:
    """Return a head as sent by a known caller, whose name replaces the stated one."""
    return head if caller.is_open else head._replace(user=caller.user, caller=caller)


def head_of(request: Request) -> RequestHead:
    """Return the head of a request that changes something. Raise HttpError (422) for a user or a key that cannot be one."""
    return request.scope[HEAD].require_valid()


def command_key(user: str, kind: str, *parts: str | int | None) -> str:
    """Return the idempotency key of a command: 40 hex digits that are bound to the user and to the kind of request.

    The first part is the key that the client sent; "" where it sent none.
    """
    return hashlib.sha256("\0".join((user, kind, *map(str, parts))).encode()).hexdigest()[:40] if parts[0] else ""


# ---------------------------------------------------------------------------------------- bodies


class ClientGone(Exception):
    """The client closed the connection before its request was complete, so the result is not sent."""


async def read_body(
    head: RequestHead, receive: Any, most: int, media_types: Collection[bytes] = (JSON,), *, may_be_empty: bool = False
) -> bytes:
    """Return the whole body. `may_be_empty`: a body of nothing counts as {}, whatever its media type.

    Raise HttpError (413) as soon as it is known to be longer than `most` bytes, (415) for another media type, and
    ClientGone when it is cut off.
    """
    if head.length > most:
        raise too_large(most)
    message = await _next(receive)
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        pieces, size = [body], len(body)
        while message.get("more_body", False) and size <= most:
            message = await _next(receive)
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
        body = b"".join(pieces)
    if may_be_empty and len(body) <= most and not body.strip():
        return b"{}"
    return check_body(head, body, most, media_types)


def check_body(head: RequestHead, body: bytes, most: int, media_types: Collection[bytes]) -> bytes:
    """Return a complete body. Raise HttpError (413) where it is longer than `most` bytes, (415) for another media type."""
    if len(body) > most:
        raise too_large(most)
    if head.content_type not in media_types:
        raise wrong_media_type(head.content_type, media_types)
    return body


async def _next(receive: Any) -> Any:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message


async def read_json(request: Request, most: int = BODY_BYTES_MAX) -> bytes:
    """Return the body of a verb, b"{}" for an empty one. Raise HttpError."""
    return await read_body(request.scope[HEAD], request.receive, most, may_be_empty=True)


async def read_request[T: msgspec.Struct](request: Request, kind: type[T]) -> T:
    """Return the decoded body of a verb; an empty body counts as {}. Raise HttpError."""
    return read_one(await read_json(request), lambda body: decode(kind, body))


def decode[T: msgspec.Struct](kind: type[T], body: bytes) -> T:
    """Decode JSON strictly. Raise InvalidJob naming every field of a wrong type, and every key that an object has twice: decoders
    silently take the last."""
    try:
        found = msgspec.json.decode(body, type=kind)
        repeated = repeated_keys(body)[:ERRORS_MAX]
    except msgspec.MsgspecError as error:
        raise InvalidJob(
            _type_errors(kind, body) or [field_error(error, known=kind.__struct_encode_fields__)]
        ) from None
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError, and a number of thousands of digits
        message = f"expected JSON in UTF-8, of ordinary depth and numbers: {type(error).__name__}"
        raise InvalidJob([FieldError(field="", message=message)]) from None
    if repeated:
        message = "this key is given twice; keep one of them"
        raise InvalidJob([FieldError(field=path, message=message) for path in repeated])
    return found


def _type_errors(kind: type[msgspec.Struct], body: bytes) -> list[FieldError]:
    """Return all mistakes of type in a body; none where it is no JSON."""
    try:
        return type_errors(decode_object(body), kind)
    except msgspec.MsgspecError:
        return []


def read_file[T](body: bytes, read: Callable[[Any], T], hint: str) -> T:
    """Read a queue file, a policy file or a part of one. Raise HttpError (422) with every mistake."""
    try:
        return read(decode_object(body))
    except msgspec.MsgspecError as error:
        # Of maps within maps a decoder knows the depth at best: "[...][...]" is no path that the file has.
        raise bad_field("", field_error(error).message) from None
    except (InvalidQueues, InvalidPolicies) as error:
        count = len(error.errors)
        detail = "" if count == 1 else f"{count} mistakes; nothing was changed"
        raise invalid(error.errors[:ERRORS_MAX], detail=detail, hint=hint) from None


# ---------------------------------------------------------------------------------------- one thing or a list


def is_list(body: bytes) -> bool:
    """Return True if a body is a JSON list, by its first character."""
    return body[:64].lstrip()[:1] == b"["


def read_one[T](body: bytes, read: Callable[[bytes], T], hint: str = "") -> T:
    """Read a body that contains one thing. `read` may raise InvalidJob. Raise HttpError (413, 422)."""
    if len(body) > ONE_BYTES_MAX:
        raise too_large(ONE_BYTES_MAX)
    try:
        return read(body)
    except InvalidJob as error:
        count = len(error.errors)
        detail = f"{count} mistakes, of which {ERRORS_MAX} are listed" if count > ERRORS_MAX else ""
        raise invalid(error.errors[:ERRORS_MAX], detail=detail, hint=hint) from None


async def read_list[T](body: bytes, most: int, read: Callable[[int, bytes], T]) -> list[T]:
    """Read the elements of a JSON list by their index. `read` may raise InvalidJob. Raise HttpError (422): one error refuses the whole
    list. It is read no further than the answer has room for errors: finding what is wrong costs a hundred times what a right element does.
    """
    try:
        bodies = validation.decode(_raw_list, body)
    except msgspec.MsgspecError as error:
        raise bad_field("", f"expected a JSON list: {error}") from None
    if not 0 < len(bodies) <= most:
        raise bad_field("", f"expected 1 to {most} elements, found {len(bodies)}")
    found: list[T] = []
    errors: list[FieldError] = []
    count = index = 0
    for index, one in enumerate(bodies):
        if index % BREATH == BREATH - 1:
            await asyncio.sleep(0)
        try:
            found.append(read(index, bytes(one)))
        except InvalidJob as error:
            count += len(error.errors)
            errors += (error_inside(f"[{index}]", each) for each in error.errors)
            if len(errors) >= ERRORS_MAX:
                break
    if errors:
        read_to = "" if index == len(bodies) - 1 else f", read as far as element {index}"
        detail = f"{count} error{'' if count == 1 else 's'} in a list of {len(bodies)}{read_to}; nothing was stored"
        raise invalid(errors[:ERRORS_MAX], detail=detail)
    return found


def error_inside(where: str, error: FieldError) -> FieldError:
    """Return an error, named as part of something larger."""
    return FieldError(field=f"{where}.{error.field}" if error.field else where, message=error.message)


# ---------------------------------------------------------------------------------------- answers


class JsonResponse(Response):
    """A document encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def plain_response(response: HttpResponse) -> Response:
    """Return an answer in the form that FastAPI's routes return."""
    headers = {name.decode(): value.decode() for name, value in response.headers}
    return Response(response.body, response.status, headers, response.media_type.decode())
