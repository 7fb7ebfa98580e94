"""Facts of this machine, read from the kernel: boot, CPUs, memory, name, the network interface that carries its address; and its
inside, from /sys and from the links that the driver of the GPUs reports.

NUMA nodes come with their sockets and CPU lists, threads of one core side by side; RDMA devices in the order that people count them:
mlx5_2 before mlx5_10.

A path below /sys/devices names the host bridge and every bridge on the way: pci0000:00/0000:00:01.0/…/0000:0c:00.0. A switch is two
bridges: the upstream port, and the downstream port towards the device.
"""

import array
import fcntl
import os
import re
import resource
import socket
import struct
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from fairlead_schemas.units.hardware import list_cpus, parse_cpus
from fairlead_schemas.wire.resources import (
    NIC_CHARS_MAX,
    NUMA_NODES_MAX,
    TOPOLOGY_BYTES_MAX,
    TOPOLOGY_GPUS_MAX,
    TOPOLOGY_NICS_MAX,
    UNKNOWN_TOPOLOGY,
    NodeTopology,
    NumaNode,
    PcieLevel,
)

#: More than that no program of ours knows what to do with.
OPEN_FILES_MAX = 1024 * 1024


def boot_id() -> str:
    """The kernel's id of this boot; another one means that everything that ran is gone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def cpus() -> frozenset[int]:
    """CPUs that this process may use."""
    return frozenset(os.sched_getaffinity(0))


def cpu_milli() -> int:
    """The same, counted in milli-CPU."""
    return len(cpus()) * 1000


def memory_mib() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def open_files_max() -> int:
    """Most open files that a process of this machine may have: ours, which an engine's is rarely below."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most, OPEN_FILES_MAX)


def hostname() -> str:
    """The host's name, for people."""
    return socket.gethostname()


def program(pid: int) -> str:
    """Return the kernel's name of the process, 15 characters at most; "" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


_SIOCGIFCONF = 0x8912
#: struct ifreq on 64-bit Linux: a name of 16 bytes, and an address whose IPv4 begins at its fourth.
_NAME_BYTES, _ENTRY_BYTES = 16, 40
_ENTRIES_MAX = 1024


def interface_of(address: str) -> str:
    """The interface's name; "" where the address is no IPv4 address (or name of one) of this network namespace."""
    try:
        wanted = socket.gethostbyname(address)
    except OSError:
        return ""
    return next((name for name, found in _addresses() if found == wanted), "")


def _addresses() -> list[tuple[str, str]]:
    """(interface, IPv4 address), aliases under the name of their interface."""
    entries = array.array("B", bytes(_ENTRY_BYTES * _ENTRIES_MAX))
    where, size = entries.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        filled = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iL", size, where))
    used: int = struct.unpack("iL", filled)[0]
    data = entries.tobytes()[:used]
    found: list[tuple[str, str]] = []
    for at in range(0, used, _ENTRY_BYTES):
        name = data[at : at + _NAME_BYTES].partition(b"\0")[0].decode()
        found.append((name.partition(":")[0], socket.inet_ntoa(data[at + _NAME_BYTES + 4 : at + _NAME_BYTES + 8])))
    return found


def read_text(path: Path) -> str:
    """Return the file's content without the newline at its end; "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_number(path: Path) -> int:
    """Return the file's number; -1 if there is none."""
    try:
        return int(read_text(path))
    except ValueError:
        return -1


_NODE = re.compile(r"node(\d+)\Z", re.ASCII)


def numa_nodes(sys: Path, allowed: Collection[int]) -> tuple[NumaNode, ...]:
    """The NUMA nodes that have CPUs, by number; of their CPUs those that are allowed. Below `sys` it is as below /sys.

    A kernel without NUMA has one node, 0, with all CPUs.
    """
    lists = _lists(sys)
    if not lists:
        lists = {0: _parsed(read_text(sys / "devices/system/cpu/online"))}
    return tuple(
        NumaNode(
            node=node,
            cpus=list_cpus(_side_by_side(sys, [cpu for cpu in cpus if cpu in allowed])),
            socket=read_number(_topology(sys, cpus[0]) / "physical_package_id"),
        )
        for node, cpus in sorted(lists.items())
        if cpus
    )


def _lists(sys: Path) -> dict[int, tuple[int, ...]]:
    """{NUMA node: its CPUs}; one that holds memory alone (a GPU's, for example) has none."""
    try:
        entries = list((sys / "devices/system/node").iterdir())
    except OSError:
        return {}
    found = [(match, entry) for entry in entries if (match := _NODE.match(entry.name))]
    return {int(match[1]): _parsed(read_text(entry / "cpulist")) for match, entry in found}


def _side_by_side(sys: Path, cpus: Iterable[int]) -> tuple[int, ...]:
    """The CPUs by rising number, but each followed by the other threads of its core."""
    left = dict.fromkeys(sorted(cpus))
    ordered: list[int] = []
    while left:
        first = next(iter(left))
        threads = {first, *_parsed(read_text(_topology(sys, first) / "thread_siblings_list"))}
        core = [cpu for cpu in sorted(threads) if cpu in left]
        ordered += core
        for cpu in core:
            del left[cpu]
    return tuple(ordered)


def _topology(sys: Path, cpu: int) -> Path:
    return sys / f"devices/system/cpu/cpu{cpu}/topology"


def _parsed(text: str) -> tuple[int, ...]:
    try:
        return parse_cpus(text)
    except ValueError:
        return ()


