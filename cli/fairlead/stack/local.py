"""A whole Fairlead on one machine: what `up` starts, in order, and how it goes down.

    nats-server -> queue with access and storage, placer, telemetry with explainer, notifier, past and app proxy, gateway -> agents in one process, guard

`plan` says which processes there are (pure); `Stack` starts, watches and stops them. What is running is
written to `stack.json` (`state.py`) at every change, so that `down` and the next `up` know it.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fairlead.client import Client
from fairlead.client.settings import OWNER_TOKEN
from fairlead.errors import Conflict, FairleadError, InputRefused, Unreachable
from fairlead.stack import lock, nats_server, state
from fairlead.stack.processes import Spec, Supervisor, end_pid, say
from fairlead.stack.server_disk import ServerDisk, reserve_bytes
from fairlead_agent.core.lease import NAME as LEASE
from fairlead_agent.devices.labels import rack_labels
from fairlead_agent.files import refusal
from fairlead_bus.environment_settings import STORAGE, BadSetting
from fairlead_schemas.wire.conditions import UNHEARD_MAX, Condition, ConditionCode

READY_S = 60.0
#: Many nodes share this machine's disk.
RESERVE_MIB = "1"
#: Of the first node's /metrics; each has the next one.
METRICS_PORT = 9400
#: Order of the stop, highest first: nodes stop reporting before the services that listen go.
GROUP_NATS, GROUP_WRITERS, GROUP_READERS, GROUP_NODES = range(4)
#: The process of all simulated nodes' agents. Agents with containers or real GPUs have one each.
AGENTS = "agents"
#: {process: ({service: its package}, its group)}, in starting order. Services that rest most of the time share a process.
SERVICES: dict[str, tuple[dict[str, str], int]] = {
    "queue": (
        {"queue": "fairlead_queue", "access": "fairlead_access", "storage": "fairlead_storage"},
        GROUP_WRITERS,
    ),
    "placer": ({"placer": "fairlead_placer"}, GROUP_WRITERS),
    "telemetry": (
        {
            "telemetry": "fairlead_telemetry",
            "explainer": "fairlead_replay.explainer",
            "notifier": "fairlead_gateway.notify",
            "past": "fairlead_replay.past",
            "appproxy": "fairlead_appproxy",
        },
        GROUP_READERS,
    ),
    "gateway": ({"gateway": "fairlead_gateway"}, GROUP_READERS),
}

#: Conditions that only a person ends.
DAMAGE: tuple[ConditionCode, ...] = ("log_damaged", "log_format", "log_newer", "commands_lost")

type Say = Callable[[str, str], None]


class StackOptions(NamedTuple):
    """Options of `up`. Port 0 means any free port."""

    data: Path
    nodes: int = 4
    profile: str = "dgx-a100"
    runtime: str = "process"
    port: int = 8080
    #: Where simulated nodes stand; 0: in no rack, no block.
    nodes_per_rack: int = 4
    racks_per_block: int = 4
    #: Without sign-on: whoever reaches the port may do everything.
    open: bool = False


def node_names(options: StackOptions, real_gpus: int = 0) -> list[str]:
    """Names of the local nodes; a machine with real GPUs joins as one more."""
    prefix = "hollow" if options.runtime == "hollow" else "sim"
    names = [f"{prefix}-{i}" for i in range(1, options.nodes + 1)]
    return [*names, "gpu-local"] if real_gpus and options.runtime != "hollow" else names


def plan(options: StackOptions, *, nats_url: str, port: int, real_gpus: int = 0, base: dict[str, str]) -> list[Spec]:
    """Every process but nats-server, in starting order. `base` is the environment that all share."""
    shared = {**base, "FAIRLEAD_NATS": nats_url, "FAIRLEAD_HTTP_PORT": str(port), "FAIRLEAD_DATA": str(options.data)}
    shared.setdefault("FAIRLEAD_APPPROXY_PORT", "0")
    shared.pop("NATS_URL", None)
    specs = [
        Spec(name, _services(packages), {**shared, "FAIRLEAD_INSTANCE": name}, group)
        for name, (packages, group) in SERVICES.items()
    ]
    sign_on = _sign_on(options, base)
    # The notifier's process and the gateway's: who may see what depends on it.
    specs[-2:] = [spec._replace(env={**spec.env, **sign_on}) for spec in specs[-2:]]
    if options.runtime == "hollow":
        argv = _module(
            "fairlead_agent.hollow",
            "--nodes",
            str(options.nodes),
            "--profile",
            options.profile,
            "--nodes-per-rack",
            str(options.nodes_per_rack),
            "--racks-per-block",
            str(options.racks_per_block),
        )
        return [*specs, Spec("hollow", argv, {**shared, "FAIRLEAD_INSTANCE": "hollow"}, GROUP_NODES)]
    # The guard ends the work of agents that are dead: one for all of them.
    return [
        *specs,
        *_agents(options, real_gpus, shared),
        Spec("guard", _module("fairlead_agent.guard"), shared, GROUP_NODES),
    ]


def _agents(options: StackOptions, real_gpus: int, shared: dict[str, str]) -> list[Spec]:
    common = {
        **shared,
        "FAIRLEAD_RUNTIME": options.runtime,
        "FAIRLEAD_PROFILE": options.profile,
        "FAIRLEAD_JOURNAL_RESERVE_MIB": shared.get("FAIRLEAD_JOURNAL_RESERVE_MIB", RESERVE_MIB),
    }
    together: dict[str, dict[str, str]] = {}
    alone: list[Spec] = []
    for number, node in enumerate(node_names(options, real_gpus)):
        real = node == "gpu-local"
        metrics = f"127.0.0.1:{METRICS_PORT + number}" if options.port else "off"
        own = {
            "FAIRLEAD_DEVICES": "nvml" if real else "simulated",
            "FAIRLEAD_METRICS": shared.get("FAIRLEAD_METRICS", metrics),
            "FAIRLEAD_NODE_LABELS": _labels(options, None if real else number, shared.get("FAIRLEAD_NODE_LABELS", "")),
        }
        if _is_shared(options, node):
            together[node] = own
        else:
            env = {**common, "FAIRLEAD_INSTANCE": node, "FAIRLEAD_NODE": node, **own}
            alone.append(Spec(f"agent-{node}", _module("fairlead_agent"), env, GROUP_NODES))
    if not together:
        return alone
    words = [word for node, own in together.items() for word in ("--node", node, *(f"{k}={v}" for k, v in own.items()))]
    env = {**common, "FAIRLEAD_INSTANCE": AGENTS}
    return [Spec(AGENTS, _module("fairlead_agent", *words), env, GROUP_NODES), *alone]


def _is_shared(options: StackOptions, node: str) -> bool:
    """Return True if the node's agent is one of those in the process AGENTS."""
    return options.runtime == "process" and node != "gpu-local"


