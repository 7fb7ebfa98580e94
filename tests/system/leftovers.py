"""Processes left by a stopped cluster. Its agents leave their jobs' processes alone, as they should; a test may not.
All of them name the cluster's directory: services and agents by a variable, runs by the tag that their agents give
them, the processes that start them (spawners) by an argument. Start at `end`."""

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from fairlead_agent.guard.work import SPAWNER
from fairlead_agent.linux.processes import TAG, stat_identity

#: What was killed goes as soon as the kernel gets to it, and what serves a process that has ended sees that and ends, too.
GONE_S = 60.0


class Process(NamedTuple):
    """One that names the directory. `of_agent`: an agent started it to live on without it."""

    pid: int
    words: str
    of_agent: bool


def named(directory: Path) -> list[Process]:
    """Living processes that name the directory, or one below it, in their environment or command line; never this one."""
    found = (_process(int(entry.name), os.fsencode(directory)) for entry in Path("/proc").glob("[0-9]*"))
    return [process for process in found if process is not None]


def _process(pid: int, directory: bytes) -> Process | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None  # gone
    if pid == os.getpid() or stat_identity(pid) is None or directory not in environment + words:
        return None
    tagged = any(each.startswith(os.fsencode(TAG) + b"=") for each in environment.split(b"\0"))
    of_agent = tagged or any(word.endswith(SPAWNER) for word in words.split(b"\0"))
    return Process(pid, words.replace(b"\0", b" ").decode(errors="replace").strip(), of_agent)


def end(directory: Path) -> list[str]:
    """KILL to what the directory's agents have started, and wait until nothing names it. Returns the command lines of what then
    still runs: nobody knows of it any more."""
    deadline = time.monotonic() + GONE_S
    while (found := named(directory)) and time.monotonic() < deadline:
        for process in found:
            if process.of_agent:
                _kill(process.pid)
        time.sleep(0.05)
    return [process.words for process in found]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
