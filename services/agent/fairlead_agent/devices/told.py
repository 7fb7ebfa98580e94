"""What programs on a simulated machine say that they use: a directory with one file per process, named by its pid.

    echo "$FAIRLEAD_GPUS 5000" > "$FAIRLEAD_SIMULATED_GPUS/$$"

Lines of "<UUID> <MiB>", one per GPU or MIG instance. A file counts while its process lives. `play.py` is a program that
does this as a driver would: it refuses what is not there.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from fairlead_agent.devices.facts import GpuProcess

VARIABLE = "FAIRLEAD_SIMULATED_GPUS"
#: What each GPU has, for programs that care: {UUID: MiB}.
SIZES = "gpus.json"
#: Of each file; a longer one is no statement of use.
BYTES_MAX = 64 * 1024


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
            for uuid, mib in read_uses(path).items():
                if uuid in known:
                    found.append(GpuProcess(uuid=uuid, pid=int(path.name), memory_mib=mib))
        return found


def read_uses(path: Path) -> dict[str, int]:
    """{UUID: MiB}; a line that makes no sense (half written, perhaps) says nothing."""
    try:
        text = path.read_bytes()[:BYTES_MAX].decode(errors="replace")
    except OSError:
        return {}
    found: dict[str, int] = {}
    for line in text.splitlines():
        uuid, _, mib = line.strip().partition(" ")
        if mib.isascii() and mib.isdigit() and len(mib) < 10:
            found[uuid] = found.get(uuid, 0) + int(mib)
    return found
