"""Played GPUs: the shape of a known machine without the machine. Everything says that it is simulated.

Without a script, utilisation is high with a slow wave while a run holds the GPU, zero otherwise. A script (`script.py`,
played by `scenario.py`) says what else happens; programs may say what they use themselves (`simulated_use.py`).
"""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from fairlead_agent.devices.port import DevicesUnfit, GpuHealth, GpuProcess, Xid
from fairlead_agent.devices.profiles import played_inside, profile_named
from fairlead_agent.devices.repartition import SimulatedCutter, carry_out
from fairlead_agent.devices.scenario import Stage
from fairlead_agent.devices.script import BadScript, Moment, healthy, left_behind, lost, measured, running
from fairlead_agent.devices.simulated_meters import IDLE_MIB, PlayedMeters, instance_samples, shown
from fairlead_agent.devices.simulated_use import ReportedUse
from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.resources import Gpu, NodeTopology
from fairlead_schemas.wire.samples import GpuSample


class SimulatedDevices:
    """The GPUs of one profile, played."""

    name = "simulated"
    simulated = True

    def __init__(
        self,
        node: str,
        profile: str,
        clock: Callable[[], float] = time.monotonic,
        kept: Path | None = None,
        *,
        script: Path | None = None,
        reports: Path | None = None,
    ) -> None:
        """`kept`: a file in which the played GPUs stay cut over restarts of the agent, as real ones do. `script`: what is
        played. `reports`: a directory in which programs say what they use. Raises DevicesUnfit."""
        self.profile = profile_named(profile)
        self._clock = clock
        self._kept = kept
        self._gpus = _cut_before(self.profile.gpus(node), kept)
        self._inside = played_inside(profile)
        try:
            self._stage = Stage(len(self._gpus), script, clock)
        except (OSError, BadScript) as error:
            raise DevicesUnfit(f"FAIRLEAD_SIMULATION: {script} cannot be played: {error}") from error
        self._meters = PlayedMeters()
        self._reported = ReportedUse(reports, {gpu.uuid: gpu.memory_mib for gpu in self._gpus})
        #: Profiles of MIG instances that the played driver refuses to make.
        self.refused: set[str] = set()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the profile's GPUs with their most recent MIG layout."""
        return self._gpus

    def inside(self) -> NodeTopology:
        """The profile's."""
        return self._inside

    def labels(self) -> dict[str, str]:
        """GPU feature discovery's, and that they are simulated."""
        return self.profile.labels(self._gpus, self._inside)

    def environment(self, order: RunOrder, *, contained: bool) -> dict[str, str]:
        """Return the environment with which a run can report its GPU use; empty for a run without GPUs or in a container."""
        return self._reported.environment() if order.gpus and not contained else {}

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        """Simulated values in plausible ranges, not measured. A lost GPU is left out."""
        self._stage.look()
        self._stage.held({gpu.index: holders.get(gpu.uuid, "") for gpu in self._gpus})
        moments = [self._stage.moment(gpu.index) for gpu in self._gpus]
        used, busy = self._used(), self._busy()
        memory_mib = self._memory_by_instance()
        samples: list[GpuSample] = []
        for gpu, moment in zip(self._gpus, moments, strict=True):
            if not lost(self._stage.script, gpu.index, moment):
                run = holders.get(gpu.uuid, "")
                samples.append(self._play(gpu, run, moment, used.get(gpu.uuid, 0), busy.get(gpu.uuid)))
                samples += instance_samples(gpu, holders, memory_mib, round(88 + 8 * self._wave(gpu)))
        return samples

    def _wave(self, gpu: Gpu) -> float:
        return math.sin(self._clock() / 20 + gpu.index)

    def _memory_by_instance(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in self.processes():
            found[each.uuid] = found.get(each.uuid, 0) + (each.memory_mib or 0)
        return found

    def _play(self, gpu: Gpu, run: str, moment: Moment, used_mib: int, busy_pct: int | None) -> GpuSample:
        fields = shown(gpu, run, self._wave(gpu))
        if busy_pct is not None:
            fields |= {
                "utilization_pct": busy_pct,
                "power_mw": 55_000 + 2_000 * busy_pct,
                "temperature_c": 32 + busy_pct // 4,
            }
        if used_mib:
            fields["memory_used_mib"] = min(gpu.memory_mib, IDLE_MIB + used_mib)
        scripted = measured(self._stage.script, gpu.index, moment)
        linked = bool(self._inside.nvlinks) and any(self._inside.nvlinks[gpu.index])
        fields |= self._meters.of(gpu, fields | scripted, self._clock(), linked=linked) | scripted
        return GpuSample(uuid=gpu.uuid, parent="", run=run, **fields)

    def _busy(self) -> dict[str, int]:
        """{UUID: percent} of GPUs of which a program says how busy it keeps them."""
        busy: dict[str, int] = {}
        of = {each.uuid: gpu.uuid for gpu in self._gpus for each in (gpu, *gpu.instances)}
        for each in self._reported.processes(set(of)):
            if each.utilization_pct is not None:
                busy[of[each.uuid]] = min(100, busy.get(of[each.uuid], 0) + each.utilization_pct)
        return busy

    def _used(self) -> dict[str, int]:
        """Return {UUID: MiB} of GPUs with use reported by a process or set by the script, leftover memory included."""
        used: dict[str, int] = {}
        of = {each.uuid: gpu.uuid for gpu in self._gpus for each in (gpu, *gpu.instances)}
        for each in self.processes():
            used[of[each.uuid]] = used.get(of[each.uuid], 0) + (each.memory_mib or 0)
        for gpu in self._gpus:
            if zombie := left_behind(self._stage.script, gpu.index, self._stage.ended(gpu.index)):
                used[gpu.uuid] = used.get(gpu.uuid, 0) + zombie
        return used

    def health(self) -> list[GpuHealth]:
        """Return the health of all GPUs: well, except for the script's faults."""
        self._stage.look()
        return [healthy(self._stage.script, gpu.index, self._stage.moment(gpu.index), _well(gpu)) for gpu in self._gpus]

    def xids(self) -> list[Xid]:
        """The script's."""
        self._stage.look()
        return [Xid(uuid=gpu.uuid, code=code) for gpu in self._gpus for code in self._stage.xids(gpu.index)]

    def processes(self) -> list[GpuProcess]:
        """The script's, and those that say themselves what they use."""
        return self._processes_on(self._gpus)

    def _processes_on(self, gpus: Collection[Gpu]) -> list[GpuProcess]:
        """Return the processes on these GPUs and their instances: the end of each run asks about its own only."""
        self._stage.look()
        found = self._reported.processes({each.uuid for gpu in gpus for each in (gpu, *gpu.instances)})
        gone: set[str] = set()
        for gpu in gpus:
            moment = self._stage.moment(gpu.index)
            if lost(self._stage.script, gpu.index, moment):
                gone |= {each.uuid for each in (gpu, *gpu.instances)}
            found += [
                GpuProcess(uuid=gpu.uuid, pid=pid, memory_mib=mib, utilization_pct=percent)
                for pid, mib, percent in running(self._stage.script, gpu.index, moment)
            ]
        return sorted((each for each in found if each.uuid not in gone), key=lambda each: (each.uuid, each.pid))

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        """Return {UUID: evidence} of the GPUs that are still in use.

        A simulated GPU is free once its run has ended, except for processes known on it and for memory that the script leaves
        behind. A GPU of another node is not known to be free.
        """
        if not uuids:
            return {}
        home = {each.uuid: gpu for gpu in self._gpus for each in (gpu, *gpu.instances)}
        asked = {gpu.index: gpu for uuid in uuids if (gpu := home.get(uuid)) is not None}
        on: dict[str, list[int]] = {}
        for each in self._processes_on(asked.values()):
            on.setdefault(each.uuid, []).append(each.pid)
        found = {uuid: self._occupied(home.get(uuid), on.get(uuid, [])) for uuid in uuids}
        return {uuid: evidence for uuid, evidence in found.items() if evidence}

    def _occupied(self, gpu: Gpu | None, pids: list[int]) -> str:
        if gpu is None:
            return "this node has no such GPU"
        script, stage = self._stage.script, self._stage
        if why := lost(script, gpu.index, stage.moment(gpu.index)):
            return f"the GPU does not answer: {why}"
        if pids:
            return "processes on it: " + ", ".join(map(str, pids[:8]))
        if zombie := left_behind(script, gpu.index, stage.seconds_since_free_query(gpu.index)):
            return f"{zombie} MiB in use without a process (simulated)"
        return ""

    def cut(self, order: LayoutOrder) -> str:
        """Apply the layout as a driver would and return the failure, "" on success. A refused layout is rolled back."""
        gpu = next((gpu for gpu in self._gpus if gpu.uuid == order.gpu), None)
        if gpu is None:
            return f"this node has no GPU {order.gpu}"
        if why := lost(self._stage.script, gpu.index, self._stage.moment(gpu.index)):
            return f"MIG mode: {why}"
        cutter = SimulatedCutter(gpu, order.plan, self.refused)
        failure = carry_out(cutter, order)
        self._gpus = tuple(cutter.gpu if each.uuid == order.gpu else each for each in self._gpus)
        if self._kept is not None:
            self._kept.write_bytes(msgspec.json.encode([gpu for gpu in self._gpus if gpu.mig]))
        return failure

    def close(self) -> None:
        """Nothing to let go of."""


def _cut_before(gpus: tuple[Gpu, ...], kept: Path | None) -> tuple[Gpu, ...]:
    """The GPUs with what the file says of them; a file that cannot be read says nothing."""
    cut: dict[str, Gpu] = {}
    if kept is not None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            cut = {gpu.uuid: gpu for gpu in msgspec.json.decode(kept.read_bytes(), type=list[Gpu])}
    return tuple(
        msgspec.structs.replace(gpu, mig=True, instances=cut[gpu.uuid].instances) if gpu.uuid in cut else gpu
        for gpu in gpus
    )


def _well(gpu: Gpu) -> GpuHealth:
    """Return the health of a GPU without faults, limited to the facts that such a model reports. A GPU without ECC has no ECC
    counts.
    """
    counts = 0 if gpu.ecc == "on" else None
    rows = 0 if gpu.compute_capability >= 80 else None
    return GpuHealth(
        uuid=gpu.uuid,
        ecc_volatile_correctable=counts,
        ecc_volatile_uncorrectable=counts,
        ecc_aggregate_correctable=counts,
        ecc_aggregate_uncorrectable=counts,
        rows_remapped=rows,
        rows_remapped_uncorrectable=rows,
        remap_pending=None if rows is None else False,
        remap_failed=None if rows is None else False,
        slowdowns=(),
        temperature_c=32,
        temperature_slowdown_c=90,
        pcie_width=16,
        pcie_width_max=16,
        pcie_replays=0,
        recovery="none",
    )
