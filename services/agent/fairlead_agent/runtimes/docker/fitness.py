"""Can this engine hold the template's promises? Read from what it says of itself. Pure.

Facts that an engine reports, read once and compared by the code that judges nodes. Pure.

`docker info` and `docker version` differ between engines: a value that an engine does not report is "" or 0, never a
guess.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fairlead_agent.core.cpu_pinning import Host
from fairlead_agent.runtimes.docker.template import ContainerEngine

#: An engine that remaps users keeps its data below "<root>/<first uid>.<first gid>".
_REMAPPED_ROOT = re.compile(r"/(\d+)\.\d+\Z", re.ASCII)
#: An ordinary runtime would give devices to any container with a variable of that name; GPUs are granted
#: otherwise.
_NVIDIA = "nvidia"
_RUNC = "runc"
#: The first version of the Engine API with cgroup namespaces (Docker 20.10).
CGROUPNS_API = (1, 41)


class HostLimits(NamedTuple):
    """Resources and limits of the host that the engine does not report."""

    host: Host = Host()
    #: Most open files that the host lets a process have.
    nofile: int = 1024
    #: {RDMA device: the files below /dev through which programs use it}.
    verbs: Mapping[str, tuple[str, ...]] = {}


def unfit(info: Mapping[str, Any], *, require_userns: bool, host_network: bool = False) -> str:
    """Return the reason that containers of this engine would not be isolated, with the fix; "" if they are.

    `info`: the answer of GET /info.
    """
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
) -> ContainerEngine:
    """Return the template's facts about an engine. `network`: the one that containers join, `gang_network`: the one for runs
    on several nodes.
    """
    options = _security_options(info)
    root = _REMAPPED_ROOT.search(str(info.get("DockerRootDir") or ""))
    runtime = str(info.get("DefaultRuntime") or _RUNC)
    if runtime == _NVIDIA and _RUNC in (info.get("Runtimes") or {}):
        runtime = _RUNC
    return ContainerEngine(
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


_NUMBERS = re.compile(r"\d+(?:\.\d+)+")


class EngineFacts(NamedTuple):
    """Versions are dotted numbers ("1.1.5"), without a packager's suffix; "" where the engine does not say."""

    engine: str = ""
    api: str = ""
    containerd: str = ""
    runc: str = ""
    #: NVIDIA Container Toolkit; the engine does not know it (see `engine_facts`).
    toolkit: str = ""
    #: 1 or 2; 0 where the engine does not say (before 20.10).
    cgroup: int = 0
    live_restore: bool = False
    #: Root in a container is an unprivileged user on this machine.
    userns_remap: bool = False
    rootless: bool = False
    seccomp: bool = False
    #: It has a first process that reaps and passes signals on.
    has_init: bool = False
    runtimes: tuple[str, ...] = ()
    default_runtime: str = ""
    #: Directory of images and containers, whose disk may be full.
    root: str = ""


def engine_facts(info: Mapping[str, Any], version: Mapping[str, Any], toolkit_says: str = "") -> EngineFacts:
    """From the answers of /info and /version, and what `nvidia-ctk --version` printed ("" without one)."""
    parts = {str(each.get("Name", "")).lower(): each for each in version.get("Components") or ()}
    options = {str(option).partition(",")[0].removeprefix("name=") for option in info.get("SecurityOptions") or ()}
    cgroup = str(info.get("CgroupVersion") or "")
    return EngineFacts(
        engine=numbers(version.get("Version") or info.get("ServerVersion")),
        api=str(version.get("ApiVersion") or ""),
        containerd=numbers(parts.get("containerd", {}).get("Version")),
        runc=numbers(parts.get("runc", {}).get("Version")),
        toolkit=numbers(toolkit_says),
        cgroup=int(cgroup) if cgroup.isdecimal() else 0,
        live_restore=bool(info.get("LiveRestoreEnabled")),
        userns_remap="userns" in options,
        rootless="rootless" in options,
        seccomp="seccomp" in options,
        has_init=bool(info.get("InitBinary")),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        default_runtime=str(info.get("DefaultRuntime") or ""),
        root=str(info.get("DockerRootDir") or ""),
    )


def numbers(says: object) -> str:
    """The first dotted numbers of a version: "1.1.5+ds1-1" is "1.1.5"."""
    found = _NUMBERS.search(str(says or ""))
    return found.group() if found else ""
