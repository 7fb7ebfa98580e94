"""Questions to the explainer and to the telemetry service, by request on the bus.

The explainer: why a job waits, what would become of one. Without an answer, nothing is known from it. Telemetry: the
answer's bytes; a fault, or no answer, is a 503 unless the route knows better.
"""

import asyncio
from typing import Any

import msgspec
import structlog

from fairlead_bus.port import Bus, Unavailable
from fairlead_gateway.errors import HttpError
from fairlead_schemas.queries.explainer import ANSWER_S, Ask, ExplainerAnswer, decode_answer, encode
from fairlead_schemas.wire import subjects

log = structlog.get_logger()

#: A question is given up after so long, however often it was asked.
WAIT_S = ANSWER_S + 2
#: Pause before a question that was answered with `busy` is asked again.
AGAIN_S = 0.2
#: `Answer.error` when no service answered.
EXPLAINER_AWAY = "away"


class ExplainerClient:
    """Asks, and never fails: an answer without `error`, or one that says why there is none."""

    def __init__(self, bus: Bus, *, wait_s: float = WAIT_S) -> None:
        self._bus = bus
        self._wait_s = wait_s

    async def ask(self, question: Ask) -> ExplainerAnswer:
        """The answer; again and again while it is `busy` and there is time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        answer = ExplainerAnswer(error=EXPLAINER_AWAY, message="the explainer does not answer")
        while (left_s := deadline - loop.time()) > 0:
            newest = await self._once(question, left_s)
            # No answer in the remaining time says less than an earlier `busy`, so the earlier answer is kept.
            answer = newest if newest.error != EXPLAINER_AWAY or answer.error == EXPLAINER_AWAY else answer
            if newest.error != "busy":
                break
            await asyncio.sleep(min(AGAIN_S, left_s))
        return answer

    async def _once(self, question: Ask, timeout_s: float) -> ExplainerAnswer:
        try:
            return decode_answer(await self._bus.request(subjects.ASK, encode(question), timeout_s=timeout_s))
        except Unavailable:
            return ExplainerAnswer(error=EXPLAINER_AWAY, message="the explainer does not answer")
        except msgspec.MsgspecError as error:
            log.warning("explainer not understood", reason=str(error))
            return ExplainerAnswer(
                error=EXPLAINER_AWAY, message="the explainer answered what cannot be read; is it of another release?"
            )


#: Longer than telemetry tries to catch up.
TIMEOUT_S = 30.0
TELEMETRY_AWAY = "telemetry_away"


class TelemetryFault(HttpError):
    """Telemetry has returned an error in place of an answer: 503."""

    def __init__(self, error: dict[str, str]) -> None:
        code = error.get("code", "internal")
        retry_after_s = 1 if code in ("busy", "internal") else 0
        hint = error.get("hint", "")
        super().__init__(503, code, error.get("message", ""), hint=hint, retry_after_s=retry_after_s)


async def ask_telemetry(bus: Bus, verb: str, question: bytes, timeout_s: float = TIMEOUT_S) -> bytes:
    """Return a JSON answer. Raise TelemetryFault, or HttpError (503) where no answer comes."""
    answer = await request_telemetry(bus, verb, question, timeout_s)
    document_of(answer)
    return answer


async def request_telemetry(bus: Bus, verb: str, question: bytes, timeout_s: float = TIMEOUT_S) -> bytes:
    """Return the answer's bytes, whatever they are. Raise HttpError (503) where none comes."""
    try:
        return await bus.request(subjects.rpc("telemetry", verb), question, timeout_s=timeout_s)
    except Unavailable:
        raise HttpError(503, TELEMETRY_AWAY, "the telemetry service does not answer", retry_after_s=5) from None


def document_of(answer: bytes) -> dict[str, Any]:
    """Decode an answer. Raise TelemetryFault, or HttpError (503) for an answer that is no JSON."""
    try:
        document: Any = msgspec.json.decode(answer)
    except msgspec.MsgspecError:
        raise HttpError(503, TELEMETRY_AWAY, "the telemetry service answered something that is no JSON") from None
    if not isinstance(document, dict):
        raise TelemetryFault({"message": "no document"})
    if error := document.get("error"):
        raise TelemetryFault(error)
    return document
