"""Choice among more than eight GPUs: sets grow GPU by GPU, and at each size only the best `WIDTH` continue (a beam
search).

GPUs that could change places without changing anything ("twins") form a class, and of a class the lowest free one is
taken first. A DGX-2 therefore has two classes of eight, at most nine different sets of a size, and the answer is the
best there is. In general that is certain where no size has more than `WIDTH` different sets. Otherwise the answer is
the best of the sets that were kept. At most size · WIDTH · classes sets are examined.
"""

from fairlead_placer.topology.domains import NVLINK, areas
from fairlead_placer.topology.masks import mask_of, members_of
from fairlead_placer.topology.ranking import LINK, spread
from fairlead_placer.topology.shapes import Shape, link_score

WIDTH = 48

#: (rank, order, set, link score): a set that has grown so far. Of sets of equal size the earlier has the larger order.
type Grown = tuple[int, int, int, int]


class Growing:
    """The search over one shape."""

    def __init__(self, shape: Shape) -> None:
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


def twins(shape: Shape) -> tuple[int, ...]:
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


def _interchangeable(shape: Shape, one: int, other: int) -> bool:
    both = 1 << one | 1 << other
    for group in (*shape.switches, *shape.numa, *shape.sockets):
        # A group of one changes places with its GPU.
        if (group >> one ^ group >> other) & 1 and group & (group - 1):
            return False
    if (shape.linked[one] ^ shape.linked[other]) & ~both:
        return False
    rows = zip(shape.scores[one], shape.scores[other], strict=True)
    return all(a == b for gpu, (a, b) in enumerate(rows) if not both >> gpu & 1)
