"""The one shape of a container: what a job may get, and nothing else. Pure.

Users cannot ask for privileges, devices, host namespaces, capabilities or paths of the host: there is no field for it.
What is built here is compared with what the engine says it has created, before it is started.

The second look: is the container that the engine has created the one that was asked for? Pure.

Nothing is taken on trust: each field that the engine reports must be what the template says, or nothing, or one of the
few values below that engines fill in by themselves. So a field of a newer engine that grants something is refused, too.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fairlead_agent.core.cpu_pinning import Host, Pinning, pin
from fairlead_agent.core.runs import RunKey
from fairlead_agent.launch.plan import Launch, devices_of

GpuPath = Literal["none", "simulated", "cdi", "device-request"]

LABEL_NODE, LABEL_INCARNATION = "fairlead.node", "fairlead.incarnation"
#: The agent's directory: with the node it names one installation, whatever journals follow each other in it.
LABEL_DIRECTORY = "fairlead.directory"
LABEL_JOB, LABEL_ATTEMPT, LABEL_RANK, LABEL_EPOCH = (
    "fairlead.job",
    "fairlead.attempt",
    "fairlead.rank",
    "fairlead.epoch",
)
LABEL_GPU_PATH = "fairlead.gpu-path"
#: In words: which CPUs it is pinned to, or why it is not.
LABEL_CPUS = "fairlead.cpus"
HOSTFILE = "/etc/fairlead/hostfile"
#: A single file, so that nothing but its bytes can be changed from within (shell/checkpoint_watcher.py bounds them).
CHECKPOINT_FILE = "/run/fairlead/checkpoint"
PIDS_MAX = 4096
MEMORY_MIN_MIB = 6
CPU_MIN_MILLI = 10  # the engine takes no less; 0 would be no limit at all
#: The scratch file systems get what shm leaves, half of it and at most this much.
TMP_MAX_MIB = 1024
#: Volumes that an image declares; each of them becomes scratch space.
IMAGE_VOLUMES_MAX = 16
#: Ends before the agent, the engine and whatever else keeps the node together.
OOM_SCORE = 500
LOG_CONFIG = {"Type": "local", "Config": {"max-size": "10m", "max-file": "3"}}
NOFILE_SOFT_MAX = 65536
#: Names that make a device runtime's hook give more than was granted, or load something into it; an image's own are
#: taken out where hooks run. (The engine takes out a variable that is named without "=".)
IMAGE_ENV_REMOVED = (
    "LD_AUDIT",
    "LD_PRELOAD",
    "NVIDIA_GDRCOPY",
    "NVIDIA_GDS",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH",
)


class ContainerEngine(NamedTuple):
    """Abilities of the engine and its host, queried once."""

    network: str = "default"
    #: The same of runs on several nodes.
    gang_network: str = "default"
    has_init: bool = True
    #: CDI device names that a specification on this machine lists.
    cdi_devices: frozenset[str] = frozenset()
    #: It knows cgroup namespaces (Docker 20.10 and newer).
    cgroupns: bool = True
    #: The OCI runtime that containers get.
    runtime: str = "runc"
    #: The first user id of its containers' user namespace; 0 where it maps none.
    first_uid: int = 0
    apparmor: bool = False
    #: CPUs that it knows of; 0: it does not say.
    cpus: int = 0
    host: Host = Host()
    #: Most open files that the host lets a process have.
    nofile: int = 1024 * 1024
    #: {RDMA device: the files below /dev through which programs use it}.
    verbs: Mapping[str, tuple[str, ...]] = {}
    #: The node's devices and CPUs are those of a played machine.
    simulated: bool = False


class Bind(NamedTuple):
    """A directory or file of the host that the agent has put there for this run."""

    source: str
    target: str
    read_only: bool


def container_name(key: RunKey, gang: bool, whose: str = "") -> str:
    """ "fairlead-<job>-<attempt>-<whose>", for gangs with "-r<rank>" before `whose`: the engine itself refuses a second one.
    `whose`: the installation's mark, since two clusters on one machine may both have a job 1."""
    parts = ["fairlead", key.job, str(key.attempt), f"r{key.rank}" if gang else "", whose]
    return "-".join(filter(None, parts))


