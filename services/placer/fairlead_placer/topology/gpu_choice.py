"""Choice of GPUs of a node: a look-up of results that were searched for once; and quality of a set of GPUs alone, as one
integer: links first, then its spread over NUMA nodes. One `Choices` serves all nodes of a shape.

    rank = link score · 2^30 - (NUMA nodes spanned · 2^20 + sockets spanned · 2^10 + unevenness)

Unevenness is the most minus the fewest GPUs on a spanned NUMA node: each node feeds its GPUs with its own memory and
CPUs, so that the fullest is the slowest. Ranks of sets without a GPU in common add up, and no part reaches into the
next: each part is at most `GPUS_MAX` = 64 in all.

Up to eight GPUs: every set is looked at, so that the best is found.

Order: rank, then what the choice leaves to others, then the earlier set.

Choice among more than eight GPUs: sets grow GPU by GPU, and at each size only the best `WIDTH` continue (a beam
search).

GPUs that could change places without changing anything ("twins") form a class, and of a class the lowest free one is
taken first. A DGX-2 therefore has two classes of eight, at most nine different sets of a size, and the answer is the
best there is. In general that is certain where no size has more than `WIDTH` different sets. Otherwise the answer is
the best of the sets that were kept. At most size · WIDTH · classes sets are examined.
"""

from typing import NamedTuple

from fairlead_placer.topology.gpu_topology import (
    KINDS,
    NUMA,
    NVLINK,
    SOCKET,
    SWITCH,
    GpuTopology,
    areas,
    connected,
    largest,
    link_score,
    mask_of,
    members_of,
    subsets,
)

LINK = 1 << 30
SPAN = 1 << 20
SOCKET_COST = 1 << 10


def rank(shape: GpuTopology, mask: int) -> int:
    """The set's rank; more is better."""
    return link_score(shape, mask) * LINK - spread(shape, mask)


def spread(shape: GpuTopology, mask: int) -> int:
    """Return the cost of GPUs that are far apart. GPUs with an unknown NUMA node count as one more node, and socket, together."""
    most = nodes = rest = 0
    least = 1 << 20
    for group in shape.numa:
        share = (mask & group).bit_count()
        if share:
            nodes += 1
            rest += share
            most = max(most, share)
            least = min(least, share)
    adrift = mask.bit_count() - rest
    if adrift:
        nodes += 1
        most = max(most, adrift)
        least = min(least, adrift)
    if nodes == 0:
        return 0
    sockets = 1 if nodes == 1 else (adrift > 0) + sum(mask & group != 0 for group in shape.sockets)
    return nodes * SPAN + sockets * SOCKET_COST + most - least


def numa_spanned(shape: GpuTopology, mask: int) -> int:
    """Return the number of NUMA nodes that the set spans."""
    return spread(shape, mask) // SPAN


#: Up to so many GPUs: 256 sets, and at most 70 of one size.
GPUS_EXHAUSTIVE = 8
#: Sizes of the sets that others will want, largest first. Every single GPU is worth the same.
OTHERS = (8, 4, 2)


class Exhaustive:
    """The search over one shape. Building it takes some milliseconds."""

    def __init__(self, shape: GpuTopology) -> None:
        assert shape.gpus <= GPUS_EXHAUSTIVE
        self._shape = shape
        #: [set of GPUs]: its rank.
        self._ranks = [rank(shape, mask) for mask in range(1 << shape.gpus)]
        packed = [self._packings(size) for size in OTHERS]
        #: [set of GPUs]: what others could make of it, for each size of `OTHERS`.
        self._leftovers: list[tuple[int, ...]] = list(zip(*packed, strict=True))

    def best(self, free: int, size: int, require: int) -> int | None:
        """Return the best set of `size` of the free GPUs within the requirement (gpu_topology.py), or None."""
        found: int | None = None
        best: tuple[int, tuple[int, ...]] | None = None
        within = areas(self._shape, free, require)
        for mask in subsets(free, size):
            if require and not self._allowed(mask, require, within):
                continue
            worth = (self._ranks[mask], self._leftovers[free & ~mask])
            if best is None or worth > best:
                found, best = mask, worth
        return found

    def _allowed(self, mask: int, require: int, within: tuple[int, ...]) -> bool:
        if not any(mask & ~area == 0 for area in within):
            return False
        return not require & NVLINK or connected(self._shape, mask)

    def _packings(self, size: int) -> list[int]:
        """[set of GPUs]: the most that ranks add up to when it is cut into as many sets of `size` as it holds."""
        ranks = self._ranks
        packed = [0] * len(ranks)
        for mask in range(1, len(ranks)):
            count = mask.bit_count()
            if count < size:
                continue
            lowest = mask & -mask
            rest = mask ^ lowest
            values = [ranks[others | lowest] + packed[rest ^ others] for others in subsets(rest, size - 1)]
            if count % size:
                # One GPU more than needed: it may be this one that is left over.
                values.append(packed[rest])
            packed[mask] = max(values)
        return packed


