"""MIG instances of one node: the GPU of each, which are held, which a plan has in hand.

Only what agents have reported is here. A GPU in MIG mode is never free as a whole, and is not given out in shares.
"""

from functools import lru_cache
from typing import NamedTuple

from fairlead_placer.mig.layouts import Instance, Layout, legal_fault
from fairlead_placer.mig.models import BY_NAME, Model
from fairlead_schemas.wire.resources import Gpu

#: Layouts whose legality is remembered.
LAYOUTS_MAX = 4096


class Cell(NamedTuple):
    """MIG instance with the place of its GPU in the node's order."""

    place: int
    instance: Instance


class Cuts:
    """Mutable, for speed: `held` follows what is taken and given back."""

    __slots__ = ("cells", "going", "held", "legal")

    def __init__(self, gpus: tuple[Gpu, ...], models: tuple[Model | None, ...]) -> None:
        """`models`: of each GPU, None where it is not known to be cut."""
        #: {instance's UUID: where it is}, by place and start.
        self.cells: dict[str, Cell] = {}
        #: Mask of GPUs in MIG mode whose layout is a legal one of their model: only such GPUs may be repartitioned.
        self.legal = 0
        for place, gpu in enumerate(gpus):
            if not gpu.mig:
                continue
            for each in sorted(gpu.instances, key=lambda each: (each.start, each.uuid)):
                self.cells[each.uuid] = Cell(place, Instance(each.profile, each.start))
            model = models[place]
            if model is not None and _is_legal(
                model.name, tuple(Instance(each.profile, each.start) for each in gpu.instances)
            ):
                self.legal |= 1 << place
        #: UUIDs of instances that a run holds, and of instances that a plan is about to destroy.
        self.held: set[str] = set()
        self.going: frozenset[str] = frozenset()

    def copy(self) -> "Cuts":
        """The same, to try something on."""
        other = object.__new__(Cuts)
        other.cells, other.legal, other.going = self.cells, self.legal, self.going
        other.held = self.held.copy()
        return other

    def idle(self, usable: int) -> dict[str, Cell]:
        """{UUID: where it is} of the instances that may be given now, on the GPUs of the mask."""
        return {
            uuid: cell for uuid, cell in self.cells.items()
            if usable >> cell.place & 1 and uuid not in self.held and uuid not in self.going
        }  # fmt: skip

    def layout(self, place: int) -> Layout:
        """Return the GPU's instances, held and idle; those that a plan destroys count as idle."""
        here = [(uuid, cell.instance) for uuid, cell in self.cells.items() if cell.place == place]
        busy = tuple(instance for uuid, instance in here if uuid in self.held)
        return Layout(busy, tuple(instance for uuid, instance in here if uuid not in self.held))

    def profile(self) -> str:
        """The one profile of all instances; "" where they differ, or there are none."""
        found = {cell.instance.profile for cell in self.cells.values()}
        return found.pop() if len(found) == 1 else ""


@lru_cache(LAYOUTS_MAX)
def _is_legal(model: str, instances: tuple[Instance, ...]) -> bool:
    return not legal_fault(BY_NAME[model], instances)
