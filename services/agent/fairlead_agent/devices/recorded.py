"""Replays a recording of real GPUs, over and over. The answers are real, the machine is not here: it says so.

Runs may be placed on these GPUs, as on simulated ones; what is measured is what was measured then. What ran on them at that
time is told as processes, and does not keep them from being free: it is not here.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from fairlead_agent.devices.cutting import CutFailed, carry_out
from fairlead_agent.devices.facts import GpuHealth, GpuProcess, Xid
from fairlead_agent.devices.port import DevicesUnfit
from fairlead_agent.devices.recording import BadRecording, Frame, MigTable, Recording, read_recording
from fairlead_agent.devices.simulated_mig import SimulatedCutter
from fairlead_schemas.desired import LayoutOrder, RunOrder
from fairlead_schemas.inside import Description
from fairlead_schemas.resources import Gpu
from fairlead_schemas.samples import GpuSample


class RecordedDevices:
    """The GPUs of one recording."""

    name = "recorded"
    simulated = True

    def __init__(self, recording: Recording, clock: Callable[[], float] = time.monotonic) -> None:
        self._recording, self._clock = recording, clock
        self._gpus = recording.gpus
        self._opened = clock()
        self._times = [frame.at_ms for frame in recording.frames]
        #: How long one round is: as far behind the last frame as that is behind the one before.
        self._round_ms = self._times[-1] + (self._times[-1] - self._times[-2] if len(self._times) > 1 else 1000) or 1
        #: Frames whose XIDs were told, counted over the rounds.
        self._told = 0

    @classmethod
    def load(cls, path: Path) -> "RecordedDevices":
        """From a file. Raises DevicesUnfit."""
        try:
            return cls(read_recording(path.read_bytes()))
        except (OSError, BadRecording) as error:
            raise DevicesUnfit(f"FAIRLEAD_RECORDING: {path} cannot be replayed: {error}") from error

    def gpus(self) -> tuple[Gpu, ...]:
        """As they were, but for what was cut since."""
        return self._gpus

    def inside(self) -> Description:
        """As it was."""
        return self._recording.inside

    def labels(self) -> dict[str, str]:
        """As they were, and that the machine is not here."""
        return {**self._recording.labels, "fairlead/simulated": "true"} if self._gpus else {}

    def environment(self, order: RunOrder, *, contained: bool) -> dict[str, str]:
        """None."""
        return {}

    def _passed_ms(self) -> int:
        return int((self._clock() - self._opened) * 1000)

    def _frame(self) -> Frame:
        """The newest that is not in the future; the first one, before that."""
        at = bisect_right(self._times, self._passed_ms() % self._round_ms) - 1
        return self._recording.frames[max(0, at)]

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        """Of this moment of the recording, with the runs that hold the GPUs now."""
        return [msgspec.structs.replace(each, run=holders.get(each.uuid, "")) for each in self._frame().samples]

    def health(self) -> list[GpuHealth]:
        """Of this moment; a GPU of which the frame says nothing is not known to be ill or well."""
        known = {each.uuid: each for each in self._frame().health}
        return [known.get(gpu.uuid, GpuHealth(uuid=gpu.uuid)) for gpu in self._gpus]

    def xids(self) -> list[Xid]:
        """Of all frames that have passed since the last call; at most one round of them."""
        passed, frames = self._passed_ms(), self._recording.frames
        due = passed // self._round_ms * len(frames) + bisect_right(self._times, passed % self._round_ms)
        first = max(self._told, due - len(frames))
        self._told = due
        return [each for at in range(first, due) for each in frames[at % len(frames)].xids]

    def processes(self) -> list[GpuProcess]:
        """None: what ran there does not run here, and its pids are others' here."""
        return []

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        """Free, unless it was lost at this moment of the recording."""
        known = {each.uuid: gpu.uuid for gpu in self._gpus for each in (gpu, *gpu.instances)}
        lost = {each.uuid: each.why for each in self._frame().health if each.lost}
        evidence = {uuid: f"the GPU does not answer: {lost[known[uuid]]}" for uuid in uuids if known.get(uuid) in lost}
        return evidence | {uuid: "this node has no such GPU" for uuid in uuids if uuid not in known}

    def cut(self, order: LayoutOrder) -> str:
        """Played, within what the recorded driver allowed."""
        gpu = next((gpu for gpu in self._gpus if gpu.uuid == order.gpu), None)
        if gpu is None:
            return f"this node has no GPU {order.gpu}"
        cutter = _RecordedCutter(gpu, order.plan, self._recording.mig.get(gpu.uuid, ()))
        failure = carry_out(cutter, order)
        self._gpus = tuple(cutter.gpu if each.uuid == order.gpu else each for each in self._gpus)
        return failure

    def close(self) -> None:
        """Nothing to let go of."""


class _RecordedCutter(SimulatedCutter):
    """A played GPU that makes no instance but where the recorded driver listed a place for it."""

    def __init__(self, gpu: Gpu, number: int, tables: tuple[MigTable, ...]) -> None:
        super().__init__(gpu, number)
        self._tables = {table.profile: table for table in tables}

    def create(self, profile: str, start: int) -> None:
        table = self._tables.get(profile)
        if table is None or start not in table.starts:
            raise CutFailed(f"{profile} at {start}: Not Supported (recorded)")
        super().create(profile, start)
