"""SSH into a process run: a real server over a pair of sockets, asyncssh as the client."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.shell import ssh_end
from fairlead_agent.shell.run_connections import RunConnections
from fairlead_agent.shell.ssh_end import NoSsh
from tests.agent.runtime_watch import Watch, incarnation, launch
from tests.kit.eventually import eventually_async

RUN, OTHER = RunKey("1", 1, 0), RunKey("2", 1, 0)
SERVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"from inside")
    connection.close()
"""


class SshWorld:
    """A node with two runs, the first of which serves a port."""

    def __init__(self, base: Path) -> None:
        self.runtime, self.watch = ProcessRuntime(base, "n1", incarnation()), Watch()
        self.connections = RunConnections(self.runtime)
        self.tasks: list[asyncio.Task[None]] = []
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.port = 0

    async def start(self) -> None:
        """Start both runs."""
        await self.runtime.open(self.watch.handle)
        self.runtime.start(launch("1", "python3", "-I", "-S", "-c", SERVER, env={"GREETING": "hello"}))
        self.runtime.start(launch("2", "sleep", "60"))
        out, _ = self.runtime.output(RUN)
        await eventually_async(
            lambda: len(self.watch.starts) == 2 and out.exists() and out.read_bytes().endswith(b"\n")
        )
        self.port = int(out.read_text())

    async def close(self) -> None:
        """End all."""
        for each in self.tasks:
            each.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.runtime.adopt([])
        await self.runtime.close()

    def _spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.create_task(work))

    def open(self, key: RunKey = RUN) -> tuple[Any, Any]:
        """Ask the node for a connection."""
        public = self.key.export_public_key().decode().strip()
        return self.connections.to_ssh(key, public, self._spawn)

    async def connect(self, given: tuple[Any, Any] | None = None, **how: Any) -> asyncssh.SSHClientConnection:
        """Connect as the owner of the certificate."""
        inside, credentials = given or self.open()
        certificate = asyncssh.import_certificate(credentials.certificate)
        settings: dict[str, Any] = {"username": RUN.name, "client_keys": [(self.key, certificate)], **how}
        known = asyncssh.import_known_hosts(f"run {credentials.host_key}\n")
        return await asyncssh.connect("run", sock=inside, known_hosts=known, config=None, agent_path=None, **settings)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[SshWorld]:
    """A world."""
    made = SshWorld(tmp_path)
    await made.start()
    yield made
    await made.close()


async def test_commands_shells_files_and_ports_of_a_run(world: SshWorld, tmp_path: Path) -> None:
    """All over one connection; the environment is the run's, and ports are those of its own processes."""
    async with await world.connect() as there:
        ran = await there.run("echo $GREETING; echo err >&2; cat; exit 7", input="typed")
        assert (ran.stdout, ran.stderr, ran.exit_status) == ("hello\ntyped", "err\n", 7)
        killed = await there.run("kill -TERM $$")
        assert killed.exit_signal is not None and killed.exit_signal[0] == "TERM"
        shell = await there.create_process(term_type="xterm", term_size=(100, 30))
        shell.stdin.write("stty size; exit 4\n")
        assert "30 100" in (await shell.stdout.read())
        assert (await shell.wait()).exit_status == 4
        (tmp_path / "sent").write_bytes(bytes(range(256)) * 2000)
        async with there.start_sftp_client() as files:
            await files.put(str(tmp_path / "sent"), "back")
            await files.get("back", str(tmp_path / "received"))
            assert "back" in await files.listdir(".")
        assert (tmp_path / "received").read_bytes() == (tmp_path / "sent").read_bytes()
        reader, _ = await there.open_connection("localhost", world.port)
        assert await reader.read() == b"from inside"


@pytest.mark.parametrize(("host", "port"), [("169.254.169.254", 80), ("10.0.0.1", 22), ("localhost", 1), ("", 0)])
async def test_forwarding_leads_to_the_run_alone(world: SshWorld, host: str, port: int) -> None:
    """Other hosts and ports of other programs are refused; nothing can be made to listen."""
    async with await world.connect() as there:
        with pytest.raises(asyncssh.ChannelOpenError):
            await there.open_connection(host, port)
        with pytest.raises(asyncssh.ChannelListenError):
            await there.forward_remote_port("", 0, "localhost", 1)


async def test_nothing_but_a_certificate_of_the_run_opens_it(world: SshWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key alone, another key, the certificate of another run or under another name, an old one, and a password are refused."""
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    _, other = world.open(OTHER)
    old = time.time() - 3600
    with monkeypatch.context() as past:
        past.setattr(ssh_end.time, "time", lambda: old)
        _, expired = world.open()
    attempts: list[dict[str, Any]] = [
        {"client_keys": [world.key]},
        {"client_keys": [stranger]},
        {"client_keys": [(world.key, asyncssh.import_certificate(other.certificate))]},
        {"client_keys": [(world.key, asyncssh.import_certificate(expired.certificate))]},
        {"username": OTHER.name},
        {"username": "root"},
        {"client_keys": [], "password": "guess"},
    ]
    for how in attempts:
        with pytest.raises(asyncssh.PermissionDenied):
            await world.connect(**how)


async def test_host_keys_differ_between_runs_and_last_as_long(world: SshWorld) -> None:
    """A client that expects another run's host key goes no further."""
    (_, first), (inside, again), (_, other) = world.open(), world.open(), world.open(OTHER)
    assert first.host_key == again.host_key != other.host_key
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await world.connect((inside, again._replace(host_key=other.host_key)))


async def test_the_end_of_the_run_ends_its_connections(world: SshWorld) -> None:
    """With the reason."""
    there = await world.connect()
    running = asyncio.create_task(there.run("sleep 50"))
    await asyncio.sleep(0.3)
    world.runtime.kill(RUN)
    async with asyncio.timeout(10):
        await there.wait_closed()
        ended = await running
    assert (ended.exit_signal or ("",))[0] == "KILL"
    assert ended.stderr == "the run has ended\n"


@pytest.mark.parametrize(
    "data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n" + b"\xff" * 5000, b"SSH-1.5-old\r\n"]
)
async def test_bytes_that_are_no_ssh_end_the_connection_alone(world: SshWorld, data: bytes) -> None:
    """The node serves the next one."""
    inside, _ = world.open()
    reader, writer = await asyncio.open_connection(sock=inside)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(20):
        while await reader.read(65536):
            pass
    async with await world.connect() as there:
        assert (await there.run("true")).exit_status == 0


async def test_a_key_that_is_none_is_refused(world: SshWorld) -> None:
    """In words."""
    for bad in ("ssh-ed25519 AAAA", "x", 'command="id" ssh-ed25519 AAAA'):
        with pytest.raises(NoSsh, match="expected a public key"):
            world.connections.to_ssh(RUN, bad, world._spawn)