def gpu_path(gpus: Sequence[str], engine: ContainerEngine) -> GpuPath:
    """Return the way in which the granted GPUs get into the container."""
    if not gpus:
        return "none"
    if engine.simulated:
        return "simulated"
    return "cdi" if all(cdi_name(uuid) in engine.cdi_devices for uuid in gpus) else "device-request"


def cdi_name(uuid: str) -> str:
    """The CDI name of a GPU."""
    return f"nvidia.com/gpu={uuid}"


def pinning(launch: Launch, engine: ContainerEngine) -> Pinning:
    """Return the CPUs and memory nodes for the run's container. Raises Unpinnable."""
    return pin(launch.order.cpus, launch.order.memory_mib, engine.host, simulated=engine.simulated)


def labels(
    launch: Launch, engine: ContainerEngine, node: str, incarnation: str, directory: str, path: GpuPath
) -> dict[str, str]:
    """By which a later agent process finds its containers, and people what was done."""
    return {
        LABEL_NODE: node,
        LABEL_INCARNATION: incarnation,
        LABEL_DIRECTORY: directory,
        LABEL_JOB: launch.key.job,
        LABEL_ATTEMPT: str(launch.key.attempt),
        LABEL_RANK: str(launch.key.rank),
        LABEL_EPOCH: str(launch.order.epoch),
        LABEL_GPU_PATH: path,
        LABEL_CPUS: pinning(launch, engine).summary,
    }


def environment(launch: Launch, engine: ContainerEngine, path: GpuPath) -> list[str]:
    """The launch's environment as the engine takes it; device variables only where a variable is not what grants
    the device."""
    env = {name: value for name, value in launch.env.items() if not name.startswith(("NVIDIA_", "CUDA_VISIBLE_"))}
    for name in ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR"):  # the image's, unless the job says so
        if name not in launch.own_env:
            env.pop(name, None)
    if path == "simulated":
        env["CUDA_VISIBLE_DEVICES"] = ",".join(devices_of(launch.order))
    # "void" keeps an image with ENV NVIDIA_VISIBLE_DEVICES=all from being given every GPU of the machine.
    env["NVIDIA_VISIBLE_DEVICES"] = ",".join(devices_of(launch.order)) if path == "device-request" else "void"
    if launch.hostfile:
        env["FAIRLEAD_HOSTFILE"] = HOSTFILE
    if launch.order.checkpoint is not None:
        env["FAIRLEAD_CHECKPOINT_FILE"] = CHECKPOINT_FILE
    if pinning(launch, engine).played:
        env["FAIRLEAD_CPUS_SIMULATED"] = "1"
    removed = IMAGE_ENV_REMOVED if path in ("cdi", "device-request") else ()
    return sorted([*(f"{name}={value}" for name, value in env.items()), *removed])


