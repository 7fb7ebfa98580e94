"""Questions to the telemetry service, by request on the bus: the answer's bytes, or why there is none."""

from typing import Any, NamedTuple

import msgspec

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.problems import Refused
from fairlead_schemas.wire import subjects

#: Longer than telemetry tries to catch up.
TIMEOUT_S = 30.0
AWAY = "telemetry_away"


class Fault(NamedTuple):
    """Error that telemetry returns in place of an answer."""

    code: str
    message: str
    hint: str


async def ask(bus: Bus, verb: str, question: bytes, timeout_s: float = TIMEOUT_S) -> bytes:
    """The answer, whatever it says. Raises Refused (503) where none comes."""
    try:
        return await bus.request(subjects.rpc("telemetry", verb), question, timeout_s=timeout_s)
    except Unavailable:
        raise Refused(503, AWAY, "the telemetry service does not answer", retry_after_s=5) from None


def document_of(answer: bytes) -> dict[str, Any]:
    """A JSON answer. Raises Refused (503) on what is none."""
    try:
        document: Any = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        raise Refused(503, AWAY, "the telemetry service answered something that is no JSON") from None
    return document if isinstance(document, dict) else {"error": {"message": "no document"}}


def fault_of(document: dict[str, Any]) -> Fault | None:
    """Return the fault that a document describes; None where it is an answer."""
    error: Any = document.get("error")
    return Fault(error.get("code", "internal"), error.get("message", ""), error.get("hint", "")) if error else None
