"""The front door of several gateways: haproxy reads the configuration, and sends requests to a gateway that lives."""

import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from fairlead.stack.nats_server import free_port
from tests.kit.eventually import eventually

CONFIG = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"

pytestmark = pytest.mark.skipif(
    shutil.which("haproxy") is None, reason="haproxy is not installed (apt install haproxy)"
)


def written(directory: Path, port: int, *gateways: int) -> Path:
    """The configuration with addresses of this machine in place of those of a site."""
    text = CONFIG.read_text().replace("bind :8080", f"bind 127.0.0.1:{port}")
    for number, gateway in enumerate(gateways, 1):
        text, count = re.subn(rf"gateway-{number}:8080", f"127.0.0.1:{gateway}", text)
        assert count == 1
    path = directory / "haproxy.cfg"
    path.write_text(text)
    return path


class Gateway(BaseHTTPRequestHandler):
    """Answers with its own port; healthy as long as it runs."""

    def do_GET(self) -> None:
        body = str(self.server.server_port).encode()  # pyright: ignore[reportAttributeAccessIssue] -- of the HTTP server
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def gateway() -> Iterator[ThreadingHTTPServer]:
    """A gateway on a free port, until the end of the block or its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answered_by(port: int) -> int:
    """The port of the gateway behind a front door that answers a new connection; 0 while none does."""
    try:
        return int(httpx.get(f"http://127.0.0.1:{port}/", timeout=5).text)
    except (httpx.HTTPError, ValueError):
        return 0


def test_requests_go_to_the_gateway_that_lives(tmp_path: Path) -> None:
    """Both serve; after the end of one, the other answers everything."""
    port = free_port()
    with gateway() as first, gateway() as second:
        ports = first.server_port, second.server_port
        config = written(tmp_path, port, *ports)
        done = subprocess.run(["haproxy", "-c", "-f", str(config)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        door = subprocess.Popen(
            ["haproxy", "-db", "-f", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        seen: set[int] = set()
        try:
            eventually(lambda: seen.add(answered_by(port)) or seen >= set(ports), "both gateways answer")
            second.shutdown()
            second.socket.shutdown(socket.SHUT_RDWR)
            eventually(
                lambda: [answered_by(port) for _ in range(8)] == [ports[0]] * 8,
                "the gateway that lives answers everything",
            )
        finally:
            door.kill()
            door.wait()
