"""Streams that end with their caller's right: rights are looked at again while a stream is open.

A stream is looked at whenever it has something to send, and at least every `LOOK_S`, so that it ends some seconds after the
revocation is in the log, also where nothing else happens. Start at `while_allowed`.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import BLIND_STREAMS_S, Callers

#: Seconds between two looks at a stream that is silent.
LOOK_S = 2.0


def end_of(callers: Callers, caller: Caller, may_still: Callable[[], bool]) -> Callable[[], str]:
    """Return a function that returns the reason why a caller's stream must end now, "" while it may go on."""

    def ended() -> str:
        if callers.blind_s() > BLIND_STREAMS_S:
            return "behind_log"
        return callers.ended(caller) or ("" if may_still() else "right_revoked")

    return ended


async def while_allowed(
    chunks: AsyncIterator[bytes], ended: Callable[[], str], last_words: Callable[[str], bytes]
) -> AsyncGenerator[bytes]:
    """Yield what `chunks` yields until `ended` returns a reason, then `last_words` of that reason."""
    pulling: asyncio.Task[bytes | None] | None = None
    try:
        while True:
            if reason := ended():
                yield last_words(reason)
                return
            pulling = pulling or asyncio.create_task(_next(chunks))
            done, _ = await asyncio.wait((pulling,), timeout=LOOK_S)
            if not done:
                continue
            finished, pulling = pulling, None
            chunk = finished.result()
            if chunk is None:
                return
            if not ended():  # it was made with earlier rights
                yield chunk
    finally:
        if pulling is not None:
            pulling.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await pulling
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
