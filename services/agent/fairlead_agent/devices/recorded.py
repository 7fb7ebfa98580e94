"""Recording of real GPUs, and its replay in a loop. A recording holds a machine's device answers as one JSON file. The answers are real
but the machine is absent, and the labels show this.

    python -m fairlead_agent.devices.recorded --seconds 30 --out FILE

records this machine's GPUs, to be replayed elsewhere. UUIDs, serial-free names, links, counters and pids of what runs meanwhile
are in the file; look at it before you give it away.

Runs may be placed on replayed GPUs, as on simulated ones; the measurements are those of the recording. Processes
that ran at that time are reported but do not keep a GPU from being free, because they are not on this machine.
Parsing is strict: an unknown word is refused.

Answers are kept in the terms of `port.Devices`, not as the driver's bytes, so that a recording outlives a driver. The
possible MIG profiles of each GPU are kept as well, because a layout can only be tried where they are known.
"""

import argparse
import datetime
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fairlead_agent.devices.port import Devices, DevicesUnfit, GpuHealth, GpuProcess, Xid
from fairlead_agent.devices.repartition import CutFailed, MigTable, SimulatedCutter, carry_out
from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.resources import Gpu, NodeTopology
from fairlead_schemas.wire.samples import GpuSample

VERSION = 1


class Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """State of the devices at one moment. `xids` holds the XIDs since the previous frame."""

    at_ms: Annotated[int, msgspec.Meta(ge=0)]
    samples: tuple[GpuSample, ...] = ()
    health: tuple[GpuHealth, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    xids: tuple[Xid, ...] = ()


class Recording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine for a while. Frames by rising time."""

    version: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    #: Whence: the adapter that was asked, the day, and what a person has to say about it.
    devices: str
    recorded_on: str
    note: str = ""
    gpus: tuple[Gpu, ...]
    inside: NodeTopology
    labels: dict[str, str]
    #: {UUID: profiles}, of GPUs that can be cut.
    mig: dict[str, tuple[MigTable, ...]] = {}
    frames: Annotated[tuple[Frame, ...], msgspec.Meta(min_length=1)]


class BadRecording(ValueError):
    """The file is no recording; the message says where and what was expected."""


_decoder = msgspec.json.Decoder(Recording)


def read_recording(data: bytes) -> Recording:
    """A recording, checked. Raises BadRecording."""
    try:
        recording = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise BadRecording(str(error)) from error
    times = [frame.at_ms for frame in recording.frames]
    if times != sorted(times):
        raise BadRecording("expected frames by rising time - at `$.frames`")
    known = {each.uuid for gpu in recording.gpus for each in (gpu, *gpu.instances)}
    for at, frame in enumerate(recording.frames):
        for each in (*frame.samples, *frame.health, *frame.processes, *frame.xids):
            if each.uuid not in known:
                raise BadRecording(f"expected a GPU of the recording, found {each.uuid} - at `$.frames[{at}]`")
    return recording


def write_recording(recording: Recording) -> bytes:
    """Encode the recording as JSON with one frame per line, easy to read and to compare."""
    frames = b",\n  ".join(msgspec.json.encode(frame, order="deterministic") for frame in recording.frames)
    head = msgspec.to_builtins(msgspec.structs.replace(recording, frames=()))
    del head["frames"]
    text = msgspec.json.format(msgspec.json.encode(head, order="deterministic"), indent=1).rstrip()
    return text[:-1].rstrip() + b',\n "frames": [\n  ' + frames + b"\n ]\n}\n"


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
        #: Frames whose XIDs were reported, counted over the rounds.
        self._reported = 0

    @classmethod
    def load(cls, path: Path) -> "RecordedDevices":
        """From a file. Raises DevicesUnfit."""
        try:
            return cls(read_recording(path.read_bytes()))
        except (OSError, BadRecording) as error:
            raise DevicesUnfit(f"FAIRLEAD_RECORDING: {path} cannot be replayed: {error}") from error

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs as recorded, except for later changes of the MIG layout."""
        return self._gpus

    def inside(self) -> NodeTopology:
        """Return the recorded description."""
        return self._recording.inside

    def labels(self) -> dict[str, str]:
        """Return the recorded labels, with a label that marks the machine as simulated."""
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
        """Return the samples of the recording's current frame, each with the run that holds its GPU now."""
        return [msgspec.structs.replace(each, run=holders.get(each.uuid, "")) for each in self._frame().samples]

    def health(self) -> list[GpuHealth]:
        """Return the health of the recording's current frame. A GPU without an entry in the frame gets a record of unknown health."""
        known = {each.uuid: each for each in self._frame().health}
        return [known.get(gpu.uuid, GpuHealth(uuid=gpu.uuid)) for gpu in self._gpus]

    def xids(self) -> list[Xid]:
        """Return the XIDs of all frames passed since the last call, at most one round of the recording."""
        passed, frames = self._passed_ms(), self._recording.frames
        due = passed // self._round_ms * len(frames) + bisect_right(self._times, passed % self._round_ms)
        first = max(self._reported, due - len(frames))
        self._reported = due
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


#: Frames between reads of health after the first frame: it changes slowly.
HEALTH_EVERY = 10


def record(
    devices: Devices,
    seconds: float,
    every_s: float,
    note: str,
    *,
    mig: dict[str, tuple[MigTable, ...]],
    recorded_on: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Recording:
    """Record these devices for `seconds`, a frame every `every_s`; at least one frame. A frame without a health query
    repeats the health of the previous frame.
    """
    start = clock()
    frames: list[Frame] = []
    health: tuple[GpuHealth, ...] = ()
    while not frames or clock() - start < seconds:
        if len(frames) % HEALTH_EVERY == 0:
            health = tuple(devices.health())
        frames.append(
            Frame(
                at_ms=int((clock() - start) * 1000) if frames else 0,
                samples=tuple(devices.sample({})),
                health=health,
                processes=tuple(devices.processes()),
                xids=tuple(devices.xids()),
            )
        )
        sleep(max(0.0, start + len(frames) * every_s - clock()))
    return Recording(
        version=VERSION,
        devices=devices.name,
        recorded_on=recorded_on,
        note=note,
        gpus=devices.gpus(),
        inside=devices.inside(),
        labels=devices.labels(),
        mig=mig,
        frames=tuple(frames),
    )


def main(pynvml: Any = None) -> int:
    """Record from the command line. Exit code 0; 1 with a line that says why not."""
    from fairlead_agent.devices.nvml import NvmlDevices  # replaying needs no driver

    parser = argparse.ArgumentParser(
        prog="python -m fairlead_agent.devices.recorded", description="record this machine's GPUs"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="how long (default 30)")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between frames (default 1)")
    parser.add_argument("--note", default="", help="what the reader should know of it")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    arguments = parser.parse_args()
    if arguments.every <= 0:
        parser.error(f"--every: expected more than 0 seconds, found {arguments.every}")
    try:
        devices = NvmlDevices(pynvml)
    except DevicesUnfit as error:
        sys.stderr.write(f"nothing to record: {error}\n")
        return 1
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    recording = record(
        devices, arguments.seconds, arguments.every, arguments.note, mig=devices.mig_tables(), recorded_on=day
    )
    devices.close()
    arguments.out.write_bytes(write_recording(recording))
    sys.stdout.write(f"{len(recording.gpus)} GPUs, {len(recording.frames)} frames: {arguments.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
