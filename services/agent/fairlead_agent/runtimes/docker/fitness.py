"""Can this engine hold the template's promises? Read from what it says of itself. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fairlead_agent.runtimes.docker.template import Engine
from fairlead_agent.runtimes.pinning import Host

#: An engine that remaps users keeps its data below "<root>/<first uid>.<first gid>".
_REMAPPED_ROOT = re.compile(r"/(\d+)\.\d+\Z", re.ASCII)
#: As an ordinary runtime it gives devices to whoever has a variable of that name; GPUs are granted otherwise.
_NVIDIA = "nvidia"
_RUNC = "runc"
#: The first version of the Engine API with cgroup namespaces (Docker 20.10).
CGROUPNS_API = (1, 41)


class HostLimits(NamedTuple):
    """What the host has and allows, beside what the engine says."""

    host: Host = Host()
    #: Most open files that the host lets a process have.
    nofile: int = 1024
    #: {RDMA device: the files below /dev through which programs use it}.
    verbs: Mapping[str, tuple[str, ...]] = {}


def unfit(info: Mapping[str, Any], *, require_userns: bool, host_network: bool = False) -> str:
    """Why containers of this engine would not be closed, with how to mend it; "" where they are.

    `info`: what GET /info answers."""
    options = _security_options(info)
    seccomp = options.get("seccomp")
    if seccomp is None or seccomp.get("profile") == "unconfined":
        return (
            "the Docker engine filters no system calls (seccomp): use a kernel and an engine with seccomp, and leave "
            '"seccomp-profile" out of /etc/docker/daemon.json'
        )
    if require_userns and not ({"userns", "rootless"} & options.keys()):
        return (
            "FAIRLEAD_REQUIRE_USERNS is set and the Docker engine does not remap users: put "
            '{"userns-remap": "default"} into /etc/docker/daemon.json and restart it when the node is drained, or leave '
            "the setting out"
        )
    if host_network and "userns" in options:
        return (
            "FAIRLEAD_GANG_NETWORK is host, and the Docker engine remaps users, which keeps containers off the node's "
            'network: take "userns-remap" out of /etc/docker/daemon.json and restart it when the node is drained, or '
            "leave the setting out and run jobs of several nodes on others"
        )
    missing = [word for word in ("MemoryLimit", "PidsLimit", "CpuCfsQuota") if info.get(word) is False]
    if missing:
        return (
            f"the Docker engine cannot limit what containers use ({', '.join(missing)} is off): boot with the cgroup "
            "controllers memory, pids and cpu"
        )
    return ""


def engine_of(
    info: Mapping[str, Any],
    api_version: str,
    *,
    network: str,
    gang_network: str = "default",
    cdi_devices: Collection[str],
    limits: HostLimits,
    simulated: bool = False,
) -> Engine:
    """What the template needs to know of an engine. `network`: the one that containers join, `gang_network`: those of runs
    on several nodes."""
    options = _security_options(info)
    root = _REMAPPED_ROOT.search(str(info.get("DockerRootDir") or ""))
    runtime = str(info.get("DefaultRuntime") or _RUNC)
    if runtime == _NVIDIA and _RUNC in (info.get("Runtimes") or {}):
        runtime = _RUNC
    return Engine(
        network=network,
        gang_network=gang_network,
        has_init=bool(info.get("InitBinary")),
        cdi_devices=frozenset(cdi_devices),
        cgroupns=tuple(int(part) for part in api_version.split(".") if part) >= CGROUPNS_API,
        runtime=runtime,
        first_uid=int(root[1]) if root and "userns" in options else 0,
        apparmor="apparmor" in options,
        cpus=int(info.get("NCPU") or 0),
        host=limits.host if info.get("CPUSet") else Host(),
        nofile=limits.nofile,
        verbs=limits.verbs,
        simulated=simulated,
    )


def _security_options(info: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """{"seccomp": {"profile": "default"}} of ["name=seccomp,profile=default"]."""
    found: dict[str, dict[str, str]] = {}
    for option in info.get("SecurityOptions") or []:
        words = {key: value for key, _, value in (part.partition("=") for part in str(option).split(","))}
        found[words.pop("name", "")] = words
    return found
