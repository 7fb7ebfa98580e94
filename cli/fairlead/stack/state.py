"""Contents of `stack.json`, the processes of a data directory, and the check that they still run; and conditions of a
local stack: read from the logs of services that ended upon one, kept in the data directory.

A process is identified by its id *and* its start time, because ids are used again. No process is started or stopped
here. The file holds the bus's token, so only its owner can read it.

`conditions.json` outlives the stack, so that `fairlead doctor` names the reason after a failed `fairlead up`. The next
`up` removes it, and writes it again where the reason still holds.
"""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from fairlead.errors import FairleadError
from fairlead_agent.files import refusal
from fairlead_schemas.wire.conditions import Condition, ConditionCode

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
    draft.unlink(missing_ok=True)
    try:
        # A draft that is there may be a link to another file, or one that others can read.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
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


CONDITIONS_FILE = "conditions.json"
#: A log line with a condition is looked for in so many bytes at the end of a process's log.
TAIL_BYTES = 64 * 1024


class _Line(msgspec.Struct):
    """The fields of a service's last log line that name a condition."""

    condition: ConditionCode
    reason: str


_line = msgspec.json.Decoder(_Line)
_kept = msgspec.json.Decoder(list[Condition])


def logged(logs: Path, names: Iterable[str]) -> list[Condition]:
    """Return the newest condition in the log of each of these processes, without repetitions."""
    found = (_newest(logs / f"{name}.log") for name in names)
    return list(dict.fromkeys(condition for condition in found if condition is not None))


def _newest(path: Path) -> Condition | None:
    try:
        lines = path.read_bytes()[-TAIL_BYTES:].splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            named = _line.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        return Condition(code=named.condition, message=named.reason)
    return None


def save_conditions(data: Path, conditions: list[Condition]) -> None:
    """Keep these conditions in the data directory; an empty list removes the file."""
    path = data / CONDITIONS_FILE
    if not conditions:
        path.unlink(missing_ok=True)
        return
    draft = path.with_name(f".{CONDITIONS_FILE}")
    draft.write_bytes(msgspec.json.encode(conditions))
    draft.replace(path)


def forget_condition(data: Path, code: ConditionCode) -> None:
    """Remove a condition that a person has dealt with."""
    save_conditions(data, [condition for condition in _saved(data) if condition.code != code])


def forget_conditions(data: Path) -> None:
    """Remove all that an earlier stack has left, its agents' refusals too."""
    save_conditions(data, [])
    for node in refusal.read(data):
        refusal.forget(data / f"{refusal.DIRECTORY}{node}")


def load_conditions(data: Path) -> list[Condition]:
    """Return the conditions that were kept, here and by agents; none where there is no file that can be read."""
    return list(dict.fromkeys([*_saved(data), *refusal.read(data).values()]))


def _saved(data: Path) -> list[Condition]:
    try:
        return _kept.decode((data / CONDITIONS_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return []


def error_of(conditions: list[Condition], data: str = "") -> FairleadError:
    """Return the error that ends a command because of these conditions, with the commands to type as its hint."""
    message = "; ".join(condition.message for condition in conditions)
    hints = dict.fromkeys(condition.hint(data) for condition in conditions)
    return FairleadError(message, hint="; ".join(hints))
