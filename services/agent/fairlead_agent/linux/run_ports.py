"""Ports that a run's own processes listen on, and connections to them from inside the run's network namespace.

A port of the machine may belong to anybody: to the bus, to another run, to a service of the site. So a connection is made only to a
socket that one of the run's processes holds open, and to 127.0.0.1 or ::1 of the namespace that the run is in. Blocks.
"""

import os
import socket
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

CONNECT_S = 5.0
_LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp (proc(5))
_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


class Listener(NamedTuple):
    """Socket that listens: its inode, and the address by which it is reached from inside."""

    inode: int
    family: socket.AddressFamily


class NoListener(Exception):
    """No process of the run listens on the port."""


def listeners(pid: int, port: int) -> list[Listener]:
    """Return the sockets that listen on a port in the namespace of a process, on loopback or on any address. Raises OSError."""
    found: list[Listener] = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        found += [Listener(inode, family) for inode in _inodes(lines, port)]
    return found


def _inodes(lines: list[str], port: int) -> Iterator[int]:
    for line in lines:
        words = line.split()
        host, _, hexadecimal = words[1].partition(":")
        if words[3] == _LISTENING and int(hexadecimal, 16) == port and _is_reached_by_loopback(host):
            yield int(words[9])


def _is_reached_by_loopback(host: str) -> bool:
    # Bytes of each word are in the machine's order; zeros are any address.
    return not host.strip("0") or host in ("0100007F", "00000000000000000000000001000000")


def held_inodes(pids: Collection[int]) -> set[int]:
    """Return the inodes of all sockets that these processes hold open. Processes that have gone hold none."""
    found: set[int] = set()
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 -- thousands of them
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115 -- as above
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


def connect_to_run(pid: int, pids: Collection[int], port: int) -> socket.socket:
    """Return a connection to the port of a run, made inside the namespace of its process `pid`; `pids`: all its processes.

    Raises NoListener; OSError where it cannot be connected to.
    """
    held = held_inodes(pids)
    own = next((each for each in listeners(pid, port) if each.inode in held), None)
    if own is None:
        raise NoListener(f"no process of the run listens on port {port} of 127.0.0.1 or ::1")
    return _connect_inside(pid, own.family, port)


def _connect_inside(pid: int, family: socket.AddressFamily, port: int) -> socket.socket:
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(namespace).st_ino == Path("/proc/self/ns/net").stat().st_ino:
            return _connect(family, port)
        return _InThread(namespace, family, port).result()
    finally:
        os.close(namespace)


def _connect(family: socket.AddressFamily, port: int) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(CONNECT_S)
        connection.connect((_LOOPBACK[family], port))
        connection.setblocking(False)
    except BaseException:
        connection.close()
        raise
    return connection


class _InThread:
    """Connection made by a thread that enters another network namespace and ends: a namespace belongs to a thread, and a socket
    stays in the one where it was made.
    """

    def __init__(self, namespace: int, family: socket.AddressFamily, port: int) -> None:
        self._target = namespace, family, port
        self._found: socket.socket | None = None
        self._error: OSError | None = None

    def result(self) -> socket.socket:
        """Return the connection. Raises OSError."""
        thread = threading.Thread(target=self._work, name="run-port", daemon=True)
        thread.start()
        thread.join()
        if self._found is None:
            raise self._error or OSError("the namespace of the run cannot be entered")
        return self._found

    def _work(self) -> None:
        namespace, family, port = self._target
        try:
            os.setns(namespace, os.CLONE_NEWNET)
            self._found = _connect(family, port)
        except OSError as error:
            self._error = error
