"""What a node has left: amounts, each GPU's rest, CPUs that nobody is pinned to. Parts are taken and given back."""

from functools import lru_cache

from fairlead_placer.capacity.builds import MILLI, Build
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
        "faulted",
        "free",
        "memory_mib",
        "milli",
        "parts",
        "shared",
        "uuids",
        "where",
    )

    def __init__(self, build: Build, uuids: tuple[str, ...]) -> None:
        self.build = build
        #: The GPUs in the node's order, and {UUID: its place}. One that has left is in no place, and never comes free.
        self.uuids = uuids
        self.at = {uuid: place for place, uuid in enumerate(uuids)}
        #: The node's own labels; those that say where it stands are not in its build.
        self.where: dict[str, str] = {}
        self.cpu_milli = build.cpu_milli
        self.memory_mib = build.memory_mib
        #: [GPU]: thousandths left of those that shares are on; of others it says nothing (see `rest`).
        self.milli = [MILLI] * len(build.gpus)
        #: [GPU]: MiB that no share was promised.
        self.caps = [gpu.memory_mib for gpu in build.gpus]
        #: How many parts are somebody's.
        self.parts = 0
        #: Masks: GPUs that are free as a whole, those that shares are on, faulted ones, CPUs that nobody is pinned to.
        self.free = build.all_gpus
        self.shared = 0
        self.faulted = 0
        self.cpus = build.inside.all_cpus

    def copy(self) -> "Left":
        """The same, to try something on."""
        other = object.__new__(Left)
        other.build, other.uuids, other.at, other.where = self.build, self.uuids, self.at, self.where
        other.cpu_milli, other.memory_mib = self.cpu_milli, self.memory_mib
        other.milli, other.caps, other.parts = self.milli.copy(), self.caps.copy(), self.parts
        other.free, other.shared, other.faulted, other.cpus = self.free, self.shared, self.faulted, self.cpus
        return other

    def rest(self, place: int) -> int:
        """Thousandths left of the GPU."""
        if self.free >> place & 1:
            return MILLI
        return self.milli[place] if self.shared >> place & 1 else 0

    def take(self, part: Part) -> None:
        """The part is somebody's."""
        self.parts += 1
        self.cpu_milli -= part.cpu_milli
        self.memory_mib -= part.memory_mib
        if part.gpus:
            if part.gpu_milli:
                self._share(part, -1)
            else:
                self.free &= ~self._mask(part.gpus)
        if part.cpus:
            self.cpus &= ~cpu_mask(part.cpus)

    def give(self, part: Part) -> None:
        """The part is nobody's again."""
        self.parts -= 1
        self.cpu_milli += part.cpu_milli
        self.memory_mib += part.memory_mib
        if part.gpus:
            if part.gpu_milli:
                self._share(part, 1)
            else:
                self.free |= self._mask(part.gpus) & ~self.faulted
        if part.cpus:
            self.cpus |= cpu_mask(part.cpus) & self.build.inside.all_cpus

    def _mask(self, gpus: tuple[str, ...]) -> int:
        """Those that are there."""
        if gpus == self.uuids:
            return self.build.all_gpus
        at, mask = self.at, 0
        for uuid in gpus:
            place = at.get(uuid, -1)
            if place >= 0:
                mask |= 1 << place
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
                self.free |= bit & ~self.faulted
            else:
                self.shared |= bit & ~self.faulted
                self.free &= ~bit

    def fault(self, uuid: str) -> None:
        """The GPU is not to be used; what is on it stays. Before parts are taken."""
        place = self.at.get(uuid)
        if place is not None:
            self.free &= ~(1 << place)
            self.faulted |= 1 << place

    @property
    def gpus_free(self) -> int:
        """GPUs that nobody uses."""
        return self.free.bit_count()

    @property
    def free_milli(self) -> int:
        """What is left of all GPUs, in thousandths of one."""
        return MILLI * self.free.bit_count() + sum(self.milli[at] for at in members_of(self.shared))


@lru_cache(1 << 16)
def cpu_mask(cpus: str) -> int:
    """The CPUs of a list, as a mask."""
    return mask_of(parse_cpus(cpus))


@lru_cache(1 << 16)
def cpu_list(mask: int) -> str:
    """A mask of CPUs, as Linux lists them."""
    return format_cpus(members_of(mask))
