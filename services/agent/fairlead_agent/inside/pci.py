"""Where a device sits on PCIe, and what lies between two, by their paths below /sys/devices.

Such a path names the host bridge and every bridge on the way: pci0000:00/0000:00:01.0/…/0000:0c:00.0. A switch is two
of them, the port that it is reached by and the one towards the device.
"""

import re
from pathlib import Path
from typing import NamedTuple

from fairlead_agent.inside.files import read_number
from fairlead_schemas.inside import Level

_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}\Z")
_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
#: What two devices under one switch have to themselves: a port of the switch, and the device.
_ONE_BRIDGE = 2


class Place(NamedTuple):
    """One device."""

    host_bridge: str
    #: Bridges from there on, at last the device itself.
    path: tuple[str, ...]
    numa: int  # -1: not known


def address_of(bus_id: str) -> str:
    """NVML's "00000000:0C:00.0" as /sys writes it, "0000:0c:00.0"."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"


def place_at(sys: Path, address: str) -> Place | None:
    """The place of the device at an address ("0000:0c:00.0"); None where the kernel shows no such device."""
    return place_of(sys / "bus/pci/devices" / address)


def place_of(device: Path) -> Place | None:
    """The place of a device, by any path that leads to it; None for what is not on PCIe."""
    try:
        parts = device.resolve(strict=True).parts
    except OSError:
        return None
    bridges = [at for at, part in enumerate(parts) if _HOST_BRIDGE.match(part)]
    if not bridges:
        return None
    # A bridge may hide another tree behind it (VMD): the innermost is the one that the device hangs on.
    path = tuple(part for part in parts[bridges[-1] + 1 :] if _FUNCTION.match(part))
    return Place(parts[bridges[-1]], path, read_number(device / "numa_node")) if path else None


def level_between(one: Place, other: Place) -> Level:
    """What lies between them; "" where they are under different host bridges and nobody knows their NUMA nodes."""
    if one.host_bridge != other.host_bridge:
        if one.numa < 0 or other.numa < 0:
            return ""
        return "NODE" if one.numa == other.numa else "SYS"
    shared = 0
    for a, b in zip(one.path, other.path, strict=False):
        if a != b:
            break
        shared += 1
    if not shared:
        return "PHB"
    return "PIX" if max(len(one.path), len(other.path)) - shared <= _ONE_BRIDGE else "PXB"
