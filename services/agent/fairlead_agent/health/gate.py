"""The gate: a node takes no work before its preflight has passed, at its join, after a boot, and after a check that has failed.

While it is closed the node's own inventory says so, by the taint `fairlead/preflight:NoSchedule` (as Kubernetes' nodes do while
they start); why, a health report says. The preflight is repeated until it passes.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from fairlead_agent.health.preflight import TAINT, Verdict

#: What passes so soon joins without having been seen closed.
WAIT_S = 1.0
#: Between two tries, at first and at last.
AGAIN_FIRST_S, AGAIN_LAST_S = 2.0, 60.0

_log = structlog.get_logger()


class Gate:
    """Open or closed. `examine`: the full preflight; `changed`: it has opened or closed; `told`: why it stays closed, "" once it
    has passed."""

    def __init__(
        self, examine: Callable[[], Awaitable[Verdict]], changed: Callable[[bool], None], told: Callable[[str], None]
    ) -> None:
        self.closed = False
        self._examine, self._changed, self._told = examine, changed, told
        self._trying: asyncio.Task[None] | None = None

    @property
    def taints(self) -> tuple[str, ...]:
        """What the inventory says of it."""
        return (TAINT,) if self.closed else ()

    def close(self) -> asyncio.Task[None]:
        """No work from here on, until a preflight has passed; what comes of it."""
        if not self.closed:
            self.closed = True
            self._changed(True)
        if self._trying is None or self._trying.done():
            self._trying = asyncio.ensure_future(self._try())
        return self._trying

    async def close_at_join(self) -> None:
        """Closed, and open again before anybody has seen it, where that takes a moment only."""
        await asyncio.wait({self.close()}, timeout=WAIT_S)

    async def _try(self) -> None:
        pause_s = AGAIN_FIRST_S
        while True:
            try:
                failure = (await self._examine()).failure
            except Exception as error:  # noqa: BLE001 -- what cannot be examined has not passed
                _log.exception("the preflight could not be carried out")
                failure = f"the preflight could not be carried out: {error}"
            self._told(failure)
            if not failure:
                self.closed = False
                self._changed(False)
                return
            _log.warning("the preflight has failed", reason=failure, again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(AGAIN_LAST_S, 2 * pause_s)

    async def stop(self) -> None:
        """Try no more."""
        if self._trying is not None:
            self._trying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._trying
