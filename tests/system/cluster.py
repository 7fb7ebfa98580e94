"""A whole stack of real processes on free ports, kept running by the product's own supervisor.

What is killed comes back by itself, as under `fairlead up`. Start at `StackCluster`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from fairlead.client import Client
from fairlead.errors import FairleadError
from fairlead.stack import nats_server
from fairlead.stack.local import GROUP_NATS, GROUP_NODES, StackOptions, plan
from fairlead.stack.processes import Spec, Supervisor
from fairlead_bus.nats.adapter import NatsBus, connect
from tests.kit.eventually import eventually
from tests.system import leftovers

READY_S = 120.0
#: A submit on a busy machine is answered with its job, not with 202.
DECISION_WAIT_S = "25"


class StackCluster:
    """Services and nodes in one directory. `environment` is added to every process's."""

    def __init__(
        self, data: Path, *, nodes: int = 2, environment: dict[str, str] | None = None, runtime: str = "process"
    ) -> None:
        self.data = data
        self.nodes = nodes
        self.runtime = runtime
        (data / "logs").mkdir(parents=True, exist_ok=True)
        self.port, self.nats_port, self.monitor_port = (nats_server.free_port() for _ in range(3))
        self.supervisor = Supervisor(data / "logs")
        config, token = nats_server.configure(data, self.nats_port, self.monitor_port)
        self.nats_config, self.nats_token = config, token
        self.nats_url = f"nats://{token}@127.0.0.1:{self.nats_port}"
        monitor = f"http://127.0.0.1:{self.monitor_port}"
        os.environ["FAIRLEAD_NATS_MONITOR"] = monitor
        usual = {"FAIRLEAD_METRICS": "off", "FAIRLEAD_DECISION_WAIT_S": DECISION_WAIT_S}
        self.environment = {**os.environ, **usual, **(environment or {})}
        self.client = Client(f"http://127.0.0.1:{self.port}", user="tester")

    def start(self, *, hollow: list[str] | None = None) -> None:
        """Start everything; `hollow` replaces the agents by played nodes with these arguments."""
        self.supervisor.add(
            Spec("nats", [nats_server.find().path, "-c", str(self.nats_config)], dict(os.environ), GROUP_NATS)
        )
        assert nats_server.wait_ready(self.nats_port, self.nats_token), "nats-server did not start"
        nodes = 0 if hollow is not None else self.nodes
        options = StackOptions(data=self.data, nodes=nodes, port=self.port, runtime=self.runtime, open=True)
        for spec in plan(options, nats_url=self.nats_url, port=self.port, base=self.environment):
            self._add(spec)
        if hollow is not None:
            environment = {
                **self.environment,
                "FAIRLEAD_NATS": self.nats_url,
                "FAIRLEAD_DATA": str(self.data / "hollow"),
            }
            self._add(
                Spec("hollow", [sys.executable, "-m", "fairlead_agent.hollow", *hollow], environment, GROUP_NODES)
            )
        self.supervisor.watch()
        self.until(self.client.ready, "the gateway is ready")
        self.until(lambda: len(self.client.nodes().items) >= self.nodes, "the nodes have joined")

    def _add(self, spec: Spec) -> None:
        Path(spec.env["FAIRLEAD_DATA"]).mkdir(parents=True, exist_ok=True)
        self.supervisor.add(spec)

    def stop(self) -> None:
        """End everything in order, jobs' processes last. Fails when something of the cluster still runs then."""
        self.client.close()
        self.supervisor.stop()
        left = leftovers.end(self.data)
        assert not left, f"left behind by the cluster in {self.data}: {left}"

    def kill(self, name: str) -> None:
        """kill -9; the supervisor starts it again."""
        pid = self.supervisor.pids().get(name)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def until(
        self, condition: Callable[[], bool], what: str, timeout_s: float = READY_S, *, look_s: float = 0.1
    ) -> None:
        """Wait for a condition, looked at this often, or fail, saying what did not come true."""
        not_yet = (FairleadError, httpx.HTTPError)
        eventually(condition, what, within_s=timeout_s, not_yet=not_yet, look_s=look_s, logs=self.logs)

    def logs(self, chars: int = 800) -> str:
        """The end of every process's output."""
        files = sorted((self.data / "logs").glob("*.log"))
        return "\n".join(f"--- {path.stem}\n{path.read_text(errors='replace')[-chars:]}" for path in files)

    def post(self, path: str, body: bytes, **headers: str) -> httpx.Response:
        """One raw POST, as a person with curl would send it."""
        sent = {
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return httpx.post(f"http://127.0.0.1:{self.port}{path}", content=body, headers=sent, timeout=30)

    def run[T](self, work: "Callable[[NatsBus], Awaitable[T]]") -> T:
        """Run an async function with a connection of its own."""

        async def connected() -> T:
            bus = await connect(self.nats_url, name="test")
            try:
                return await work(bus)
            finally:
                await bus.close()

        return asyncio.run(connected())
