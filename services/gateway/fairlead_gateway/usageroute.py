"""GET /v1/usage: statements of GPU time, as the telemetry service has them."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.answers import encode
from fairlead_gateway.problems import Refused, bad_parameter
from fairlead_gateway.reading import Json, answers_with
from fairlead_schemas import subjects
from fairlead_schemas.usage import BYS

#: Longer than telemetry tries to catch up.
TIMEOUT_S = 30.0

Month = Annotated[str, Query(alias="statement", description='A month of UTC, "2026-11"; none: the one that it is.')]
By = Annotated[str, Query(description=f"One of {', '.join(BYS)}.")]


def routes(bus: Bus) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    @router.get(
        "/v1/usage", summary="Who had how many GPU-hours of which model in a month, and what they cost",
        responses=answers_with("UsageStatement"),
    )  # fmt: skip
    async def usage(month: Month = "", by: By = "user") -> Response:
        if by not in BYS:
            raise bad_parameter("by", f'expected one of {", ".join(BYS)}, found "{by[:40]}"')
        asked = encode({"month": month[:80], "by": by})
        try:
            answer = await bus.request(subjects.rpc("telemetry", "usage"), asked, timeout_s=TIMEOUT_S)
        except Unavailable:
            raise Refused(503, "telemetry_away", "the telemetry service does not answer", retry_after_s=5) from None
        return Json(msgspec.Raw(_checked(answer)))

    return router


def _checked(answer: bytes) -> bytes:
    """Telemetry's statement, or the Refused that its error stands for."""
    try:
        document: Any = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        raise Refused(503, "telemetry_away", "the telemetry service answered something that is no JSON") from None
    error = document.get("error")
    if not error:
        return answer
    code, message, hint = error["code"], error["message"], error["hint"]
    if code == "bad_request":
        raise bad_parameter("statement", message)
    if code == "too_many":
        raise Refused(422, code, message, hint=hint)
    raise Refused(503, code, message, hint=hint, retry_after_s=1 if code == "busy" else 0)
