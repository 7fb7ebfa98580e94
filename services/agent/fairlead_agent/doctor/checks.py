"""The checks: each takes the facts and says one thing, or nothing where it does not apply. Pure; start at `CHECKS`.

Facts about a machine that is, or is to be, a node. `collect.py` reads them; this module is pure data. None: not known.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from fairlead_agent.node.health.preflight import FLOORS, below


class NodeSetup(NamedTuple):
    """Node as its settings describe it."""

    name: str
    runtime: str
    devices: str
    #: Versions that are too old give only a warning: the packager has patched them (FAIRLEAD_FLOORS=note).
    notes_old: bool = False
    #: Address at which gangs meet, and network that their containers join.
    address: str = "127.0.0.1"
    gang_network: str = "bridge"


class EngineSetup(NamedTuple):
    """The container engine, as it describes itself; `silent` says why it does not."""

    silent: str = ""
    version: str = ""
    runc: str = ""
    live_restore: bool = False
    userns_remap: bool = False
    seccomp: bool = False
    cgroup: str = ""  # "1" | "2"
    #: Limits that the kernel does not give it: "memory", "swap", "pids", "cpu", "cpuset".
    missing_limits: tuple[str, ...] = ()
    cdi: bool = False
    #: systemd keeps its containers' control groups, and what devices they may use.
    by_systemd: bool = False


class DriverSetup(NamedTuple):
    """NVIDIA's driver and container toolkit. "": not there."""

    version: str = ""
    silent: str = ""
    gpus: int = 0
    toolkit: str = ""
    #: Whether a container gets GPUs by naming them in its environment (accept-nvidia-visible-devices-envvar-when-unprivileged).
    environment_opens: bool | None = None
    #: Device files of it without a link in /dev/char, by which systemd would know them.
    unlinked: tuple[str, ...] = ()


class DiskSetup(NamedTuple):
    """Size and free space of a file system that runs or images fill."""

    path: str
    total_bytes: int
    free_bytes: int


class Mode(NamedTuple):
    """A file or directory, who owns it, and what of its mode others must not have."""

    path: str
    mode: int
    owner: int
    forbidden: int


class MachineSetup(NamedTuple):
    """All of it."""

    python: tuple[int, int, int] = (0, 0, 0)
    #: Where the settings stand, and why they cannot be used.
    settings_from: str = ""
    node: NodeSetup | None = None
    bad_setting: str = ""
    engine: EngineSetup | None = None
    driver: DriverSetup = DriverSetup()
    disks: tuple[DiskSetup, ...] = ()
    clock_synchronised: bool | None = None
    #: Whether the bus took us; "" yes, else why not.
    bus: str = ""
    bus_url: str = ""
    keyed: bool = False
    modes: tuple[Mode, ...] = ()
    agent_runs: bool | None = None
    guard_runs: bool | None = None
    spawner_runs: bool | None = None
    #: {"kernel.pid_max": 4194304}, of what could be read.
    kernel: Mapping[str, int] = {}


Level = Literal["ok", "warn", "FAIL"]

PYTHON_FLOOR = (3, 12)
#: Of a file system, left: less than the first is worth a word, less than the second keeps work away (as in node/health/checks.py).
DISK_LOW_PER_CENT, DISK_FULL_PER_CENT = 10, 5
GIB = 2**30
#: {setting of the kernel: (the least that a node of many containers needs, why)}
KERNEL_LEAST = {
    "kernel.pid_max": (65_536, "a node of 64 runs may have as many threads"),
    "fs.inotify.max_user_instances": (512, "frameworks and editors in containers watch files"),
    "vm.max_map_count": (262_144, "large data loaders map many files"),
}


class Check(NamedTuple):
    """Result of one check: its name, its level, the finding, and the command that mends it."""

    name: str
    level: Level
    finding: str
    mend: str = ""


type Judgement = Callable[[MachineSetup], Iterator[Check]]


def judge(facts: MachineSetup) -> list[Check]:
    """Every check's word."""
    return [check for judgement in CHECKS for check in judgement(facts)]


def python(facts: MachineSetup) -> Iterator[Check]:
    """The interpreter that the units name."""
    found = ".".join(map(str, facts.python))
    good = facts.python >= PYTHON_FLOOR
    yield Check("python", "ok" if good else "FAIL", found, "" if good else "install Python 3.12 or newer")


def settings(facts: MachineSetup) -> Iterator[Check]:
    """Check the settings that the agent would read."""
    if facts.bad_setting:
        yield Check("settings", "FAIL", facts.bad_setting, f"fix it in {facts.settings_from}")
    elif facts.node is None:
        yield Check(
            "settings", "FAIL", f"there is no {facts.settings_from}", "fairlead agent install --nats nats://HOST:4222"
        )
    else:
        node = facts.node
        yield Check("settings", "ok", f"node {node.name}, runtime {node.runtime}, devices {node.devices}")


