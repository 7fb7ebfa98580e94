"""`python -m fairlead_agent.devices.play --mib 5000@0 --mib 9000@3 --seconds 10`: a program that uses a simulated GPU.

Takes played memory of the first GPU that it was given: so much from each of the moments on (seconds from its start). As on
a real GPU, what others hold is not there: then it says "out of memory" and ends with exit code 1. Nothing is computed.
"""

import argparse
import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec

from fairlead_agent.devices.told import NOTHING, SIZES, VARIABLE, read_uses


class Want(NamedTuple):
    """So much memory from a moment on."""

    second: float
    mib: int


def want(text: str) -> Want:
    """ "5000@3" is 5000 MiB from the third second on; "5000" from the start."""
    mib, _, second = text.partition("@")
    return Want(float(second or 0), int(mib))


def take(directory: Path, uuid: str, mib: int) -> bool:
    """Hold so much of the GPU from now on, instead of what was held; False where others hold too much for it."""
    size: int = msgspec.json.decode((directory / SIZES).read_bytes(), type=dict[str, int])[uuid]
    own = directory / str(os.getpid())
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [path for path in directory.iterdir() if path.name.isdecimal() and path != own]
        held = sum(
            read_uses(path).get(uuid, NOTHING).memory_mib for path in others if Path("/proc", path.name).exists()
        )
        if held + mib > size:
            return False
        own.write_text(f"{uuid} {mib}\n")
        return True


def main() -> int:
    """Use it, then end: 0, or 1 when memory was not there. TERM ends it as it ends most programs."""
    parser = argparse.ArgumentParser(prog="python -m fairlead_agent.devices.play", description=__doc__)
    parser.add_argument("--mib", type=want, action="append", default=[], help="MiB, or MiB@SECOND")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long it runs")
    parser.add_argument("--deaf", action="store_true", help="does not end on TERM")
    arguments = parser.parse_args()
    if arguments.deaf:
        signal.signal(signal.SIGTERM, _deaf)
    if VARIABLE not in os.environ:
        sys.stderr.write(f"{VARIABLE} is not set: this runs as a job with a simulated GPU\n")
        return 2
    directory, uuid = Path(os.environ[VARIABLE]), os.environ["FAIRLEAD_GPUS"].split(",")[0]
    start = time.monotonic()
    for each in sorted(arguments.mib):
        time.sleep(max(0.0, start + each.second - time.monotonic()))
        if not take(directory, uuid, each.mib):
            sys.stderr.write(f"out of memory (simulated): {each.mib} MiB are not there on {uuid}\n")
            return 1
        sys.stdout.write(f"holds {each.mib} MiB (simulated)\n")
        sys.stdout.flush()
    time.sleep(max(0.0, start + arguments.seconds - time.monotonic()))
    return 0


def _deaf(_number: int, _frame: FrameType | None) -> None:
    """TERM is heard and not obeyed."""


if __name__ == "__main__":
    sys.exit(main())
