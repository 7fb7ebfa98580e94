"""What the node's GPUs do, moment by moment, and which run holds which of them."""

import asyncio
import time

from fairlead_agent.devices.port import Devices
from fairlead_agent.records import RunEntry
from fairlead_bus.port import Bus
from fairlead_schemas import subjects
from fairlead_schemas.samples import GpuSample, SampleBatch, encode_samples


class Measuring:
    """Samples of one node, on the bus. Lossy by design."""

    def __init__(self, bus: Bus, devices: Devices, node: str, incarnation: str, every_s: float) -> None:
        self._bus, self._devices, self._every_s = bus, devices, every_s
        self._node, self._incarnation = node, incarnation
        self._holders: dict[str, str] = {}
        self._count = 0

    def hold(self, run: RunEntry) -> None:
        """The run's devices are in use from here on."""
        for uuid in run.devices:
            self._holders[uuid] = f"{run.key.job}.{run.key.attempt}"

    def let_go(self, run: RunEntry) -> None:
        """They are free, on evidence."""
        for uuid in run.devices:
            self._holders.pop(uuid, None)

    async def run(self) -> None:
        """Measure and publish for ever; nothing on a node without GPUs."""
        while self._devices.gpus():
            await asyncio.sleep(self._every_s)
            gpus = await self._measure(dict(self._holders))
            self._count += 1
            batch = SampleBatch(
                node=self._node, incarnation=self._incarnation, n=self._count, at_ns=time.time_ns(),
                gpus=gpus, simulated=self._devices.simulated,
            )  # fmt: skip
            await self._bus.publish(subjects.sample(self._node), encode_samples(batch))

    async def _measure(self, holders: dict[str, str]) -> list[GpuSample]:
        if self._devices.simulated:
            return self._devices.sample(holders)
        return await asyncio.to_thread(self._devices.sample, holders)  # a driver may take its time
