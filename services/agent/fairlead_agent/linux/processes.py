"""Processes of the machine, looked up in /proc by the tag in their environment, and by their mark; and container of a
process, read from its control groups: engines name them by the container's id.

A tag is `FAIRLEAD_RUN=<node>:<incarnation>:<run>:<directory>`; children inherit it. The directory is the agent's: with
the node it names one installation, whatever journals follow each other in it. Reading every environment
costs milliseconds: only after an agent's restart, and where a run's group would not vanish.

A mark is a number that a spawner has given to one run (process/spawner.py): a limit that children inherit, also those
that are started with another environment.
"""

import contextlib
import os
import re
import resource
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

# ruff: noqa: PTH123, PTH208 -- reads thousands of small files of /proc: plain system calls on strings


TAG = "FAIRLEAD_RUN"
#: RLIMIT_LOCKS, which limits nothing since Linux 2.4.25.
MARK = 10


class Tagged(NamedTuple):
    """Process of a run."""

    pid: int
    run: str
    start_time: int  # clock ticks since boot: with the pid it names one process for good
    leads: bool  # its session's leader: the run's own program, or one that made a session


def tag_prefix(node: str, incarnation: str) -> str:
    """Return the prefix of the tags of one agent's runs; several agents may share a machine."""
    return f"{node}:{incarnation[:12]}:"


def tag(prefix: str, run: str, directory: str) -> str:
    """The tag of one run."""
    return f"{prefix}{run}:{directory}"


def tagged(prefix: str) -> list[Tagged]:
    """Every living process whose tag begins with `prefix`; `run` is what follows of the run's name."""
    return [process._replace(run=process.run.partition(":")[0]) for process in _tags(prefix)]


def left_by_others(node: str, incarnation: str, directory: str) -> list[Tagged]:
    """Every living process that an agent of this node and directory has started under another journal."""
    found: list[Tagged] = []
    for process in _tags(node + ":"):
        other, run, where = [*process.run.split(":", 2), "", ""][:3]
        if where == directory and other != incarnation[:12]:
            found.append(process._replace(run=run))
    return found


def _tags(prefix: str) -> Iterator[Tagged]:
    needle = f"\0{TAG}={prefix}".encode()
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
                rest = os.fsdecode(environ[at + len(needle) :].partition(b"\0")[0])
                yield Tagged(int(name), rest, identity[0], identity[1] == int(name))


#: So many generations are followed up.
PARENTS_MAX = 64


def run_of(pid: int, prefix: str) -> str:
    """The name of the run that a process is of, by its tag or that of the nearest parent that has one; "" of no run of this
    agent."""
    needle = f"\0{TAG}={prefix}".encode()
    for _ in range(PARENTS_MAX):
        if pid <= 1:
            return ""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = b"\0" + file.read()
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            return ""  # gone, or another user's
        at = environ.find(needle)
        if at >= 0:
            return os.fsdecode(environ[at + len(needle) :].partition(b"\0")[0]).partition(":")[0]
    return ""


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


def signal_tagged(whole: str, number: int) -> None:
    """A signal to every process of one run, by its tag up to the run's name."""
    for process in tagged(whole):
        if process.run == "":  # the name ends here: this run, not one whose name begins alike
            kill_exactly(process, number)


def marked(marks: Collection[int]) -> list[tuple[int, int]]:
    """(process id, mark) of every process of this user with one of these marks; 0 is no mark."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()] if any(marks) else []
    found = ((pid, mark_of(pid)) for pid in pids)
    return [(pid, mark) for pid, mark in found if mark and mark in marks]


def mark_of(pid: int) -> int:
    """The mark of a process; 0 of one that is gone or another user's."""
    try:
        return resource.prlimit(pid, MARK)[1]
    except OSError:
        return 0


def kill_marked(marks: Collection[int]) -> set[int]:
    """KILL to every living process with one of these marks; the marks that were found."""
    found: set[int] = set()
    for pid, mark in marked(marks):
        identity = stat_identity(pid)
        if identity is not None:
            found.add(mark)
            kill_exactly(Tagged(pid, "", identity[0], leads=False))
    return found


async def end_exactly(process: Tagged) -> None:
    """KILL to one process, and wait until it is gone with all its threads, a zombie at most."""
    import asyncio  # not for the guard, which is to stay small

    pidfd = open_exactly(process)
    if pidfd is None:
        return
    gone, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(pidfd, gone.set)
    try:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        await gone.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


#: "/docker/<id>" (cgroupfs), "docker-<id>.scope" (systemd), on version 1 and 2 of control groups alike.
_ID = re.compile(r"(?:/|-)([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)


def container_in(cgroups: str) -> str:
    """The id in the content of /proc/<pid>/cgroup; "" for a process that is in none."""
    found = _ID.search(cgroups)
    return found[1] if found is not None else ""


def container_of(pid: int) -> str:
    """The id of the container that the process is in; "" for one that is in none, or gone."""
    try:
        return container_in(Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return ""
