"""GPU use reported by programs on a simulated machine: a directory with one file per process, named by its pid.

    echo "$FAIRLEAD_GPUS 5000" > "$FAIRLEAD_SIMULATED_GPUS/$$"

Lines of "<UUID> <MiB>", one per GPU or MIG instance; "<UUID> <MiB> <percent>%" also gives its utilization. A file
counts while its process lives. This module is also a program that uses a simulated GPU as a driver would:

    python -m fairlead_agent.devices.simulated_use --mib 5000@0 --mib 9000@3 --seconds 10

It takes played memory of the first GPU that it was given: so much from each of the moments on (seconds from its start). As on
a real GPU, what others hold is not there: then it says "out of memory" and ends with exit code 1. Nothing is computed.
"""

import argparse
import fcntl
import os
import re
import signal
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec

from fairlead_agent.devices.port import GpuProcess

VARIABLE = "FAIRLEAD_SIMULATED_GPUS"
#: What each GPU has, for programs that care: {UUID: MiB}.
SIZES = "gpus.json"
#: Of each file; a longer one is no statement of use.
BYTES_MAX = 64 * 1024
#: A directory that has changed less than this ago may change again without another time: file systems count in steps.
SETTLED_NS = 2_000_000_000
_LINE = re.compile(r"(\S+) (\d{1,9})(?: (\d{1,3})%)?\Z", re.ASCII)


class ReportedUse:
    """Reported use in one directory; empty without a directory."""

    def __init__(self, directory: Path | None, memory_mib: Mapping[str, int]) -> None:
        self._directory = directory
        #: The directory's time of change (ns) at a look that found no process; -1: none, or it might not be the newest.
        self._empty_since_ns = -1
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / SIZES).write_bytes(msgspec.json.encode(memory_mib))

    def environment(self) -> dict[str, str]:
        """By which a program finds it."""
        return {VARIABLE: str(self._directory.absolute())} if self._directory is not None else {}

    def processes(self, known: Collection[str]) -> list[GpuProcess]:
        """Return the living processes on the `known` GPUs and instances. Files of dead processes are removed."""
        found: list[GpuProcess] = []
        for path in self._files():
            if not Path("/proc", path.name).exists():
                path.unlink(missing_ok=True)
                continue
            for uuid, use in read_uses(path).items():
                if uuid in known:
                    pid, percent = int(path.name), use.utilization_pct
                    found.append(GpuProcess(uuid=uuid, pid=pid, memory_mib=use.memory_mib, utilization_pct=percent))
        return found

    def _files(self) -> list[Path]:
        """Return the files of processes. A directory without any is listed again only after it has changed."""
        if self._directory is None:
            return []
        changed_ns = self._directory.stat().st_mtime_ns  # before the listing, so that no later change is missed
        if changed_ns == self._empty_since_ns:
            return []
        found = [path for path in self._directory.iterdir() if path.name.isdecimal()]
        settled = not found and time.time_ns() - changed_ns > SETTLED_NS
        self._empty_since_ns = changed_ns if settled else -1
        return found


class SimulatedUse(NamedTuple):
    """Use of one GPU as reported by one process. `utilization_pct` None: not reported, so that it is simulated."""

    memory_mib: int
    utilization_pct: int | None = None


NOTHING = SimulatedUse(0)


def read_uses(path: Path) -> dict[str, SimulatedUse]:
    """{UUID: use}; a line that makes no sense (half written, perhaps) says nothing."""
    try:
        text = path.read_bytes()[:BYTES_MAX].decode(errors="replace")
    except OSError:
        return {}
    found: dict[str, SimulatedUse] = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is not None:
            before = found.get(match[1], NOTHING)
            busy_pct = before.utilization_pct if match[3] is None else min(100, int(match[3]))
            found[match[1]] = SimulatedUse(before.memory_mib + int(match[2]), busy_pct)
    return found


class Want(NamedTuple):
    """Amount of memory wanted from a moment on."""

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
    parser = argparse.ArgumentParser(prog="python -m fairlead_agent.devices.simulated_use", description=__doc__)
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
    """Ignore TERM."""


if __name__ == "__main__":
    sys.exit(main())
