"""The one shape of a container: what a job may get, and nothing else. Pure.

Users cannot ask for privileges, mounts, devices, host namespaces or capabilities: there is no field for it.
What is built here is compared with what the engine says it has created, before the container is started.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from fairlead_agent.launch import Launch, devices_of
from fairlead_agent.run import RunKey

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
HOSTFILE = "/etc/fairlead/hostfile"
PIDS_MAX = 4096
TMP_MIB = 1024
SHM_DEFAULT_MIB = 64
MEMORY_MIN_MIB = 6
LOG_CONFIG = {"Type": "local", "Config": {"max-size": "10m", "max-file": "3"}}
#: Never handed to a container from the job file; the devices decide what of it a container sees.
STRIPPED_ENV_PREFIXES = ("NVIDIA_", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD")


class Engine(NamedTuple):
    """What this engine can do, asked once."""

    network: str = "default"
    has_init: bool = True
    #: CDI device names that a specification on this machine lists.
    cdi_devices: frozenset[str] = frozenset()


def container_name(key: RunKey, gang: bool) -> str:
    """ "fairlead-<job>-<attempt>", for gangs with "-r<rank>": the engine itself refuses a second one."""
    return f"fairlead-{key.job}-{key.attempt}" + (f"-r{key.rank}" if gang else "")


def gpu_path(gpus: Sequence[str], simulated: bool, engine: Engine) -> GpuPath:
    """How the granted GPUs get into the container."""
    if not gpus:
        return "none"
    if simulated:
        return "simulated"
    return "cdi" if all(cdi_name(uuid) in engine.cdi_devices for uuid in gpus) else "device-request"


def cdi_name(uuid: str) -> str:
    """The CDI name of a GPU."""
    return f"nvidia.com/gpu={uuid}"


def labels(launch: Launch, node: str, incarnation: str, directory: str, path: GpuPath) -> dict[str, str]:
    """By which a later agent process finds its containers."""
    return {
        LABEL_NODE: node, LABEL_INCARNATION: incarnation, LABEL_DIRECTORY: directory,
        LABEL_JOB: launch.key.job, LABEL_ATTEMPT: str(launch.key.attempt),
        LABEL_RANK: str(launch.key.rank), LABEL_EPOCH: str(launch.order.epoch), LABEL_GPU_PATH: path,
    }  # fmt: skip


def environment(launch: Launch, path: GpuPath) -> dict[str, str]:
    """The launch's environment; device variables only where a variable is not what grants the device."""
    env = {name: value for name, value in launch.env.items() if not name.startswith(STRIPPED_ENV_PREFIXES)}
    for name in ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR"):  # the image's, unless the job says so
        if name not in launch.own_env:
            env.pop(name, None)
    if path == "simulated":
        env["CUDA_VISIBLE_DEVICES"] = ",".join(devices_of(launch.order))
    # "void" keeps an image with ENV NVIDIA_VISIBLE_DEVICES=all from being given every GPU of the machine.
    env["NVIDIA_VISIBLE_DEVICES"] = ",".join(devices_of(launch.order)) if path == "device-request" else "void"
    if launch.hostfile:
        env["FAIRLEAD_HOSTFILE"] = HOSTFILE
    return env


def host_config(launch: Launch, engine: Engine, path: GpuPath, hostfile: str) -> dict[str, Any]:
    """The whole HostConfig, in the Engine API's words. `hostfile`: path on this machine, "" for none."""
    order = launch.order
    memory = max(order.memory_mib, MEMORY_MIN_MIB) * 2**20
    config: dict[str, Any] = {
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": PIDS_MAX,
        "Memory": memory,
        "MemorySwap": memory,  # equal: no swap
        "NanoCpus": order.cpu_milli * 1_000_000,
        "ReadonlyRootfs": True,
        "Tmpfs": {"/tmp": f"rw,nosuid,nodev,size={TMP_MIB}m"},  # noqa: S108 -- a mount point in the container
        "ShmSize": (order.shm_mib or SHM_DEFAULT_MIB) * 2**20,
        "LogConfig": LOG_CONFIG,
        "NetworkMode": engine.network,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "Binds": [f"{hostfile}:{HOSTFILE}:ro"] if hostfile else [],
    }
    if engine.has_init:
        config["Init"] = True  # a first process that passes TERM on, and reaps
    if path == "cdi":
        config["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": [cdi_name(uuid) for uuid in devices_of(order)]}]
    elif path == "device-request":
        config["DeviceRequests"] = [
            {"Driver": "nvidia", "DeviceIDs": list(devices_of(order)), "Capabilities": [["gpu"]]}
        ]
    return config


def differences(wanted: Mapping[str, Any], inspected: Mapping[str, Any]) -> list[str]:
    """Where a created container is not what the template says, as "<field>: expected …, found …"."""
    found = inspected["HostConfig"]
    wrong = [f"{key}: expected {value!r}, found {found.get(key)!r}" for key, value in wanted.items()
             if key != "DeviceRequests" and (found.get(key) or None) != (value or None)]  # fmt: skip
    for key in ("CapAdd", "Devices", "VolumesFrom", "GroupAdd"):
        if found.get(key):
            wrong.append(f"{key}: expected nothing, found {found[key]!r}")
    for key in ("PidMode", "UTSMode", "UsernsMode"):
        if found.get(key) == "host":
            wrong.append(f"{key}: expected not the host's")
    if len(found.get("DeviceRequests") or []) != len(wanted.get("DeviceRequests", [])):
        wrong.append(f"DeviceRequests: found {found.get('DeviceRequests')!r}")
    return wrong
