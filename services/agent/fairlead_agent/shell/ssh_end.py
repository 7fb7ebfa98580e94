"""SSH end of a run on its node: shells, commands, sftp and ports, for `fairlead ssh`. Nothing listens: a connection comes over a tunnel.

Each run has a host key and an authority for certificates of people, both made when somebody first asks and kept in memory alone.
A certificate is good for the run that it names, for five minutes. asyncssh is an extra of the installation: without it, SSH is refused
and all else works. Start at `SshEnds.open`.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.port import Runtime

if TYPE_CHECKING:
    import asyncssh

    from fairlead_agent.shell.run_connections import RunConnections

CERTIFICATE_S = 300
#: Clocks of one machine may be set back a little.
CLOCK_S = 30
LOGIN_S, KEEPALIVE_S, KEEPALIVES_LOST = 15.0, 15.0, 4
#: Between looks whether the run is still there.
LOOK_S = 1.0

_log = structlog.get_logger()


class NoSsh(Exception):
    """This node serves no SSH; the message says why."""


class RunKeys(NamedTuple):
    """Keys of one run's end: its host key, and the authority whose certificates open it."""

    host: "asyncssh.SSHKey"
    authority: "asyncssh.SSHKey"


class SshCredentials(NamedTuple):
    """What a client needs: the host's public key, and its own certificate, each a line as OpenSSH writes them."""

    host_key: str
    certificate: str


class SshEnds:
    """SSH ends of the runs of one node."""

    def __init__(self, runtime: Runtime, connections: "RunConnections") -> None:
        self._runtime, self._connections = runtime, connections
        self._keys: dict[RunKey, RunKeys] = {}

    def open(
        self, key: RunKey, public_key: str, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> tuple[socket.socket, SshCredentials]:
        """Return a connection to an SSH server for this run alone, and what the owner of the public key needs. Raises NoSsh."""
        try:
            import asyncssh
        except ImportError:
            raise NoSsh("the node serves no SSH: its installation lacks the extra `ssh`") from None
        try:
            person = asyncssh.import_public_key(public_key)
        except asyncssh.KeyImportError:
            raise NoSsh("expected a public key as OpenSSH writes it, in `public_key`") from None
        running = self._runtime.programs()
        self._keys = {each: keys for each, keys in self._keys.items() if each in running}
        keys = self._keys.get(key)
        if keys is None:
            keys = self._keys[key] = RunKeys(*(asyncssh.generate_private_key("ssh-ed25519") for _ in range(2)))
        now = int(time.time())
        certificate = keys.authority.generate_user_certificate(
            person,
            key.name,
            principals=[key.name],
            valid_after=now - CLOCK_S,
            valid_before=now + CERTIFICATE_S,
            permit_x11_forwarding=False,
            permit_agent_forwarding=False,
        )
        inside, mine = socket.socketpair()
        for each in (inside, mine):
            each.setblocking(False)
        spawn(self._serve(key, keys, mine))
        host, signed = keys.host.export_public_key().decode(), certificate.export_certificate().decode()
        return inside, SshCredentials(host.strip(), signed.strip())

    async def _serve(self, key: RunKey, keys: RunKeys, stream: socket.socket) -> None:
        """Serve one connection to its end, which is the run's at the latest. Raises nothing but CancelledError."""
        import asyncssh
        from asyncssh.constants import DISC_BY_APPLICATION

        from fairlead_agent.shell.ssh_session import server_of

        connection: asyncssh.SSHServerConnection | None = None
        authority = f"cert-authority {keys.authority.export_public_key().decode().strip()}"
        try:
            connection = await asyncssh.run_server(
                stream,
                server_factory=server_of(self._runtime, self._connections, key),
                server_host_keys=[keys.host],
                authorized_client_keys=asyncssh.import_authorized_keys(authority),
                password_auth=False,
                kbdint_auth=False,
                host_based_auth=False,
                gss_host=None,
                encoding=None,
                line_editor=False,
                agent_forwarding=False,
                x11_forwarding=False,
                allow_scp=False,
                login_timeout=LOGIN_S,
                keepalive_interval=KEEPALIVE_S,
                keepalive_count_max=KEEPALIVES_LOST,
            )
            ended = asyncio.ensure_future(connection.wait_closed())
            while not (await asyncio.wait({ended}, timeout=LOOK_S))[0]:
                if key not in self._runtime.programs():
                    connection.disconnect(DISC_BY_APPLICATION, "the run has ended")
        except (asyncssh.Error, OSError, TimeoutError) as error:
            _log.info("ssh refused", run=key.name, reason=str(error))
        except Exception as error:  # noqa: BLE001 -- one connection must not end its agent
            _log.error("an SSH connection has failed", run=key.name, exc_info=error)
        finally:
            if connection is not None:
                connection.abort()
            with contextlib.suppress(OSError):
                stream.close()
