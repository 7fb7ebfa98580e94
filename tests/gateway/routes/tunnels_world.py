"""World of gateway, app proxy and node, in which a job runs a program that listens."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from typing import Any, Self, cast

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.processes import TAG
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.process.entered_process import EnteredProcess
from fairlead_agent.shell.run_connections import RunConnections, RunPresences
from fairlead_agent.shell.tunnels import NodeTunnels
from fairlead_agent.shell.upkeep import Tasks
from fairlead_appproxy.service import AppProxy, ProxySettings
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, commit_hash, encode_commit
from fairlead_schemas.wire.terminal import (
    NODE_KINDS,
    FrameDecoder,
    FrameKind,
    StartCommand,
    TerminalFrame,
    encode_start,
)
from fairlead_schemas.wire.tunnels import CLIENT_END, PATH
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.logbook import START_NS, joined, offered, placed, started, submitted
from tests.kit.commits import commit_of
from tests.kit.eventually import eventually_async

TAG_OF_RUN = "n1:aaaa:1.1.0:/runs"
_PROGRAM = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)

def serve(connection):
    while data := connection.recv(100):
        connection.sendall(data.upper())
    connection.close()

while True:
    threading.Thread(target=serve, args=server.accept()[:1]).start()
"""


class OneRun:
    """As much of a runtime as tunnels need: one run with one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def programs(self) -> dict[RunKey, int]:
        """The run and its process."""
        return {RunKey("1", 1, 0): self.pid}

    async def owners(self, pids: Collection[int]) -> dict[int, RunKey]:
        """Its process is the run's."""
        return {self.pid: RunKey("1", 1, 0)}

    async def enter(self, key: RunKey, command: StartCommand) -> EnteredProcess:
        """Run a command with the environment of the run."""
        assert key == RunKey("1", 1, 0)
        proc = os.open(f"/proc/{self.pid}", os.O_RDONLY)
        try:
            return await EnteredProcess.start(proc, TAG_OF_RUN, command)
        finally:
            os.close(proc)


class TunnelsWorld(AccountsWorld):
    """World in which job 1 of ann runs on n1. Use `async with TunnelsWorld() as world`."""

    #: Program of the job, which prints its port; what it finds in its environment; and fields of the job's submission.
    program = _PROGRAM
    environment: Mapping[str, str] = {}
    fields: Mapping[str, Any] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._heads: dict[str, tuple[int, str, int]] = {}
        self.child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            self.program,
            stdout=subprocess.PIPE,
            env={**os.environ, TAG: TAG_OF_RUN, **self.environment},
        )
        assert self.child.stdout is not None
        self.port = int(await self.child.stdout.readline())
        self.failures: list[BaseException] = []
        self.tasks = Tasks(self.failures.append)
        self.node = NodeTunnels(RunConnections(cast(Runtime, OneRun(self.child.pid))), self.tasks.spawn)
        self.presences = RunPresences()
        node_bus = self.hub.connect()
        await node_bus.serve(subjects.rpc_node("n1", "tunnel"), self.node.answer)
        await node_bus.serve(subjects.rpc_node("n1", "presence"), self.presences.answer)
        self.proxy = AppProxy(self.hub.connect(), ProxySettings(port=0))
        self._proxying = asyncio.create_task(self.proxy.run())
        await eventually_async(lambda: self.proxy.address)
        self.ann = await self.person("ann")
        _, self.token_of_ann = await self.session(self.ann)
        await self.write("placer", joined("n1"))
        await self.write("queue", submitted("1", user=self.ann, **self.fields), offered("1"))
        await self.write("placer", placed("1"), started("1"))
        await eventually_async(lambda: self.gateway.views.jobs.rows["1"].state == "running")
        return self

    async def __aexit__(self, *what: object) -> None:
        await self.proxy.stop()
        await self._proxying
        await self.tasks.close()
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        await self.child.wait()
        assert not self.failures
        await super().__aexit__(*what)

    async def write(self, writer: str, *events: ev.Event) -> None:
        """Append one commit to the log."""
        n, prev, expected = self._heads.get(writer, (0, GENESIS, 0))
        last = (await self.bus.state(subjects.LOG)).last
        at_ns = START_NS + last
        payload = encode_commit(commit_of([*events], writer=writer, n=n + 1, basis=last, at_ns=at_ns, prev=prev))
        sequence = await self.bus.append(subjects.LOG, subjects.log(writer), payload, expected=expected)
        self._heads[writer] = (n + 1, commit_hash(payload), sequence)

    async def connect(self, token: str, **body: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a tunnel to the program and come as its client."""
        made = await self.ask("POST", "/v1/jobs/1/tunnels", body or {"port": self.port}, token=token, status=201)
        return await self.come(made)

    async def come(self, made: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Come as the client of a tunnel."""
        host, _, port = made["address"].partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"GET {PATH} HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: {CLIENT_END}\r\n"
        writer.write(f"{head}Authorization: Bearer {made['code']}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        return reader, writer

    async def terminal(self, token: str, *argv: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Run a command in the run."""
        end = await self.connect(token, to="terminal")
        end[1].write(encode_start(StartCommand(argv=[*argv], input=True)))
        return end


async def frames_of(end: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> list[TerminalFrame]:
    """Read the frames of a terminal to its end."""
    decoder, found = FrameDecoder(NODE_KINDS), list[TerminalFrame]()
    async with asyncio.timeout(10):
        while not found or found[-1].kind is not FrameKind.EXIT:
            data = await end[0].read(65536)
            if not data:
                break
            found += decoder.feed(data)
    end[1].close()
    return found


async def echo(end: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    """Send a word through a tunnel and return what comes back."""
    reader, writer = end
    writer.write(b"word")
    return await reader.read(100)


async def is_cut(end: tuple[asyncio.StreamReader, asyncio.StreamWriter], within_s: float = 5.0) -> bool:
    """Wait until a tunnel is cut."""
    try:
        async with asyncio.timeout(within_s):
            return await end[0].read(100) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False
