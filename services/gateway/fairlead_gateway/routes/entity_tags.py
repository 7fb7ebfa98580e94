"""Entity tags: a document's tag is the log sequence that it is true for.

`If-Match` travels in the command, as the sequence after which nothing may have changed: only the service that decides knows what
came before, other gateways included. `If-None-Match` is answered here. Tags are weak: the same sequence may be shown in other
words, to another caller or at another time. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from fastapi import Request, Response

from fairlead_gateway.errors import HttpError, bad_field
from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.views.rows import OutcomeRow

#: Digits of a log sequence in an entity tag.
SEQUENCE_DIGITS_MAX = 18
_TAGS = re.compile(rf'(?:W/)?"(\d{{1,{SEQUENCE_DIGITS_MAX}}})"')
_LIST = re.compile(r'\s*(?:(?:W/)?"[^"]*"\s*(?:,\s*|\Z))+')
REFUSED = "changed_since"


def entity_tag(sequence: int) -> str:
    """Return the tag of a document that is true for a sequence."""
    return f'W/"{sequence}"'


def unchanged_since(request: Request) -> int | None:
    """Return the sequence that If-Match names, the latest of several; None: nothing is asked. Raise HttpError (422)."""
    value = request.headers.get("if-match", "*").strip()
    if value == "*":
        return None
    found = [int(digits) for digits in _TAGS.findall(value)]
    if not found or not _LIST.fullmatch(value):
        raise bad_field("If-Match", f'expected the ETag of a GET, such as W/"812", found "{value[:40]}"')
    return max(found)


def require_taken(request: Request, parameters: Iterable[Mapping[str, Any]]) -> None:
    """Raise HttpError (422) for an If-Match that the route does not take: the change would be made without what the sender asks for.
    `parameters`: those of the route, as OpenAPI has them.
    """
    stated = request.headers.get("if-match", "*").strip()
    if stated != "*" and not any(each["name"] == "If-Match" for each in parameters):
        raise bad_field("If-Match", "this path does not take it, and nothing was changed; leave the header out")


def key_part(seen: int | None) -> tuple[str, ...]:
    """Return the part of If-Match in what one Idempotency-Key may repeat."""
    return () if seen is None else (str(seen),)


def tagged(
    request: Request, document: msgspec.Struct, sequence: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a document with its entity tag and further headers; 304 for a client that has it."""
    tag = entity_tag(sequence)
    stated = {"etag": tag, **(headers or {})}
    if has_seen(request, tag):
        return Response(status_code=304, headers=stated)
    return JsonResponse(document, headers=stated)


def has_seen(request: Request, tag: str) -> bool:
    """Return True if If-None-Match names the tag."""
    seen = request.headers.get("if-none-match", "")
    return tag.removeprefix("W/") in (each.strip().removeprefix("W/") for each in seen.split(",")) or seen == "*"


def stale_refusal(outcome: OutcomeRow, path: str) -> HttpError:
    """Return the 412 for a command that its service refused because something has changed since. `path`: where it is shown."""
    hint = f"GET {path}, and send the change with its new ETag"
    return HttpError(412, REFUSED, outcome.message, hint=hint)
