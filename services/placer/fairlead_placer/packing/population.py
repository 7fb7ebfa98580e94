"""View of a pool for policies: the number of nodes in each state."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from fairlead_placer.packing.shapes import Shape
from fairlead_placer.packing.states import Ints, States


class Machine(NamedTuple):
    """A node as it is when nothing runs on it."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str = ""


class Population(Protocol):
    """Nodes by what they have left; those that are alike are one row."""

    @property
    def models(self) -> dict[str, int]:
        """{GPU model: its bit's place}."""
        ...

    @property
    def machines(self) -> Mapping[Machine, int]:
        """{kind of node: how many there are}."""
        ...

    @property
    def free_milli(self) -> int:
        """Free GPUs of all nodes together, in thousandths."""
        ...

    @property
    def states(self) -> States:
        """Remaining capacity of a node of each row."""
        ...

    @property
    def counts(self) -> Ints:
        """Number of nodes in each row."""
        ...

    def mask(self, shape: Shape) -> int:
        """The bits of the models that the shape accepts; all, where it names none."""
        ...
