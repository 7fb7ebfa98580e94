"""Capacity that a node has left: amounts, each GPU's rest, CPUs without a pinned run; and MIG instances of one node: the
GPU of each, which are held, which a plan has in hand. Parts are taken and given back.

Only what agents have reported is here. A GPU in MIG mode is never free as a whole, and is not given out in shares.
"""

from functools import lru_cache
from typing import NamedTuple

from fairlead_placer.cluster.capacity.node_shape import MILLI, NodeShape
from fairlead_placer.mig.layouts import Instance, Layout, legal_fault
from fairlead_placer.mig.models import BY_NAME, Model
from fairlead_placer.topology.gpu_topology import mask_of, members_of
from fairlead_schemas.units.hardware import format_cpus, parse_cpus
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.resources import Gpu

#: Layouts whose legality is remembered.
LAYOUTS_MAX = 4096


class InstanceSlot(NamedTuple):
    """MIG instance with the place of its GPU in the node's order."""

    place: int
    instance: Instance


class MigInstances:
    """Mutable, for speed: `held` follows what is taken and given back."""

    __slots__ = ("cells", "going", "held", "legal")

    def __init__(self, gpus: tuple[Gpu, ...], models: tuple[Model | None, ...]) -> None:
        """`models`: of each GPU, None where it is not known to be cut."""
        #: {instance's UUID: where it is}, by place and start.
        self.cells: dict[str, InstanceSlot] = {}
        #: Mask of GPUs in MIG mode whose layout is a legal one of their model: only such GPUs may be repartitioned.
        self.legal = 0
        for place, gpu in enumerate(gpus):
            if not gpu.mig:
                continue
            for each in sorted(gpu.instances, key=lambda each: (each.start, each.uuid)):
                self.cells[each.uuid] = InstanceSlot(place, Instance(each.profile, each.start))
            model = models[place]
            if model is not None and _is_legal(
                model.name, tuple(Instance(each.profile, each.start) for each in gpu.instances)
            ):
                self.legal |= 1 << place
        #: UUIDs of instances that a run holds, and of instances that a plan is about to destroy.
        self.held: set[str] = set()
        self.going: frozenset[str] = frozenset()

    def copy(self) -> "MigInstances":
        """The same, to try something on."""
        other = MigInstances.__new__(MigInstances)
        other.cells, other.legal, other.going = self.cells, self.legal, self.going
        other.held = self.held.copy()
        return other

    def idle(self, usable: int) -> dict[str, InstanceSlot]:
        """{UUID: where it is} of the instances that may be given now, on the GPUs of the mask."""
        return {
            uuid: cell
            for uuid, cell in self.cells.items()
            if usable >> cell.place & 1 and uuid not in self.held and uuid not in self.going
        }

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


#: CPU, memory, GPUs and CPUs that are left: all that a part takes of which no GPU is shared or cut.
type Mark = tuple[int, int, int, int]


