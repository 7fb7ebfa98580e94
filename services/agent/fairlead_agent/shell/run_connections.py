"""Connections into runs of one node: to a port, to their application, or to a command inside them; and when a person was last there.

Start at `RunConnections.to_port`.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import msgspec

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.run_apps import RunApp, all_processes, app_of_program, connect_to_app
from fairlead_agent.linux.run_ports import connect_to_run
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.shell.ssh_end import SshCredentials, SshEnds
from fairlead_agent.shell.terminal import open_terminal
from fairlead_bus.port import Message
from fairlead_schemas.wire.app_sessions import RunPresence

_decode_presence = msgspec.json.Decoder(RunPresence).decode


class NotRunning(Exception):
    """The run is not running on this node, or has no application; the message says which."""


class RunPresences:
    """When a person last acted in the application of each run, as gateways report it; Unix ns by the clock of the app proxy."""

    def __init__(self) -> None:
        self._last: dict[RunKey, int] = {}

    def begin(self, key: RunKey) -> None:
        """Note that a run has an application, in which nobody has acted so far."""
        self._last.setdefault(key, 0)

    async def answer(self, message: Message) -> bytes:
        """Note what a gateway tells."""
        with contextlib.suppress(msgspec.MsgspecError):
            told = _decode_presence(message.payload)
            key = RunKey(told.job, told.attempt, told.rank)
            self._last[key] = max(self._last.get(key, 0), told.at_ns)
        return b"{}"

    def of(self, runs: Collection[RunKey]) -> dict[RunKey, int]:
        """Return what is known of runs, and forget the others."""
        self._last = {key: at_ns for key, at_ns in self._last.items() if key in runs}
        return self._last


class RunConnections:
    """Connections into the runs of a runtime. Everything raises NotRunning, NoListener and OSError."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ssh = SshEnds(runtime, self)

    async def to_port(self, key: RunKey, port: int) -> socket.socket:
        """Return a connection to a port of a run."""
        pid, pids = await self._processes(key)
        return await asyncio.to_thread(connect_to_run, pid, pids, port)

    async def to_app(self, key: RunKey) -> tuple[socket.socket, RunApp]:
        """Return a connection to the application of a run, and what the run was told of it."""
        pid, pids = await self._processes(key)
        app = self.app(key)
        return await asyncio.to_thread(connect_to_app, pid, pids, app), app

    def to_terminal(self, key: RunKey, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> socket.socket:
        """Return a connection to a session that waits for its command; `spawn` runs the session."""
        if key not in self._runtime.programs():
            raise NotRunning("the run is not running on this node")
        return open_terminal(self._runtime, key, spawn)

    def to_ssh(
        self, key: RunKey, public_key: str, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> tuple[socket.socket, SshCredentials]:
        """Return a connection to an SSH server that leads into the run alone, and what the key's owner needs. Raises NoSsh, too."""
        if key not in self._runtime.programs():
            raise NotRunning("the run is not running on this node")
        return self._ssh.open(key, public_key, spawn)

    def app(self, key: RunKey) -> RunApp:
        """Return the application of a run."""
        pid = self._runtime.programs().get(key)
        app = app_of_program(pid) if pid is not None else None
        if app is None:
            raise NotRunning("the run has no application" if pid is not None else "the run is not running on this node")
        return app

    async def _processes(self, key: RunKey) -> tuple[int, set[int]]:
        pid = self._runtime.programs().get(key)
        if pid is None:
            raise NotRunning("the run is not running on this node")
        owners = await self._runtime.owners(all_processes())
        return pid, {each for each, owner in owners.items() if owner == key} | {pid}
