"""Pinning of a container to CPUs and to NUMA nodes' memory. Pure.

The placer names CPUs by the node's inventory. CPUs of a simulated machine need not exist on the host: then
no CPU is pinned, and the container shows this by label and environment.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead_schemas.units.hardware import format_cpus, parse_cpus


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
        return frozenset().union(*(node.cpus for node in self.nodes.values()))


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
