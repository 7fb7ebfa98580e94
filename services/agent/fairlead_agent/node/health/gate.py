"""Gate of a node: it takes no work until its preflight has passed, after a join, a boot or a failed check. Also the
small file, which may be lost, that keeps the node's health over restarts of its agent.

While it is closed the node's own inventory says so, by the taint `fairlead/preflight:NoSchedule` (as Kubernetes' nodes do while
they start); why, a health report says. The preflight is repeated until it passes.

If the file is lost, the node is examined again; the missing file never counts as good health.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import structlog

from fairlead_agent.node.health.preflight import TAINT, PreflightVerdict

#: What passes so soon joins without having been seen closed.
WAIT_S = 1.0
#: Between two tries, at first and at last.
AGAIN_FIRST_S, AGAIN_LAST_S = 2.0, 60.0

_log = structlog.get_logger()


class Gate:
    """Open or closed. `examine`: the full preflight; `changed`: it has opened or closed; `on_result`: why it stays closed, "" once it
    has passed."""

    def __init__(
        self,
        examine: Callable[[], Awaitable[PreflightVerdict]],
        changed: Callable[[bool], None],
        on_result: Callable[[str], None],
    ) -> None:
        self.closed = False
        self._examine, self._changed, self._on_result = examine, changed, on_result
        self._trying: asyncio.Task[None] | None = None

    @property
    def taints(self) -> tuple[str, ...]:
        """Taints that the inventory gives the node."""
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
            self._on_result(failure)
            if not failure:
                self.closed = False
                self._changed(False)
                return
            _log.warning("the preflight has failed", reason=failure, again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(AGAIN_LAST_S, 2 * pause_s)

    async def stop(self) -> None:
        """Stop retrying the preflight."""
        if self._trying is not None:
            self._trying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._trying


class Kept(msgspec.Struct, kw_only=True):
    """Health state of one boot. After another boot only `gpus` counts."""

    boot_id: str = ""
    #: The preflight was passed, and has not failed since.
    passed: bool = False
    #: The newest record of the kernel's log that was read; -1: none.
    kmsg: int = -1
    #: The most GPUs that this machine was seen to have.
    gpus: int = 0


def load(path: Path, boot_id: str) -> Kept:
    """Return the state kept under this boot; of another boot's state only `gpus` is kept."""
    kept = Kept()
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
    return kept if kept.boot_id == boot_id else Kept(boot_id=boot_id, gpus=kept.gpus)


def save(path: Path, kept: Kept) -> None:
    """Whole or not at all; a disk that refuses is no reason to stop."""
    new = path.with_suffix(".new")
    with contextlib.suppress(OSError):
        new.write_bytes(msgspec.json.encode(kept))
        new.replace(path)
