"""The admin's program for a drained node, such as one that installs a driver: once per drain, while no agent holds the devices.

The agent writes down which drain it is for, starts it in a session of its own and ends; the next agent process waits until it is
over before it opens the devices, and then introduces the node as what it has become. So the program may unload a driver, restart
services and boot the machine; what was written down is never started a second time. Start at `DrainedHook.heed` and `until_over`.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from fairlead_agent.files.guard_files import boottime_ns
from fairlead_agent.linux.processes import stat_identity
from fairlead_agent.settings import Settings
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.desired import Drained

POLL_S = 0.2
#: Writes the exit code to a file, with or without a reader. Arguments: the program, its log, the file.
WRAPPER = '"$1" >>"$2" 2>&1 </dev/null; echo $? >"$3.new"; mv "$3.new" "$3"'

_log = structlog.get_logger()


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of one drain's program."""

    cause: str
    boot_id: str
    begun_ns: int
    #: (process id, start time), once it was started.
    process: tuple[int, int] = (0, 0)
    over: bool = False
    #: Why it is not known to have done its work; "" where it has.
    failure: str = ""


class DrainedHook:
    """Drained hook of one node. `leave` ends the agent, so that no process holds the devices."""

    def __init__(self, settings: Settings, boot_id: str, leave: Callable[[], None]) -> None:
        self._settings, self._boot_id, self._leave = settings, boot_id, leave
        self.round = load(settings)

    @property
    def failure(self) -> str:
        """Failure of the latest drain's program; "" without one."""
        return self.round.failure if self.round is not None else ""

    def heed(self, drained: Drained | None, *, idle: bool) -> None:
        """Apply the placer's drain state of the node; repeated calls are harmless. `idle`: no run and no leftover is on the node."""
        if drained is None:
            if self.failure and self.round is not None:
                self._keep(msgspec.structs.replace(self.round, failure=""))
            return
        known = self.round is not None and self.round.cause == drained.cause
        if self._settings.drained_hook is None or known or not idle:
            return
        self._start(self._settings.drained_hook, drained)
        self._leave()

    def _start(self, program: Path, drained: Drained) -> None:
        settings, directory = self._settings, self._settings.directory
        began = Round(cause=drained.cause, boot_id=self._boot_id, begun_ns=boottime_ns())
        self._keep(began)
        _exit_file(settings).unlink(missing_ok=True)
        env = {
            "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            "FAIRLEAD_NODE": settings.node,
            "FAIRLEAD_DRAINED_BY": drained.setter,
            "FAIRLEAD_DRAINED_FOR": drained.reason,
        }
        words = ["/bin/sh", "-c", WRAPPER, "sh", str(program), str(log_file(settings)), str(_exit_file(settings))]
        try:
            child = subprocess.Popen(words, env=env, cwd=directory, start_new_session=True, stdin=subprocess.DEVNULL)
        except OSError as error:
            self._keep(msgspec.structs.replace(began, over=True, failure=f"it could not be started: {error}"))
            return
        identity = stat_identity(child.pid)
        self._keep(msgspec.structs.replace(began, process=(child.pid, identity[0] if identity else 0)))
        _log.warning(
            "the node is drained: its program runs, and this agent ends until it is over",
            program=str(program),
            drained_for=drained.reason,
            log=str(log_file(settings)),
        )

    def _keep(self, now: Round) -> None:
        self.round = now
        save(self._settings, now)


async def until_over(settings: Settings, boot_id: str) -> None:
    """Wait for a program that an earlier agent process has started; kill it after its time. Nothing to wait for: at once."""
    now = load(settings)
    if now is None or now.over:
        return
    if now.boot_id != boot_id:  # it has booted the machine, which is one of the things that it is for
        save(settings, msgspec.structs.replace(now, over=True))
        return
    pid, started = now.process
    deadline_ns = now.begun_ns + int(settings.drained_hook_s * SECOND_NS)
    late = ""
    while pid and (identity := stat_identity(pid)) is not None and identity[0] == started:
        if not late and boottime_ns() > deadline_ns:
            late = f"it was killed after {settings.drained_hook_s:g} s"
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        await asyncio.sleep(POLL_S)
    failure = late or _failure(settings, bool(pid))
    save(settings, msgspec.structs.replace(now, over=True, failure=failure))
    _log.info("the program for the drained node is over", failure=failure)


def _failure(settings: Settings, was_started: bool) -> str:
    try:
        code = _exit_file(settings).read_text().strip()
    except OSError:
        if not was_started:
            return "the agent ended while it started it; whether it ran is not known"
        return "its end was not seen: it was killed"
    if code == "0":
        return ""
    return f"it returned {code}: {_last_line(log_file(settings)) or 'it printed nothing'}"


def _last_line(log: Path) -> str:
    try:
        lines = log.read_bytes()[-4096:].decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


# ---------------------------------------------------------------------------- files


def log_file(settings: Settings) -> Path:
    """Return the path of the log file with the program's output."""
    return settings.directory / "drained.log"


def _exit_file(settings: Settings) -> Path:
    return settings.directory / "drained.exit"


def load(settings: Settings) -> Round | None:
    """The newest round; None where there was none, or the file is damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((settings.directory / "drained.json").read_bytes(), type=Round)
    return None


def save(settings: Settings, now: Round) -> None:
    """Durable before the program starts: it must not run twice. Raises OSError."""
    path = settings.directory / "drained.json"
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(msgspec.json.encode(now))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(settings.directory, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
