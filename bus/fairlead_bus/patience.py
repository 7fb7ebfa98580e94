"""Waiting for a bus that does not answer: repeated calls that report what they wait for.

A cluster of servers elects leaders for several seconds after one of them has died; until then calls fail or time out. A
wait is logged once it is longer than a moment, now and then while it lasts, and when it ends.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from fairlead_bus.port import Unavailable

RETRY_S = 0.2
#: A shorter wait is not logged.
MOMENT_S = 1.0
#: Between two lines about the same wait.
REPEAT_S = 10.0

log = structlog.get_logger()


async def patiently[T](ask: Callable[[], Awaitable[T]], *, limit_s: float | None = None) -> T:
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
