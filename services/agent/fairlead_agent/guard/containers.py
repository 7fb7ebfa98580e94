"""Containers of a node's runs: asked of the Docker engine, and, where that does not answer, found by their cgroups.

Spoken over the engine's socket by hand: the guard must work where nothing but Python does. Without an engine a container's
processes are those of its cgroup, and whose they are stands in the environment that the agent gave them.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import urllib.parse
from pathlib import Path
from typing import Any

from fairlead_agent.guard.stale import Work
from fairlead_agent.guard.words import stop_after_in
from fairlead_agent.lease import Lease
from fairlead_agent.runtimes.processes import Tagged, kill_exactly, stat_identity

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
        """What runs. Raises nothing: an engine that does not answer is gone around."""
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
            told = [env for env in map(_environment, processes) if b"FAIRLEAD_NODE=" + lease.node.encode() in env]
            names = [_run_in(env) for env in told]
            if any(names):
                run, env = next((name, env) for name, env in zip(names, told, strict=True) if name)
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
