"""Waiting for a bus that does not answer: repeated calls that report what they wait for; and ends of services upon damaged
streams: exit codes that supervisors know, and one form of log line.

A cluster of servers elects leaders for several seconds after one of them has died; until then calls fail or time out. A
wait is logged once it is longer than a moment, now and then while it lasts, and when it ends.

A service that finds its log damaged must not be started again: it would find the same. One that cannot trust the
stream of commands is started again with a pause, because the stream can be mended while the cluster runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import structlog

from fairlead_bus.port import STALE_S, Bus, CommandsLost, LogDamaged, StreamState, Unavailable
from fairlead_schemas.wire.commit import NewerLevel, OtherLogFormat
from fairlead_schemas.wire.conditions import EXIT_COMMANDS_LOST, EXIT_DAMAGED, EXIT_NEWER, Condition, ConditionCode

RETRY_S = 0.2
#: A shorter wait is not logged.
MOMENT_S = 1.0
#: Between two lines about the same wait.
REPEAT_S = 10.0

log = structlog.get_logger()


async def retry_until_available[T](ask: Callable[[], Awaitable[T]], *, limit_s: float | None = None) -> T:
    """The answer to a call that changes nothing or may be repeated. Raises what `ask` raises; Unavailable only after
    `limit_s` seconds (None: never)."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    report_at = began + MOMENT_S
    reported = False
    while True:
        try:
            answer = await ask()
        except Unavailable as error:
            now = loop.time()
            if limit_s is not None and now - began >= limit_s:
                raise
            if now >= report_at:
                log.warning("waiting for the bus", waited_s=round(now - began, 1), reason=str(error))
                report_at, reported = now + REPEAT_S, True
        else:
            if reported:
                log.info("the bus answers again", waited_s=round(loop.time() - began, 1))
            return answer
        await asyncio.sleep(RETRY_S)


async def state_reaching(bus: Bus, stream: str, sequence: int) -> StreamState:
    """The state of a stream that is known to reach `sequence`. Raises Unavailable.

    Of a stream with several copies, a server that was cut off, or that has only just been elected, may say less than there is. Before
    anybody calls that a loss, it is asked again for STALE_S.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    while True:
        state = await bus.state(stream)
        if state.last >= sequence or state.copies == 1 or clock() - began >= STALE_S:
            return state
        await asyncio.sleep(RETRY_S)


#: Errors that end a service by `end`.
DAMAGES = (LogDamaged, CommandsLost)


def condition_of(error: BaseException | None) -> Condition | None:
    """Return the condition that corresponds to an error, None for every other error."""
    if isinstance(error, LogDamaged):
        return Condition(code=_code_of(error.__cause__), message=str(error))
    if isinstance(error, CommandsLost):
        return Condition(code="commands_lost", message=str(error))
    return None


def _code_of(cause: BaseException | None) -> ConditionCode:
    if isinstance(cause, NewerLevel):
        return "log_newer"
    return "log_format" if isinstance(cause, OtherLogFormat) else "log_damaged"


#: Exit codes of services that end by `end_service`, where they differ from EXIT_DAMAGED.
EXIT_CODES: dict[ConditionCode, int] = {"commands_lost": EXIT_COMMANDS_LOST, "log_newer": EXIT_NEWER}


def first_error(error: BaseException) -> BaseException:
    """Return the first error within nested groups that is no group itself."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    return error


def end_service(service: str, error: BaseException) -> int:
    """Log why a service ends, in the form that `fairlead up` reads, and return its exit code. Raises the error where
    it is no damage."""
    condition = condition_of(error)
    if condition is None:
        raise error
    words = {
        "log_damaged": "log damaged, stopped",
        "log_format": "log of another format, stopped",
        "log_newer": "log of a newer level, stopped",
        "commands_lost": "commands lost, stopped",
    }[condition.code]
    log.critical(words, service=service, condition=condition.code, reason=condition.message, hint=condition.hint())
    return EXIT_CODES.get(condition.code, EXIT_DAMAGED)
