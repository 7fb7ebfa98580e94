"""A cluster over hosts (tests/kit/hosts.py): nats-server and the services on one, an agent on each of two others. All of it is real:
processes, sockets, interfaces. Who needs one says how its agents start and how it asks; see two_hosts.py and netcluster.py.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from fairlead.stack import nats_server
from fairlead.stack.local import SERVICES
from tests.kit.eventually import eventually
from tests.kit.hosts import Host, Hosts
from tests.system.cluster import DECISION_WAIT_S

NODES = ("a", "b")
#: Ports of the control host, where nobody else listens.
NATS_PORT, MONITOR_PORT, HTTP_PORT = 4222, 8222, 8080
READY_S = 180.0


class OverHosts:
    """Use as a context manager; `_ready` waits until what was started can be used."""

    #: Environment of every service and agent, beside how the bus is reached.
    settings: ClassVar[Mapping[str, str]] = {}
    #: Of the agents' program, before it.
    around_agent: ClassVar[Sequence[str]] = ()
    #: What a condition may raise while it is not true yet, and how often it is asked.
    not_yet: ClassVar[tuple[type[Exception], ...]] = (subprocess.CalledProcessError,)
    look_s: ClassVar[float] = 0.5

    def __init__(self, data: Path) -> None:
        self.data = data
        self.hosts = Hosts("control", *NODES)
        #: By name, the newest of each: "nats", a service's, "agent-a".
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._env: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.data.mkdir(parents=True, exist_ok=True)
        self.hosts.__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()
        self.hosts.__exit__()  # who is still inside is ended with its host

    # ------------------------------------------------------------------ starting

    def _start(self) -> None:
        control = self.hosts["control"]
        config, token = nats_server.configure(self.data, NATS_PORT, MONITOR_PORT)
        config.write_text(config.read_text().replace("127.0.0.1", "0.0.0.0"))
        self.run("nats", control, [nats_server.find().path, "-c", str(config)])
        self._env = {
            "FAIRLEAD_NATS": f"nats://{token}@{control.address}:{NATS_PORT}",
            "FAIRLEAD_HTTP_PORT": str(HTTP_PORT),
            "FAIRLEAD_NATS_MONITOR": f"http://{control.address}:{MONITOR_PORT}",
            "FAIRLEAD_DECISION_WAIT_S": DECISION_WAIT_S,
            **self.settings,
        }
        for name in ("queue", "placer", "gateway"):
            self.run(name, control, [sys.executable, "-m", SERVICES[name][0][name]], {"FAIRLEAD_INSTANCE": name})
        for node in NODES:
            self.start_agent(node)
        self._ready()

    def _ready(self) -> None:
        """Wait until both nodes have joined."""
        raise NotImplementedError

    def start_agent(self, node: str) -> None:
        """The node's agent, or its next one."""
        around = [word.format(node=node) for word in self.around_agent]
        self.run(f"agent-{node}", self.hosts[node], [*around, sys.executable, "-m", "fairlead_agent"], self.of(node))

    def of(self, node: str) -> dict[str, str]:
        """The environment of what runs on the node."""
        return {
            "FAIRLEAD_NODE": node,
            "FAIRLEAD_DATA": str(self.data / node),
            "FAIRLEAD_DEVICES": "none",
            "FAIRLEAD_ADDRESS": self.hosts[node].address,
        }

    def run(self, name: str, host: Host, words: list[str], env: Mapping[str, str] | None = None) -> None:
        """Start a program there, under a name; its output goes to `name`.log."""
        everything = {"FAIRLEAD_DATA": str(self.data), **self._env, **(env or {})}
        with (self.data / f"{name}.log").open("ab") as log:
            self.processes[name] = host.start(words, env=everything, output=log)

    # ------------------------------------------------------------------ looking

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = READY_S) -> None:
        """Wait for it, or fail with what did not come true."""
        eventually(condition, what, within_s=timeout_s, not_yet=self.not_yet, look_s=self.look_s, logs=self.logs)

    def logs(self, chars: int = 1500) -> str:
        """The end of every process's output."""
        files = sorted(self.data.glob("*.log"))
        return "\n".join(f"--- {path.stem}\n{path.read_text(errors='replace')[-chars:]}" for path in files)
