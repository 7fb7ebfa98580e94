"""Contents of `stack.json`, the processes of a data directory, and the check that they still run.

A process is identified by its id *and* its start time, because ids are used again. No process is started or stopped
here. The file holds the bus's token, so only its owner can read it.
"""

import os
import subprocess
from pathlib import Path

import msgspec

FILE = "stack.json"


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Process of a stack: its part in the stack, its id, and its start time (opaque text)."""

    name: str
    pid: int
    started: str


class StackState(msgspec.Struct, frozen=True, kw_only=True):
    """A stack as `up` wrote it down."""

    url: str
    nats_url: str
    supervisor: Running
    processes: list[Running]
    ready: bool
    runtime: str
    nodes: list[str]


def default_data() -> Path:
    """$FAIRLEAD_DATA, or `.fairlead` in the current directory."""
    return Path(os.environ.get("FAIRLEAD_DATA") or ".fairlead").absolute()


def load(data: Path) -> StackState | None:
    """The state of a data directory; None where no stack was ever started (or the file is damaged)."""
    try:
        return msgspec.json.decode((data / FILE).read_bytes(), type=StackState)
    except (OSError, msgspec.MsgspecError):
        return None


def save(data: Path, state: StackState) -> None:
    """Replace the file in one step, readable by its owner only."""
    write_private(data / FILE, msgspec.json.format(msgspec.json.encode(state), indent=1))


def clear(data: Path) -> None:
    """Forget the stack."""
    (data / FILE).unlink(missing_ok=True)


def write_private(path: Path, payload: bytes) -> None:
    """Write a file of mode 0600 in one step; where that fails, the old one stays and no draft is left."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(payload)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def identify(name: str, pid: int) -> Running:
    """A live process as a `Running`."""
    return Running(name=name, pid=pid, started=_started(pid))


def missing(there: StackState) -> list[str]:
    """Names of the processes of a stack that do not run now (one that crashed is started again soon)."""
    return [process.name for process in there.processes if not lives(process)]


def lives(process: Running) -> bool:
    """True while this very process runs (another one with the same id does not count)."""
    return _started(process.pid) == process.started != ""


def _started(pid: int) -> str:
    """Return the start time of a process as opaque text; empty when there is no such process (or only its zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    except OSError:
        return ""
    # The program's name is in brackets and may contain any character. Fields are counted after it.
    state, *rest = stat.rpartition(")")[2].split()
    return "" if state == "Z" else rest[18]


def _started_by_ps(pid: int) -> str:
    """For systems without /proc (macOS)."""
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()
