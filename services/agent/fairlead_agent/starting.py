"""From an order whose acceptance is durable to a program handed to the runtime: the job file is fetched where the order
only names it, and what cannot be started is said. Whether it still may be started is the core's to say."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from fairlead_agent.devices.port import Devices
from fairlead_agent.launch import Place, Unlaunchable, plan, read_program
from fairlead_agent.run import RunKey, key_of
from fairlead_agent.runtimes.port import Runtime
from fairlead_bus.port import Bus, BusError
from fairlead_schemas import subjects
from fairlead_schemas.desired import RunOrder

SPEC_TRIES = 5


class Asked(Protocol):
    """Who says whether a run may start, and hears of one that does not."""

    def may_start(self, key: RunKey) -> bool:
        """Asked whenever time has passed; one that may not is the asked one's to report."""
        ...

    def start_failed(self, key: RunKey, message: str) -> None:
        """It cannot be started, and why."""
        ...


class Starting:
    """Starts runs of one node."""

    def __init__(
        self, bus: Bus, runtime: Runtime, devices: Devices, place: Place, asked: Asked,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:  # fmt: skip
        self._bus, self._runtime, self._devices = bus, runtime, devices
        self._place, self._asked, self._spawn = place, asked, spawn

    def start(self, order: RunOrder) -> None:
        """Start it, now or when its job file is here; or say why not."""
        key = key_of(order)
        if not self._asked.may_start(key):
            return
        there = {each.uuid for gpu in self._devices.gpus() for each in gpu.instances} if order.instances else set[str]()
        if missing := [uuid for uuid in order.instances if uuid not in there]:
            self._asked.start_failed(key, f"this node has no MIG instance {missing[0]}")
        elif order.spec_hash:
            self._spawn(self._fetch_and_start(order))
        else:
            self._launch(order)

    def _launch(self, order: RunOrder) -> None:
        try:
            launch = plan(order, read_program(order.spec), self._place)
        except Unlaunchable as error:
            self._asked.start_failed(key_of(order), str(error))
            return
        self._runtime.start(launch)

    async def _fetch_and_start(self, order: RunOrder) -> None:
        for attempt in range(SPEC_TRIES):
            with contextlib.suppress(BusError):
                spec = await self._bus.get_object(subjects.SPEC, order.spec_hash)
                if spec is not None:
                    self.start(msgspec.structs.replace(order, spec=msgspec.Raw(spec), spec_hash=""))
                    return
            await asyncio.sleep(0.2 * 2**attempt)
        self._asked.start_failed(key_of(order), f"its job file {order.spec_hash} is not in the SPEC store")
