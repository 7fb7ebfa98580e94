"""An asyncio event loop whose clock jumps to the next timer: no waiting, no I/O, no threads.

Everything runs in an order that depends on the program alone, so one seed is one history. Must not be given
sockets, executors or signals: it has none.
"""

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any

#: Turns of the loop without the clock moving, after which something is taken to spin.
TURNS_MAX = 100_000


class LoopStalled(RuntimeError):
    """Nothing is ready and no timer is set: the simulated world waits for something that cannot come."""


class _Clock:
    """Selector for asyncio that moves the virtual clock and never waits."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None) -> list[object]:
        """Instead of waiting for I/O, go to the time of the next timer."""
        self._turns = 0 if timeout else self._turns + 1
        if self._turns > TURNS_MAX:
            raise LoopStalled(f"something spins: {TURNS_MAX} turns of the loop at {self._loop.time():.6f} s")
        if timeout is None:
            raise LoopStalled(f"nothing left to happen at {self._loop.time():.6f} s")
        if timeout > 0:
            self._loop.jump()
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """`loop.time()` starts at 0 and moves only when nothing is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _Clock(self)  # asyncio's own name: BaseEventLoop._run_once calls its `select`

    def time(self) -> float:
        """Virtual seconds since the world began."""
        return self._now

    def jump(self) -> None:
        """Go to the next timer."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined] -- asyncio's own timers
        while scheduled and scheduled[0].cancelled():
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 -- as _run_once does
            self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)  # type: ignore[attr-defined] -- as above
        if scheduled:
            self._now = max(self._now, scheduled[0].when())

    def _process_events(self, event_list: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""


def run[T](main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own, from virtual time 0; what it leaves behind is cancelled."""
    loop = VirtualLoop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        try:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            asyncio.set_event_loop(None)
            loop.close()
