"""Errors in the form of RFC 7644, section 3.12. Clients of SCIM know no other, so every refusal below `/scim/` has it."""

from typing import Literal

import msgspec

from fairlead_gateway.errors import EarlyAnswer, HttpError, HttpResponse

MEDIA_TYPE = b"application/scim+json"
PREFIX = "/scim/"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"

type ScimType = Literal[
    "",
    "invalidFilter",
    "invalidPath",
    "invalidSyntax",
    "invalidValue",
    "mutability",
    "noTarget",
    "tooMany",
    "uniqueness",
]


class ScimError(HttpError):
    """Refusal with a detail code of RFC 7644, section 3.12."""

    def __init__(self, status: int, scim_type: ScimType, detail: str) -> None:
        super().__init__(status, "scim", detail)
        self.scim_type = scim_type


def bad_value(detail: str) -> ScimError:
    """Return the 400 of a value that an attribute cannot have."""
    return ScimError(400, "invalidValue", detail)


def error_answer(path: str, early: EarlyAnswer, request_id: str) -> HttpResponse:
    """Return what answers a request for a path that is not carried out."""
    if not path.startswith(PREFIX) or not isinstance(early, HttpError):
        return early.response(request_id)
    return scim_response(early, request_id)


def scim_response(error: HttpError, request_id: str) -> HttpResponse:
    """Return an error in the form of SCIM. Its status is 400 where the gateway's own is 422, which SCIM does not know."""
    scim_type = error.scim_type if isinstance(error, ScimError) else "invalidValue" if error.status == 422 else ""
    status = 400 if error.status == 422 else error.status
    detail = f"{error.detail}; {error.hint}" if error.hint else error.detail
    document = {"schemas": [ERROR], "status": str(status), "detail": f"{detail} (request {request_id})"}
    if scim_type:
        document["scimType"] = scim_type
    headers = error.headers
    if error.retry_after_s:
        headers = (*headers, (b"retry-after", b"%d" % error.retry_after_s))
    return HttpResponse(status, msgspec.json.encode(document), headers, MEDIA_TYPE)