WIDTH = 48

#: (rank, order, set, link score): a set that has grown so far. Of sets of equal size the earlier has the larger order.
type Grown = tuple[int, int, int, int]


class Growing:
    """The search over one shape."""

    def __init__(self, shape: GpuTopology) -> None:
        self._shape = shape
        self._classes = twins(shape)

    def best(self, free: int, size: int, require: int) -> int | None:
        """Return the result of `Exhaustive.best`, over the sets examined. GPUs left to others are worth more the higher they score
        together, then the more pairs of them share a NUMA node.
        """
        alike = self._stand_in(free)
        able = [area for area in areas(self._shape, alike, require) if area.bit_count() >= size]
        grown = [each for area in able for each in self._grow(area, size, require)]
        if not grown:
            return None
        top = max(rank for rank, _, _, _ in grown)
        ties = [(self._leftover(alike & ~mask), order, mask) for rank, order, mask, _ in grown if rank == top]
        return self._actual(max(ties)[2], free)

    def _grow(self, free: int, size: int, require: int) -> list[Grown]:
        shape, gpus = self._shape, self._shape.gpus
        beam: list[Grown] = [(0, 0, 0, 0)]
        for _ in range(size):
            found: dict[int, Grown] = {}
            for _, order, mask, link in beam:
                members = members_of(mask)
                for alike in self._classes:
                    left = alike & free & ~mask
                    lowest = left & -left
                    if not left or mask | lowest in found:
                        continue
                    gpu = lowest.bit_length() - 1
                    if require & NVLINK and mask and not shape.linked[gpu] & mask:
                        continue
                    row = shape.scores[gpu]
                    more = link + sum(row[member] for member in members)
                    larger = mask | lowest
                    rank = more * LINK - spread(shape, larger)
                    found[larger] = (rank, order | 1 << (gpus - 1 - gpu), larger, more)
            beam = sorted(found.values(), reverse=True)[:WIDTH]
        return beam

    def _leftover(self, mask: int) -> tuple[int, int]:
        shares = ((mask & group).bit_count() for group in self._shape.numa)
        return link_score(self._shape, mask), sum(share * (share - 1) // 2 for share in shares)

    def _stand_in(self, free: int) -> int:
        """Return the lowest GPUs of each class, as many as are free. Sets that differ only among twins are thus the same question."""
        return mask_of(gpu for alike in self._classes for gpu in members_of(alike)[: (free & alike).bit_count()])

    def _actual(self, mask: int, free: int) -> int:
        """The answer to `_stand_in`'s question among the GPUs that are free."""
        return mask_of(gpu for alike in self._classes for gpu in members_of(alike & free)[: (mask & alike).bit_count()])


def twins(shape: GpuTopology) -> tuple[int, ...]:
    """Classes of GPUs any two of which could change places, in the order of their lowest GPU."""
    classes: list[int] = []
    for gpu in range(shape.gpus):
        for at, alike in enumerate(classes):
            if _interchangeable(shape, (alike & -alike).bit_length() - 1, gpu):
                classes[at] |= 1 << gpu
                break
        else:
            classes.append(1 << gpu)
    return tuple(classes)


def _interchangeable(shape: GpuTopology, one: int, other: int) -> bool:
    both = 1 << one | 1 << other
    for group in (*shape.switches, *shape.numa, *shape.sockets):
        # A group of one changes places with its GPU.
        if (group >> one ^ group >> other) & 1 and group & (group - 1):
            return False
    if (shape.linked[one] ^ shape.linked[other]) & ~both:
        return False
    rows = zip(shape.scores[one], shape.scores[other], strict=True)
    return all(a == b for gpu, (a, b) in enumerate(rows) if not both >> gpu & 1)


#: Answers kept for a shape; beyond this the cache starts empty. Eight GPUs have 256 · 9 without requirements.
ANSWERS_MAX = 8192

#: {scarce resource: its text}
SHORT = {
    "free": "GPUs free",
    "nvlink": "largest linked group free",
    "switch": "most GPUs free under one PCIe switch",
    "numa": "most GPUs free on one NUMA node",
    "socket": "most GPUs free on one socket",
    "domains": "most GPUs free within all that is required",
    "cpus": "CPUs free",
    "numa_cpus": "most CPUs free on one NUMA node",
    "numa_gpus_cpus": "most CPUs free on a NUMA node with GPUs enough",
}
_NAMES = {0: "free", NVLINK: "nvlink", SWITCH: "switch", NUMA: "numa", SOCKET: "socket"}


class Shortage(NamedTuple):
    """Scarce resource because of which a node does not fit now."""

    what: str  # of `SHORT`
    have: int  # now
    need: int
    #: Value with everything free, where values above `need` are not distinguished; below `need`, this node never
    #: fits.
    most: int

    @property
    def text(self) -> str:
        """ "largest linked group free: 3 of 4"."""
        return f"{SHORT[self.what]}: {self.have} of {self.need}"


class Choices:
    """Best sets of GPUs by what is free. Sets are masks. Answers depend on the questions alone, not on their order."""

    def __init__(self, shape: GpuTopology) -> None:
        self.shape = shape
        self._search: Exhaustive | Growing | None = None
        self._answers: dict[tuple[int, int, int], int | Shortage] = {}
        #: {set: (its link score, NUMA nodes that it spans)}
        self._facts: dict[int, tuple[int, int]] = {}

    def choose(self, free: int, size: int, require: int = 0) -> int | Shortage:
        """`size` of the free GPUs within what is required (gpu_topology.py), or why not.

        Links first, then NUMA nodes, then what is left to others. Raises ValueError when
        there is no such size or GPU.
        """
        key = (free, size, require)
        found = self._answers.get(key)
        if found is None:
            found = self._answer(free, size, require)
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[key] = found
        return found

    def facts(self, mask: int) -> tuple[int, int]:
        """Return (link score of the set, number of NUMA nodes that it spans). The link score is the sum over its pairs by the
        published scores.
        """
        found = self._facts.get(mask)
        if found is None:
            found = link_score(self.shape, mask), numa_spanned(self.shape, mask)
            if len(self._facts) >= ANSWERS_MAX:
                self._facts.clear()
            self._facts[mask] = found
        return found

    def _answer(self, free: int, size: int, require: int) -> int | Shortage:
        if size < 0 or not 0 <= free < 1 << self.shape.gpus:
            raise ValueError(f"expected GPUs of {self.shape.gpus}, found a choice of {size} among {free:#b}")
        if size == 0:
            return 0
        if largest(self.shape, free, require) < size:
            return self._shortage(free, size, require)
        if self._search is None:
            self._search = Exhaustive(self.shape) if self.shape.gpus <= GPUS_EXHAUSTIVE else Growing(self.shape)
        found = self._search.best(free, size, require)
        assert found is not None, "there is an area with so many GPUs"
        return found

    def _shortage(self, free: int, size: int, require: int) -> Shortage:
        """Return the shortage of the first requirement that fails alone, or of all together if each alone would do."""
        asked = [kind for kind in (0, *KINDS) if kind & require == kind]
        short = next((kind for kind in asked if largest(self.shape, free, kind) < size), require)
        what = _NAMES.get(short, "domains")
        most = min(size, largest(self.shape, (1 << self.shape.gpus) - 1, short))
        return Shortage(what, largest(self.shape, free, short), size, most)
