"""Time for a service: never falls, never stands still, and comes back to the wall clock.

A commit's `at_ns` must not be below the one before. If a wall clock was ahead and is set back, plain `max` would
hold every timer, lease and deadline until it has caught up: an hour, or a year. Here time goes on at half
its pace meanwhile.
"""

import asyncio
from collections.abc import Callable


class SteadyClock:
    """Unix nanoseconds."""

    def __init__(self, wall: Callable[[], int]) -> None:
        self._wall = wall
        self._now = 0
        self._asked_s = 0.0

    def now(self) -> int:
        """The wall clock's time, or later."""
        loop_s = asyncio.get_running_loop().time()
        passed_s, self._asked_s = loop_s - self._asked_s, loop_s
        self._now = max(self._wall(), self._now + int(passed_s * 5e8) if self._now else 0)
        return self._now

    def reach(self, at_ns: int) -> None:
        """A commit bears this time: it is not earlier than that."""
        self._now = max(self.now(), at_ns)
