"""Supervised processes: started with their own log file, started again when they crash.

Each is a session leader of its own, so Ctrl-C reaches this supervisor alone, which then stops all in order. Stopping
signals the process itself, never its group: processes that an agent started keep running. Start at `Supervisor`.
The supervisor survives a lack of disk, memory or processes: a failure is logged once and the action is tried again.
Its thread sleeps until a process ends or something is due (`_Sleep`), so a stack at rest is not woken by it.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fairlead.render import terminal
from fairlead_schemas.wire.conditions import EXIT_COMMANDS_LOST, EXIT_DAMAGED, EXIT_NEWER, EXIT_UNFIT

#: The first restart comes at once; a process that keeps dying is given ever longer pauses.
BACKOFF_FIRST_S, BACKOFF_LAST_S = 0.1, 5.0
#: A process that ran this long is healthy: its next crash starts from the first pause again.
HEALTHY_S = 10.0
#: Between two looks where the system does not report the end of a process, and after a failure.
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
        #: Descriptor that is readable once the process has ended; None without a process, and where there is no such thing.
        self.end: int | None = None

    @property
    def is_given_up(self) -> bool:
        """True once the process has found its log damaged, or newer than itself: another one would find the same."""
        return self.ended_with in (EXIT_DAMAGED, EXIT_NEWER)

    def run(self, process: "subprocess.Popen[bytes]") -> None:
        """Take a process that has just started."""
        self.process, self.started_at = process, time.monotonic()
        # Systems without pidfd, and a lack of descriptors.
        with contextlib.suppress(AttributeError, OSError):
            self.end = os.pidfd_open(process.pid)

    def drop(self) -> None:
        """Forget the process, which has ended."""
        self.process = None
        if self.end is not None:
            os.close(self.end)
            self.end = None

    def due_s(self, now: float) -> float | None:
        """Return the time until something is to be done though the process does not end; None: never."""
        if self.is_given_up:
            return None
        if self.process is None:
            return max(0.0, self.start_at - now)
        healthy_s = None if self.ended_with is None else max(0.0, self.started_at + HEALTHY_S - now)
        return healthy_s if self.end is not None else min(POLL_S, POLL_S if healthy_s is None else healthy_s)


class _Sleep:
    """Sleep of the supervisor's thread: it ends at a time, when a descriptor is readable, or when it is broken off."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)

    def for_(self, seconds: float | None, descriptors: Sequence[int]) -> None:
        """Sleep for so long (None: without end)."""
        poll = select.poll()
        for descriptor in (self._read, *descriptors):
            poll.register(descriptor, select.POLLIN)
        # Rounded up: a look just before the time would find nothing to do, again and again.
        poll.poll(None if seconds is None else int(seconds * 1000) + 1)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def break_off(self) -> None:
        """End the present sleep, or the next one at once."""
        if self._write < 0:
            return
        with contextlib.suppress(BlockingIOError):  # full: it ends already
            os.write(self._write, b"x")

    def close(self) -> None:
        """Close its descriptors; no sleep begins after that."""
        if self._write >= 0:
            os.close(self._read)
            os.close(self._write)
            self._read = self._write = -1


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
        self._sleep = _Sleep()
        self._thread: threading.Thread | None = None

    def add(self, spec: Spec) -> None:
        """Start a process and keep it."""
        with self.lock:
            kept = self._kept[spec.name] = _Kept(spec)
            self._start(kept)
        self._sleep.break_off()

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
        """Return the names of those processes that ended last because the log is damaged or newer than they are, or commands are lost."""
        return self._ended_with(EXIT_DAMAGED, EXIT_NEWER, EXIT_COMMANDS_LOST)

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
        self._sleep.break_off()
        if self._thread is not None:
            self._thread.join()
        killed: list[str] = []
        for group in sorted({kept.spec.group for kept in self._kept.values()}, reverse=True):
            members = {k.spec.name: k.process for k in self._kept.values() if k.spec.group == group and k.process}
            killed += _end(members, timeout_s)
        for kept in self._kept.values():
            kept.drop()
        self._sleep.close()
        return killed

    def _watch(self) -> None:
        while True:
            with self.lock:
                ends, due_s = self._ends(), self._due_s()
            self._sleep.for_(due_s, ends)
            if self._stopping.is_set():
                return
            with self.lock:
                for kept in self._kept.values():
                    self._attempt(f"start {kept.spec.name} again", partial(self._look_after, kept))
                if self._untold:
                    self._attempt("write down what runs", self._tell)

    def _ends(self) -> list[int]:
        """Return the descriptors of running processes that report their ends."""
        return [kept.end for kept in self._kept.values() if kept.end is not None]

    def _due_s(self) -> float | None:
        """Return the time until a look is due though no process ends; None: never."""
        now = time.monotonic()
        dues = [due for kept in self._kept.values() if (due := kept.due_s(now)) is not None]
        if self._failing or self._untold:
            dues = [max(POLL_S, min(dues, default=POLL_S))]
        return min(dues, default=None)

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
                kept.drop()
                self._untold = True
                say(f"{kept.spec.name} found its log damaged and is not started again: fairlead doctor")
                return
            if now - kept.started_at >= HEALTHY_S:
                kept.pause_s = BACKOFF_FIRST_S
            kept.drop()
            kept.start_at = now + kept.pause_s
            kept.pause_s = min(kept.pause_s * 2, BACKOFF_LAST_S)
        if now >= kept.start_at:
            self._start(kept)
            kept.restarts += 1
            self._untold = True

    def _start(self, kept: _Kept) -> None:
        with (self._logs / f"{kept.spec.name}.log").open("ab") as log:
            process = subprocess.Popen(
                kept.spec.argv,
                env=dict(kept.spec.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        kept.run(process)


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
