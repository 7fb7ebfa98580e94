"""Questions to the explainer: why a job waits, what would become of one. Without an answer, nothing is known from it."""

import asyncio

import msgspec
import structlog

from fairlead_bus.port import Bus, Unavailable
from fairlead_schemas.queries.explainer import ANSWER_S, Ask, ExplainerAnswer, decode_answer, encode
from fairlead_schemas.wire import subjects

log = structlog.get_logger()

#: A question is given up after so long, however often it was asked.
WAIT_S = ANSWER_S + 2
#: Pause before a question that was answered with `busy` is asked again.
AGAIN_S = 0.2
#: `Answer.error` when no service answered.
AWAY = "away"


class Explaining:
    """Asks, and never fails: an answer without `error`, or one that says why there is none."""

    def __init__(self, bus: Bus, *, wait_s: float = WAIT_S) -> None:
        self._bus = bus
        self._wait_s = wait_s

    async def ask(self, question: Ask) -> ExplainerAnswer:
        """The answer; again and again while it is `busy` and there is time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        answer = ExplainerAnswer(error=AWAY, message="the explainer does not answer")
        while (left_s := deadline - loop.time()) > 0:
            asked = await self._once(question, left_s)
            # No answer in the remaining time says less than an earlier `busy`, so the earlier answer is kept.
            answer = asked if asked.error != AWAY or answer.error == AWAY else answer
            if asked.error != "busy":
                break
            await asyncio.sleep(min(AGAIN_S, left_s))
        return answer

    async def _once(self, question: Ask, timeout_s: float) -> ExplainerAnswer:
        try:
            return decode_answer(await self._bus.request(subjects.ASK, encode(question), timeout_s=timeout_s))
        except Unavailable:
            return ExplainerAnswer(error=AWAY, message="the explainer does not answer")
        except msgspec.MsgspecError as error:
            log.warning("explainer not understood", reason=str(error))
            return ExplainerAnswer(
                error=AWAY, message="the explainer answered what cannot be read; is it of another release?"
            )
