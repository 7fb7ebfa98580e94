"""Small server that answers like OpenAI's API: a stream of parts, its version in each, and a health page. Run as a program: `model_server.py VERSION`.

After TERM it takes no connection any more and answers what it has to the end, as servers of models do. POST /v1/die makes it deaf: it keeps its port and
answers nothing.
"""

import http.server
import json
import os
import signal
import sys
import threading
import time

PARTS, PART_S = 20, 0.05
VERSION = sys.argv[1] if len(sys.argv) > 1 else "1"
deaf = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer the health page."""
        if deaf.is_set():
            threading.Event().wait()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        """Stream parts, or become deaf."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/v1/die":
            deaf.set()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(PARTS):
            self._part({"choices": [{"delta": {"content": f"{VERSION}.{number} "}}], "job": os.environ["FAIRLEAD_JOB"]})
            time.sleep(PART_S)
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _part(self, document: object) -> None:
        self._chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Server whose end waits for the answers that it has begun."""

    daemon_threads = False
    request_queue_size = 64


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(os.environ["FAIRLEAD_APP_PORT"])), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.05)
    server.server_close()  # joins the threads
