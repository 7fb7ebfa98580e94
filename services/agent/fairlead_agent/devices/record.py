"""`python -m fairlead_agent.devices.record --seconds 30 --out FILE`: record this machine's GPUs, to be replayed elsewhere.

UUIDs, serial-free names, links, counters and pids of what runs meanwhile are in the file; look at it before you give it away.
"""

import argparse
import datetime
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_agent.devices.port import Devices, DevicesUnfit, GpuHealth
from fairlead_agent.devices.recorded import VERSION, Frame, MigTable, Recording, write_recording

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
    """Exit code 0; 1 with a line that says why not."""
    parser = argparse.ArgumentParser(prog="python -m fairlead_agent.devices.record", description=__doc__)
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
