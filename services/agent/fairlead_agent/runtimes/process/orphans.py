"""Runs whose spawner was killed: nobody's children, they are watched from here by pidfd. How one has ended its kernel tells nobody."""

import asyncio
import os
from collections.abc import Callable

from fairlead_agent.run import RunKey
from fairlead_agent.runtimes.processes import Tagged, open_exactly


class OrphanWatch:
    """`gone` is told of the end of each."""

    def __init__(self, gone: Callable[[RunKey], None]) -> None:
        self._gone = gone
        self._pidfds: dict[RunKey, int] = {}

    def watch(self, key: RunKey, orphan: Tagged) -> bool:
        """From here on; False where it has ended already."""
        pidfd = open_exactly(orphan)
        if pidfd is None:
            return False
        self._pidfds[key] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._ended, key)
        return True

    def close(self) -> None:
        """Watch no more; they run on."""
        for key in list(self._pidfds):
            self._let_go(key)

    def _ended(self, key: RunKey) -> None:
        self._let_go(key)
        self._gone(key)

    def _let_go(self, key: RunKey) -> None:
        pidfd = self._pidfds.pop(key)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
