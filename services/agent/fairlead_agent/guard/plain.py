"""Plain processes of a node's runs: found by the tag in their environment, and as children of the node's spawner.

The second way is for programs that have overwritten their environment; it works while their spawner lives.
"""

import contextlib
import os
import signal
from pathlib import Path

from fairlead_agent.guard.stale import Work
from fairlead_agent.guard.words import stop_after_in
from fairlead_agent.lease import Lease
from fairlead_agent.runtimes.processes import Tagged, kill_exactly, stat_identity, tag_prefix, tagged

SPAWNED, SPAWNER = "spawned", b"spawner.py"


class Processes:
    """The runs of one agent's directory that are plain processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: dict[str, list[Tagged]] = {}

    def look(self, lease: Lease) -> list[Work]:
        """What runs."""
        self._found = {}
        for process in [*tagged(tag_prefix(lease.node, lease.incarnation)), *self._children()]:
            self._found.setdefault(process.run, []).append(process)
        return [Work(run, _stop_after(processes)) for run, processes in self._found.items()]

    def send(self, run: str, number: signal.Signals) -> None:
        """A signal to the run's group; KILL also to what has left it."""
        for process in self._found.get(run, ()):
            if process.leads:
                _to_group(process, number)
            elif number == signal.SIGKILL:
                kill_exactly(process, number)

    def _children(self) -> list[Tagged]:
        """Leaders that the spawner's file names and whose parent is that spawner."""
        found: list[Tagged] = []
        for run, pid in _spawned(self._directory / SPAWNED).items():
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


def _spawned(path: Path) -> dict[str, int]:
    """{run: process id} of those that were started and whose end is not in the file."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            what, run, value = [*line.split(), "", "", ""][:3]
            if what == "S" and value.isdecimal():
                found[run] = int(value)
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
