"""CPUs of a node: those kept for the system, and those that a container is pinned to, with its NUMA nodes' memory. Pure.

Reserved CPUs are taken out of what the node says it has, so that no work is given them. The placer names CPUs by the node's inventory.
CPUs of a simulated machine need not exist on the host: then no CPU is pinned, and the container shows this by label and environment.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fairlead_schemas.units.hardware import format_cpus, list_cpus, parse_cpus
from fairlead_schemas.wire.resources import Inventory, NumaNode

NUMBER_MAX = 1024


class BadReservation(ValueError):
    """The CPUs cannot be reserved, or not on this node. The message gives the reason."""


class Reserved(NamedTuple):
    """Either certain CPUs, or so many: the first of the first NUMA node on, threads of a core together."""

    cpus: frozenset[int] = frozenset()
    number: int = 0

    def of(self, nodes: tuple[NumaNode, ...]) -> frozenset[int]:
        """Return the reserved CPUs of a machine with these NUMA nodes."""
        there = [cpu for node in nodes for cpu in parse_cpus(node.cpus)]
        return frozenset(there[: self.number]) if self.number else self.cpus.intersection(there)


def parse_reserved(text: str) -> Reserved:
    """ "2" is two CPUs, "0-1" or "0,32" are these, "" is none. Raises BadReservation."""
    if text.isascii() and text.isdecimal():
        if int(text) > NUMBER_MAX:
            raise BadReservation(f'expected at most {NUMBER_MAX} CPUs, found "{text}"')
        return Reserved(number=int(text))
    try:
        return Reserved(cpus=frozenset(parse_cpus(text)))
    except ValueError as error:
        raise BadReservation(f'expected a count such as "2" or a list such as "0-1": {error}') from error


def without_reserved(inventory: Inventory, reserved: Reserved) -> Inventory:
    """The inventory without what is reserved. Raises BadReservation where nothing would be left."""
    nodes = inventory.inside.numa_nodes
    reserved_cpus = reserved.of(nodes)
    there = {cpu for node in nodes for cpu in parse_cpus(node.cpus)}
    if there and (missing := reserved.cpus - there):
        raise BadReservation(f"expected CPUs of this node, found {min(missing)}")
    taken = len(reserved_cpus) if nodes else reserved.number or len(reserved.cpus)
    if not taken:
        return inventory
    if taken * 1000 >= inventory.cpu_milli:
        raise BadReservation(f"expected fewer than the {inventory.cpu_milli // 1000} CPUs of this node, found {taken}")
    usable = tuple(msgspec.structs.replace(node, cpus=_without(node.cpus, reserved_cpus)) for node in nodes)
    if bare := [now.node for before, now in zip(nodes, usable, strict=True) if before.cpus and not now.cpus]:
        raise BadReservation(f"expected to leave each NUMA node a CPU, found that node {bare[0]} keeps none")
    inside = msgspec.structs.replace(inventory.inside, numa_nodes=usable) if nodes else inventory.inside
    return msgspec.structs.replace(inventory, cpu_milli=inventory.cpu_milli - taken * 1000, inside=inside)


def _without(cpus: str, reserved_cpus: frozenset[int]) -> str:
    return list_cpus(tuple(cpu for cpu in parse_cpus(cpus) if cpu not in reserved_cpus))


class NumaShare(NamedTuple):
    """Share of one NUMA node of the host that work may use."""

    cpus: frozenset[int]
    memory_mib: int


class Host(NamedTuple):
    """Host resources that the engine can pin to. `nodes` is {NUMA node: its share}, empty if pinning is not possible."""

    nodes: Mapping[int, NumaShare] = {}
    #: CPUs kept for the system: nothing that is not pinned elsewhere runs on them.
    reserved: frozenset[int] = frozenset()

    @property
    def cpus(self) -> frozenset[int]:
        """All CPUs of the host."""
        return frozenset[int]().union(*(node.cpus for node in self.nodes.values()))


class Pinning(NamedTuple):
    """CPU and NUMA node lists as cpusets take them, "" for no restriction, and in words what was done."""

    cpus: str
    mems: str
    summary: str
    #: The order's CPUs are those of a played machine.
    played: bool = False


class Unpinnable(ValueError):
    """The order names CPUs that this machine does not have; the message says which."""


def pin(cpus: str, memory_mib: int, host: Host, *, simulated: bool) -> Pinning:
    """Return the CPUs and memory nodes for an order with this CPU list and memory. Raises Unpinnable."""
    if not host.nodes:
        return Pinning("", "", "not pinned: this engine has no cpusets", played=simulated and bool(cpus))
    try:
        wanted = frozenset(parse_cpus(cpus))
    except ValueError as error:
        raise Unpinnable(f"the order's CPU list cannot be read: {error}") from error
    missing = wanted - host.cpus
    if missing and simulated:
        return Pinning("", "", f"not pinned: this host has not all of the played machine's CPUs {cpus}", played=True)
    if missing:
        there = format_cpus(tuple(host.cpus))
        raise Unpinnable(
            f"the order names CPU {min(missing)}, which this machine has not or has offline (it has {there})"
        )
    if not wanted:
        free = host.cpus - host.reserved
        kept = format_cpus(tuple(free)) if host.reserved and free else ""
        return Pinning(kept, "", f"not pinned, but kept to {kept}" if kept else "not pinned: the order names no CPUs")
    mems = _mems(wanted, memory_mib, host)
    listed = format_cpus(tuple(wanted))
    return Pinning(listed, mems, f"CPUs {listed}, memory of NUMA nodes {mems or 'any'}")


def _mems(wanted: frozenset[int], memory_mib: int, host: Host) -> str:
    """The NUMA nodes of these CPUs; "" where memory has to come from elsewhere as well.

    A cpuset's memory is a hard wall: who meets it is killed though other nodes have memory left. As placements count
    CPUs and not memory by NUMA node, only who asks for no more than its CPUs' share of the memory is walled in; all such
    shares together fit. For the others the kernel still takes the nearest memory first.
    """
    near = {number: node for number, node in host.nodes.items() if node.cpus & wanted}
    fair_mib = sum(node.memory_mib * len(node.cpus & wanted) // len(node.cpus) for node in near.values())
    if len(near) < len(host.nodes) and memory_mib > fair_mib:
        return ""
    return format_cpus(tuple(near))
