"""A container's processes, seen from the machine: to know of their end, and to end them when the engine does not answer.

A process is one of a container's when the kernel says so (its cgroup's path holds the container's full id), never
because of a number alone. Where the agent cannot see the machine's processes, nothing is found.
"""

# ruff: noqa: PTH123, PTH208 -- small files of /proc, as in processes.py

import os
import signal

from fairlead_agent.runtimes.processes import Tagged, kill_exactly, stat_identity


def first_of(pid: int, container: str) -> Tagged | None:
    """The container's first process, as the engine says its number; when it ends, the kernel ends the others."""
    identity = stat_identity(pid) if pid > 0 else None
    if identity is None or not _is_in(pid, container):
        return None
    return Tagged(pid, container, identity[0], leads=True)


def lives(process: Tagged) -> bool:
    """Whether it is still there, and not another one under its number."""
    identity = stat_identity(process.pid)
    return identity is not None and identity[0] == process.start_time


def all_of(container: str) -> list[Tagged]:
    """Every living process of a container; reads a file per process of the machine."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [process for pid in pids if (process := first_of(pid, container)) is not None]


def signal_directly(container: str, first: Tagged | None, number: int) -> bool:
    """The signal, without the engine: to the first process, which passes TERM on; where it is not known, to all. False
    when none was found."""
    if first is not None:
        kill_exactly(first, number)
        return True
    found = all_of(container)
    for process in found:
        kill_exactly(process, number)
    return bool(found)


def _is_in(pid: int, container: str) -> bool:
    try:
        with open(f"/proc/{pid}/cgroup", "rb") as file:
            return len(container) >= 12 and container.encode() in file.read()
    except OSError:
        return False


def number_of(name: str) -> int:
    """Of an engine's event: "15" or "SIGTERM"; 0 for what is neither."""
    if name.isdecimal():
        return int(name)
    return getattr(signal, name if name.startswith("SIG") else f"SIG{name}", 0)
