"""The inside of a node, ready to choose from; equal ones are one object, and what they share is worked out once."""

from typing import Any

from fairlead_placer.topology.choices import Choices
from fairlead_placer.topology.cpus import NumaCpus, numa_cpus
from fairlead_placer.topology.description import checked
from fairlead_placer.topology.nics import GpuNic, nearest
from fairlead_placer.topology.shapes import Shape, shape_of
from fairlead_schemas.wire.resources import NodeTopology

#: So many different insides, and shapes, are remembered; what was asked for longest ago goes. Who holds it keeps it.
INSIDES_MAX = 1024
SHAPES_MAX = 256
#: Sets of GPUs whose NICs are kept per inside; beyond this the cache starts empty.
NICS_KEPT_MAX = 1024


class Inside:
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
        """The NIC of each GPU of the set (nics.py)."""
        found = self._nics.get(gpus)
        if found is None:
            if len(self._nics) >= NICS_KEPT_MAX:
                self._nics.clear()
            found = self._nics[gpus] = nearest(self.description, gpus)
        return found


class Insides:
    """All insides of a cluster; derived, never in a snapshot. `reserved`: CPUs of each NUMA node kept for the system."""

    def __init__(self, reserved: int = 0, insides_max: int = INSIDES_MAX, shapes_max: int = SHAPES_MAX) -> None:
        self._reserved = reserved
        self._insides_max = insides_max
        self._shapes_max = shapes_max
        # By age of their last use.
        self._insides: dict[NodeTopology, Inside] = {}
        self._choices: dict[Shape, Choices] = {}

    def of(self, description: NodeTopology) -> Inside:
        """The inside so described. Raises TopologyError when the description makes no sense."""
        inside = self._insides.pop(description, None)
        if inside is None:
            inside = Inside(description, self._choices_of(shape_of(checked(description))), self._reserved)
        self._insides[description] = inside
        if len(self._insides) > self._insides_max:
            del self._insides[next(iter(self._insides))]
        return inside

    def _choices_of(self, shape: Shape) -> Choices:
        choices = self._choices.pop(shape, None) or Choices(shape)
        self._choices[shape] = choices
        if len(self._choices) > self._shapes_max:
            del self._choices[next(iter(self._choices))]
        return choices
