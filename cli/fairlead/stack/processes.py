"""Supervised processes: started with their own log file, started again when they crash.

Each is a session leader of its own, so Ctrl-C reaches this supervisor alone, which then stops all in order. Stopping
signals the process itself, never its group: processes that an agent started keep running. Start at `Supervisor`.
The supervisor survives a lack of disk, memory or processes: a failure is logged once and the action is tried again.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fairlead.render import terminal
from fairlead_schemas.wire.conditions import EXIT_COMMANDS_LOST, EXIT_DAMAGED, EXIT_UNFIT

#: The first restart comes at once; a process that keeps dying is given ever longer pauses.
BACKOFF_FIRST_S, BACKOFF_LAST_S = 0.1, 5.0
#: A process that ran this long is healthy: its next crash starts from the first pause again.
HEALTHY_S = 10.0
POLL_S = 0.05
STOP_S = 10.0


class Spec(NamedTuple):
    """Specification of one supervised process: `group` orders the stop (higher first)."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    group: int


class _Kept:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.pause_s = BACKOFF_FIRST_S
        self.start_at = 0.0
        self.restarts = 0
        #: Exit code of the newest process that ended by itself; None before the first, and once its successor is healthy.
        self.ended_with: int | None = None

    @property
    def is_given_up(self) -> bool:
        """True once the process has found its log damaged: another one would find the same."""
        return self.ended_with == EXIT_DAMAGED


class Supervisor:
    """Keeps processes running from `start` until `stop`; `changed` is called when a process id changed."""

    def __init__(self, logs: Path, changed: Callable[[], None] = lambda: None) -> None:
        self._logs = logs
        self._changed = changed
        #: A process id changed and `changed` has not returned since.
        self._untold = False
        #: Current failures that were already reported. A new series of the same failure is reported again.
        self._failing: set[str] = set()
        self._kept: dict[str, _Kept] = {}
        #: Held while processes are started again; take it to see them at rest.
        self.lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, spec: Spec) -> None:
        """Start a process and keep it."""
        with self.lock:
            kept = self._kept[spec.name] = _Kept(spec)
            self._start(kept)

    def watch(self) -> None:
        """Begin to restart what crashes, on a thread of its own."""
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._thread.start()

    def pids(self) -> dict[str, int]:
        """Return the ids of the running processes by name."""
        with self.lock:
            return {name: k.process.pid for name, k in self._kept.items() if k.process and k.process.poll() is None}

    def crashed(self) -> dict[str, int]:
        """Return the number of restarts of each process that was restarted."""
        with self.lock:
            return {name: kept.restarts for name, kept in self._kept.items() if kept.restarts}

    def damaged(self) -> list[str]:
        """Return the names of those processes that ended last because the log is damaged or commands are lost."""
        return self._ended_with(EXIT_DAMAGED, EXIT_COMMANDS_LOST)

    def unfit(self) -> list[str]:
        """Return the names of agents that ended last because they cannot work on their node."""
        return self._ended_with(EXIT_UNFIT)

    def _ended_with(self, *codes: int) -> list[str]:
        with self.lock:
            return [name for name, kept in self._kept.items() if kept.ended_with in codes]

    def restart(self, name: str, timeout_s: float = STOP_S) -> None:
        """End a process: TERM, then KILL at the deadline. It is then started again like one that crashed."""
        with self.lock:
            process = self._kept[name].process
        if process is not None:
            _end({name: process}, timeout_s)

    def stop(self, timeout_s: float = STOP_S) -> list[str]:
        """End all, highest group first: TERM, then KILL at the deadline. Returns whom it had to kill."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        killed: list[str] = []
        for group in sorted({kept.spec.group for kept in self._kept.values()}, reverse=True):
            members = {k.spec.name: k.process for k in self._kept.values() if k.spec.group == group and k.process}
            killed += _end(members, timeout_s)
        return killed

    def _watch(self) -> None:
        while not self._stopping.wait(POLL_S):
            with self.lock:
                for kept in self._kept.values():
                    self._attempt(f"start {kept.spec.name} again", partial(self._look_after, kept))
                if self._untold:
                    self._attempt("write down what runs", self._tell)

    def _attempt(self, what: str, act: Callable[[], None]) -> None:
        """Perform an action; log a failure once. Temporary errors (ENOSPC, EAGAIN, ENOMEM) must not end this thread: the next poll
        tries again.
        """
        try:
            act()
        except OSError as error:
            if what not in self._failing:
                self._failing.add(what)
                say(f"cannot {what}: {error}; trying until it succeeds")
        else:
            self._failing.discard(what)

    def _tell(self) -> None:
        self._changed()
        self._untold = False

    def _look_after(self, kept: _Kept) -> None:
        now = time.monotonic()
        if kept.is_given_up:
            return
        if kept.process is not None:
            code = kept.process.poll()
            if code is None:
                if kept.ended_with is not None and now - kept.started_at >= HEALTHY_S:
                    kept.ended_with, self._untold = None, True
                return
            kept.ended_with = code
            if kept.is_given_up:
                kept.process = None
                self._untold = True
                say(f"{kept.spec.name} found its log damaged and is not started again: fairlead doctor")
                return
            if now - kept.started_at >= HEALTHY_S:
                kept.pause_s = BACKOFF_FIRST_S
            kept.process, kept.start_at = None, now + kept.pause_s
            kept.pause_s = min(kept.pause_s * 2, BACKOFF_LAST_S)
        if now >= kept.start_at:
            self._start(kept)
            kept.restarts += 1
            self._untold = True

    def _start(self, kept: _Kept) -> None:
        with (self._logs / f"{kept.spec.name}.log").open("ab") as log:
            kept.process = subprocess.Popen(
                kept.spec.argv,
                env=dict(kept.spec.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        kept.started_at = time.monotonic()


def say(text: str) -> None:
    """Tell people on stderr, which `up --detach` keeps in logs/up.log."""
    # Where the disk is full, what stderr goes to may be on it.
    with contextlib.suppress(OSError):
        terminal.note(f"supervisor: {text}")


def _end(members: Mapping[str, subprocess.Popen[bytes]], timeout_s: float) -> list[str]:
    for process in members.values():
        process.terminate()
    deadline = time.monotonic() + timeout_s
    killed: list[str] = []
    for name, process in members.items():
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed.append(name)
    return killed


def end_pid(pid: int, lives: Callable[[], bool], timeout_s: float = STOP_S) -> bool:
    """End a process that is not our child: TERM, then KILL. True when it went by itself."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return True
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not lives():
                return number == signal.SIGTERM
            time.sleep(POLL_S)
    return False