def host_config(
    launch: Launch,
    engine: ContainerEngine,
    path: GpuPath,
    binds: Sequence[Bind] = (),
    image_volumes: Sequence[str] = (),
) -> dict[str, Any]:
    """The whole HostConfig, in the Engine API's words. `image_volumes`: paths that the image declares as volumes; they
    become scratch space, so that nothing of the host's disk is handed out unasked. Raises Unpinnable, ValueError."""
    if len(image_volumes) > IMAGE_VOLUMES_MAX:
        raise ValueError(f"the image declares {len(image_volumes)} volumes; at most {IMAGE_VOLUMES_MAX} can be given")
    order = launch.order
    memory_mib = max(order.memory_mib, MEMORY_MIN_MIB)
    shm_mib, tmp_mib = scratch(memory_mib, order.shm_mib, 1 + len(image_volumes))
    place = pinning(launch, engine)
    config: dict[str, Any] = {
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "PidsLimit": PIDS_MAX,
        "Memory": memory_mib * 2**20,
        "MemorySwap": memory_mib * 2**20,  # equal: no swap
        "NanoCpus": _cpu_milli(launch, engine) * 1_000_000,
        "CpusetCpus": place.cpus,
        "CpusetMems": place.mems,
        "OomScoreAdj": OOM_SCORE,
        "OomKillDisable": False,
        "Ulimits": _ulimits(launch, engine),
        "ReadonlyRootfs": True,
        "Tmpfs": dict.fromkeys(("/tmp", *image_volumes), f"rw,nosuid,nodev,exec,mode=1777,size={tmp_mib}m"),  # noqa: S108 -- a mount point in the container
        "ShmSize": shm_mib * 2**20,
        "LogConfig": LOG_CONFIG,
        "NetworkMode": engine.gang_network if len(order.hosts) > 1 else engine.network,
        "Runtime": engine.runtime,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "Mounts": [{"Type": "bind", "Source": bind.source, "Target": bind.target, "ReadOnly": bind.read_only}
                   for bind in binds],
    }  # fmt: skip
    if engine.cgroupns:
        config["CgroupnsMode"] = "private"
    if engine.has_init:
        config["Init"] = True  # a first process that passes TERM on, and reaps
    if devices := _nics(launch, engine):
        config["Devices"] = devices
    if path == "cdi":
        config["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": [cdi_name(uuid) for uuid in devices_of(order)]}]
    elif path == "device-request":
        config["DeviceRequests"] = [
            {"Driver": "nvidia", "DeviceIDs": list(devices_of(order)), "Capabilities": [["gpu"]]}
        ]
    return config


