"""Leftovers of stopped runs and of orphans: processes that have left the group and still carry the run's tag or mark. Many
ends share one look at all processes of the machine. Start at `Sweeper.sweep`.

Runs with a killed spawner: they have no parent here, so they are watched by pidfd. The kernel does not report their
exit status.

Processes that run on this node from its directory without being in any journal. They are ended before the node is
reported as free, since the placer would put other work next to them.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Collection
from typing import NamedTuple

import structlog

from fairlead_agent.core.runs import Exit, RunKey
from fairlead_agent.linux.processes import (
    Tagged,
    end_exactly,
    kill_exactly,
    kill_marked,
    left_by_others,
    open_exactly,
    tagged,
)
from fairlead_agent.runtimes.port import RuntimeUnfit
from fairlead_agent.runtimes.process.spawner_client import Conversation

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


class OrphanWatch:
    """Watch over orphans. `gone` is called at the end of each."""

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


#: They are killed; a process that takes longer to go hangs in the kernel.
STRANGERS_S = 30.0

_log = structlog.get_logger()


class Whose(NamedTuple):
    """Owner of processes: one node's agent in one directory, under one journal."""

    node: str
    incarnation: str
    home: str


async def end_strangers(talk: Conversation, whose: Whose, known: Collection[str]) -> None:
    """All but the runs of these names. Where the directory was moved away, another spawner, there, is the parent of what its agent has
    started: only the tag finds it. Raises RuntimeUnfit where something does not end."""
    strangers: Collection[str] = ()
    try:
        async with asyncio.timeout(STRANGERS_S):
            while strangers := (await talk.listing()).running.keys() - known:
                _log.warning("runs that are in no journal are killed", runs=sorted(strangers))
                for name in strangers:
                    talk.send({"op": "signal", "key": name, "number": signal.SIGKILL})
                await asyncio.sleep(SWEEP_S)
            while left := left_by_others(*whose):
                strangers = [f"{process.run} (process {process.pid})" for process in left]
                _log.warning("processes of an earlier journal are killed", processes=strangers)
                await asyncio.gather(*map(end_exactly, left))
                await asyncio.sleep(SWEEP_S)
    except TimeoutError as error:
        raise RuntimeUnfit(
            f"these run without a journal in {whose.home} and do not end when killed: {', '.join(sorted(strangers))}; "
            "the node cannot be used before they are gone: find out what blocks them, or reboot the node"
        ) from error
