"""A real stack with sign-on: a web server in a job is reached over `fairlead port-forward`, and by no user without the right."""

import contextlib
import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line_stack import CommandLineStack
from tests.kit.eventually import eventually

pytestmark = [pytest.mark.nats, pytest.mark.slow]


@contextlib.contextmanager
def forwarded(stack: CommandLineStack, *words: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """Yield (port, process) of a `fairlead port-forward`."""
    argv = [sys.executable, "-m", "fairlead", "port-forward", *words]
    child = subprocess.Popen(argv, env=stack.env, cwd=stack.data, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stderr is not None
        said = child.stderr.readline()
        found = re.search(r"forwarding 127\.0\.0\.1:(\d+) -> port \d+ of the job", said)
        assert found is not None, said + child.stderr.read()
        yield int(found[1]), child
    finally:
        child.kill()
        child.wait()


def page(port: int, path: str) -> tuple[int, bytes]:
    """Ask for a page over a forwarded port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def refuses(port: int) -> bool:
    """Return True where a connection gets no answer."""
    try:
        page(port, "/")
    except (OSError, http.client.HTTPException):
        return True
    return False


def test_a_web_server_in_a_job_is_reached(tmp_path: Path) -> None:
    """Pages small and large, several at once; cut when the job ends, and refused for ports of others."""
    stack = CommandLineStack(tmp_path)
    (served := tmp_path / "served").mkdir()
    (served / "small").write_text("hello")
    (served / "large").write_bytes(b"x" * 50_000_000)
    try:
        stack.up("--nodes", "1")
        port = free_port()
        server = (sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(served))
        job = stack.ok("submit", "--gpus", "1", "--", *server).strip()
        eventually(lambda: stack.run("show", job, "-o", "json").stdout.count('"running"'), "the job runs")
        with forwarded(stack, job, f"0:{port}") as (local, child):
            eventually(lambda: not refuses(local), "the program listens")
            assert page(local, "/small") == (200, b"hello")
            began = time.process_time()
            status, body = page(local, "/large")
            assert status == 200 and len(body) == 50_000_000
            assert time.process_time() - began < 5
            stack.ok("cancel", job)
            eventually(lambda: refuses(local), "the tunnel ends with the job")
            assert child.poll() is None
        refused = stack.run("port-forward", job, "6006")
        assert refused.returncode == 5 and "only a job that runs has ports" in refused.stderr
        wrong = stack.run("port-forward", job, "x:6006")
        assert (
            wrong.returncode == 2
            and 'expected PORT or LOCAL:PORT with numbers up to 65535, found "x:6006"' in wrong.stderr
        )
    finally:
        stack.run("down", "--jobs")


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