_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}\Z")
_FUNCTION = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
#: What two devices under one switch have to themselves: a port of the switch, and the device.
_ONE_BRIDGE = 2


class PciPlace(NamedTuple):
    """Position of one device on PCIe."""

    host_bridge: str
    #: Bridges from there on, at last the device itself.
    path: tuple[str, ...]
    numa: int  # -1: not known


def address_of(bus_id: str) -> str:
    """NVML's "00000000:0C:00.0" as /sys writes it, "0000:0c:00.0"."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"


def place_at(sys: Path, address: str) -> PciPlace | None:
    """The place of the device at an address ("0000:0c:00.0"); None where the kernel shows no such device."""
    return place_of(sys / "bus/pci/devices" / address)


def place_of(device: Path) -> PciPlace | None:
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
    return PciPlace(parts[bridges[-1]], path, read_number(device / "numa_node")) if path else None


def level_between(one: PciPlace, other: PciPlace) -> PcieLevel:
    """Return the PCIe level between two devices; "" if their host bridges differ and a NUMA node is not known."""
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


_NUMBER = re.compile(r"(\d+)", re.ASCII)


def nics(sys: Path) -> dict[str, PciPlace]:
    """{name: its place} of those on PCIe, the first NICS_MAX. Virtual functions are their card's, and left out."""
    try:
        entries = sorted((sys / "class/infiniband").iterdir(), key=lambda entry: _natural(entry.name))
    except OSError:
        return {}
    found: dict[str, PciPlace] = {}
    for entry in entries:
        device = entry / "device"
        place = place_of(device)
        if place is not None and not (device / "physfn").exists() and len(entry.name) <= NIC_CHARS_MAX:
            found[entry.name] = place
    return dict(list(found.items())[:TOPOLOGY_NICS_MAX])


def verbs(sys: Path) -> dict[str, tuple[str, ...]]:
    """{name: the files below /dev through which programs use it}: its own, as the kernel numbers them, and the one for
    connections that all share."""
    shared = ("/dev/infiniband/rdma_cm",) if (sys / "class/misc/rdma_cm").exists() else ()
    found: dict[str, tuple[str, ...]] = {}
    try:
        for entry in sorted((sys / "class/infiniband_verbs").iterdir()):
            name = (entry / "ibdev").read_text().strip() if (entry / "ibdev").exists() else ""
            if name and re.fullmatch(r"uverbs\d+", entry.name, re.ASCII):
                found[name] = (f"/dev/infiniband/{entry.name}", *shared)
    except OSError:
        return {}
    return found


def _natural(name: str) -> list[tuple[bool, int, str]]:
    return [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in _NUMBER.split(name)]


_log = structlog.get_logger()

type Levels = tuple[tuple[PcieLevel, ...], ...]
type Links = tuple[tuple[int, ...], ...]


def describe(
    sys: Path, allowed: Collection[int], gpus: Sequence[str] = (), *, nvlinks: Links = (), pcie: Levels = ()
) -> NodeTopology:
    """Describe the hardware below `sys`, which is /sys or a copy of it. `allowed`: the CPUs that work may be given.

    `gpus`: PCI address of each ("0000:0c:00.0"); `nvlinks` and `pcie` are indexed [gpu][gpu] and come from the driver. A
    level is "" where the driver does not report it; it is then derived from the paths.
    """
    nodes = numa_nodes(sys, allowed)[:NUMA_NODES_MAX]
    places = [_on_a_node(place_at(sys, gpu), nodes) for gpu in gpus]
    cards = {name: _on_a_node(place, nodes) for name, place in nics(sys).items()}
    return bounded(
        NodeTopology(
            numa=tuple(-1 if place is None else place.numa for place in places),
            nvlinks=nvlinks,
            pcie=_filled(pcie, places),
            numa_nodes=nodes,
            nics=tuple(cards),
            nic_levels=tuple(tuple(_level(gpu, card) for card in cards.values()) for gpu in places) if cards else (),
        )
    )


def bounded(description: NodeTopology) -> NodeTopology:
    """The same; UNKNOWN itself where it says nothing, or more than a placer takes (that is logged)."""
    if description == UNKNOWN_TOPOLOGY:
        return UNKNOWN_TOPOLOGY
    size = len(msgspec.json.encode(description))
    if description.gpus > TOPOLOGY_GPUS_MAX or size > TOPOLOGY_BYTES_MAX:
        _log.warning(
            "the description of this machine's topology is too large to report", gpus=description.gpus, bytes=size
        )
        return UNKNOWN_TOPOLOGY
    return description


def _on_a_node(place: PciPlace | None, nodes: tuple[NumaNode, ...]) -> PciPlace | None:
    """On a machine with one NUMA node the kernel often says -1; everything is on that one."""
    if place is None or place.numa >= 0 or len(nodes) != 1:
        return place
    return place._replace(numa=nodes[0].node)


def _filled(pcie: Levels, places: Sequence[PciPlace | None]) -> Levels:
    def level(i: int, j: int) -> PcieLevel:
        if i == j:
            return "X"
        return (pcie[i][j] if pcie else "") or _level(places[i], places[j])

    count = range(len(places))
    known = any(level(i, j) for i in count for j in range(i))
    return tuple(tuple(level(i, j) for j in count) for i in count) if known else ()


def _level(one: PciPlace | None, other: PciPlace | None) -> PcieLevel:
    return "" if one is None or other is None else level_between(one, other)
