"""Processes of the machine, looked up in /proc by the tag in their environment.

A tag is `FAIRLEAD_RUN=<node>:<incarnation>:<run>`; children inherit it. Reading every environment
costs milliseconds: only after an agent's restart, and where a run's group would not vanish.
"""

# ruff: noqa: PTH123, PTH208 -- reads thousands of small files of /proc: plain system calls on strings

import contextlib
import os
import signal
from typing import NamedTuple

TAG = "FAIRLEAD_RUN"


class Tagged(NamedTuple):
    """One process of a run."""

    pid: int
    run: str
    start_time: int  # clock ticks since boot: with the pid it names one process for ever
    leads: bool  # its session's leader: the run's own program, or one that made a session


def tag_prefix(node: str, incarnation: str) -> str:
    """What the tags of one agent's runs begin with; several agents may share a machine."""
    return f"{node}:{incarnation[:12]}:"


def tagged(prefix: str) -> list[Tagged]:
    """Every living process whose tag begins with `prefix`."""
    needle = f"\0{TAG}={prefix}".encode()
    found: list[Tagged] = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    environ = b"\0" + file.read()
            except OSError:
                continue  # gone, or another user's
            at = environ.find(needle)
            identity = stat_identity(int(name)) if at >= 0 else None
            if identity is not None:
                run = environ[at + len(needle) :].partition(b"\0")[0].decode(errors="replace")
                found.append(Tagged(int(name), run, identity[0], identity[1] == int(name)))
    return found


def stat_identity(pid: int) -> tuple[int, int] | None:
    """(start time, session id) of a living process; None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[19]), int(fields[3]))


def open_exactly(process: Tagged) -> int | None:
    """A pidfd of one living process, not of another that got its number since; the caller closes it."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return None
    identity = stat_identity(process.pid)
    if identity is not None and identity[0] == process.start_time:
        return pidfd
    os.close(pidfd)
    return None


def kill_exactly(process: Tagged, number: int = signal.SIGKILL) -> None:
    """A signal to one process, not to another that got its number since."""
    pidfd = open_exactly(process)
    if pidfd is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(pidfd, number)
        os.close(pidfd)
