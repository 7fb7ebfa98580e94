"""CPUs kept for the system: taken out of what the node says it has, so that no work is given them. Pure."""

from typing import NamedTuple

import msgspec

from fairlead_schemas.units.hardware import list_cpus, parse_cpus
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
