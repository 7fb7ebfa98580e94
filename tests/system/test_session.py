"""A real stack with sign-on: a session serves an application, which a browser enters; services restart, and the session continues."""

import http.client
import json
import os
import signal
import sys
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.command_line_stack import CommandLineStack
from tests.kit.eventually import eventually

pytestmark = [pytest.mark.nats, pytest.mark.slow]

_APP = """
import http.server, os, time
time.sleep(1)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"pid {os.getpid()} cookie {self.headers.get('Cookie')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["FAIRLEAD_APP_PORT"])), Handler).serve_forever()
"""


def get(url: str, cookie: str = "") -> tuple[int, str, str]:
    """Return (status, cookie that is set, body) as a browser gets them, which finds names below localhost here."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 80, timeout=10)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("Host", parts.netloc)
        if cookie:
            connection.putheader("Cookie", cookie)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, (answer.getheader("Set-Cookie") or "").partition(";")[0], answer.read().decode()
    finally:
        connection.close()


def test_a_session_is_opened_and_outlives_restarts(tmp_path: Path) -> None:
    """Its page continues with the same cookie after the app proxy, the gateway and the agents were killed, and ends with the job."""
    stack = CommandLineStack(tmp_path)
    file = tmp_path / "session.json"
    file.write_text(
        json.dumps({"kind": "session", "name": "plots", "app": {}, "command": [sys.executable, "-c", _APP]})
    )
    try:
        stack.up("--nodes", "1")
        job = stack.ok("submit", "-f", str(file)).strip()
        url = stack.ok("open", "plots", "--no-browser").strip()
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        assert parts.hostname is not None and parts.hostname.startswith(f"http-{job}-1-")
        status, cookie, _ = get(url)
        assert status == 303 and cookie.startswith("fairlead-app=")
        assert get(url)[0] == 403, "a code is good once"
        status, _, body = get(f"{origin}/", cookie)
        assert status == 200 and body.startswith("pid ") and body.endswith("cookie None")
        assert get(f"{origin}/")[0] == 403
        assert " ready " in stack.ok("session", "list")

        for name in ("telemetry", "gateway", "agents"):  # the app proxy shares the process of telemetry
            process = json.loads((stack.data / "stack.json").read_text())["processes"]
            os.kill(next(each["pid"] for each in process if each["name"] == name), signal.SIGKILL)
        eventually(
            lambda: get(f"{origin}/", cookie)[2] == body, "the same program answers", not_yet=(OSError, HTTPException)
        )

        stack.ok("session", "stop", job)
        eventually(lambda: get(f"{origin}/", cookie)[0] == 410, "its host has ended")
        again = stack.run("open", job, "--no-browser")
        assert again.returncode != 0 and f"session {job} has ended" in again.stderr
    finally:
        stack.run("down", "--jobs")
