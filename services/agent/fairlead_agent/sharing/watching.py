"""Looks at who uses the GPUs, every second while runs have some: for samples, for the memory guard, and for what is left
when a run has ended beside neighbours. Holds no rules: `guard.py` and `uses.py` do.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from fairlead_agent.devices.facts import GpuProcess
from fairlead_agent.devices.port import Devices
from fairlead_agent.reconcile import Reconciler
from fairlead_agent.records import RunEntry
from fairlead_agent.run import RunKey
from fairlead_agent.runtimes.notes import write_note
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.sharing.guard import Finding, Guard
from fairlead_agent.sharing.uses import Use, left_behind, shares, uses

_log = structlog.get_logger()


class Watching:
    """The GPUs of one node, and the runs on them. `stop`: called with a run that is to end, and why."""

    def __init__(
        self, core: Reconciler, runtime: Runtime, devices: Devices, *,
        grace_ns: int, every_s: float, stop: Callable[[RunKey, str], None],
    ) -> None:  # fmt: skip
        self._core, self._runtime, self._devices = core, runtime, devices
        self._guard = Guard(grace_ns)
        self._every_s = every_s
        self._stop = stop
        #: {(run, UUID): use}, of the last look.
        self.uses: dict[tuple[RunKey, str], Use] = {}

    async def run(self) -> None:
        """Look for ever; nothing on a node without GPUs."""
        while self._devices.gpus():
            await asyncio.sleep(self._every_s)
            await self.look()

    async def look(self) -> None:
        """Once: who uses what, and who uses more than its share."""
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

    def _tell(self, finding: Finding) -> None:
        key = finding.share.key
        _log.warning(
            "a run uses more GPU memory than its share", what=finding.what, job=key.job, attempt=key.attempt,
            rank=key.rank, gpu=finding.share.gpu, used_mib=finding.used_mib, share_mib=finding.share.memory_mib,
        )  # fmt: skip
        word = "stopped: it " if finding.what == "stop" else "warning: this run "
        write_note(self._runtime.output(key)[1], word + finding.message)
        if finding.what == "stop":
            self._stop(key, finding.message)

    async def left_over(self, run: RunEntry) -> dict[str, str]:
        """What of an ended run still occupies its devices, {UUID: evidence}. Neighbours on a shared GPU are no evidence."""
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
