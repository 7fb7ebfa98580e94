"""What a node has left: amounts, each GPU's rest, CPUs that nobody is pinned to. Parts are taken and given back."""

from functools import lru_cache

from fairlead_placer.capacity.builds import MILLI, Build
from fairlead_placer.capacity.cuts import Cuts
from fairlead_placer.topology.masks import mask_of, members_of
from fairlead_schemas.cpulists import format_cpus, parse_cpus
from fairlead_schemas.events import Part


class Left:
    """Mutable, for speed. Amounts may fall below 0 where an inventory shrank under what is held: nothing fits then."""

    __slots__ = (
        "at",
        "build",
        "caps",
        "cpu_milli",
        "cpus",
        "cuts",
        "faulted",
        "free",
        "memory_mib",
        "milli",
        "shared",
        "uuids",
    )

    def __init__(self, build: Build, uuids: tuple[str, ...], cuts: Cuts | None = None) -> None:
        """`cuts`: of a node with GPUs in MIG mode."""
        self.build = build
        self.cuts = cuts
        #: The GPUs in the node's order, and {UUID: its place}. One that has left is in no place, and never comes free.
        self.uuids = uuids
        self.at = {uuid: place for place, uuid in enumerate(uuids)}
        self.cpu_milli = build.cpu_milli
        self.memory_mib = build.memory_mib
        #: [GPU]: thousandths left; a faulted one has a whole GPU less. One in MIG mode has nothing to give but its
        #: instances: 0, or less where it is faulted or held by somebody who has no instance of it.
        self.milli = [0 if build.cut >> place & 1 else MILLI for place in range(len(build.gpus))]
        #: [GPU]: MiB that no share was promised.
        self.caps = [gpu.memory_mib for gpu in build.gpus]
        #: Masks: GPUs that are free as a whole, those that shares are on, faulted ones, CPUs that nobody is pinned to.
        self.free = build.all_gpus & ~build.cut
        self.shared = 0
        self.faulted = 0
        self.cpus = build.inside.all_cpus

    def copy(self) -> "Left":
        """The same, to try something on."""
        other = object.__new__(Left)
        other.build, other.uuids, other.at = self.build, self.uuids, self.at
        other.cpu_milli, other.memory_mib = self.cpu_milli, self.memory_mib
        other.milli, other.caps = self.milli.copy(), self.caps.copy()
        other.free, other.shared, other.faulted, other.cpus = self.free, self.shared, self.faulted, self.cpus
        other.cuts = None if self.cuts is None else self.cuts.copy()
        return other

    def take(self, part: Part) -> None:
        """The part is somebody's."""
        self.cpu_milli -= part.cpu_milli
        self.memory_mib -= part.memory_mib
        if part.gpus:
            if part.instances:
                self._hold(part, -1)
            elif part.gpu_milli:
                self._share(part, -1)
            else:
                at, milli = self.at, self.milli
                for uuid in part.gpus:
                    place = at.get(uuid)
                    if place is not None:
                        milli[place] -= MILLI
                        self.free &= ~(1 << place)
        if part.cpus:
            self.cpus &= ~cpu_mask(part.cpus)

    def give(self, part: Part) -> None:
        """The part is nobody's again."""
        self.cpu_milli += part.cpu_milli
        self.memory_mib += part.memory_mib
        if part.gpus:
            if part.instances:
                self._hold(part, 1)
            elif part.gpu_milli:
                self._share(part, 1)
            else:
                at, milli = self.at, self.milli
                for uuid in part.gpus:
                    place = at.get(uuid)
                    if place is not None:
                        milli[place] += MILLI
                        if milli[place] == MILLI:
                            self.free |= 1 << place
        if part.cpus:
            self.cpus |= cpu_mask(part.cpus) & self.build.inside.all_cpus

    def _share(self, part: Part, sign: int) -> None:
        for uuid in part.gpus:
            place = self.at.get(uuid)
            if place is None:
                continue
            self.milli[place] += sign * part.gpu_milli
            self.caps[place] += sign * part.gpu_memory_mib
            bit = 1 << place
            whole = self.milli[place] == MILLI
            self.free = self.free | bit if whole else self.free & ~bit
            self.shared = self.shared & ~bit if whole else self.shared | bit

    def _hold(self, part: Part, sign: int) -> None:
        """Of instances; one that the inventory does not have any more is held as its whole GPU."""
        cuts = self.cuts
        for uuid, instance in zip(part.gpus, part.instances, strict=True):
            if cuts is not None and instance in cuts.cells:
                (cuts.held.discard if sign > 0 else cuts.held.add)(instance)
            elif (place := self.at.get(uuid)) is not None:
                self.milli[place] += sign * MILLI
                whole = self.milli[place] == MILLI
                self.free = self.free | 1 << place if whole else self.free & ~(1 << place)

    def keep_back(self, uuid: str) -> None:
        """The GPU is being cut: nobody gets it."""
        place = self.at.get(uuid)
        if place is not None:
            self.milli[place] -= MILLI
            self.free &= ~(1 << place)

    @property
    def cuttable(self) -> int:
        """Mask of the GPUs in MIG mode that nobody holds otherwise than by their instances, and that are well."""
        return sum(1 << place for place, milli in enumerate(self.milli) if not milli) & self.build.cut

    def fault(self, uuid: str) -> None:
        """The GPU is not to be used; what is on it stays."""
        place = self.at.get(uuid)
        if place is not None:
            self.milli[place] -= MILLI
            self.free &= ~(1 << place)
            self.faulted |= 1 << place

    @property
    def gpus_free(self) -> int:
        """GPUs that nobody uses."""
        return self.free.bit_count()

    @property
    def free_milli(self) -> int:
        """What is left of all GPUs, in thousandths of one."""
        return sum(milli for milli in self.milli if milli > 0)


@lru_cache(1 << 16)
def cpu_mask(cpus: str) -> int:
    """The CPUs of a list, as a mask."""
    return mask_of(parse_cpus(cpus))


@lru_cache(1 << 16)
def cpu_list(mask: int) -> str:
    """A mask of CPUs, as Linux lists them."""
    return format_cpus(members_of(mask))