class FreeResources:
    """Mutable, for speed. Amounts may fall below 0 where an inventory shrank under what is held: nothing fits then."""

    __slots__ = (
        "at",
        "barred",
        "bits",
        "build",
        "caps",
        "cpu_milli",
        "cpus",
        "cuts",
        "faulted",
        "free",
        "memory_mib",
        "milli",
        "odd",
        "parts",
        "shared",
        "uuids",
        "where",
    )

    def __init__(self, build: NodeShape, uuids: tuple[str, ...], cuts: MigInstances | None = None) -> None:
        """`cuts`: of a node with GPUs in MIG mode."""
        self.build = build
        self.cuts = cuts
        #: The GPUs in the node's order, and {UUID: its place}. One that has left is in no place, and never comes free.
        self.uuids = uuids
        self.at = {uuid: place for place, uuid in enumerate(uuids)}
        #: {UUID: its bit in masks}.
        self.bits = {uuid: 1 << place for place, uuid in enumerate(uuids)}
        #: The node's own labels. Labels with its location are not in its build.
        self.where: dict[str, str] = {}
        self.cpu_milli = build.cpu_milli
        self.memory_mib = build.memory_mib
        #: [GPU]: thousandths left of GPUs with shares; for other GPUs the value means nothing (see `rest`).
        self.milli = [MILLI] * len(build.gpus)
        #: [GPU]: MiB that no share was promised.
        self.caps = [gpu.memory_mib for gpu in build.gpus]
        #: [GPU]: MiB not promised to any share.
        self.parts = 0
        #: Masks: wholly free GPUs, GPUs with shares, faulted GPUs, CPUs that no run is pinned to.
        self.free = build.all_gpus & ~build.cut
        self.shared = 0
        self.faulted = 0
        #: Mask of GPUs that are never free as a whole: in MIG mode, faulted, being cut.
        self.barred = build.cut
        #: {GPU: how often it is held otherwise than what it is now is given: whole in MIG mode, by an instance that it has
        #: no more}. Nothing of it is given.
        self.odd: dict[int, int] = {}
        self.cpus = build.inside.all_cpus

    def copy(self) -> "FreeResources":
        """The same, to try something on."""
        other = FreeResources.__new__(FreeResources)
        other.build, other.uuids, other.at, other.where = self.build, self.uuids, self.at, self.where
        other.bits = self.bits
        other.cpu_milli, other.memory_mib = self.cpu_milli, self.memory_mib
        other.milli, other.caps, other.parts = self.milli.copy(), self.caps.copy(), self.parts
        other.free, other.shared, other.faulted, other.cpus = self.free, self.shared, self.faulted, self.cpus
        other.barred, other.odd = self.barred, self.odd.copy()
        other.cuts = None if self.cuts is None else self.cuts.copy()
        return other

    def rest(self, place: int) -> int:
        """Thousandths left of the GPU."""
        if self.free >> place & 1:
            return MILLI
        return self.milli[place] if self.shared >> place & 1 else 0

    def both(self, other: "FreeResources") -> "FreeResources":
        """Return the capacity that is left in both: the same node at two times."""
        left = self.copy()
        left.cpu_milli, left.memory_mib = min(self.cpu_milli, other.cpu_milli), min(self.memory_mib, other.memory_mib)
        left.parts = max(self.parts, other.parts)
        left.caps = [min(here, there) for here, there in zip(self.caps, other.caps, strict=True)]
        left.faulted, left.cpus = self.faulted | other.faulted, self.cpus & other.cpus
        left.free, left.shared = self.free & other.free & ~left.faulted, 0
        for place in range(len(left.milli)):
            rest = min(self.rest(place), other.rest(place))
            if 0 < rest < MILLI and not left.faulted >> place & 1:
                left.milli[place] = rest
                left.shared |= 1 << place
        return left

    def mark(self) -> Mark:
        """Return what there is now, to go `back` to."""
        return self.cpu_milli, self.memory_mib, self.free, self.cpus

    def back(self, mark: Mark, part: Part) -> None:
        """The part, which was taken last, was not taken: what there is, is what was marked before."""
        if part.gpu_milli or part.instances or self.build.cut:
            self.give(part)
        else:
            self.parts -= 1
            self.cpu_milli, self.memory_mib, self.free, self.cpus = mark

    def take(self, part: Part) -> None:
        """Take the part off what is left."""
        self.parts += 1
        self.cpu_milli -= part.cpu_milli
        self.memory_mib -= part.memory_mib
        if part.gpus:
            if part.instances:
                self._hold(part, 1)
            elif part.gpu_milli:
                self._share(part, -1)
            else:
                self.free &= ~self._mask(part.gpus)
                if self.build.cut:
                    self._hold_whole(part, 1)
        if part.cpus:
            self.cpus &= ~cpu_mask(part.cpus)

    def give(self, part: Part) -> None:
        """Give the part back."""
        self.parts -= 1
        self.cpu_milli += part.cpu_milli
        self.memory_mib += part.memory_mib
        if part.gpus:
            if part.instances:
                self._hold(part, -1)
            elif part.gpu_milli:
                self._share(part, 1)
            else:
                self.free |= self._mask(part.gpus) & ~self.barred
                if self.build.cut:
                    self._hold_whole(part, -1)
        if part.cpus:
            self.cpus |= cpu_mask(part.cpus) & self.build.inside.all_cpus

    def _mask(self, gpus: tuple[str, ...]) -> int:
        """Return the mask of those GPUs that the node has."""
        if gpus == self.uuids:
            return self.build.all_gpus
        bits, mask = self.bits, 0
        for uuid in gpus:
            mask |= bits.get(uuid, 0)
        return mask

    def _share(self, part: Part, sign: int) -> None:
        for uuid in part.gpus:
            place = self.at.get(uuid)
            if place is None:
                continue
            self.milli[place] += sign * part.gpu_milli
            self.caps[place] += sign * part.gpu_memory_mib
            bit = 1 << place
            if self.milli[place] == MILLI:
                self.shared &= ~bit
                self.free |= bit & ~self.barred
            else:
                self.shared |= bit & ~self.faulted
                self.free &= ~bit

    def _hold(self, part: Part, sign: int) -> None:
        """Hold or release the part's instances. An instance that the inventory no longer has is held as its whole GPU."""
        cuts = self.cuts
        for uuid, instance in zip(part.gpus, part.instances, strict=True):
            if cuts is not None and instance in cuts.cells:
                (cuts.held.add if sign > 0 else cuts.held.discard)(instance)
            elif (place := self.at.get(uuid)) is not None:
                self._odd(place, sign)
                bit = 1 << place
                self.free = self.free & ~bit if place in self.odd else self.free | bit & ~self.barred

    def _hold_whole(self, part: Part, sign: int) -> None:
        """Hold or release whole GPUs of the part that are in MIG mode by now."""
        for uuid in part.gpus:
            place = self.at.get(uuid)
            if place is not None and self.build.cut >> place & 1:
                self._odd(place, sign)

    def _odd(self, place: int, sign: int) -> None:
        count = self.odd.pop(place, 0) + sign
        if count:
            self.odd[place] = count

    def keep_back(self, uuid: str) -> None:
        """Keep the GPU from all work while it is being cut. Call this before parts are taken."""
        place = self.at.get(uuid)
        if place is not None:
            self.free &= ~(1 << place)
            self.barred |= 1 << place
            self._odd(place, 1)

    @property
    def cuttable(self) -> int:
        """Mask of the healthy GPUs in MIG mode that are held through their instances at most."""
        return self.build.cut & ~(self.faulted | self.shared | mask_of(self.odd))

    def fault(self, uuid: str) -> None:
        """The GPU is not to be used; what is on it stays. Before parts are taken."""
        place = self.at.get(uuid)
        if place is not None:
            self.free &= ~(1 << place)
            self.faulted |= 1 << place
            self.barred |= 1 << place

    @property
    def gpus_free(self) -> int:
        """Number of GPUs that are not in use."""
        return self.free.bit_count()

    @property
    def free_milli(self) -> int:
        """Free capacity of all GPUs, in thousandths of one."""
        return MILLI * self.free.bit_count() + sum(self.milli[at] for at in members_of(self.shared))


#: Lists of CPUs, and masks, that are remembered at once.
CPUS_MAX = 1 << 16
_masks: dict[str, int] = {}
_lists: dict[int, str] = {}


def cpu_mask(cpus: str) -> int:
    """The CPUs of a list, as a mask."""
    found = _masks.get(cpus)
    if found is None:
        found = mask_of(parse_cpus(cpus))
        _remember(cpus, found)
    return found


def cpu_list(mask: int) -> str:
    """A mask of CPUs, as Linux lists them."""
    found = _lists.get(mask)
    if found is None:
        found = format_cpus(members_of(mask))
        _remember(found, mask)
    return found


def _remember(cpus: str, mask: int) -> None:
    """Cache a CPU list and its mask both ways: a list made now will soon be taken as a mask."""
    if len(_masks) >= CPUS_MAX:
        _masks.clear()
        _lists.clear()
    _masks[cpus], _lists[mask] = mask, cpus