def scratch(memory_mib: int, shm_mib: int, tmpfs: int) -> tuple[int, int]:
    """(MiB of /dev/shm, MiB of each of so many scratch file systems); together never more than the memory, which they
    are counted in. Not asked for, /dev/shm is half of the memory, as Linux makes it."""
    shm = min(shm_mib or memory_mib // 2, memory_mib - tmpfs)
    shm = max(1, shm)
    return shm, max(1, min(TMP_MAX_MIB, (memory_mib - shm) // 2) // tmpfs)


def _nics(launch: Launch, engine: ContainerEngine) -> list[dict[str, str]]:
    """The files of the granted RDMA devices; a played machine's are nowhere."""
    granted = () if engine.simulated else dict.fromkeys(launch.order.nics)
    files = dict.fromkeys(file for nic in granted for file in engine.verbs.get(nic, ()))
    return [{"PathOnHost": file, "PathInContainer": file, "CgroupPermissions": "rw"} for file in files]


def _cpu_milli(launch: Launch, engine: ContainerEngine) -> int:
    """A played machine may have more CPUs than its host, which the engine refuses."""
    wanted = max(CPU_MIN_MILLI, launch.order.cpu_milli)
    return min(wanted, engine.cpus * 1000) if engine.simulated and engine.cpus else wanted


def _ulimits(launch: Launch, engine: ContainerEngine) -> list[dict[str, Any]]:
    limits = [
        {"Name": "core", "Soft": 0, "Hard": 0},
        {"Name": "nofile", "Soft": min(NOFILE_SOFT_MAX, engine.nofile), "Hard": engine.nofile},
    ]
    if launch.order.nics and not engine.simulated:
        # RDMA pins what it sends; that is memory of the container, and so within its limit.
        limits.append({"Name": "memlock", "Soft": -1, "Hard": -1})
    return limits


#: What an engine hides of /proc and /sys, and what it makes read-only there: at least this (newer ones more).
MASKED = frozenset({"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"})
READ_ONLY = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})
#: Where a program may not begin: below these lie doors that a leaked file descriptor opens (CVE-2024-21626).
NO_WORKDIR = ("/proc", "/sys", "/dev")
#: Lists of entries whose order says nothing.
_UNORDERED = ("Ulimits", "Mounts", "DeviceRequests", "Devices")


def differences(wanted: Mapping[str, Any], inspected: Mapping[str, Any], engine: ContainerEngine) -> list[str]:
    """Return the differences between a created container and the template, as "<field>: expected …, found …"."""
    found: Mapping[str, Any] = inspected["HostConfig"]
    wrong = [
        f"{name}: expected {value!r}, found {found.get(name)!r}"
        for name, value in wanted.items()
        if not _same(name, value, found.get(name))
    ]
    for name, value in found.items():
        if name in wanted or _is_nothing(value):
            continue
        allowed = _FILLED_IN.get(name)
        if allowed is None or not allowed(value):
            wrong.append(f"{name}: expected nothing, found {value!r}")
    for name, least in (("MaskedPaths", MASKED), ("ReadonlyPaths", READ_ONLY)):
        if missing := sorted(least.difference(found.get(name) or ())):
            wrong.append(f"{name}: expected {missing[0]} among them, found {found.get(name)!r}")
    return wrong + _beside(wanted, inspected, engine)


def image_volumes(wanted: Mapping[str, Any], inspected: Mapping[str, Any]) -> list[str]:
    """Mount points that the image declares and that the engine would fill with volumes of its own."""
    ours = _targets(wanted)
    declared: Mapping[str, Any] = inspected["Config"].get("Volumes") or {}
    return sorted({_plain(target) for target in declared} - ours)


def _beside(wanted: Mapping[str, Any], inspected: Mapping[str, Any], engine: ContainerEngine) -> list[str]:
    """Return the differences outside of HostConfig that still grant something."""
    wrong: list[str] = []
    ours = _targets(wanted)
    for mount in inspected.get("Mounts") or []:
        if mount.get("Destination") not in ours:
            wrong.append(
                f"Mounts: expected nothing on {mount.get('Destination')!r}, found a {mount.get('Type')} of the engine"
            )
    if engine.apparmor and inspected.get("AppArmorProfile") == "unconfined":
        wrong.append("AppArmorProfile: expected the engine's, found 'unconfined'")
    workdir = str(inspected.get("Config", {}).get("WorkingDir") or "/")
    if f"{_plain(workdir)}/".startswith(tuple(f"{path}/" for path in NO_WORKDIR)) or not workdir.startswith("/"):
        wrong.append(f"WorkingDir: expected an absolute path outside of {', '.join(NO_WORKDIR)}, found {workdir!r}")
    return wrong


def _plain(path: str) -> str:
    """The path without "..", "." and doubled slashes, also at its beginning."""
    return posixpath.normpath("/" + path.lstrip("/"))


def _targets(wanted: Mapping[str, Any]) -> set[str]:
    return {str(mount["Target"]) for mount in wanted["Mounts"]} | set(wanted["Tmpfs"])


def _same(name: str, wanted: Any, found: Any) -> bool:
    if name == "RestartPolicy":
        return (found or {}).get("Name") in ("", "no")
    if name == "NetworkMode":  # newer engines call their default by its name
        return wanted == found or {wanted, found} == {"default", "bridge"}
    if name in _UNORDERED:
        return _comparable(wanted) == _comparable(found)
    return wanted == found or (_is_nothing(wanted) and _is_nothing(found))


def _comparable(entries: Sequence[Mapping[str, Any]] | None) -> list[list[tuple[str, str]]]:
    """Entries with what says nothing left out: engines fill in zeros and empty maps. Order says nothing."""
    return sorted(
        sorted((key, repr(value)) for key, value in each.items() if not _is_nothing(value) or key in ("Soft", "Hard"))
        for each in entries or []
    )


def _is_nothing(value: Any) -> bool:
    return value is None or value == "" or value is False or value == [] or value == {} or value == 0


#: {field: may the engine have filled in this value?}
_FILLED_IN: dict[str, Callable[[Any], bool]] = {
    "ConsoleSize": lambda _value: True,  # of a terminal that does not exist
    "Isolation": lambda value: value == "default",
    "CgroupnsMode": lambda value: value == "private",
    "MemorySwappiness": lambda value: value == -1,  # not set
    "MaskedPaths": lambda _value: True,  # looked at below
    "ReadonlyPaths": lambda _value: True,
}
