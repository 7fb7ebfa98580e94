"""The notifier's process: it follows the log while there are rules, and wakes the destinations that an event concerns.

Without rules it waits for one, and imports and folds nothing. Several notifiers may run: one has the lease, and the others wait. A
second one that sends by mistake does no harm, since ids make repeated messages recognisable. Start at `Notifier.run`.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from fairlead_bus import bus_faults
from fairlead_bus.lease import POLL_S, LeaderLease
from fairlead_bus.main import instance
from fairlead_bus.port import Bus, BusError, LogDamaged
from fairlead_gateway.notify.settings import NotifySettings
from fairlead_gateway.notify.store import RuleStore
from fairlead_schemas.wire import subjects

log = structlog.get_logger()

NAME = "notifier"
#: Threads for look-ups of names and for mail, both of which may hang.
THREADS_MAX = 32
#: Pause after an error of the bus.
RETRY_S = 1.0


class Notifier:
    """The running service; `run` until `stop`. `clock`: Unix ns."""

    def __init__(
        self, bus: Bus, settings: NotifySettings, clock: Callable[[], int] = time.time_ns, name: str = ""
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._clock = clock
        self._name = name or instance()
        self._store = RuleStore(bus)
        self._store.on_change = self._note_change
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()

    def _note_change(self) -> None:
        self._changed.set()

    async def run(self) -> int:
        """Notify until stopped; returns the exit code, 70 for a damaged log."""
        work = [asyncio.create_task(self._store.follow()), asyncio.create_task(self._work())]
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((*work, stopped), return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done():
                    task.result()
            return 0
        except LogDamaged as error:
            return bus_faults.end_service(NAME, error)
        finally:
            for task in (*work, stopped):
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def stop(self) -> None:
        """Let `run` return. Nothing is lost: every place is stored."""
        self._stopping.set()

    async def _work(self) -> None:
        while True:
            while not self._store.rules:
                self._changed.clear()
                await self._changed.wait()
            lease = LeaderLease(self._bus, NAME, self._name)
            while not await lease.try_acquire():  # noqa: ASYNC110 -- the bus reports no end of a lease
                await asyncio.sleep(POLL_S)
            try:
                # Kept from the first moment on: views take their time.
                await _first_of(lease.keep(), self._lead())
            except LogDamaged:
                raise
            except BusError as error:
                log.warning("notifier starts again", reason=str(error))
                await asyncio.sleep(RETRY_S)
            finally:
                with contextlib.suppress(BusError):
                    await lease.release()

    async def _lead(self) -> None:
        """Notify until there are no rules."""
        from fairlead_gateway.notify.dispatch import Dispatch
        from fairlead_gateway.sources.live_views import LiveViews

        live = LiveViews(self._bus, saves=False)
        await live.restore()
        threads = ThreadPoolExecutor(THREADS_MAX, "notify")
        dispatch = Dispatch(self._bus, live, self._store, self._settings, threads, self._clock)
        log.info("notifying", rules=len(self._store.rules))
        served = await self._bus.serve(subjects.rpc(NAME, "test"), dispatch.test)
        try:
            await _first_of(live.run(), dispatch.run(self._changed))
        except KeyError as error:
            raise LogDamaged(live.views.sequence, f"not valid: {error}") from error
        finally:
            await served.close()
            await dispatch.stop()
            threads.shutdown(wait=False, cancel_futures=True)


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run until one of these ends. Raise what it raises."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def build(bus: Bus) -> Notifier:
    """Return the notifier on a connected bus. Raises BadSetting."""
    return Notifier(bus, NotifySettings.from_environment(os.environ))
