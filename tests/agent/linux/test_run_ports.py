"""Connections to ports of a run: to sockets of its own processes alone, in its own network namespace."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from fairlead_agent.linux.run_ports import NoListener, connect_to_run, held_inodes, listeners

_PROGRAM = """
import socket, sys
server = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(b"from inside")
    connection.close()
"""


@contextlib.contextmanager
def program(address: str = "127.0.0.1", *before: str) -> Iterator[tuple[int, int]]:
    """Yield (pid, port) of a program that listens."""
    child = subprocess.Popen([*before, sys.executable, "-c", _PROGRAM, address], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield child.pid, int(child.stdout.readline())
    finally:
        child.kill()
        child.wait()


def said(connection: socket.socket) -> bytes:
    """Read what the program says."""
    with connection:
        connection.settimeout(5)
        return connection.recv(100)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_port_of_the_run_is_connected_to(address: str) -> None:
    """Whether it listens on loopback or on all addresses, of either family."""
    with program(address) as (pid, port):
        assert said(connect_to_run(pid, {pid}, port)) == b"from inside"


def test_a_port_of_another_program_is_refused() -> None:
    """The bus, another run, or a service of the site listens there: it is refused as if nothing did."""
    with program() as (stranger, port), program() as (pid, _):
        assert next(each.inode for each in listeners(pid, port)) in held_inodes({stranger})
        with pytest.raises(NoListener):
            connect_to_run(pid, {pid}, port)
    with pytest.raises(NoListener):
        connect_to_run(os.getpid(), {os.getpid()}, 1)


def test_an_address_of_the_network_is_no_loopback() -> None:
    """A program that listens on another address of its own is not reached over it."""
    with program("127.0.0.2") as (pid, port), pytest.raises(NoListener):
        connect_to_run(pid, {pid}, port)


@pytest.mark.skipif(os.geteuid() != 0, reason="another network namespace needs root")
def test_a_port_in_another_network_namespace() -> None:
    """As of a container: not reached from here, and connected to from inside; the caller's own namespace stays."""
    here = os.readlink("/proc/self/ns/net")  # noqa: PTH115 -- no file
    set_up = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "-")
    with program("127.0.0.1", *set_up) as (pid, port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        for _ in range(3):
            assert said(connect_to_run(pid, {pid}, port)) == b"from inside"
    assert os.readlink("/proc/self/ns/net") == here  # noqa: PTH115 -- as above


def test_processes_that_have_gone_hold_nothing() -> None:
    """Their run ends meanwhile."""
    with program() as (pid, _):
        assert held_inodes({pid})
    began = time.monotonic()
    assert held_inodes({pid, 2**22}) == set()
    with pytest.raises(OSError):
        connect_to_run(pid, {pid}, 80)
    assert time.monotonic() - began < 1
