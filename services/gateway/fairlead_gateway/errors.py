"""Errors as RFC 9457 problem+json: what is wrong, which field, what to do next. Nothing else.

Every refusal that reaches a client is one of these; a handler raises `Refused` and the door answers.
"""

from collections.abc import Collection
from difflib import get_close_matches

import msgspec

from fairlead_schemas.http.api import Problem
from fairlead_schemas.units.validation import FieldError, printable

MEDIA_TYPE = b"application/problem+json"
TYPE_BASE = "urn:fairlead:problem:"

_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpError(Exception):
    """A request that is not carried out; carries everything that the answer says."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: list[FieldError] | None = None,
        hint: str = "",
        retry_after_s: int = 0,
        instance: str = "",
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors or []
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.instance = instance

    @property
    def title(self) -> str:
        """The status in words."""
        return _TITLES.get(self.status, "Refused")

    def body(self, request_id: str) -> bytes:
        """The problem document."""
        return msgspec.json.encode(
            Problem(
                type=TYPE_BASE + self.code,
                title=self.title,
                status=self.status,
                detail=self.detail,
                instance=self.instance,
                errors=[{"field": error.field, "message": error.message} for error in self.errors],
                hint=self.hint,
                request_id=request_id,
            )
        )

    def headers(self, request_id: str, sequence: int) -> list[tuple[bytes, bytes]]:
        """Return all response headers except the length."""
        headers = [
            (b"content-type", MEDIA_TYPE),
            (b"x-request-id", request_id.encode()),
            (b"x-fairlead-sequence", b"%d" % sequence),
        ]
        if self.retry_after_s:
            headers.append((b"retry-after", b"%d" % self.retry_after_s))
        return headers


def invalid(errors: list[FieldError], detail: str = "", hint: str = "") -> HttpError:
    """Return a 422 that names its fields. Found words may hold line breaks; an error is one line all the same."""
    errors = [FieldError(field=printable(each.field), message=printable(each.message)) for each in errors]
    first = errors[0] if errors else FieldError(field="", message="not valid")
    told = detail or (f"{first.field}: {first.message}" if first.field else first.message)
    return HttpError(422, "invalid", printable(told), errors=errors, hint=hint)


def bad_parameter(name: str, message: str) -> HttpError:
    """A 422 for a query parameter."""
    return invalid([FieldError(field=name, message=message)])


def unknown_choice(name: str, found: str, known: Collection[str]) -> HttpError:
    """Return a 422 for a query parameter that names something that is not there."""
    close = get_close_matches(found, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(sorted(known)[:20]) or 'none'}"
    return invalid([FieldError(field=name, message=f"there is no {name} {found[:80]}")], hint=hint)


def wrong_media_type(found: str, *expected: str) -> HttpError:
    """Return a 415. Bodies that a browser sends without a preflight request (forms, plain text) are never taken for JSON:
    no web page may submit jobs to a gateway on the visitor's machine. So curl has to set the Content-Type.
    """
    names = " or ".join(expected)
    return HttpError(
        415,
        "media_type",
        f"expected Content-Type {names}, found {found[:80] or 'none'}",
        errors=[FieldError(field="Content-Type", message=f"expected {names}")],
        hint=f"with curl: -H 'Content-Type: {expected[0]}'",
    )


def not_found(what: str, name: str, hint: str = "") -> HttpError:
    """A 404 for something that has a name."""
    return HttpError(404, f"unknown_{what}", f"there is no {what} {name!r}", hint=hint)


#: Codes of rejections that are a conflict with what is there, and those that name something unknown.
_CONFLICTS = frozenset({"idempotency_conflict"})


def rejected(code: str, message: str, field: str = "", *, submit: bool) -> HttpError:
    """The answer to a command that a service refused: 422 for what a submit asked, 409 for a state that
    does not allow it, 404 for something unknown."""
    errors = [FieldError(field=field, message=message)] if field else []
    if code in _CONFLICTS:
        return HttpError(409, code, message, errors=errors, hint="use another Idempotency-Key for another job")
    if submit or code in {"invalid", "undecodable", "unknown_queue", "not_a_leaf"}:
        return HttpError(422, code, message, errors=errors)
    return HttpError(404 if code == "not_found" else 409, code, message, errors=errors)
