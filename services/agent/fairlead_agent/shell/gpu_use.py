"""Samples of the node's GPUs over time, and the runs that hold each GPU.

Measures the use of GPUs every second while runs have some: for samples, for the memory guard, and for processes
that are left when a run has ended next to neighbours. Holds no rules: `devices/memory_guard.py` does.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

import structlog
from msgspec import structs

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.runs import Emit, RunKey, RunOverShare
from fairlead_agent.devices.memory_guard import GpuUse, Guard, ShareFinding, left_behind, shares, uses
from fairlead_agent.devices.port import Devices, GpuProcess
from fairlead_agent.linux.metering import Metering
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.run_directory import write_note
from fairlead_bus.port import Bus
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.samples import (
    PAYLOAD_BYTES_MAX,
    GpuSample,
    RunResources,
    RunUse,
    SampleBatch,
    encode_fitting,
)

_log = structlog.get_logger()


class GpuUseWatcher:
    """Watcher of the GPUs of one node, and of the runs on them. Emits RunOverShare for a run that uses more than its share."""

    def __init__(
        self,
        core: Reconciler,
        runtime: Runtime,
        devices: Devices,
        *,
        grace_ns: int,
        every_s: float,
        emit: Emit,
    ) -> None:
        self._core, self._runtime, self._devices = core, runtime, devices
        self._guard = Guard(grace_ns)
        self._every_s = every_s
        self._emit = emit
        #: {(run, UUID): use}, of the last look.
        self.uses: dict[tuple[RunKey, str], GpuUse] = {}

    async def run(self) -> None:
        """Measure at every interval, without end. Return at once on a node without GPUs."""
        while self._devices.gpus():
            await asyncio.sleep(self._every_s)
            await self.look()

    async def look(self) -> None:
        """Read once which run uses which GPU, and find runs that use more than their share."""
        running = {run.key for run in self._core.ledger.runs.values() if run.open and run.devices}
        if not running:
            self.uses = {}
            return
        processes = await self._processes()
        self.uses = uses(processes, await self._owners(processes))
        held = shares(self._core.wanted or {}, running)
        memory_mib = {who: use.memory_mib for who, use in self.uses.items()}
        sizes = {gpu.uuid: gpu.memory_mib for gpu in self._devices.gpus()}
        for finding in self._guard.look(held, memory_mib, sizes, time.monotonic_ns()):
            self._tell(finding)

    def _tell(self, finding: ShareFinding) -> None:
        key = finding.share.key
        _log.warning(
            "a run uses more GPU memory than its share",
            what=finding.what,
            job=key.job,
            attempt=key.attempt,
            rank=key.rank,
            gpu=finding.share.gpu,
            used_mib=finding.used_mib,
            share_mib=finding.share.memory_mib,
        )
        word = "stopped: it " if finding.what == "stop" else "warning: this run "
        write_note(self._runtime.output(key)[1], word + finding.message)
        if finding.what == "stop":
            self._emit(RunOverShare(key, finding.message))

    async def left_over(self, run: RunEntry) -> dict[str, str]:
        """Return what an ended run still occupies of its devices, {UUID: evidence}. Neighbours on a shared GPU are no
        evidence.
        """
        evidence = await self._busy(run)
        neighbours = [
            other.key
            for other in self._core.ledger.runs.values()
            if other.key != run.key and other.phase != "clean" and set(other.devices) & set(run.devices)
        ]
        if not evidence or not neighbours:
            return evidence
        processes = await self._processes()
        known = {each.uuid for each in processes}
        unknown = {uuid: words for uuid, words in evidence.items() if uuid not in known}
        owners = await self._owners(processes)
        return unknown | left_behind(run.key, run.devices, processes, owners, neighbours)

    async def _busy(self, run: RunEntry) -> dict[str, str]:
        if not run.devices:
            return {}
        if self._devices.simulated:
            return self._devices.busy(run.devices)
        return await asyncio.to_thread(self._devices.busy, run.devices)

    async def _processes(self) -> list[GpuProcess]:
        if self._devices.simulated:
            return self._devices.processes()
        return await asyncio.to_thread(self._devices.processes)  # a driver may take its time

    async def _owners(self, processes: list[GpuProcess]) -> dict[int, RunKey]:
        return await self._runtime.owners({each.pid for each in processes}) if processes else {}


log = structlog.get_logger()


class GpuSampler:
    """Publisher of one node's GPU samples on the bus. Lossy by design."""

    def __init__(
        self,
        bus: Bus,
        devices: Devices,
        gpu_use: GpuUseWatcher,
        runtime: Runtime,
        node: str,
        incarnation: str,
        every_s: float,
        with_health: Callable[[list[GpuSample]], list[GpuSample]],
        presences: Callable[[Collection[RunKey]], Mapping[RunKey, int]] = lambda _: {},
    ) -> None:
        """`with_health` adds what is known of the GPUs' health; `presences` returns when a person last acted in each run's application."""
        self._presences = presences
        self._bus, self._devices, self._gpu_use, self._every_s = bus, devices, gpu_use, every_s
        self._node, self._incarnation = node, incarnation
        self._runtime, self._metering, self._with_health = runtime, Metering(), with_health
        #: Newest readings of the resources of runs other than GPUs.
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
        """Take the run's devices as in use from here on."""
        for uuid in run.devices:
            self._held.setdefault(uuid, []).append(_name(run))

    def let_go(self, run: RunEntry) -> None:
        """Release the run's GPUs, which are known to be free."""
        for uuid in run.devices:
            runs = self._held.get(uuid, [])
            if _name(run) in runs:
                runs.remove(_name(run))
            if not runs:
                self._held.pop(uuid, None)

    async def run(self) -> None:
        """Measure periodically, without end, and publish each sample. On a node without GPUs no sample is published while no run
        is there.
        """
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
                node=self._node,
                incarnation=self._incarnation,
                n=self.batches,
                at_ns=time.time_ns(),
                gpus=gpus,
                uses=self.uses(),
                resources=self.resources,
                simulated=self._devices.simulated,
            )
            payload, whole = encode_fitting(batch)
            if not whole and not self.cut:
                log.warning("sample is too large for the stream, sent without runs", bytes_max=PAYLOAD_BYTES_MAX)
            self.cut += not whole
            await self._bus.publish(subjects.sample(self._node), payload)

    def uses(self) -> list[RunUse]:
        """Return the GPU use of runs' processes as the driver reported it at the last look."""
        return [
            RunUse(
                uuid=uuid,
                run=f"{key.job}.{key.attempt}",
                rank=key.rank,
                memory_mib=use.memory_mib,
                utilization_pct=use.utilization_pct,
            )
            for (key, uuid), use in self._gpu_use.uses.items()
        ]

    async def _resources(self) -> list[RunResources]:
        programs = self._runtime.programs()
        if not programs:
            return []
        found = await asyncio.to_thread(self._metering.read, programs, contained=self._runtime.name == "docker")
        presences = {(f"{key.job}.{key.attempt}", key.rank): at for key, at in self._presences(programs).items()}
        if not presences:
            return found
        return [structs.replace(each, proxy_ns=presences.get((each.run, each.rank))) for each in found]

    async def _measure(self, holders: dict[str, str]) -> list[GpuSample]:
        if self._devices.simulated:
            return self._devices.sample(holders)
        return await asyncio.to_thread(self._devices.sample, holders)  # a driver may take its time


def _name(run: RunEntry) -> str:
    return f"{run.key.job}.{run.key.attempt}"