def bus(facts: MachineSetup) -> Iterator[Check]:
    """Check that the server accepts this node's credentials."""
    if facts.node is None:
        return
    if not facts.bus:
        how = "with this node's own key" if facts.keyed else "with a token"
        yield Check(
            "bus",
            "ok" if facts.keyed else "warn",
            f"{facts.bus_url} answers, {how}",
            "" if facts.keyed else "a token may do everything: fairlead agent install, fairlead credentials add",
        )
    elif "does not know" in facts.bus:
        name = facts.node.name
        yield Check("bus", "FAIL", facts.bus, f"where the bus is kept: fairlead credentials add {name} --public KEY")
    else:
        yield Check("bus", "FAIL", facts.bus, f"start the server, or let this machine reach {facts.bus_url}")


def modes(facts: MachineSetup) -> Iterator[Check]:
    """Files that others must not read, directories that others must not write to."""
    loose = [each for each in facts.modes if each.mode & each.forbidden]
    for each in loose:
        right = f"{each.mode & ~each.forbidden:04o}"
        yield Check(
            "modes", "FAIL", f"{each.path} has mode {each.mode:04o}, others must not", f"chmod {right} {each.path}"
        )
    if facts.modes and not loose:
        yield Check("modes", "ok", f"{len(facts.modes)} files and directories are as they must be")


def engine(facts: MachineSetup) -> Iterator[Check]:
    """The container engine, where runs are containers."""
    if facts.node is None or facts.node.runtime != "docker":
        return
    found = facts.engine or EngineSetup(silent="not queried")
    if found.silent:
        yield Check("docker", "FAIL", found.silent, "systemctl start docker")
        return
    yield Check("docker", "ok", f"engine {found.version}, cgroup v{found.cgroup}, {'CDI' if found.cdi else 'no CDI'}")
    if not found.live_restore:
        yield Check(
            "docker live-restore",
            "warn",
            "off: a restart of the engine ends every container",
            'put "live-restore": true into /etc/docker/daemon.json, then systemctl reload docker',
        )
    yield from _gangs(facts.node, found)
    if not found.userns_remap and facts.node.gang_network != "host":
        yield Check(
            "docker userns",
            "warn",
            "no user namespaces: root in a container is root here",
            'put "userns-remap": "default" into /etc/docker/daemon.json, and restart docker on the drained node',
        )
    if not found.seccomp:
        yield Check(
            "docker seccomp",
            "FAIL",
            "the engine filters no system calls",
            "start dockerd without --seccomp-profile=unconfined, on a kernel with seccomp",
        )
    if found.cgroup == "1":
        yield Check(
            "cgroup",
            "warn",
            "version 1: no pressure figures, and no limits for users",
            "boot with systemd.unified_cgroup_hierarchy=1",
        )
    hard = [each for each in found.missing_limits if each != "swap"]
    if hard:
        yield Check(
            "limits",
            "FAIL",
            f"the kernel gives the engine no {', '.join(hard)} limits",
            "enable these cgroup controllers, on the kernel's command line",
        )
    if "swap" in found.missing_limits:
        yield Check(
            "limits",
            "warn",
            "swap is not counted in containers' memory limits",
            "boot with swapaccount=1, or swapoff -a",
        )
    yield from _floor(facts.node, "runc", found.runc)


def _gangs(node: NodeSetup, engine: EngineSetup) -> Iterator[Check]:
    """Check that containers of jobs on several machines can reach each other."""
    if node.gang_network == "host" and engine.userns_remap:
        yield Check(
            "docker gangs",
            "FAIL",
            "FAIRLEAD_GANG_NETWORK is host, and the engine remaps users, which keeps containers off the node's network",
            'take "userns-remap" out of /etc/docker/daemon.json, or FAIRLEAD_GANG_NETWORK out of the settings',
        )
    elif node.gang_network == "bridge" and not node.address.startswith("127."):
        yield Check(
            "docker gangs",
            "warn",
            f"jobs on several nodes are sent to meet at {node.address}, where no container listens",
            "set FAIRLEAD_GANG_NETWORK=host (docs/how-to/multi-node.md explains what that opens)",
        )


