"""Client's end of a tunnel: a connection to the app proxy with a code, and local connections that are carried over tunnels.

Blocking sockets and threads: a forwarded port has a few connections. Start at `Forwarder.run`.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from fairlead.errors import FairleadError, Unreachable
from fairlead_schemas.http.tunnels import NewTunnel
from fairlead_schemas.wire.tunnels import CLIENT_END, PATH

CONNECT_S = 10.0
HEAD_MAX = 4096
PIECE_BYTES = 64 * 1024


def connect_proxy(address: str) -> socket.socket:
    """Return a connection to an app proxy. Raises Unreachable."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        connection = socket.create_connection((parts.hostname or "", port), timeout=CONNECT_S)
        if parts.scheme == "https":
            connection = ssl.create_default_context().wrap_socket(connection, server_hostname=parts.hostname)
    except OSError as error:
        raise Unreachable(f"the app proxy at {address} cannot be reached: {error}") from error
    connection.settimeout(None)
    return connection


def is_this_machine(address: str) -> bool:
    """Return whether an address is a loopback address without TLS, which a browser here reaches as it is."""
    parts = urlsplit(address)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")


def connect_tunnel(tunnel: NewTunnel) -> socket.socket:
    """Return a connection to the port inside the run. Raises Unreachable."""
    connection = connect_proxy(tunnel.address)
    connection.settimeout(CONNECT_S)
    try:
        connection.sendall(tunnel_head(tunnel))
        status = _read_head(connection).partition(b"\r\n")[0]
        if b" 101 " not in status:
            raise Unreachable(f"the app proxy refused the connection: {status.decode('latin-1')}")
        connection.settimeout(None)
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError):
            raise Unreachable(f"the app proxy at {tunnel.address} gave no answer: {error}") from error
        raise
    return connection


def tunnel_head(tunnel: NewTunnel) -> bytes:
    """Return what a client sends first."""
    host = urlsplit(tunnel.address).netloc
    head = f"GET {PATH} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: {CLIENT_END}\r\n"
    return f"{head}Authorization: Bearer {tunnel.code}\r\n\r\n".encode()


def _read_head(connection: socket.socket) -> bytes:
    """Read up to the end of a head and not a byte further: what follows is the application's."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < HEAD_MAX:
        more = connection.recv(1)
        if not more:
            break
        head += more
    return head


def carry(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes both ways until both ends have closed, or one fails; close both."""
    back = threading.Thread(target=_pass_on, args=(other, one), daemon=True)
    back.start()
    _pass_on(one, other)
    back.join()
    one.close()
    other.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(PIECE_BYTES):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Forwarder:
    """Local port whose connections lead to a port inside a run, or to an app proxy. `connect` makes one such connection, in any thread."""

    def __init__(
        self, host: str, port: int, connect: Callable[[], socket.socket], failed: Callable[[FairleadError], None]
    ) -> None:
        """Listen. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._connect, self._failed = connect, failed

    def run(self) -> None:
        """Take connections until `close`."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            far = self._connect()
        except FairleadError as error:
            self._failed(error)
            connection.close()
        else:
            carry(connection, far)
