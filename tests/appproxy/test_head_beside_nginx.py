"""Heads that the proxy takes, read by a real nginx: the same method, target and host, and the next request begins at the same byte."""

import random
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.stack.nats_server import free_port
from fairlead_appproxy.head import CHUNKED, CarriedRequest, HeadRefused, end_of_head, read_request
from tests.appproxy.heads import GET, POST, mutated, with_line
from tests.kit.eventually import eventually

HEADS = 150
SECOND = b"GET /second HTTP/1.1\r\nHost: second\r\nConnection: close\r\n\r\n"
#: What nginx has read of a request is its answer.
_CONFIG = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log crit;
events {{ worker_connections 100; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  large_client_header_buffers 4 40k; keepalive_timeout 5s; client_body_timeout 5s; client_header_timeout 5s; lingering_close off;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "[$request_method $request_uri $http_host]"; }} }}
}}
"""


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of an nginx that says what it reads."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("nginx: not installed (apt-get install nginx-light)")
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    config: Path = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, port=port))
    process = subprocess.Popen([program, "-c", str(config), "-e", str(folder / "error.log")])
    try:
        eventually(lambda: socket.create_connection(("127.0.0.1", port)).close() or True, not_yet=(OSError,))
        yield port
    finally:
        process.kill()
        process.wait()


def said(port: int, data: bytes) -> bytes:
    """Send bytes, and return everything that comes until the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data)
        found = b""
        try:
            while piece := connection.recv(65536):
                found += piece
        except ConnectionError:  # it closes with bytes unread where it refuses
            pass
    return found


def message(head: bytes, ours: CarriedRequest) -> bytes:
    """Return a head with the body that the proxy would pass on behind it."""
    return head + (b"0\r\n\r\n" if ours.body == CHUNKED else b"x" * ours.body.length)


def reads(answer: bytes) -> list[bytes]:
    """Return what nginx has read, a line of words for each request that it took."""
    return [part.partition(b"]")[0] for part in answer.split(b"\r\n\r\n[")[1:]]


def test_what_is_taken_nginx_reads_alike(nginx: int) -> None:
    """It may refuse more, never read something else; behind the body begins the second request, for both."""
    rng, alike = random.Random(7), 0
    while alike < HEADS:
        head = mutated(
            rng,
            rng.choice(
                (
                    GET,
                    POST,
                    with_line(
                        b"Transfer-Encoding: chunked", POST[:-2].replace(b"Content-Length: 12\r\n", b"") + b"\r\n"
                    ),
                )
            ),
        )
        head = head[: end_of_head(head)]
        try:
            ours = read_request(head)
        except HeadRefused:
            continue
        if ours.body.length > 4096 or ours.method == b"HEAD":
            continue
        found = reads(said(nginx, message(head, ours) + SECOND))
        if not found:  # refused, so that nothing of it is passed on
            continue
        alike += 1
        wanted = b" ".join((ours.method, ours.target, ours.values(b"host")[0]))
        assert found[0] == wanted, head
        if ours.keep_alive:
            assert found[1:] == [b"GET /second second"], head


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 0\nContent-Length: 5\r\n\r\n",
        b"X: a\nTransfer-Encoding: chunked\r\n\r\n",
        b"X: a\rY: b\r\n\r\n",
    ],
)
def test_what_nginx_repairs_is_refused(nginx: int, rest: bytes) -> None:
    """The comparison is worth something: bare line feeds are line ends to nginx, and none to the next reader."""
    head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + rest
    with pytest.raises(HeadRefused):
        read_request(head)
    assert said(nginx, head), "nginx answers, whatever it reads"
