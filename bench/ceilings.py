"""Best that this machine does: the disk's fsync, bare appends, bare processes, bare HTTP."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from bench.table import percentile
from fairlead_bus.nats.adapter import NatsBus
from fairlead_schemas.wire import subjects


def fsync_p50_us(directory: Path, rounds: int = 300) -> float:
    """Median microseconds of an fsync after a 500-byte write."""
    path = directory / "fsync.probe"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    took: list[float] = []
    for _ in range(rounds):
        os.write(descriptor, b"x" * 500)
        began = time.perf_counter()
        os.fsync(descriptor)
        took.append((time.perf_counter() - began) * 1e6)
    os.close(descriptor)
    path.unlink()
    return percentile(took, 0.5)


async def append_ms(bus: NatsBus, rounds: int = 200) -> float:
    """Median milliseconds of one awaited append of 500 bytes to a stream that fsyncs."""
    took: list[float] = []
    for number in range(rounds):
        began = time.perf_counter()
        await bus.append(
            subjects.CMD, subjects.cmd("telemetry"), b"x" * 500, msg_id=f"ceiling-{time.time_ns()}-{number}"
        )
        took.append((time.perf_counter() - began) * 1e3)
    return percentile(took, 0.5)


def spawns_per_s(seconds: float = 2.0) -> float:
    """`/bin/true` started and waited for, eight at a time, from this small process."""
    started, live, deadline = 0, set[int](), time.perf_counter() + seconds
    began = time.perf_counter()
    while time.perf_counter() < deadline:
        while len(live) < 8:
            live.add(os.posix_spawn("/bin/true", ["true"], {}))
        pid, _ = os.wait()
        live.discard(pid)
        started += 1
    took = time.perf_counter() - began
    while live:
        live.discard(os.wait()[0])
    return started / took


def imports(module: str) -> tuple[float, float]:
    """Seconds and MiB that a Python process takes for a service's imports alone."""
    # Not getrusage: its peak counts what the process was before it became this program.
    program = "print(next(int(l.split()[1]) / 1024 for l in open('/proc/self/status') if l.startswith('VmRSS')))"
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}; {program}"], capture_output=True, text=True, check=True
    )
    return time.perf_counter() - began, float(done.stdout)


_ECHO = """
import uvicorn
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"{}"})
uvicorn.run(app, host="127.0.0.1", port=%d, log_level="warning", access_log=False, http="httptools", loop="uvloop")
"""


def start_echo(port: int) -> "subprocess.Popen[bytes]":
    """An HTTP server that answers without doing anything: what the web server alone could serve."""
    return subprocess.Popen([sys.executable, "-c", _ECHO % port])


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End it."""
    process.send_signal(signal.SIGKILL)
    process.wait()
