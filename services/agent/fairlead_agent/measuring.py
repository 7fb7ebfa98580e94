"""What the node's GPUs do, moment by moment, and which run holds which of them."""

import asyncio
import time
from collections.abc import Callable

import structlog

from fairlead_agent.devices.port import Devices
from fairlead_agent.records import RunEntry
from fairlead_agent.runtimes.metering import Metering
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.sharing.watching import Watching
from fairlead_bus.port import Bus
from fairlead_schemas import subjects
from fairlead_schemas.sample_columns import PAYLOAD_BYTES_MAX, encode_fitting
from fairlead_schemas.samples import GpuSample, RunResources, RunUse, SampleBatch

log = structlog.get_logger()


class Measuring:
    """Samples of one node, on the bus. Lossy by design."""

    def __init__(
        self,
        bus: Bus,
        devices: Devices,
        watching: Watching,
        runtime: Runtime,
        node: str,
        incarnation: str,
        every_s: float,
        with_health: Callable[[list[GpuSample]], list[GpuSample]],
    ) -> None:
        """`with_health` adds what is known of the GPUs' health."""
        self._bus, self._devices, self._watching, self._every_s = bus, devices, watching, every_s
        self._node, self._incarnation = node, incarnation
        self._runtime, self._metering, self._with_health = runtime, Metering(), with_health
        #: What runs use besides GPUs, newest.
        self.resources: list[RunResources] = []
        #: {UUID: runs that have it, the first first}: a shared one has several.
        self._held: dict[str, list[str]] = {}
        #: Batches that were taken, and those that were too large to be sent whole.
        self.batches = self.cut = 0
        #: The newest one's GPUs, and when (monotonic); () and None before the first.
        self.newest: list[GpuSample] = []
        self.taken_s: float | None = None
        #: {UUID: percent of its time that it computed}, newest.
        self.loads: dict[str, int] = {}

    def hold(self, run: RunEntry) -> None:
        """The run's devices are in use from here on."""
        for uuid in run.devices:
            self._held.setdefault(uuid, []).append(_name(run))

    def let_go(self, run: RunEntry) -> None:
        """They are free, on evidence."""
        for uuid in run.devices:
            runs = self._held.get(uuid, [])
            if _name(run) in runs:
                runs.remove(_name(run))
            if not runs:
                self._held.pop(uuid, None)

    async def run(self) -> None:
        """Measure for ever, and publish what there is: nothing on a node without GPUs while nothing runs there."""
        while True:
            await asyncio.sleep(self._every_s)
            gpus = self._with_health(await self._measure({uuid: runs[0] for uuid, runs in self._held.items()}))
            self.loads = {gpu.uuid: gpu.utilization_pct for gpu in gpus if gpu.utilization_pct is not None}
            self.resources = await self._resources()
            self.newest, self.taken_s = gpus, time.monotonic()
            if not self._devices.gpus() and not self.resources:
                continue
            self.batches += 1
            batch = SampleBatch(
                node=self._node, incarnation=self._incarnation, n=self.batches, at_ns=time.time_ns(),
                gpus=gpus, uses=self.uses(), resources=self.resources, simulated=self._devices.simulated,
            )  # fmt: skip
            payload, whole = encode_fitting(batch)
            if not whole and not self.cut:
                log.warning("sample is too large for the stream, sent without runs", bytes_max=PAYLOAD_BYTES_MAX)
            self.cut += not whole
            await self._bus.publish(subjects.sample(self._node), payload)

    def uses(self) -> list[RunUse]:
        """What the driver says of runs' processes, of the last look."""
        return [
            RunUse(
                uuid=uuid, run=f"{key.job}.{key.attempt}", rank=key.rank, memory_mib=use.memory_mib,
                utilization_pct=use.utilization_pct,
            )
            for (key, uuid), use in self._watching.uses.items()
        ]  # fmt: skip

    async def _resources(self) -> list[RunResources]:
        programs = self._runtime.programs()
        if not programs:
            return []
        return await asyncio.to_thread(self._metering.read, programs, contained=self._runtime.name == "docker")

    async def _measure(self, holders: dict[str, str]) -> list[GpuSample]:
        if self._devices.simulated:
            return self._devices.sample(holders)
        return await asyncio.to_thread(self._devices.sample, holders)  # a driver may take its time


def _name(run: RunEntry) -> str:
    return f"{run.key.job}.{run.key.attempt}"
