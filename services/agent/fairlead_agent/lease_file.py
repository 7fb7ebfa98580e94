"""The node's lease on its disk: when the placer's word was last renewed, for whoever comes after this agent or watches it.

Written by the agent at each renewal, in place and without a sync: after a crash of the machine it is worthless anyhow, since
its times are those of one boot. Read by the guard (`guard/`), and by the next agent, whose silence began when
the last one's did. Imports the standard library alone, as the guard does.
"""

import contextlib
import json
import os
import time
import zlib
from pathlib import Path

from fairlead_agent.lease import NAME, Lease

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
