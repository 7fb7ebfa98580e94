"""Choice of the GPUs, CPUs and NICs of one node for one part of an attempt. Also the facts of a node that the choice
needs, shared by equal nodes.
"""

from typing import Any, NamedTuple

from fairlead_placer.topology.affinity import GpuNic, NumaCpus, apart, beside, nearest, numa_cpus
from fairlead_placer.topology.gpu_choice import Choices, Shortage
from fairlead_placer.topology.gpu_topology import NUMA, GpuTopology, checked, members_of, relaxed, shape_of
from fairlead_schemas.wire.resources import NodeTopology

#: So many different insides, and shapes, are remembered; what was asked for longest ago goes. Who holds it keeps it.
INSIDES_MAX = 1024
SHAPES_MAX = 256
#: Sets of GPUs whose NICs are kept per inside; beyond this the cache starts empty.
NICS_KEPT_MAX = 1024


class NodeDevices:
    """Facts of a node that a choice needs. Sets of GPUs and CPUs are masks."""

    def __init__(self, description: NodeTopology, choices: Choices, reserved: int) -> None:
        self.description = description
        self.choices = choices
        #: () where no CPU list is known: then nothing is pinned.
        self.numa: tuple[NumaCpus, ...] = numa_cpus(description, reserved)
        #: True when it matters which GPUs are free, not only how many.
        self.telling = any(map(any, choices.shape.scores)) or len(choices.shape.numa) > 1
        self.all_gpus = (1 << description.gpus) - 1
        #: GPUs that lie on one of them.
        self.near_gpus = sum(node.gpus for node in self.numa)
        #: What may be given.
        self.all_cpus = sum(node.mask for node in self.numa)
        self._nics: dict[int, tuple[GpuNic, ...]] = {}
        #: What capacity.seats has answered: {(free GPUs, free CPUs, what is asked for)}.
        self.seats: dict[tuple[int, int, tuple[int, ...]], Any] = {}

    def nics(self, gpus: int) -> tuple[GpuNic, ...]:
        """The NIC of each GPU of the set (affinity.py)."""
        found = self._nics.get(gpus)
        if found is None:
            if len(self._nics) >= NICS_KEPT_MAX:
                self._nics.clear()
            found = self._nics[gpus] = nearest(self.description, gpus)
        return found


class NodeDevicesTable:
    """All insides of a cluster; derived, never in a snapshot. `reserved`: CPUs of each NUMA node kept for the system."""

    def __init__(self, reserved: int = 0, insides_max: int = INSIDES_MAX, shapes_max: int = SHAPES_MAX) -> None:
        self._reserved = reserved
        self._insides_max = insides_max
        self._shapes_max = shapes_max
        # By age of their last use.
        self._insides: dict[NodeTopology, NodeDevices] = {}
        self._choices: dict[GpuTopology, Choices] = {}

    def of(self, description: NodeTopology) -> NodeDevices:
        """Return the device facts of a node with this topology, from the cache if known. Raises TopologyError when the
        description makes no sense.
        """
        inside = self._insides.pop(description, None)
        if inside is None:
            inside = NodeDevices(description, self._choices_of(shape_of(checked(description))), self._reserved)
        self._insides[description] = inside
        if len(self._insides) > self._insides_max:
            del self._insides[next(iter(self._insides))]
        return inside

    def _choices_of(self, shape: GpuTopology) -> Choices:
        choices = self._choices.pop(shape, None) or Choices(shape)
        self._choices[shape] = choices
        if len(self._choices) > self._shapes_max:
            del self._choices[next(iter(self._choices))]
        return choices


class DeviceRequest(NamedTuple):
    """Needs of one part. `require` and `prefer` are kinds of gpu_topology.py, added up."""

    gpus: int = 0
    cpus: int = 0  # whole ones
    require: int = 0
    prefer: int = 0


class DeviceAllocation(NamedTuple):
    """Resources given to a part, in rising order, and their quality."""

    gpus: tuple[int, ...]
    #: () also where the node's CPU lists are not known.
    cpus: tuple[int, ...]
    nics: tuple[GpuNic, ...]
    #: What was required, and what was preferred and could be had.
    held: int
    link_score: int
    numa_nodes: int  # that the GPUs lie on


class DeviceMasks(NamedTuple):
    """The same as sets, and what holds."""

    gpus: int
    cpus: int
    held: int


