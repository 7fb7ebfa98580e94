"""Sessions in real containers, through the app proxy: on 127.0.0.1 and on a unix socket inside; and nothing of them for who looks from elsewhere."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import httpx
import pytest

from fairlead.errors import Conflict, FairleadError
from tests.agent.runtimes.docker.python_image import PYTHON, ensure_python_image
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.docker, pytest.mark.slow]

#: Answers with a word, over the port or the socket that it was told.
APP = """
import os, socket, socketserver, sys
from http.server import BaseHTTPRequestHandler
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = f"{sys.argv[1]} as {os.getuid()}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
    def address_string(self): return ""
path = os.environ.get("FAIRLEAD_APP_SOCKET")
if path:
    server = socketserver.ThreadingUnixStreamServer(path, Handler)
else:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", int(os.environ["FAIRLEAD_APP_PORT"])), Handler)
print("port", os.environ.get("FAIRLEAD_APP_PORT"), "address", socket.gethostbyname(socket.gethostname()), flush=True)
server.serve_forever()
"""
#: Tries every port of the addresses of its arguments, and prints those that answer.
SCAN = """
import asyncio, sys
async def look(host, port, places, found):
    async with places:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), 2)
            writer.close()
            found.append((host, port))
        except (OSError, TimeoutError):
            pass
async def main():
    places, found = asyncio.Semaphore(500), []
    await asyncio.gather(*(look(host, port, places, found) for host in sys.argv[1].split(",") for port in map(int, sys.argv[2].split(","))))
    print("found", sorted(found), flush=True)
asyncio.run(main())
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StackCluster]:
    """One node that makes containers."""
    if os.getuid() != 0:
        pytest.skip("entering a container's namespaces: only root may (run the tests as root)")
    made = StackCluster(tmp_path / "data", nodes=1, runtime="docker")
    try:
        made.start()
        yield made
    finally:
        made.stop()


def session(cluster: StackCluster, word: str, **app: Any) -> str:
    """Start a session that says a word."""
    return cluster.client.submit(
        {
            "kind": "session",
            "image": ensure_python_image(),
            "command": [PYTHON, "-I", "-S", "-c", APP, word],
            "app": {"ready": "/", **app},
            "resources": {"cpu": "1", "memory": "256Mi"},
        }
    ).id


def said(cluster: StackCluster, job: str) -> str:
    """Enter a session by a fresh code, as a browser does, and return what it says."""
    made = cluster.client.enter_app(job)
    address = urlsplit(made.address)
    with httpx.Client(base_url=made.address, headers={"Host": f"{made.label}.localhost:{address.port}"}) as browser:
        entered = browser.get(made.path)
        assert entered.status_code == 303, entered.text
        cookie = entered.headers["set-cookie"].partition(";")[0]
        answer = browser.get("/", headers={"Cookie": cookie})
        return answer.text if answer.status_code == 200 else ""


def test_sessions_are_reached_through_the_proxy_alone(cluster: StackCluster) -> None:
    """A6: a scan from a neighbour container, and one from the host's side of the bridge, finds nothing of an app; the proxy reaches both kinds."""
    over_port, over_socket = session(cluster, "port"), session(cluster, "socket", socket="/tmp/app.sock")
    for job, word in ((over_port, "port"), (over_socket, "socket")):
        cluster.until(lambda job=job: cluster.client.job(job).ready_at is not None, "the app serves")
        heard: list[str] = []

        def answers(job: str = job, heard: list[str] = heard) -> bool:
            with contextlib.suppress(FairleadError):  # a starting proxy does not know the newest of the log yet
                heard.append(said(cluster, job))
            return bool(heard and heard[-1])

        cluster.until(answers, "the app answers")
        assert heard[-1].startswith(f"{word} as ")

    engine = docker.from_env()
    [container] = engine.containers.list(filters={"label": [f"fairlead.job={over_port}", "fairlead.node=sim-1"]})
    [line] = [line for line in container.logs().decode().splitlines() if line.startswith("port ")]
    port = int(line.split()[1])
    networks = container.attrs["NetworkSettings"]["Networks"].values()
    address, bridge = next((each["IPAddress"], each["Gateway"]) for each in networks)
    assert not container.attrs["NetworkSettings"]["Ports"], "the engine publishes no port"
    for host in (address, bridge, "127.0.0.1"):
        with pytest.raises(OSError):
            socket.create_connection((host, port), timeout=2).close()
    # The neighbour's own listener is found by the same scan, so that the scan is known to see one.
    open_one = engine.containers.run(
        ensure_python_image(), [PYTHON, "-m", "http.server", str(port)], detach=True, auto_remove=True
    )
    try:
        open_one.reload()
        own = next(iter(open_one.attrs["NetworkSettings"]["Networks"].values()))["IPAddress"]

        def seen() -> bytes:
            return engine.containers.run(
                ensure_python_image(), [PYTHON, "-c", SCAN, f"{address},{bridge},{own}", str(port)], remove=True
            )

        cluster.until(lambda: own.encode() in seen(), "the scan sees what listens")
        assert seen() == f"found [('{own}', {port})]\n".encode()
    finally:
        open_one.kill()
    cluster.client.cancel(over_port)
    cluster.until(lambda: cluster.client.job(over_port).state == "cancelled", "it has ended")
    with pytest.raises(Conflict):
        cluster.client.enter_app(over_port)
