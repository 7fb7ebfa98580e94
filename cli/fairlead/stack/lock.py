"""Lock that admits one program at a time to a data directory: two servers on one store would lose acknowledged data.

The lock is the kernel's (flock on `<data>/lock`) and ends with its holder in every case. Processes that the holder
starts do not inherit it: agents and jobs outlive it. The file's contents only name the holder. The file is never
removed: a waiting process with the old file open would lock a file that no other process sees. Start at `held`.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fairlead.errors import Conflict
from fairlead.stack import state
from fairlead.stack.processes import end_pid

FILE = "lock"


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Last holder of the lock, and the server that it started to read the store, if any."""

    command: str
    pid: int
    server: state.Running | None = None


class Lock:
    """A data directory taken. `release` gives it back; so does the end of this process."""

    def __init__(self, command: str, descriptor: int) -> None:
        self._command = command
        self._descriptor = descriptor

    def name(self, server: state.Running | None) -> None:
        """Write down who holds the lock; `server` is ended by the next holder if we cannot."""
        text = msgspec.json.encode(LockHolder(command=self._command, pid=os.getpid(), server=server))
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)

    def release(self) -> None:
        """Let others have the directory. Harmless when done twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def take(data: Path, command: str) -> Lock:
    """Take the directory, or raise Conflict naming who has it. A server that a killed reader left is ended."""
    # Python opens close-on-exec, so the lock does not pass to what is started while it is held.
    descriptor = os.open(data / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise _taken(data) from error
    holder = _holder(data)
    if holder is not None and holder.server is not None and state.lives(holder.server):
        server = holder.server
        end_pid(server.pid, lambda: state.lives(server))
    lock = Lock(command, descriptor)
    lock.name(None)
    return lock


@contextmanager
def held(data: Path, command: str) -> Iterator[Lock]:
    """The directory for as long as something is done with it."""
    lock = take(data, command)
    try:
        yield lock
    finally:
        lock.release()


def _holder(data: Path) -> LockHolder | None:
    try:
        return msgspec.json.decode((data / FILE).read_bytes(), type=LockHolder)
    except (OSError, msgspec.MsgspecError):  # taken a moment ago, and not yet written
        return None


def _taken(data: Path) -> Conflict:
    there = state.load(data)
    if there is not None and state.lives(there.supervisor):
        return Conflict(f"a stack already runs on {data} at {there.url}", hint="fairlead down, or another --data")
    holder = _holder(data)
    who = f"`{holder.command}` (process {holder.pid})" if holder else "another fairlead"
    return Conflict(f"{data} is in use by {who}", hint="try again when it is done, or use another --data")