def _sign_on(options: StackOptions, base: dict[str, str]) -> dict[str, str]:
    """Return the gateway's settings about who may do what."""
    if options.open:
        return {"FAIRLEAD_SIGN_ON": "off"}
    return {
        "FAIRLEAD_SIGN_ON": base.get("FAIRLEAD_SIGN_ON") or "local",
        "FAIRLEAD_OWNER_FILE": str(options.data / OWNER_TOKEN),
    }


def _labels(options: StackOptions, number: int | None, given: str) -> str:
    """Return a simulated node's topology labels, then the labels given for all nodes: later ones take precedence."""
    where = {} if number is None else rack_labels(number, options.nodes_per_rack, options.racks_per_block)
    return ",".join([*(f"{key}={value}" for key, value in where.items()), *filter(None, [given])])


def _services(packages: dict[str, str]) -> list[str]:
    if len(packages) == 1:
        return _module(*packages.values())
    return _module("fairlead_bus.together", *(f"{name}={package}" for name, package in packages.items()))


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


def count_real_gpus() -> int:
    """NVIDIA GPUs of this machine by its driver's own listing; 0 without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines()) if done.returncode == 0 else 0


class Stack:
    """Stack that runs in one data directory. Use `up`, then `down`."""

    def __init__(self, options: StackOptions, say: Say = lambda what, text: None) -> None:
        self.options = options
        self.url = ""
        self.nats_url = ""
        #: The owner's, by which the stack may do everything; "" without sign-on.
        self.token = ""
        self._say = say
        self._ready = False
        self._real_gpus = 0
        self._monitor = ""
        self._lock: lock.Lock | None = None
        self._disk: ServerDisk | None = None
        #: Damage that the gateway reported while this stack came up.
        self._reported: list[Condition] = []
        self._supervisor = Supervisor(options.data / "logs", self._save)

    def up(self) -> None:
        """Start everything and wait until the cluster can take jobs. Raises FairleadError with one cause."""
        (self.options.data / "logs").mkdir(parents=True, exist_ok=True)
        self._lock = lock.take(self.options.data, "fairlead up")
        try:
            # What a killed supervisor left behind would write to the same store.
            end_leftovers(self.options.data)
            state.forget_conditions(self.options.data)
            port = self._http_port()
            self.url = f"http://127.0.0.1:{port}"
            self._start_nats()
            self._supervisor.watch()
            if self._disk is not None:
                self._disk.watch()
            self._start_services(port)
        except BaseException:
            self.down()
            raise

    def down(self) -> list[str]:
        """Stop every process in order; jobs' own processes live on. Returns those that had to be killed."""
        if self._lock is None:  # refused: the directory and its contents belong to another process
            return []
        if self._disk is not None:
            self._disk.stop()
        killed = self._supervisor.stop()
        state.clear(self.options.data)
        self._lock.release()
        self._lock = None
        return killed

    def crashed(self) -> dict[str, int]:
        """Return the number of restarts of each process."""
        return self._supervisor.crashed()

    def _http_port(self) -> int:
        port = self.options.port or nats_server.free_port()
        if not nats_server.is_free(port):
            raise Conflict(
                f"port {port} is taken by another program", hint=f"fairlead up --port {nats_server.free_port()}"
            )
        return port

    def _start_nats(self) -> None:
        began = time.monotonic()
        found = nats_server.find()
        if found.note:
            self._say("note", found.note)
        if found.kind != "external":
            forget_leases(self.options.data)
        if found.kind == "external":
            if silent := nats_server.why_silent(found.url):
                raise Unreachable(f"{found.note}, and it cannot be reached: {silent}", hint=nats_server.EXTERNAL_HINT)
            self.nats_url = found.url
            return
        port, monitor_port = nats_server.free_port(), nats_server.free_port()
        config, token = nats_server.configure(self.options.data, port, monitor_port)
        self._monitor = f"http://127.0.0.1:{monitor_port}"
        self.nats_url = f"nats://{token}@127.0.0.1:{port}"
        self._supervisor.add(Spec("nats", [found.path, "-c", str(config)], dict(os.environ), GROUP_NATS))
        self._save()  # at once: a kill now would leave a server that no file records
        if not nats_server.wait_ready(port, token):
            raise FairleadError(
                f"nats-server did not become ready: {_tail(self.options.data, 'nats')}", hint="fairlead doctor"
            )
        self._disk = ServerDisk(
            config.parent,
            self._monitor,
            reserve=_server_reserve(),
            unstored=self._unstored,
            restart=lambda: self._supervisor.restart("nats"),
            say=say,
        )
        self._say("bus", f"{found.kind} nats {found.version:<10} ready  {time.monotonic() - began:.1f}s")

    def _start_services(self, port: int) -> None:
        began = time.monotonic()
        self._real_gpus = count_real_gpus()
        specs = plan(
            self.options, nats_url=self.nats_url, port=port, real_gpus=self._real_gpus, base=self._environment()
        )
        for spec in specs:
            self._supervisor.add(spec)
        self._save()
        with Client(self.url) as client:
            self._until(lambda: self._is_ready(client), "gateway", lambda: _blocking(client))
            self._say(
                "services",
                f"{', '.join(name for packages, _ in SERVICES.values() for name in packages)}   ready  {time.monotonic() - began:.1f}s",
            )
            self._until(self._knows_owner, "gateway")
        with self.client() as client:
            self._until(lambda: self._joined(client), self._last_joining())
            self._say("nodes", self._nodes_line(client))
            self._say_refusals()
            link = client.sign_in_link() if self.token else ""
        self._ready = True
        self._save()
        self._say("url", self.url)
        if link:
            self._say("sign in", f"{self.url}{link}   once, in a browser; commands here are the owner's")

    def client(self, user: str = "") -> Client:
        """A client with every right, or under a name without sign-on."""
        return Client(self.url, token=self.token) if self.token else Client(self.url, user=user)

    def _knows_owner(self) -> bool:
        """Return True once the owner's token is here and counts; a file of an earlier start may be about to be replaced."""
        path = self.options.data / OWNER_TOKEN
        if self.options.open:
            path.unlink(missing_ok=True)
            return True
        try:
            token = path.read_text().strip()
            with Client(self.url, token=token) as client:
                client.whoami()
        except (OSError, FairleadError):
            return False
        self.token = token
        return True

    def _last_joining(self) -> str:
        """The process whose log has the reason where nodes do not join."""
        names = node_names(self.options, self._real_gpus)
        if self.options.runtime == "hollow" or not names:
            return "hollow" if names else "gateway"
        return AGENTS if _is_shared(self.options, min(names)) else f"agent-{min(names)}"

    def _unstored(self) -> bool:
        """True while the running gateway finds that commands are not stored."""
        if not self._ready:
            return False
        with self.client() as client:
            return any(each.code == "commands_refused" for each in _blocking(client))

    def _environment(self) -> dict[str, str]:
        monitor = {"FAIRLEAD_NATS_MONITOR": self._monitor} if self._monitor else {}
        # One for all lives of the app proxy: an open page of an application continues where it is.
        proxy = {"FAIRLEAD_APPPROXY_PORT": os.environ.get("FAIRLEAD_APPPROXY_PORT") or str(nats_server.free_port())}
        return {STORAGE: str(self._storage()), **os.environ, **monitor, **proxy}

    def _storage(self) -> Path:
        """Write the file by which nodes and gateway have a class of storage `shared` in the data directory, and return its path."""
        place, file = self.options.data.absolute() / "storage", self.options.data / "storage.toml"
        place.mkdir(mode=0o700, exist_ok=True)
        file.write_text(f'[shared]\npath = {json.dumps(str(place))}\nbackend = "directory"\n')
        return file.absolute()

    def _until(self, condition: Callable[[], bool], name: str, why: Callable[[], list[Condition]] = list) -> None:
        """Wait. Raises FairleadError after READY_S: the conditions of `why`, or the last line of the process's log."""
        deadline = time.monotonic() + READY_S
        while not condition():
            self._raise_damage()
            if time.monotonic() > deadline:
                if held := why():
                    raise state.error_of(held, self._data_word())
                raise FairleadError(
                    f"{name} did not become ready within {READY_S:g} s: {_tail(self.options.data, name)}",
                    hint="fairlead doctor",
                )
            time.sleep(0.05)

    def _data_word(self) -> str:
        """The directory to name in commands; "" for the default one."""
        return "" if self.options.data == state.default_data() else str(self.options.data)

    def _logged(self, *, damage_only: bool = False) -> list[Condition]:
        """Return the conditions upon which processes ended that are not healthy again since."""
        names = self._supervisor.damaged()
        if not damage_only:
            names += self._supervisor.unfit()
        return state.logged(self.options.data / "logs", names)

    def _raise_damage(self) -> None:
        """Raise FairleadError once a service has ended because the log is damaged or commands are lost."""
        found = self._logged(damage_only=True)
        if found:
            state.save_conditions(self.options.data, found)
            raise state.error_of(found, self._data_word())

    def _is_ready(self, client: Client) -> bool:
        """Return True once `/readyz` reports ready. Raises FairleadError when it reports damage: waiting does not mend
        that.
        """
        readiness = client.readiness()
        damage = [each for each in readiness.conditions if each.code in DAMAGE] if readiness is not None else []
        if damage:
            self._reported = damage
            state.save_conditions(self.options.data, damage)
            raise state.error_of(damage, self._data_word())
        return readiness is not None and readiness.ready

    def _joined(self, client: Client) -> bool:
        """Return True once heartbeats of every node of this stack arrive, except nodes with agents that refuse to work."""
        readiness = client.readiness()
        names = set(node_names(self.options, self._real_gpus)) - self._refusing()
        if readiness is None or not names:
            return not names
        if self.options.runtime == "hollow":  # how they are called is their program's choice; their number is ours
            return readiness.nodes.heard >= len(names)
        complete = len(readiness.nodes.unheard) < UNHEARD_MAX
        return complete and names <= _nodes_there(client) - set(readiness.nodes.unheard)

    def _refusing(self) -> set[str]:
        """Names of the nodes whose agents cannot work there: of those that share a process, and of those that have ended."""
        ended = {name.removeprefix("agent-") for name in self._supervisor.unfit()}
        return ended | set(refusal.read(self.options.data))

    def _say_refusals(self) -> None:
        """Name the nodes whose agents refuse to work. Raises FairleadError where that is every node."""
        reasons = refusal.read(self.options.data)
        for name in self._refusing() - set(reasons):
            for each in state.logged(self.options.data / "logs", [f"agent-{name}"]):
                reasons[name] = each
        if reasons and len(reasons) == len(node_names(self.options, self._real_gpus)):
            raise state.error_of(list(dict.fromkeys(reasons.values())), self._data_word())
        for name, each in sorted(reasons.items()):
            self._say("note", f"{name} takes no work, its agent refuses to start: {each.message}; {each.hint()}")

    def _nodes_line(self, client: Client) -> str:
        # The log may know nodes of an earlier `up` with other options; they are lost and not meant here.
        hollow = self.options.runtime == "hollow"
        mine = set(node_names(self.options, self._real_gpus)) - self._refusing()
        nodes = [node for node in client.nodes().items if (node.runtime == "hollow" if hollow else node.id in mine)]
        played = sum(node.gpus for node in nodes if node.simulated)
        names = [node.id for node in nodes if node.simulated]
        span = f"{names[0]}..{names[-1]}" if len(names) > 1 else "".join(names)
        here = (
            f"this machine: {self._real_gpus} NVIDIA GPUs"
            if self._real_gpus
            else "this machine: no NVIDIA driver found"
        )
        return f"{span}   {played} GPUs simulated; {here}"

    def _save(self) -> None:
        """Write down what runs. Called here and from the supervisor's thread: its lock keeps them in order."""
        with self._supervisor.lock:
            now = state.StackState(
                url=self.url,
                nats_url=self.nats_url,
                supervisor=state.identify("supervisor", os.getpid()),
                processes=[state.identify(name, pid) for name, pid in self._supervisor.pids().items()],
                ready=self._ready,
                runtime=self.options.runtime,
                nodes=node_names(self.options, self._real_gpus),
            )
            state.save(self.options.data, now)
            # Replaced as a whole: what was mended meanwhile must not be found by doctor.
            state.save_conditions(self.options.data, list(dict.fromkeys([*self._logged(), *self._reported])))


