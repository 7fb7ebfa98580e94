"""Applications of runs, found by the environment that their first process was started with, and connections to them.

Nothing is kept of an app: an agent that starts finds those of the runs that it adopts in the same way. An app listens on a port (run_ports.py)
or on a unix socket, whose path is looked up inside the run. A run may put anything at that path, a symbolic link to a socket of the
machine, too, so a connection counts only where a process of the run listens at its other end. Blocks.
"""

import os
import secrets
import socket
import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

from fairlead_agent.linux.run_ports import CONNECT_S, NoListener, connect_to_run
from fairlead_schemas.policies.apps import (
    ALIVE_VARIABLE,
    APP_VARIABLE,
    PORT_VARIABLE,
    READY_VARIABLE,
    SOCKET_VARIABLE,
    TOKEN_VARIABLE,
    App,
)

#: Of a program's environment that is read.
ENVIRONMENT_BYTES_MAX = 256 * 1024
#: Of the answer to the question whether an app serves: its status line.
ANSWER_BYTES_MAX = 64
READY_S = 5.0


class RunApp(NamedTuple):
    """Application of a run, as its program was told."""

    profile: str
    port: int
    socket: str
    ready: str
    token: str
    #: Looks at it once it has served, as `AliveCheck.text`; "": none.
    alive: str = ""


def environment_of(app: App) -> dict[str, str]:
    """Return the variables of a program that serves an app: a free port unless the job names one, and a new secret."""
    found = {APP_VARIABLE: app.profile.name, READY_VARIABLE: app.ready, TOKEN_VARIABLE: secrets.token_urlsafe(24)}
    if app.alive is not None:
        found[ALIVE_VARIABLE] = app.alive.text
    if app.socket:
        return found | {SOCKET_VARIABLE: app.socket}
    return found | {PORT_VARIABLE: str(app.port or _free_port())}


def _free_port() -> int:
    # Another program may take it meanwhile; then the app cannot listen, and ends with its own words.
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def app_of_program(pid: int) -> RunApp | None:
    """Return the app of a run by the environment of its first process; None where it has none. Raises OSError."""
    with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 -- /proc
        content = file.read(ENVIRONMENT_BYTES_MAX)
    pairs = [each.partition("=") for each in content.decode(errors="replace").split("\0")]
    return app_in({name: value for name, _, value in pairs})


def app_in(environment: Mapping[str, str]) -> RunApp | None:
    """Return the app that an environment names; None where it names none, or one that cannot be."""
    name, port, path = (environment.get(each, "") for each in (APP_VARIABLE, PORT_VARIABLE, SOCKET_VARIABLE))
    if not name or not (path.startswith("/") or (port.isdecimal() and 0 < int(port) < 2**16)):
        return None
    ready, token, alive = (environment.get(each, "") for each in (READY_VARIABLE, TOKEN_VARIABLE, ALIVE_VARIABLE))
    return RunApp(name, 0 if path else int(port), path, ready, token, alive)


def connect_to_app(pid: int, pids: Collection[int], app: RunApp) -> socket.socket:
    """Return a connection to the app of the run of process `pid`; `pids`: all its processes. Raises NoListener, OSError."""
    return _connect_path(pid, pids, app.socket) if app.socket else connect_to_run(pid, pids, app.port)


def _connect_path(pid: int, pids: Collection[int], path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(f"/proc/{pid}/root{path}")
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoListener(f"no process of the run listens on {path}") from None
        size = struct.calcsize("3i")
        listener = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
        if listener not in pids:
            raise NoListener(f"what listens on {path} is no process of the run")
        connection.setblocking(False)
    except BaseException:
        connection.close()
        raise
    return connection


def serves(connection: socket.socket, app: RunApp) -> bool:
    """Return whether an app answers on a new connection, which this ends."""
    with connection:
        if not app.ready:
            return True
        try:
            connection.settimeout(READY_S)
            # Its secret goes along: an app may show no page without.
            head = f"GET {app.ready} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: token {app.token}\r\n\r\n"
            connection.sendall(head.encode())
            words = connection.recv(ANSWER_BYTES_MAX).split(b" ", 2)
        except OSError:
            return False
    return len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1][:1] in b"1234" and words[1] != b""


def all_processes() -> list[int]:
    """Return the ids of all processes of the machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 -- names alone
