"""What an engine says of itself, read once and compared by whoever judges nodes. Pure.

`docker info` and `docker version` differ between engines: what one does not say is "" or 0, never a guess.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

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
    #: Root in a container is nobody on this machine.
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
