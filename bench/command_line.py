"""CPU time of the `fairlead` command, which users pay at each line that they type: `--help`, and a list of jobs from a gateway.

CPU of the whole process, of its start and end, too; beside it that of a Python that does nothing. The gateway is a stub
in this process that knows no job.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from bench.table import Row

RUNS = 7
HELP_MS, JOBS_MS = 90, 130
_PAGE = b'{"items":[],"next":null,"sequence":1}'


def rows() -> list[Row]:
    """Measure both command lines, in turn with a bare Python."""
    with _gateway() as url:
        environment = {**os.environ, "FAIRLEAD_URL": url, "FAIRLEAD_USER": "bench"}
        # Each process would compile all modules again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        fairlead = str(Path(sys.executable).with_name("fairlead"))
        lines = {"pass": [sys.executable, "-c", "pass"], "help": [fairlead, "--help"], "jobs": [fairlead, "jobs"]}
        for line in lines.values():
            cpu_ms(line, environment)  # the first run of a checkout compiles
        taken = [{name: cpu_ms(line, environment) for name, line in lines.items()} for _ in range(RUNS)]
    median = {name: statistics.median(each[name] for each in taken) for name in lines}
    bare = f"`python -c pass`: {median['pass']:.0f} ms"
    return [
        _row("fairlead --help", median["help"], HELP_MS, bare),
        _row("fairlead jobs", median["jobs"], JOBS_MS, bare),
    ]


def _row(line: str, ms: float, goal_ms: int, bare: str) -> Row:
    return Row(f"CPU of `{line}`, median of {RUNS}", f"{ms:.0f} ms", f"≤ {goal_ms} ms", ms <= goal_ms, bare)


def cpu_ms(argv: Sequence[str], environment: dict[str, str]) -> float:
    """Run a command and return the CPU time of its process, ms. Raises RuntimeError if it fails."""
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    message = process.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} ended with {process.returncode}: {message}")
    return (usage.ru_utime + usage.ru_stime) * 1000


class _EmptyList(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a list without items."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_PAGE)))
        self.end_headers()
        self.wfile.write(_PAGE)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the benchmark prints its rows only."""


@contextmanager
def _gateway() -> Iterator[str]:
    """Yield the address of a stub that answers every GET with an empty list."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EmptyList)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