def place(inside: NodeDevices, free_gpus: int, free_cpus: int, ask: DeviceRequest) -> DeviceAllocation | Shortage:
    """Return the resources given to the ask out of those free (masks), or the shortage of its requirement: see `choose`."""
    found = choose(inside, free_gpus, free_cpus, ask)
    if isinstance(found, Shortage):
        return found
    gpus, cpus, held = found
    return DeviceAllocation(members_of(gpus), members_of(cpus), inside.nics(gpus), held, *inside.choices.facts(gpus))


def choose(inside: NodeDevices, free_gpus: int, free_cpus: int, ask: DeviceRequest) -> DeviceMasks | Shortage:
    """Return the resources given to the ask, or the shortage.

    GPUs come by `Choices.choose`; among choices with equal link scores, one whose NUMA nodes have enough CPUs is preferred.
    CPUs are near the GPUs (affinity.py). If NUMA holds, CPUs come from the same NUMA node as the GPUs; without known CPU lists
    it applies to the GPUs alone. NICs by level (affinity.py). Raises ValueError for GPUs that are not there.
    """
    if not ask.prefer:
        return _choose(inside, free_gpus, free_cpus, ask, ask.require)
    short: Shortage | None = None
    for held in relaxed(ask.require, ask.prefer):
        found = _choose(inside, free_gpus, free_cpus, ask, held)
        if isinstance(found, DeviceMasks):
            return found
        short = found
    assert short is not None, "the last thing tried is what is required alone"
    return short


def _choose(
    inside: NodeDevices, free_gpus: int, free_cpus: int, ask: DeviceRequest, held: int
) -> DeviceMasks | Shortage:
    nodes, strict = inside.numa, bool(held & NUMA)
    gpus = _gpus(inside, free_gpus, free_cpus, ask, held)
    if isinstance(gpus, Shortage):
        return gpus
    cpus: int | Shortage = 0
    if ask.cpus and nodes:
        others = free_gpus & ~gpus
        if gpus & inside.near_gpus:
            cpus = beside(nodes, free_cpus, ask.cpus, gpus, strict, others)
        else:
            cpus = apart(nodes, free_cpus, ask.cpus, others, strict)
    if isinstance(cpus, Shortage):
        return cpus
    return DeviceMasks(gpus, cpus, held)


def _gpus(inside: NodeDevices, free_gpus: int, free_cpus: int, ask: DeviceRequest, held: int) -> int | Shortage:
    choices, nodes = inside.choices, inside.numa
    chosen = choices.choose(free_gpus, ask.gpus, held)
    if isinstance(chosen, Shortage) or not (ask.gpus and ask.cpus and nodes):
        return chosen
    if _enough(nodes, free_cpus, chosen, ask.cpus):
        return chosen
    strict = bool(held & NUMA)
    # A NUMA node that cannot feed its GPUs is left out: all that are asked for where they must lie on one, else one.
    least = ask.cpus if strict else -(-ask.cpus // ask.gpus)
    fed = free_gpus
    for node in nodes:
        if (node.mask & free_cpus).bit_count() < least:
            fed &= ~node.gpus
    better = choices.choose(fed, ask.gpus, held)
    if strict:
        return _starved(inside, free_gpus, free_cpus, ask, held) if isinstance(better, Shortage) else better
    if isinstance(better, Shortage) or choices.facts(better)[0] < choices.facts(chosen)[0]:
        return chosen
    return better if _enough(nodes, free_cpus, better, ask.cpus) else chosen


def _enough(nodes: tuple[NumaCpus, ...], free_cpus: int, gpus: int, cpus: int) -> bool:
    near = 0
    for node in nodes:
        if node.gpus & gpus:
            near |= node.mask
    return (near & free_cpus).bit_count() >= cpus


def _starved(inside: NodeDevices, free_gpus: int, free_cpus: int, ask: DeviceRequest, held: int) -> Shortage:
    """GPUs are there on one NUMA node, and CPUs are not there with them."""

    def most(gpus: int, cpus: int) -> int:
        able = [
            node for node in inside.numa if isinstance(inside.choices.choose(node.gpus & gpus, ask.gpus, held), int)
        ]
        return max(((node.mask & cpus).bit_count() for node in able), default=0)

    ever = min(ask.cpus, most(inside.all_gpus, inside.all_cpus))
    return Shortage("numa_gpus_cpus", most(free_gpus, free_cpus), ask.cpus, ever)
