"""What is left of stopped runs and of orphans: processes that have left the group and carry the run's tag or mark still. Many
ends share one look at all processes of the machine. Start at `Sweeper.sweep`."""

import asyncio
from collections.abc import Callable

from fairlead_agent.run import Exit, RunKey
from fairlead_agent.runtimes.processes import kill_exactly, kill_marked, tagged

#: It is looked for this often, and so many times.
SWEEP_S = 0.02
SWEEPS = 250


class Sweeper:
    """Kills what is left, then tells of the run's end: when nothing is left, or has not gone after all looks."""

    def __init__(self, prefix: str, ended: Callable[[RunKey, Exit], None]) -> None:
        self._prefix, self._ended = prefix, ended
        #: By the run's name: how it ended, its mark, and how many looks are left.
        self.left: dict[str, tuple[RunKey, Exit, int, int]] = {}
        self._next: asyncio.TimerHandle | None = None

    def sweep(self, key: RunKey, exit: Exit, mark: int = 0) -> None:
        """The run's program has ended, after a stop or as an orphan. `mark`: of its processes; 0 where it is not known."""
        self.left[key.name] = (key, exit, mark, SWEEPS)
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(0, self._look)

    def close(self) -> None:
        """Look no more."""
        if self._next is not None:
            self._next.cancel()

    def _look(self) -> None:
        alive: set[str] = set()
        for process in tagged(self._prefix):
            if process.run in self.left:
                kill_exactly(process)
                alive.add(process.run)
        ended = self.left
        marks = {mark: name for name, (_, _, mark, _) in ended.items()}
        alive |= {marks[mark] for mark in kill_marked(marks)}
        self.left = {
            name: (key, exit, mark, more - 1)
            for name, (key, exit, mark, more) in ended.items()
            if name in alive and more
        }
        self._next = asyncio.get_running_loop().call_later(SWEEP_S, self._look) if self.left else None
        for name, (key, exit, *_) in ended.items():
            if name not in self.left:
                self._ended(key, exit)
