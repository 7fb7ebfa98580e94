"""Applications of runs: found by the environment of their program, connected to on a port or a unix socket of the run alone."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead_agent.linux import run_ports
from fairlead_agent.linux.run_apps import (
    RunApp,
    app_in,
    app_of_program,
    connect_to_app,
    environment_of,
    serves,
)
from fairlead_agent.linux.run_ports import NoListener, held_inodes
from fairlead_schemas.policies.apps import PORT_VARIABLE, PROFILES, SOCKET_VARIABLE, TOKEN_VARIABLE, App

_SERVER = """
import os, socket, sys
path = os.environ.get("FAIRLEAD_APP_SOCKET")
if path:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
else:
    server = socket.create_server(("127.0.0.1", int(os.environ["FAIRLEAD_APP_PORT"])))
print("listens", flush=True)
while True:
    connection, _ = server.accept()
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 " + sys.argv[1].encode() + b" Words\\r\\nContent-Length: 0\\r\\n\\r\\n")
    connection.close()
"""


@contextmanager
def serving(app: App, status: str = "200") -> Iterator[int]:
    """Yield the pid of a program that serves an app."""
    child = subprocess.Popen(
        [sys.executable, "-c", _SERVER, status], env=environment_of(app), stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "listens\n"
        yield child.pid
    finally:
        child.kill()
        child.wait()


def test_an_app_is_found_and_serves(tmp_path: Path) -> None:
    """By a port that the node chose, and by a unix socket; each attempt has another secret."""
    for app in (App(PROFILES["http"]), App(PROFILES["http"], socket=str(tmp_path / "app.sock"))):
        with serving(app) as pid:
            found = app_of_program(pid)
            assert found is not None and len(found.token) == 32
            assert serves(connect_to_app(pid, {pid}, found), found)
            assert environment_of(app)[TOKEN_VARIABLE] != found.token


@pytest.mark.parametrize(
    ("status", "is_ready"), [("204", True), ("302", True), ("403", True), ("500", False), ("x", False)]
)
def test_an_app_that_answers_with_a_fault_is_not_ready(status: str, is_ready: bool) -> None:
    """A refusal is an answer; a fault of the server is what many say while they start."""
    with serving(App(PROFILES["http"]), status) as pid:
        found = app_of_program(pid)
        assert found is not None and serves(connect_to_app(pid, {pid}, found), found) is is_ready


def test_a_socket_of_another_program_is_refused(tmp_path: Path) -> None:
    """A run may lay a link to any socket of the machine at the path of its app: only its own processes count as listeners."""
    strangers = App(PROFILES["http"], socket=str(tmp_path / "stranger.sock"))
    (tmp_path / "app.sock").symlink_to(strangers.socket)
    with serving(strangers), serving(App(PROFILES["http"])) as pid:
        with pytest.raises(NoListener, match="no process of the run"):
            connect_to_app(pid, {pid}, RunApp("http", 0, str(tmp_path / "app.sock"), "/", ""))
        with pytest.raises(NoListener):
            connect_to_app(pid, {pid}, RunApp("http", 0, str(tmp_path / "none.sock"), "/", ""))


def test_a_port_of_another_program_is_refused() -> None:
    """As for tunnels: the app's own words name any port, and only one of the run is connected to."""
    with (
        socket.create_server(("127.0.0.1", 0)) as stranger,
        serving(App(PROFILES["http"])) as pid,
        pytest.raises(NoListener),
    ):
        connect_to_app(pid, {pid}, RunApp("http", stranger.getsockname()[1], "", "/", ""))


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"FAIRLEAD_APP": "http"},
        {"FAIRLEAD_APP": "http", PORT_VARIABLE: "0"},
        {"FAIRLEAD_APP": "http", PORT_VARIABLE: "x"},
        {"FAIRLEAD_APP": "http", PORT_VARIABLE: "65536"},
        {"FAIRLEAD_APP": "http", SOCKET_VARIABLE: "x"},
        {PORT_VARIABLE: "80"},
    ],
)
def test_an_environment_without_a_whole_app_has_none(environment: dict[str, str]) -> None:
    """A program may change what it hands on."""
    assert app_in(environment) is None


def test_this_process_has_no_app() -> None:
    """It was not started as one."""
    assert app_of_program(os.getpid()) is None


class _Everybody(set[int]):
    """Processes of a run, to whom everybody belongs: the check of who listens, taken out."""

    def __contains__(self, each: object) -> bool:
        return True


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
def test_an_app_leads_to_nothing_but_its_run(tmp_path: Path, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A7: neither to a socket nor to a port of another program, whatever the app says of itself; without the check of who listens, to both."""
    strangers = App(PROFILES["http"], socket=str(tmp_path / "stranger.sock"))
    (tmp_path / "app.sock").symlink_to(strangers.socket)
    if not guarded:
        every = held_inodes
        monkeypatch.setattr(run_ports, "held_inodes", lambda _: every([os.getpid()]))
    with (
        serving(strangers),
        socket.create_server(("127.0.0.1", 0)) as stranger,
        serving(App(PROFILES["http"])) as pid,
    ):
        own = {pid} if guarded else _Everybody()
        for app in (
            RunApp("http", 0, str(tmp_path / "app.sock"), "/", ""),
            RunApp("http", stranger.getsockname()[1], "", "/", ""),
        ):
            if guarded:
                with pytest.raises(NoListener):
                    connect_to_app(pid, own, app)
            else:
                connect_to_app(pid, own, app).close()
