"""Background tasks of an agent, and the recurring upkeep of its own directory. Upkeep keeps the lease where the guard
looks, reads output, flushes the journal, and logs when a full disk begins and ends.

The tasks end with the agent, and an error in any of them ends it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from fairlead_agent.core.lease import Lease
from fairlead_agent.files.guard_files import LeaseFile
from fairlead_agent.files.journal import Journal
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.settings import Settings
from fairlead_agent.shell.checkpoint_watcher import CheckpointWatcher
from fairlead_agent.shell.output import OutputShipper

OUTPUT_POLL_S = 0.2
JOURNAL_FLUSH_S = 1.0

_log = structlog.get_logger()


class LeaseKept:
    """The file with the lease, written when that was renewed. `runtime`: its name, by which the guard knows where to look."""

    def __init__(self, settings: Settings, boot_id: str, incarnation: str, runtime: str) -> None:
        self._settings, self._boot_id, self._incarnation, self._runtime = settings, boot_id, incarnation, runtime
        self._file = LeaseFile(settings.directory)
        self._renewed = -1

    def renew(self, renewed_ns: int) -> None:
        """Put it where the guard and the next agent look."""
        if self._renewed != renewed_ns:
            self._renewed, settings = renewed_ns, self._settings
            self._file.write(
                Lease(
                    self._boot_id,
                    settings.node,
                    self._incarnation,
                    self._runtime,
                    renewed_ns,
                    settings.fence_ns,
                    settings.fence_grace_ns,
                    settings.fence_margin_ns,
                )
            )

    def close(self) -> None:
        """The file stays."""
        self._file.close()


class Upkeep:
    """Upkeep of the journal and of what runs write."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        output: OutputShipper,
        checkpoints: CheckpointWatcher,
        runtime: Runtime,
    ) -> None:
        self._directory = str(settings.directory)
        self._journal, self._output, self._checkpoints = journal, output, checkpoints
        self._runtime = runtime
        self._warned_full = False

    async def run(self) -> None:
        """Do the upkeep without end."""
        flushed = time.monotonic()
        while True:
            if self._output.idle:
                await set_or_after(self._output.opened, JOURNAL_FLUSH_S)
            if not self._output.idle:  # its first look comes a moment after it was opened
                await asyncio.sleep(OUTPUT_POLL_S)
            await self._output.poll()
            self._checkpoints.poll()
            if time.monotonic() - flushed >= JOURNAL_FLUSH_S:
                self._journal.flush()
                self._mind_the_disk()
                await self._runtime.look_at_directories()
                flushed = time.monotonic()

    def _mind_the_disk(self) -> None:
        """Nothing is started while the journal's reserve is not there (`RunEventHandler.may_start`)."""
        reserve = self._journal.reserve
        if reserve.short and reserve.take():
            _log.warning("the disk has room again", directory=self._directory)
        elif reserve.short and not self._warned_full:
            _log.critical("the disk is full; nothing is started", directory=self._directory)
        self._warned_full = reserve.short


class Tasks:
    """Set of background tasks. `failed` is called with the error of a task that raised one."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run the work as a background task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self) -> None:
        """Cancel all, and wait for them."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the agent has failed", exc_info=error)
            self._failed(error)


async def set_or_after(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until the event is set or the time is over, and clear it."""
    if not event.is_set():
        timer = asyncio.get_running_loop().call_later(timeout_s, event.set)  # cheaper than a timeout, which cancels
        try:
            await event.wait()
        finally:
            timer.cancel()
    event.clear()
