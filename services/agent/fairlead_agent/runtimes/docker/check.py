"""The second look: is the container that the engine has created the one that was asked for? Pure.

Nothing is taken on trust: each field that the engine reports must be what the template says, or nothing, or one of the
few values below that engines fill in by themselves. So a field of a newer engine that grants something is refused, too.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairlead_agent.runtimes.docker.template import Engine

#: What an engine hides of /proc and /sys, and what it makes read-only there: at least this (newer ones more).
MASKED = frozenset({"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"})
READ_ONLY = frozenset({"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"})
#: Where a program may not begin: below these lie doors that a leaked file descriptor opens (CVE-2024-21626).
NO_WORKDIR = ("/proc", "/sys", "/dev")
#: Lists of entries whose order says nothing.
_UNORDERED = ("Ulimits", "Mounts", "DeviceRequests", "Devices")


def differences(wanted: Mapping[str, Any], inspected: Mapping[str, Any], engine: Engine) -> list[str]:
    """Where a created container is not what the template says, as "<field>: expected …, found …"."""
    found: Mapping[str, Any] = inspected["HostConfig"]
    wrong = [f"{name}: expected {value!r}, found {found.get(name)!r}" for name, value in wanted.items()
             if not _same(name, value, found.get(name))]  # fmt: skip
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


def _beside(wanted: Mapping[str, Any], inspected: Mapping[str, Any], engine: Engine) -> list[str]:
    """What stands outside of HostConfig and still grants something."""
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
        return _told(wanted) == _told(found)
    return wanted == found or (_is_nothing(wanted) and _is_nothing(found))


def _told(entries: Sequence[Mapping[str, Any]] | None) -> list[list[tuple[str, str]]]:
    """Entries with what says nothing left out: engines fill in zeros and empty maps. Order says nothing."""
    return sorted(sorted((key, repr(value)) for key, value in each.items() if not _is_nothing(value) or
                         key in ("Soft", "Hard")) for each in entries or [])  # fmt: skip


def _is_nothing(value: Any) -> bool:
    return value is None or value == "" or value is False or value == [] or value == {} or value == 0


#: {field: may the engine have filled in this value?}
_FILLED_IN: dict[str, Callable[[Any], bool]] = {
    "ConsoleSize": lambda _value: True,  # of a terminal that nobody has
    "Isolation": lambda value: value == "default",
    "CgroupnsMode": lambda value: value == "private",
    "MemorySwappiness": lambda value: value == -1,  # not set
    "MaskedPaths": lambda _value: True,  # looked at below
    "ReadonlyPaths": lambda _value: True,
}
