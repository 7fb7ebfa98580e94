"""Shared part of a simulated world: its seed, its faults, its server, its clock, and the future that ends it.

Services, machines and people are built on it; it knows none of them.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from fairlead_bus.memory import MemoryHub
from fairlead_replay.sim.faults import Faults
from fairlead_schemas.units.timestamps import SECOND_NS

#: Unix time at which every simulated world begins (2025-01-01).
EPOCH_NS = 1_735_689_600 * SECOND_NS


class SimContext:
    """State and means that all parts of one world share. `bus` makes a client on the bad network."""

    def __init__(self, seed: int, bus: Callable[..., Any]) -> None:
        self.seed = seed
        self.faults = Faults(seed)
        #: By how much the clock of the head machine is wrong: of the server's, and of every service's.
        self.skew_ns = 0
        self.hub = MemoryHub(clock=self.wall_ns)
        self.wire = self.hub.connect()
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bus = bus
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self) -> Any:
        """A new client on the bad network."""
        return self._bus(self.hub, self.wire, self.faults)

    def wall_ns(self) -> int:
        """The wall clock of the head machine."""
        return EPOCH_NS + int(asyncio.get_running_loop().time() * 1e9) + self.skew_ns

    def fail(self, error: BaseException) -> None:
        """The first thing that is wrong ends the world."""
        if not self.broken.done():
            self.broken.set_exception(error)

    def judge(self, check: Callable[[], None]) -> None:
        """Run a check; what it raises ends the world."""
        try:
            check()
        except Exception as error:  # noqa: BLE001 -- whatever is raised is a finding
            self.fail(error)

    def later(self, delay_s: float, what: Callable[[], None]) -> None:
        """Do something after a while."""
        asyncio.get_running_loop().call_later(delay_s, what)

    def spawn(self, work: Any) -> None:
        """Run an awaitable in the background; its failure ends the world."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 -- whatever is raised is a finding
                self.fail(error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
