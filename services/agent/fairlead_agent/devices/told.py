"""What programs on a simulated machine say that they use: a directory with one file per process, named by its pid.

    echo "$FAIRLEAD_GPUS 5000" > "$FAIRLEAD_SIMULATED_GPUS/$$"

Lines of "<UUID> <MiB>", one per GPU or MIG instance; "<UUID> <MiB> <percent>%" says how busy it keeps it, too. A file counts
while its process lives. `play.py` is a program that
does this as a driver would: it refuses what is not there.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from fairlead_agent.devices.facts import GpuProcess

VARIABLE = "FAIRLEAD_SIMULATED_GPUS"
#: What each GPU has, for programs that care: {UUID: MiB}.
SIZES = "gpus.json"
#: Of each file; a longer one is no statement of use.
BYTES_MAX = 64 * 1024
_LINE = re.compile(r"(\S+) (\d{1,9})(?: (\d{1,3})%)?\Z", re.ASCII)


class Told:
    """What is said in one directory; nothing without one."""

    def __init__(self, directory: Path | None, memory_mib: Mapping[str, int]) -> None:
        self._directory = directory
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / SIZES).write_bytes(msgspec.json.encode(memory_mib))

    def environment(self) -> dict[str, str]:
        """By which a program finds it."""
        return {VARIABLE: str(self._directory.absolute())} if self._directory is not None else {}

    def processes(self, known: Collection[str]) -> list[GpuProcess]:
        """Of living processes, on these GPUs and instances; files of dead ones are removed."""
        found: list[GpuProcess] = []
        for path in self._directory.iterdir() if self._directory is not None else ():
            if not path.name.isdecimal():
                continue
            if not Path("/proc", path.name).exists():
                path.unlink(missing_ok=True)
                continue
            for uuid, use in read_uses(path).items():
                if uuid in known:
                    pid, percent = int(path.name), use.utilization_pct
                    found.append(GpuProcess(uuid=uuid, pid=pid, memory_mib=use.memory_mib, utilization_pct=percent))
        return found


class Use(NamedTuple):
    """What one process says of one GPU. None: nothing of its time, so that this is played."""

    memory_mib: int
    utilization_pct: int | None = None


NOTHING = Use(0)


def read_uses(path: Path) -> dict[str, Use]:
    """{UUID: use}; a line that makes no sense (half written, perhaps) says nothing."""
    try:
        text = path.read_bytes()[:BYTES_MAX].decode(errors="replace")
    except OSError:
        return {}
    found: dict[str, Use] = {}
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is not None:
            before = found.get(match[1], NOTHING)
            said = before.utilization_pct if match[3] is None else min(100, int(match[3]))
            found[match[1]] = Use(before.memory_mib + int(match[2]), said)
    return found
