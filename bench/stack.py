"""A stack to measure: nats-server, services and nodes as processes of their own in a directory of its own.

With `slow_fsync_ms` nats-server runs under strace's fault injection, which delays every fsync it makes.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from bench.cpu import CpuMeter
from fairlead.stack import nats_server
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.port import BusError

READY_S = 60.0
#: Kind of clock in an id of clock_getcpuclockid(3): time that was spent on a CPU.
_SCHED_CLOCK = 2


class Stack:
    """Use as a context manager; `start` adds processes."""

    def __init__(self, *, slow_fsync_ms: int = 0, log_bytes_max: int = 16 * 2**30) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="fairlead-bench-", dir=os.environ.get("FAIRLEAD_BENCH_DIR")))
        self.slow_fsync_ms = slow_fsync_ms
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = nats_server.free_port()
        self._environment = {
            **os.environ,
            "FAIRLEAD_LOG_MAX_BYTES": str(log_bytes_max),
            "FAIRLEAD_LOG_LEVEL": "warning",
        }

    def __enter__(self) -> Self:
        port, monitor = nats_server.free_port(), nats_server.free_port()
        config, token = nats_server.configure(self.data, port, monitor)
        self.nats_url = f"nats://{token}@127.0.0.1:{port}"
        os.environ["FAIRLEAD_NATS_MONITOR"] = self._environment["FAIRLEAD_NATS_MONITOR"] = f"http://127.0.0.1:{monitor}"
        argv = [nats_server.find().path, "-c", str(config)]
        if self.slow_fsync_ms:
            calls = "fsync,fdatasync"
            inject = f"inject={calls}:delay_enter={self.slow_fsync_ms}ms"
            argv = [
                "strace",
                "-f",
                "--seccomp-bpf",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                f"trace={calls}",
                "-e",
                inject,
                *argv,
            ]
        self.spawn("nats", argv)
        if not nats_server.wait_ready(port, token):
            raise RuntimeError(f"nats-server did not start: {self.log('nats')}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name)
        shutil.rmtree(self.data, ignore_errors=True)

    def spawn(self, name: str, argv: list[str], **environment: str) -> None:
        """Start a process; its output goes to a file named after it."""
        data = self.data / name
        data.mkdir(exist_ok=True)
        env = {
            **self._environment,
            "FAIRLEAD_NATS": getattr(self, "nats_url", ""),
            "FAIRLEAD_DATA": str(data),
            "FAIRLEAD_INSTANCE": name,
            "FAIRLEAD_HTTP_PORT": str(self.port),
            **environment,
        }
        with (self.data / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)

    def service(self, name: str, **environment: str) -> None:
        """Start a service by its name."""
        self.spawn(name, [sys.executable, "-m", f"fairlead_{name}"], **environment)

    def hollow(self, nodes: int, gpus: int = 8, *, nodes_per_rack: int = 4) -> None:
        """Start played nodes."""
        sizes = ["--nodes", str(nodes), "--gpus", str(gpus), "--nodes-per-rack", str(nodes_per_rack)]
        self.spawn("hollow", [sys.executable, "-m", "fairlead_agent.hollow", *sizes])

    def agent(self, node: str = "n1", profile: str = "dgx-a100", runtime: str = "process", **environment: str) -> None:
        """Start a node with real processes (or containers) on simulated GPUs."""
        self.spawn(
            "agent",
            [sys.executable, "-m", "fairlead_agent"],
            FAIRLEAD_NODE=node,
            FAIRLEAD_RUNTIME=runtime,
            FAIRLEAD_DEVICES="simulated",
            FAIRLEAD_PROFILE=profile,
            **environment,
        )

    def control_plane(self, *, telemetry: bool = True) -> None:
        """Start queue, placer, gateway (and telemetry), and wait until they serve."""
        for name in ("queue", "placer", "gateway", *(("telemetry",) if telemetry else ())):
            self.service(name)
        self.wait_gateway()
        self.wait(lambda: bool(self.get("/v1/queues")["items"]), "queue")

    def wait_gateway(self) -> None:
        """Wait until the gateway takes jobs."""
        self.wait(lambda: httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200, "gateway")

    def get(self, path: str) -> dict[str, object]:
        """Send one GET and decode the answer."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=30).json()

    def wait_nodes(self, count: int) -> None:
        """Wait until so many nodes have joined."""
        self.wait(lambda: len(self._nodes()) >= count, "hollow" if count > 1 else "agent")

    def _nodes(self) -> list[object]:
        items = self.get("/v1/nodes?limit=5000")["items"]
        assert isinstance(items, list)
        return items

    def wait(self, condition: Callable[[], object], name: str) -> None:
        """Wait for a condition about a process, or fail with the end of its log."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                if condition():
                    return
            except httpx.HTTPError:
                pass
            if self.processes[name].poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"{name} is not ready: {self.log(name)}")

    def log(self, name: str) -> str:
        """The end of a process's output."""
        path = self.data / f"{name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def kill(self, name: str) -> None:
        """End a process and what it started, at once."""
        process = self.processes.pop(name)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        process.wait()

    def stop(self, name: str) -> None:
        """End a process by SIGTERM."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(30)

    def cpu_meter(self, idle: Mapping[str, float] | None = None) -> CpuMeter:
        """Return a meter of the CPU time that the stack's processes use from now on, beyond `idle`."""
        return CpuMeter({name: process.pid for name, process in self.processes.items()}, idle)

    def rss_mib(self, name: str) -> float:
        """Resident memory of a process, MiB."""
        for line in Path(f"/proc/{self.processes[name].pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu_s(self, name: str) -> float:
        """Return the CPU time that a process has used, s. Its own clock counts ns; /proc has ticks of 10 ms, too few in a short round."""
        clock = (~self.processes[name].pid << 3) | _SCHED_CLOCK  # as clock_getcpuclockid(3) makes it
        return time.clock_gettime(clock)

    async def bus(self) -> NatsBus:
        """A connection of our own, streams made."""
        for _ in range(50):
            try:
                bus = await connect(self.nats_url, name="bench")
                await bus.ensure()
                return bus
            except BusError:
                await asyncio.sleep(0.1)
        raise RuntimeError("cannot connect to the bench's own nats-server")
