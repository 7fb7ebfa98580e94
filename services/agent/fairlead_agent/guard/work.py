"""Plain processes of a node's runs: found by the tag in their environment, as children of the node's spawner, and by the mark
that the spawner has given to each run.

The other two are for programs with another environment; the second works while their spawner lives.

Containers of a node's runs: listed by the Docker engine or, if the engine does not answer, found by their cgroups.

The engine's socket is used without a client library: the guard must work where only Python does. Without an engine a
container's processes are those of its cgroup; the environment that the agent gave them names their run.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fairlead_agent.core.lease import Lease, stop_after_in
from fairlead_agent.guard.policy import Work
from fairlead_agent.linux.processes import Tagged, kill_exactly, marked, stat_identity, tag_prefix, tagged

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
        """Return the running work."""
        self._found = {}
        spawned = _spawned(self._directory / SPAWNED)
        for process in [
            *tagged(tag_prefix(lease.node, lease.incarnation)),
            *self._children(spawned),
            *_marked(spawned),
        ]:
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
    """Return the processes that carry the mark of one of these runs."""
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
    """Return the stop-after time from the environment of the run's own program, not of a child; 0 if it cannot be read."""
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


SOCKET = "/var/run/docker.sock"
#: An engine that takes longer hangs; then the cgroups are looked at.
ENGINE_TIMEOUT_S = 5.0
_CGROUP = re.compile(r"[/-]([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)


def socket_of(docker_host: str) -> str:
    """The engine's socket, as DOCKER_HOST names it."""
    return docker_host.removeprefix("unix://") if docker_host.startswith("unix://") else SOCKET


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ENGINE_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Containers:
    """The runs of one node that are containers."""

    def __init__(self, path: str) -> None:
        self._path = path
        #: {run: container id}, or, without an engine, {run: its processes}.
        self._ids: dict[str, str] = {}
        self._processes: dict[str, list[Tagged]] = {}

    def look(self, lease: Lease) -> list[Work]:
        """Return the running work. Raises nothing: if the engine does not answer, the cgroups are read instead."""
        self._ids, self._processes = {}, {}
        try:
            return self._ask(lease)
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return self._in_cgroups(lease)

    def send(self, run: str, number: signal.Signals) -> None:
        """A signal to the container; by the kernel where the engine does not send it."""
        if run in self._ids:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._call("POST", f"/containers/{self._ids[run]}/kill?signal={number.name}")
                return
        for process in self._processes.get(run, ()) or _of_container(self._ids.get(run, "")):
            kill_exactly(process, number)

    def _ask(self, lease: Lease) -> list[Work]:
        wanted = {"label": [f"fairlead.node={lease.node}", f"fairlead.incarnation={lease.incarnation}"]}
        query = urllib.parse.urlencode({"filters": json.dumps(wanted)})
        found: list[Work] = []
        for container in self._call("GET", f"/containers/json?{query}"):
            label = container["Labels"]
            run = f"{label['fairlead.job']}.{label['fairlead.attempt']}.{label['fairlead.rank']}"
            env: list[str] = self._call("GET", f"/containers/{container['Id']}/json")["Config"]["Env"] or []
            self._ids[run] = container["Id"]
            found.append(Work(run, stop_after_in([os.fsencode(line) for line in env])))
        return found

    def _call(self, method: str, target: str) -> Any:
        connection = _Connection(self._path)
        try:
            connection.request(method, target)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status >= 500:
            raise OSError(f"the engine answered {answer.status} to {method} {target}")
        return json.loads(body) if body and answer.status < 400 else {}

    def _in_cgroups(self, lease: Lease) -> list[Work]:
        """Every process of a container one of whose processes was given this node's name."""
        containers: dict[str, list[Tagged]] = {}
        for process in _contained():
            containers.setdefault(process.run, []).append(process)
        found: list[Work] = []
        for processes in containers.values():
            environments = [
                env for env in map(_environment, processes) if b"FAIRLEAD_NODE=" + lease.node.encode() in env
            ]
            names = [_run_in(env) for env in environments]
            if any(names):
                run, env = next((name, env) for name, env in zip(names, environments, strict=True) if name)
                self._processes[run] = processes
                found.append(Work(run, stop_after_in(env)))
        return found


def _contained() -> list[Tagged]:
    """Every process in a container; `run` is the container's id."""
    found: list[Tagged] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 -- thousands of small names
        with contextlib.suppress(OSError):
            match = _CGROUP.search(Path(f"/proc/{name}/cgroup").read_text(errors="replace"))
            identity = stat_identity(int(name)) if match else None
            if match and identity:
                found.append(Tagged(int(name), match[1], identity[0], leads=False))
    return found


def _of_container(container: str) -> list[Tagged]:
    return [process for process in _contained() if container and process.run == container]


def _environment(process: Tagged) -> list[bytes]:
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _run_in(environment: list[bytes]) -> str:
    """The run that an environment belongs to; "" for none."""
    values = dict(line.split(b"=", 1) for line in environment if b"=" in line)
    parts = [
        values.get(name, b"").decode(errors="replace")
        for name in (b"FAIRLEAD_JOB", b"FAIRLEAD_ATTEMPT", b"FAIRLEAD_RANK")
    ]
    return ".".join(parts) if all(parts) else ""
