"""Answers as values, and errors as RFC 9457 problem+json: what is wrong, which field, what to do next. Nothing else.

Every refusal that reaches a client is an `HttpError`; a route raises it, and `server/` sends its `response`.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from fairlead_schemas.http.api import MissingRight, Problem
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.validation import FieldError, printable

JSON = b"application/json"
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
    410: "Gone",
    412: "Precondition Failed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpResponse(NamedTuple):
    """Status, body and headers, without length, type, request id and sequence."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = JSON
    #: Elements of a list that were refused, although the list as a whole was taken.
    refusals: int = 0


class EarlyAnswer(Exception):
    """Answer that a route raises instead of returning a document."""

    def response(self, request_id: str) -> HttpResponse:
        """Return the answer to the request with this id."""
        raise NotImplementedError


class HttpError(EarlyAnswer):
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
        why: MissingRight | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors or []
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.instance = instance
        self.why = why
        self.headers = headers

    @property
    def title(self) -> str:
        """Status in words."""
        return _TITLES.get(self.status, "Refused")

    def response(self, request_id: str) -> HttpResponse:
        """Return the problem document."""
        problem = Problem(
            type=TYPE_BASE + self.code,
            title=self.title,
            status=self.status,
            detail=self.detail,
            instance=self.instance,
            errors=[{"field": error.field, "message": error.message} for error in self.errors],
            hint=self.hint,
            why=self.why,
            request_id=request_id,
        )
        headers = self.headers
        if self.retry_after_s:
            headers = (*headers, (b"retry-after", b"%d" % self.retry_after_s))
        return HttpResponse(self.status, msgspec.json.encode(problem), headers, MEDIA_TYPE)


def internal_error() -> HttpError:
    """Return the 500 for a request on which the gateway itself failed."""
    return HttpError(500, "internal", "the gateway failed on this request; its log names the request id")


#: Characters of a field's path that an answer repeats.
FIELD_CHARS_MAX = 500


def invalid(errors: list[FieldError], detail: str = "", hint: str = "") -> HttpError:
    """Return a 422 that names its fields. Found words may hold line breaks; an error is one line all the same."""
    errors = [
        FieldError(field=printable(each.field[:FIELD_CHARS_MAX]), message=printable(each.message)) for each in errors
    ]
    first = errors[0] if errors else FieldError(field="", message="not valid")
    summary = detail or (f"{first.field}: {first.message}" if first.field else first.message)
    return HttpError(422, "invalid", printable(summary), errors=errors, hint=hint)


def bad_field(name: str, message: str) -> HttpError:
    """Return a 422 for a field of a body, a header or a query parameter."""
    return invalid([FieldError(field=name, message=message)])


def unknown_choice(name: str, found: str, known: Collection[str]) -> HttpError:
    """Return a 422 for a query parameter that names something that is not there."""
    known_are = f"known are: {', '.join(sorted(known)[:20]) or 'none'}"
    hint = did_you_mean(found, sorted(known)).removeprefix("; ") or known_are
    return invalid([FieldError(field=name, message=f"there is no {name} {found[:80]}")], hint=hint)


def wrong_media_type(found: bytes, expected: Collection[bytes], otherwise: str = "") -> HttpError:
    """Return a 415. Bodies that a browser sends without a preflight request (forms, plain text) are never taken for JSON:
    no web page may submit jobs to a gateway on the visitor's machine. So curl has to set the Content-Type. `otherwise`: what else is
    taken.
    """
    names = [name.decode() for name in expected]
    wanted = " or ".join([*names, otherwise] if otherwise else names)
    return HttpError(
        415,
        "media_type",
        f"expected Content-Type {wanted}, found {found[:80].decode('latin-1') or 'none'}",
        errors=[FieldError(field="Content-Type", message=f"expected {wanted}")],
        hint=f"with curl: -H 'Content-Type: {names[0]}'",
    )


def too_large(limit: int) -> HttpError:
    """Return a 413 that states the limit."""
    hint = "send fewer jobs at once; keep scripts and data in files"
    return HttpError(413, "too_large", f"the body is over {limit} bytes", hint=hint)


def not_found(what: str, name: str, hint: str = "", known: Collection[str] = ()) -> HttpError:
    """Return a 404 for something that has a name. `known`: the names among which the caller probably meant one."""
    return HttpError(404, f"unknown_{what}", f"there is no {what} {name!r}{did_you_mean(name, known)}", hint=hint)


#: {code of a service's refusal: the status that answers it}. Codes that are not listed mean that the present state does
#: not allow a command (409), or that a submitted job cannot be accepted (422).
REFUSALS = {
    "idempotency_conflict": 409,
    "denied": 403,
    "not_found": 404,
    "changed_since": 412,
    **dict.fromkeys(("invalid", "undecodable", "unknown_queue", "not_a_leaf"), 422),
    **dict.fromkeys(("beyond_bounds", "budget_too_small", "too_many"), 422),
    **dict.fromkeys(("bad_code", "bad_name", "bad_nodes", "bad_numbers", "bad_taint", "bad_times"), 422),
}


def rejected(code: str, message: str, field: str = "", *, otherwise: int = 409) -> HttpError:
    """Return the answer to a command that a service refused. `otherwise`: the status of a code that is not in REFUSALS."""
    errors = [FieldError(field=field, message=message)] if field else []
    hint = "use another Idempotency-Key for another job" if code == "idempotency_conflict" else ""
    return HttpError(REFUSALS.get(code, otherwise), code, message, errors=errors, hint=hint)