def _server_reserve() -> int:
    try:
        return reserve_bytes(os.environ)
    except BadSetting as error:
        raise InputRefused(str(error)) from error


def forget_leases(data: Path) -> None:
    """The whole cluster was down, its placer too, which has given nothing away: what its jobs' processes lived through
    without it is no silence."""
    for path in data.glob(f"agent-*/{LEASE}"):
        path.unlink()


def _blocking(client: Client) -> list[Condition]:
    """Return the conditions that keep the cluster from working; none where the gateway does not answer."""
    readiness = client.readiness()
    return [each for each in readiness.conditions if each.blocks] if readiness is not None else []


def _nodes_there(client: Client) -> set[str]:
    """Nodes that the log knows and has not lost; after a restart it knows all of them from the start."""
    return {node.id for node in client.nodes().items if node.state != "lost"}


def _tail(data: Path, name: str) -> str:
    """The last line of a process's log, as the cause."""
    path = data / "logs" / f"{name}.log"
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return f"{lines[-1][:300]} ({path})" if lines else f"it wrote nothing ({path})"


def end_leftovers(data: Path) -> list[str]:
    """End the processes of a stack whose supervisor is gone; returns their names. The caller holds the lock."""
    there = state.load(data)
    ended: list[str] = []
    # They were noted in starting order; a stop goes backwards.
    for process in reversed(there.processes if there else []):
        if state.lives(process):
            end_pid(process.pid, lambda p=process: state.lives(p))
            ended.append(process.name)
    state.clear(data)
    return ended