def driver(facts: MachineSetup) -> Iterator[Check]:
    """NVIDIA's driver and toolkit, where devices are real ones."""
    if facts.node is None or facts.node.devices not in ("nvml", "auto"):
        return
    wanted, found = facts.node.devices == "nvml", facts.driver
    if not found.version:
        why = found.silent or "there is no NVIDIA driver"
        yield Check(
            "nvidia driver",
            "FAIL" if wanted else "ok",
            f"{why}{'' if wanted else ': the node has no GPUs'}",
            "install NVIDIA's driver, or --devices none" if wanted else "",
        )
        return
    if not found.gpus:
        yield Check(
            "nvidia driver", "FAIL", f"{found.version} sees no GPU", "nvidia-smi, dmesg | grep -i xid; then reboot"
        )
    else:
        yield from _floor(facts.node, "driver", found.version, f"{found.version}, {found.gpus} GPUs")
    if facts.node.runtime != "docker":
        return
    if not found.toolkit:
        yield Check("nvidia toolkit", "FAIL", "containers get no GPUs without it", "install nvidia-container-toolkit")
        return
    yield from _floor(facts.node, "toolkit", found.toolkit)
    if found.environment_opens is not False:
        yield Check(
            "nvidia toolkit",
            "FAIL",
            "a container gets any GPU by naming it in its environment",
            "nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=false",
        )
    if found.unlinked and facts.engine is not None and facts.engine.by_systemd:
        yield Check(
            "nvidia devices",
            "warn",
            f"{', '.join(found.unlinked)} have no links in /dev/char: `systemctl daemon-reload` takes their GPUs from running containers",
            "nvidia-ctk system create-dev-char-symlinks --create-all, now and at each boot (a udev rule)",
        )


def _floor(node: NodeSetup, key: str, version: str, found: str = "") -> Iterator[Check]:
    floor = FLOORS[key]
    if not version:
        yield Check(floor.name, "warn", "its version could not be read", f"look by hand: {floor.mend}")
    elif below(floor, version):
        yield Check(floor.name, "warn" if node.notes_old else "FAIL", f"{version} is too old ({floor.why})", floor.mend)
    else:
        yield Check(floor.name, "ok", found or version)


def disks(facts: MachineSetup) -> Iterator[Check]:
    """Check the free space of the disks that hold run output and images."""
    for disk in facts.disks:
        space = f"{disk.path}: {disk.free_bytes / GIB:.1f} of {disk.total_bytes / GIB:.1f} GiB left"
        level = _disk_level(disk)
        yield Check(
            "disk",
            level,
            space,
            "" if level == "ok" else f"free some: docker system prune, du -xh {disk.path} | sort -h",
        )


def _disk_level(disk: DiskSetup) -> Level:
    if disk.free_bytes * 100 < disk.total_bytes * DISK_FULL_PER_CENT:
        return "FAIL"
    return "warn" if disk.free_bytes * 100 < disk.total_bytes * DISK_LOW_PER_CENT else "ok"


def clock(facts: MachineSetup) -> Iterator[Check]:
    """Events are ordered by the log; times that people read are not."""
    if facts.clock_synchronised:
        yield Check("clock", "ok", "synchronised")
    else:
        what = "not synchronised" if facts.clock_synchronised is False else "unknown whether it is synchronised"
        yield Check("clock", "warn", what, "timedatectl set-ntp true, or install chrony")


def processes(facts: MachineSetup) -> Iterator[Check]:
    """The agent, its guard, and the parent of process runs."""
    if facts.node is None:
        return
    if facts.agent_runs is False:
        yield Check(
            "agent", "FAIL", "does not run", "systemctl start fairlead-agent; journalctl -u fairlead-agent -n 20"
        )
    elif facts.agent_runs:
        yield Check("agent", "ok", "runs")
    if facts.guard_runs is False:
        yield Check(
            "guard",
            "warn",
            "does not run: nothing ends this node's work when its agent is dead",
            "systemctl start fairlead-guard",
        )
    elif facts.guard_runs:
        yield Check("guard", "ok", "runs")
    if facts.node.runtime == "process" and facts.agent_runs and facts.spawner_runs is False:
        yield Check(
            "spawner", "FAIL", "no process holds its lock, though the agent runs", "systemctl restart fairlead-agent"
        )


def kernel(facts: MachineSetup) -> Iterator[Check]:
    """Settings whose defaults are too small for many containers."""
    for name, (least, why) in KERNEL_LEAST.items():
        found = facts.kernel.get(name)
        if found is not None and found < least:
            yield Check(
                "kernel",
                "warn",
                f"{name} is {found}: {why}",
                f"echo '{name} = {least}' >> /etc/sysctl.d/60-fairlead.conf; sysctl --system",
            )


CHECKS: tuple[Judgement, ...] = (
    python,
    settings,
    bus,
    modes,
    processes,
    engine,
    driver,
    disks,
    clock,
    kernel,
)
