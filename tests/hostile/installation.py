"""An installation that no machine is alone in: three nats-servers, two processes of each service, two gateways, real agents.

The product's own supervisor stands for the process manager. Where this process may (root), each service has a process namespace
of its own, as on a machine of its own: a standby then cannot see that its leader is dead, and waits for the lease. Nothing here
knows about faults. Start at `Installation`.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx

from fairlead.client import Client
from fairlead.errors import FairleadError
from fairlead.stack.local import GROUP_NODES, GROUP_READERS, GROUP_WRITERS, StackOptions, plan
from fairlead.stack.nats_server import free_port
from fairlead.stack.processes import Spec, Supervisor
from fairlead_bus.lease import LeaseHolder, decode_holder
from fairlead_bus.main import with_bus
from fairlead_bus.port import Bus, Unavailable
from fairlead_schemas.wire import subjects
from tests.hostile.stack import send
from tests.kit.eventually import eventually
from tests.kit.nats_cluster import SERVERS, NatsCluster
from tests.kit.nats_server import HERE, Place

TOKEN = "t0ken"
#: After SIGUSR2 a server hands its leaderships over and sends its clients away; it ends after the duration.
LAME_DUCK = 'lame_duck_grace_period: "10ms"\nlame_duck_duration: "30s"\n'
#: {process: its services}; there are two of each, and of the gateway.
PROCESSES = {
    "queue": {"queue": "fairlead_queue"},
    "placer": {"placer": "fairlead_placer"},
    "access": {"access": "fairlead_access", "storage": "fairlead_storage"},
    "telemetry": {"telemetry": "fairlead_telemetry"},
}
#: {writer: its process}
WRITERS = {service: process for process, services in PROCESSES.items() for service in services}
COPIES = (1, 2)
READY_S = 180.0
OWN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Installation:
    """`with Installation(directory) as here`. Addresses and processes are known after `start`."""

    def __init__(
        self, data: Path, *, nodes: int = 2, apart: bool | None = None, places: tuple[Place, ...] = (HERE,) * SERVERS
    ) -> None:
        """`apart`: namespaces of their own for services (None: where this process may make them). `places`: of the servers."""
        self.data, self.nodes = data, nodes
        self.apart = may_unshare() if apart is None else apart
        self.cluster = NatsCluster(extra=f'authorization {{ token: "{TOKEN}" }}\n{LAME_DUCK}', places=places)
        self.gateways = tuple(f"http://127.0.0.1:{free_port()}" for _ in COPIES)
        #: As FAIRLEAD_URL takes it.
        self.url = ",".join(self.gateways)
        self.nats_url = ""
        (data / "logs").mkdir(parents=True, exist_ok=True)
        self.supervisor = Supervisor(data / "logs")

    def __enter__(self) -> "Installation":
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start everything, and wait until nodes have joined through both gateways."""
        self.cluster.start()
        #: The token is given with one address only, and is that of all.
        self.nats_url = self.cluster.url.replace("nats://", f"nats://{TOKEN}@", 1)
        self.fairlead_module("fairlead_bus")
        for spec in self._specs():
            self.supervisor.add(spec)
        self.supervisor.watch()
        for gateway in self.gateways:
            self.until(lambda gateway=gateway: self._has_joined(gateway), f"{gateway} knows all nodes")

    def end(self) -> None:
        """End every process, the agents' programs and the servers."""
        self.supervisor.stop()
        wanted = os.fsencode(self.data)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if int(entry.name) != os.getpid() and wanted in (entry / "environ").read_bytes():
                    send(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
        self.cluster.close()

    def environment(self) -> dict[str, str]:
        """Settings that all processes share."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
        return {
            **clean,
            "FAIRLEAD_NATS": self.nats_url,
            "FAIRLEAD_NATS_MONITOR": self.cluster.monitor,
            "FAIRLEAD_NATS_REPLICAS": "3",
            "FAIRLEAD_DATA": str(self.data),
            "FAIRLEAD_METRICS": "off",
            "FAIRLEAD_SIGN_ON": "off",
            "FAIRLEAD_DECISION_WAIT_S": "5",
        }

    def _specs(self) -> list[Spec]:
        shared = self.environment()
        around = list(OWN_NAMESPACE) if self.apart else []
        specs: list[Spec] = []
        for process, services in PROCESSES.items():
            for number in COPIES:
                name = f"{process}-{number}"
                words = [f"{service}={package}" for service, package in services.items()]
                argv = [*around, sys.executable, "-m", "fairlead_bus.together", *words]
                data = self.data / name
                data.mkdir(parents=True, exist_ok=True)
                specs.append(
                    Spec(name, argv, {**shared, "FAIRLEAD_INSTANCE": name, "FAIRLEAD_DATA": str(data)}, GROUP_WRITERS)
                )
        for number, gateway in zip(COPIES, self.gateways, strict=True):
            env = {**shared, "FAIRLEAD_HTTP_PORT": gateway.rpartition(":")[2], "FAIRLEAD_INSTANCE": f"gateway-{number}"}
            specs.append(
                Spec(f"gateway-{number}", [*around, sys.executable, "-m", "fairlead_gateway"], env, GROUP_READERS)
            )
        options = StackOptions(self.data, nodes=self.nodes, port=0, open=True)
        every = plan(options, nats_url=self.nats_url, port=0, base=shared)
        return [*specs, *(spec for spec in every if spec.group == GROUP_NODES)]

    # -- what runs

    def pid(self, name: str) -> int | None:
        """The process id of a service, within its namespace's `unshare`; None while it is down."""
        pid = self.supervisor.pids().get(name)
        if pid is None or not self.apart or name.rpartition("-")[0] not in (*PROCESSES, "gateway"):
            return pid
        try:
            return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        except (OSError, IndexError):
            return None

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a service or to the agents; False where it does not live."""
        pid = self.pid(name)
        return pid is not None and send(pid, number)

    def holder(self, writer: str) -> LeaseHolder | None:
        """The process that has a writer's lease; None while there is none, or the bus does not say."""

        return self.holders(writer).get(writer)

    def holders(self, *writers: str) -> dict[str, LeaseHolder]:
        """{writer: the process that has its lease}, without those that have none; empty where the bus does not say."""

        async def look(bus: Bus) -> dict[str, LeaseHolder]:
            entries = {writer: await bus.get(subjects.LEASE, writer) for writer in writers or WRITERS}
            holders = {writer: decode_holder(entry.value) for writer, entry in entries.items() if entry is not None}
            return {writer: holder for writer, holder in holders.items() if holder is not None}

        try:
            return with_bus(self.nats_url, "hostile", look)
        except Unavailable:
            return {}

    def terms(self, name: str) -> int:
        """How often services of this process have begun to lead or to stand by."""
        path = self.data / "logs" / f"{name}.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        return sum(text.count(f'"event": "{word}') for word in ("leading", "standing by"))

    # -- what it answers

    def client(self, user: str = "ada") -> Client:
        """Return a client that knows both gateways. Close it."""
        return Client(self.url, user=user)

    def fairlead(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run the command as an administrator of the bus would. Raises AssertionError where it fails and `check` is set."""
        done = self._run(sys.executable, "-m", "fairlead", *words)
        assert done.returncode == 0 or not check, f"fairlead {' '.join(words)}: {done.stdout}{done.stderr}"
        return done

    def fairlead_module(self, name: str, *words: str) -> None:
        """Run a module to its end. Raises AssertionError with its words where it fails."""
        done = self._run(sys.executable, "-m", name, *words)
        assert done.returncode == 0, f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}"

    def _run(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        # A data directory of its own: the command would take the installation's for a stack's.
        with tempfile.TemporaryDirectory() as nowhere:
            env = {**self.environment(), "FAIRLEAD_DATA": nowhere}
            return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=READY_S, check=False)

    def _has_joined(self, gateway: str) -> bool:
        with Client(gateway, user="ada") as client:
            states = [node.state for node in client.nodes().items]
        return len(states) == self.nodes and set(states) == {"ready"}

    def until(self, condition: Callable[[], object], what: str, within_s: float = READY_S, look_s: float = 0.2) -> None:
        """Wait for a condition. Raises AssertionError with the ends of all logs."""
        not_yet = (FairleadError, httpx.HTTPError, OSError, Unavailable)
        eventually(condition, what, within_s=within_s, not_yet=not_yet, look_s=look_s, logs=self.logs)

    def wait_whole(self) -> None:
        """Wait until three servers are healthy, every writer has a leader and every gateway says that all is well."""
        self.cluster.wait(self.cluster.healthy, "three healthy servers")
        for gateway in self.gateways:
            self.until(lambda gateway=gateway: _is_whole(gateway), f"no condition holds at {gateway}")

    def logs(self, chars: int = 600) -> str:
        """The end of every log file."""
        files = sorted((self.data / "logs").glob("*.log"))
        return "\n".join(f"--- {path.stem}\n{path.read_text(errors='replace')[-chars:]}" for path in files)


def _is_whole(gateway: str) -> bool:
    return httpx.get(f"{gateway}/readyz", timeout=5).status_code == 200


def may_unshare() -> bool:
    """True where this process may give others a process namespace of their own."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
