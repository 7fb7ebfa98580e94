"""From the end of a run to the word that it is over: its last output is shipped, its GPUs are looked at, and the node itself
after one that failed or was long. What follows from that is the core's to say. Start at `Ending.exited`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from fairlead_agent.devices.port import Devices
from fairlead_agent.guard.told import Told
from fairlead_agent.health.tending import Tending
from fairlead_agent.output import OutputShipper
from fairlead_agent.reconcile import Reconciler
from fairlead_agent.records import RunEntry
from fairlead_agent.run import Exit, RunKey
from fairlead_agent.sharing.watching import Watching

DIRTY_POLL_S = 1.0


class Hears(Protocol):
    """Who is told."""

    def over(self, key: RunKey, exit: Exit, *, clean: bool) -> None:
        """It has ended like this; `clean`: nothing of it is left on its GPUs, and nothing keeps them."""
        ...

    def cleaned(self, run: RunEntry) -> None:
        """Nothing is left on its GPUs any more."""
        ...


class Ending:
    """The ends of one node's runs."""

    def __init__(
        self, core: Reconciler, output: OutputShipper, devices: Devices, watching: Watching, tending: Tending,
        guard_said: Told, hears: Hears, spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:  # fmt: skip
        self._core, self._output, self._devices = core, output, devices
        self._watching, self._tending, self._guard_said = watching, tending, guard_said
        self._hears, self._spawn = hears, spawn
        #: Ended runs after which the node is being looked at.
        self._checking: set[RunKey] = set()

    def exited(self, key: RunKey, exit: Exit) -> None:
        """A run has ended. What needs no waiting for is said at once."""
        exit = self.explained(key, exit)
        run = self._core.ledger.runs.get(key)
        gpus = run.devices if run is not None else ()
        if self._output.silent(key) and (not gpus or (self._devices.simulated and not self._devices.busy(gpus))):
            self._ended(key, exit, clean=True)
        else:
            self._spawn(self._exited(key, exit, run))

    def explained(self, key: RunKey, exit: Exit) -> Exit:
        """The same; or what the guard says, where it has ended the run while this process was dead or stood still."""
        how = self._guard_said.how(key.name)
        return exit._replace(message=how, fenced=True) if how else exit

    async def look_at_what_was_left(self) -> None:
        """For ever: whether GPUs on which something was left are clean by now."""
        while True:
            await asyncio.sleep(DIRTY_POLL_S)
            for run in [run for run in self._core.dirty() if run.key not in self._checking]:
                if not await self._watching.left_over(run):
                    self._hears.cleaned(run)

    async def _exited(self, key: RunKey, exit: Exit, run: RunEntry | None) -> None:
        await self._output.ended(key)
        self._ended(key, exit, clean=run is None or not await self._watching.left_over(run))

    def _ended(self, key: RunKey, exit: Exit, *, clean: bool) -> None:
        exit = self._tending.ended(key, exit)
        if self._tending.wants_check(key, exit, asked=key in self._core.stopping):
            clean = self._check(key) and clean
        self._hears.over(key, exit, clean=clean)

    def _check(self, key: RunKey) -> bool:
        """Look at the node. False: the run's GPUs wait for what comes of it."""
        run = self._core.ledger.runs.get(key)
        gpus = run.gpus if run is not None else ()
        self._checking.add(key)
        self._spawn(self._checked(key, gpus))
        return not gpus or self._devices.simulated

    async def _checked(self, key: RunKey, gpus: tuple[str, ...]) -> None:
        try:
            await self._tending.short(gpus, key)
        finally:
            self._checking.discard(key)
