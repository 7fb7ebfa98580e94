"""Requests that wait for something that happens to a job: that it starts, or ends.

A condition is looked at after each batch of commits that the views have folded, so its request goes on at once. The waits are
bounded in number, and each route bounds their time.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire.lifecycle import END_STATES

#: Conditions that are looked at after each batch. Further requests do not wait, or look by themselves.
WAITS_MAX = 2_000
#: States in which a job has come to something: its output can be read, or there will be none.
STARTED_STATES = END_STATES | {"running"}
#: {word of a request: states that end its wait}
UNTIL: dict[str, frozenset[str]] = {"started": STARTED_STATES, "ended": END_STATES}


class JobWaits:
    """The open waits of a gateway."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._open: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def look(self) -> None:
        """Wake the requests whose condition holds now. Called after commits are folded."""
        for future, is_met in [*self._open.items()]:
            if not future.done() and is_met():
                future.set_result(None)

    @contextmanager
    def awaited(self, is_met: Callable[[], bool]) -> "Iterator[asyncio.Future[None]]":
        """Hold a future that is done once the condition holds, unless too many wait: bound the wait, and look again."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if is_met():
            future.set_result(None)
        elif not self.is_full:
            self._open[future] = is_met
        try:
            yield future
        finally:
            self._open.pop(future, None)
            future.cancel()

    @property
    def is_full(self) -> bool:
        """True while no further condition is looked at."""
        return len(self._open) >= WAITS_MAX

    async def until(self, job: str, word: str, wait_s: float) -> None:
        """Wait until a job is in a state of `UNTIL[word]` or has left the views, `wait_s` seconds at most; not at all while too
        many wait.
        """
        if self.is_full:
            return
        rows, states = self._views.jobs.rows, UNTIL[word]

        def is_met() -> bool:
            row = rows.get(job)
            return row is None or row.state in states

        with self.awaited(is_met) as reached:
            await asyncio.wait((reached,), timeout=wait_s)
