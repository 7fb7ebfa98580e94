"""A cluster over a network that can be cut, with a guard for each agent. The test's process enters the control host's
network. Times are short, and in the same order as in production."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from fairlead.client import Client
from fairlead.errors import FairleadError
from tests.system.over_hosts import HTTP_PORT, NODES, READY_S, OverHosts

__all__ = ["FENCE_S", "GRACE_S", "LEASE_S", "MARGIN_S", "NODES", "READY_S", "NetCluster"]

#: The agent's fence, its grace, the margin, and the placer's lease: the sum and a little for a busy machine.
FENCE_S, GRACE_S, MARGIN_S, LEASE_S = 4.0, 1.5, 4.5, 10.0


class NetCluster(OverHosts):
    """`with NetCluster(directory, runtime="process") as cluster`."""

    settings = {
        "FAIRLEAD_NODE_LEASE_S": str(LEASE_S),
        "FAIRLEAD_SELF_FENCE_S": str(FENCE_S),
        "FAIRLEAD_FENCE_GRACE_S": str(GRACE_S),
        "FAIRLEAD_FENCE_MARGIN_S": str(MARGIN_S),
        "FAIRLEAD_BEAT_S": "0.5",
    }
    not_yet = (FairleadError, httpx.HTTPError)
    look_s = 0.05

    def __init__(self, data: Path, *, runtime: str = "process") -> None:
        super().__init__(data)
        self.runtime = runtime
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def __exit__(self, *_: object) -> None:
        os.setns(self._home, os.CLONE_NEWNET)
        os.close(self._home)
        super().__exit__()

    def _ready(self) -> None:
        control = self.hosts["control"]
        with Path(f"/run/netns/{control.name}").open() as namespace:
            os.setns(namespace.fileno(), os.CLONE_NEWNET)
        self.nats_url = self._env["FAIRLEAD_NATS"]
        os.environ["FAIRLEAD_NATS_MONITOR"] = self._env["FAIRLEAD_NATS_MONITOR"]
        self.client = Client(f"http://127.0.0.1:{HTTP_PORT}", user="tester")
        for node in NODES:
            self.run(f"guard-{node}", self.hosts[node], [sys.executable, "-m", "fairlead_agent.guard"], self.of(node))
        self.until(lambda: self.states() == dict.fromkeys(NODES, "ready"), "the nodes have joined")

    def of(self, node: str) -> dict[str, str]:
        return {**super().of(node), "FAIRLEAD_RUNTIME": self.runtime}

    # ------------------------------------------------------------------ faults

    def signal(self, name: str, number: signal.Signals) -> None:
        """To one process of it."""
        self.processes[name].send_signal(number)

    def one_way(self, node: str, *, outward: bool) -> None:
        """What the node sends (or is sent) goes to an address that nobody has; the other direction works."""
        here, there = self.hosts[node], self.hosts["control"]
        sender, receiver = (here, there) if outward else (there, here)
        sender.run(
            "ip", "neigh", "replace", receiver.address, "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "eth0"
        )

    def mend(self, node: str) -> None:
        """Everything is heard again."""
        here, there = self.hosts[node], self.hosts["control"]
        here.mend()
        for host, other in ((here, there), (there, here)):
            with contextlib.suppress(subprocess.CalledProcessError):
                host.run("ip", "neigh", "del", other.address, "dev", "eth0")

    # ------------------------------------------------------------------ looking

    def states(self) -> dict[str, str]:
        """{node: its state}."""
        return {node.id: node.state for node in self.client.nodes().items}
