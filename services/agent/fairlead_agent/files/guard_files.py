"""Lease of the node on its disk: the time of its last renewal by the placer, for the guard and for the next agent.

The agent writes it at each renewal, in place and without a sync: after a crash of the machine the file is worthless
anyhow, since its times are those of one boot. The guard (`guard/`) reads it, and so does the next agent: its silence
began when the last agent's did. Imports the standard library alone, as the guard does.

Record of the guard's actions on disk, for the agent that comes back: only the agent can report them.

Each look has one file, `<directory>/guard/<nanoseconds since boot>.json`, written before its first signal is sent. The
agent removes files without an open run. No process writes to a file of another.
"""

import contextlib
import json
import os
import time
import zlib
from collections.abc import Collection
from pathlib import Path

from fairlead_agent.core.lease import NAME, Lease

#: The file has this length from its first moment on, so that a full disk cannot keep a lease from being renewed.
BYTES = 1024


def boottime_ns() -> int:
    """Nanoseconds since boot, a suspended machine's sleep included: no step of the wall clock changes it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def encode(lease: Lease) -> bytes:
    """The whole file: a checksum, JSON, spaces. Raises ValueError for what does not fit."""
    body = json.dumps(lease._asdict(), separators=(",", ":")).encode()
    line = b"%08x %s\n" % (zlib.crc32(body), body)
    if len(line) > BYTES:
        raise ValueError(f"expected a lease of at most {BYTES} bytes, found {len(line)}")
    return line.ljust(BYTES)


def decode(data: bytes) -> Lease | None:
    """The lease; None for anything else, a file that is just being written included."""
    head, _, body = data.rstrip().partition(b" ")
    try:
        if head != b"%08x" % zlib.crc32(body):
            return None
        found = json.loads(body)
        return Lease(**{name: kind(found[name]) for name, kind in Lease.__annotations__.items()})
    except (ValueError, KeyError, TypeError):
        return None


def read(directory: Path) -> Lease | None:
    """The lease in an agent's directory; None where there is none that can be read."""
    try:
        return decode((directory / NAME).read_bytes())
    except OSError:
        return None


class LeaseFile:
    """The agent's hand on the file."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(self._fd).st_size < BYTES:
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._fd, 0, BYTES)

    def write(self, lease: Lease) -> None:
        """Renew. What a disk refuses is lost: the guard then takes this agent for silent. Raises nothing."""
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, encode(lease), 0)

    def close(self) -> None:
        """The file stays as it is."""
        os.close(self._fd)


DIRECTORY = "guard"


def tell(directory: Path, runs: Collection[str], silence_s: float, now_ns: int) -> None:
    """Record that these runs are asked to end. Raises OSError."""
    folder = directory / DIRECTORY
    folder.mkdir(mode=0o750, exist_ok=True)
    new = folder / f"{now_ns}.new"
    new.write_text(json.dumps({"runs": sorted(runs), "silence_s": round(silence_s, 1)}))
    new.rename(folder / f"{now_ns}.json")


class GuardReports:
    """Reader of the guard's reports, for the agent; `how` is called at every end of a run, so it reads only what is new."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / DIRECTORY
        self._changed_ns = -1
        self._files: dict[Path, list[str]] = {}
        self._how: dict[str, str] = {}

    def how(self, run: str) -> str:
        """Return the explanation for a run that the guard has asked to end; "" for any other run."""
        self._read()
        return self._how.get(run, "")

    def forget(self, still_open: Collection[str]) -> None:
        """Remove what is about none of these runs."""
        self._read()
        for path, runs in list(self._files.items()):
            if not any(run in still_open for run in runs):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _read(self) -> None:
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 -- at every end of a run
        except OSError:
            return
        if changed_ns == self._changed_ns:
            return
        self._changed_ns, self._files, self._how = changed_ns, {}, {}
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(path.read_bytes())
                self._files[path] = [str(run) for run in record["runs"]]
                words = f"the guard ended it: its agent had had no lease for {record['silence_s']:g} s"
                self._how.update(dict.fromkeys(self._files[path], words))
