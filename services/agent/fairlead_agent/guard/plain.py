"""Plain processes of a node's runs: found by the tag in their environment, as children of the node's spawner, and by the mark
that the spawner has given to each run.

The other two are for programs with another environment; the second works while their spawner lives.
"""

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fairlead_agent.guard.stale import Work
from fairlead_agent.guard.words import stop_after_in
from fairlead_agent.lease import Lease
from fairlead_agent.runtimes.processes import Tagged, kill_exactly, marked, stat_identity, tag_prefix, tagged

SPAWNED, SPAWNER = "spawned", b"spawner.py"


class Spawned(NamedTuple):
    """A run's program in the spawner's file, and its mark; 0: an older spawner gave it none."""

    pid: int
    mark: int


class Processes:
    """The runs of one agent's directory that are plain processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: dict[str, list[Tagged]] = {}

    def look(self, lease: Lease) -> list[Work]:
        """What runs."""
        self._found = {}
        spawned = _spawned(self._directory / SPAWNED)
        for process in [
            *tagged(tag_prefix(lease.node, lease.incarnation)), *self._children(spawned), *_marked(spawned)
        ]:  # fmt: skip
            known = self._found.setdefault(process.run, [])
            if all(process.pid != each.pid for each in known):
                known.append(process)
        return [Work(run, _stop_after(processes)) for run, processes in self._found.items()]

    def send(self, run: str, number: signal.Signals) -> None:
        """A signal to the run's group; KILL also to what has left it."""
        for process in self._found.get(run, ()):
            if process.leads:
                _to_group(process, number)
            elif number == signal.SIGKILL:
                kill_exactly(process, number)

    def _children(self, spawned: Mapping[str, Spawned]) -> list[Tagged]:
        """Leaders that the spawner's file names and whose parent is that spawner."""
        found: list[Tagged] = []
        for run, (pid, _) in spawned.items():
            identity = stat_identity(pid)
            if identity is not None and identity[1] == pid and self._is_ours(pid):
                found.append(Tagged(pid, run, identity[0], leads=True))
        return found

    def _is_ours(self, pid: int) -> bool:
        try:
            parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1].decode()
            words = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            return False
        spawner = any(word.endswith(SPAWNER) for word in words)
        return spawner and os.fsencode(self._directory.absolute()) in words


def _marked(spawned: Mapping[str, Spawned]) -> list[Tagged]:
    """Whatever carries the mark of one of these runs."""
    runs = {mark: run for run, (_, mark) in spawned.items() if mark}
    found = ((pid, runs[mark], stat_identity(pid)) for pid, mark in marked(runs))
    return [Tagged(pid, run, who[0], leads=who[1] == pid) for pid, run, who in found if who is not None]


def _spawned(path: Path) -> dict[str, Spawned]:
    """Runs that were started and whose end is not in the file."""
    found: dict[str, Spawned] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            what, run, value, mark = [*line.split(), "", "", "", ""][:4]
            if what == "S" and value.isdecimal():
                found[run] = Spawned(int(value), int(mark) if mark.isdecimal() else 0)
            elif what == "E":
                found.pop(run, None)
    return found


def _stop_after(processes: list[Tagged]) -> int:
    """As the run's own program was told, not what a child of it says."""
    leader = next((process for process in processes if process.leads), processes[0])
    try:
        return stop_after_in(Path(f"/proc/{leader.pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return 0


def _to_group(leader: Tagged, number: signal.Signals) -> None:
    identity = stat_identity(leader.pid)
    if identity is not None and identity[0] == leader.start_time:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, number)
