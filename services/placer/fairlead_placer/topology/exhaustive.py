"""Up to eight GPUs: every set is looked at, so that the best is found.

Order: rank (ranking.py), then what the choice leaves to others, then the earlier set.
"""

from fairlead_placer.topology.domains import NVLINK, areas, connected
from fairlead_placer.topology.masks import subsets
from fairlead_placer.topology.ranking import rank
from fairlead_placer.topology.shapes import Shape

#: Up to so many GPUs: 256 sets, and at most 70 of one size.
GPUS_EXHAUSTIVE = 8
#: Sizes of the sets that others will want, largest first. Every single GPU is worth the same.
OTHERS = (8, 4, 2)


class Exhaustive:
    """The search over one shape. Building it takes some milliseconds."""

    def __init__(self, shape: Shape) -> None:
        assert shape.gpus <= GPUS_EXHAUSTIVE
        self._shape = shape
        #: [set of GPUs]: its rank.
        self._ranks = [rank(shape, mask) for mask in range(1 << shape.gpus)]
        packed = [self._packings(size) for size in OTHERS]
        #: [set of GPUs]: what others could make of it, for each size of `OTHERS`.
        self._leftovers: list[tuple[int, ...]] = list(zip(*packed, strict=True))

    def best(self, free: int, size: int, require: int) -> int | None:
        """Return the best set of `size` of the free GPUs within the requirement (domains.py), or None."""
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
