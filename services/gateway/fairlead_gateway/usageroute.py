"""GET /v1/usage: statements of GPU time, as the telemetry service has them."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from fairlead_bus.port import Bus
from fairlead_gateway.answers import encode
from fairlead_gateway.asktelemetry import ask, document_of, fault_of
from fairlead_gateway.problems import Refused, bad_parameter
from fairlead_gateway.reading import Json, answers_with
from fairlead_schemas.queries.telemetry import BYS

Month = Annotated[str, Query(alias="statement", description='A month of UTC, "2026-11"; none: the one that it is.')]
By = Annotated[str, Query(json_schema_extra={"enum": list(BYS)}, description=f"One of {', '.join(BYS)}.")]


def routes(bus: Bus) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    @router.get(
        "/v1/usage", summary="Who had how many GPU-hours of which model in a month, and what they cost",
        responses=answers_with("UsageStatement"),
    )  # fmt: skip
    async def get_usage(month: Month = "", by: By = "user") -> Response:
        if by not in BYS:
            raise bad_parameter("by", f'expected one of {", ".join(BYS)}, found "{by[:40]}"')
        asked = encode({"month": month[:80], "by": by})
        return Json(msgspec.Raw(_checked(await ask(bus, "usage", asked))))

    return router


def _checked(answer: bytes) -> bytes:
    """Return telemetry's statement. Raise the Refused that matches its fault."""
    fault = fault_of(document_of(answer))
    if fault is None:
        return answer
    if fault.code == "bad_request":
        raise bad_parameter("statement", fault.message)
    if fault.code == "too_many":
        raise Refused(422, fault.code, fault.message, hint=fault.hint)
    raise Refused(503, fault.code, fault.message, hint=fault.hint, retry_after_s=1 if fault.code == "busy" else 0)
