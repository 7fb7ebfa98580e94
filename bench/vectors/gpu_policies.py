"""Published policies that choose GPUs by count and links: for comparison with ours; the product does not use them.

Source: policies "simple" and "best-effort" of NVIDIA/go-gpuallocator (Apache-2.0), by description and test tables.
Both take the free GPUs and those that must be among the answer as masks, and answer with a mask, or None to refuse.
"""

from collections.abc import Iterable

from fairlead_placer.topology.gpu_topology import GpuTopology, link_score, mask_of, members_of, subsets


def simple(available: int, required: int, size: int) -> int | None:
    """The required GPUs, then the lowest."""
    if not _possible(available, required, size):
        return None
    return required | mask_of(members_of(available & ~required)[: size - required.bit_count()])


def best_effort(shape: GpuTopology, available: int, required: int, size: int) -> int | None:
    """The best set of the best partition of all free GPUs into sets of that size.

    The free GPUs are padded with blanks to a multiple of the size; a set holds no blanks or all of them. Of all
    partitions in which a set without blanks has every required GPU, the one with the largest total counts, the earliest
    on a tie (the first member of each set in rising order); in it the highest-scoring set that has the required GPUs, the
    earliest on a tie.
    """
    if not _possible(available, required, size):
        return None
    if required.bit_count() == size:
        return required
    parts = _Partitions(shape, required, size).best(available)
    whole = [part for part in parts if part & required == required and part.bit_count() == size]
    return max(whole, key=lambda part: parts[part])


def _possible(available: int, required: int, size: int) -> bool:
    return 0 < size <= available.bit_count() and required & ~available == 0 and required.bit_count() <= size


class _Partitions:
    """Partitions of ever fewer GPUs, each looked at once: 16 GPUs have 2 million of pairs, and 32,768 remainders."""

    def __init__(self, shape: GpuTopology, required: int, size: int) -> None:
        self._shape = shape
        self._required = required
        self._size = size
        #: {set: its score}
        self._scores: dict[int, int] = {}
        #: {GPUs left: (largest total of a partition, its first set)}; None where there is no partition.
        self._known: dict[int, tuple[int, int] | None] = {0: (0, 0)}

    def best(self, mask: int) -> dict[int, int]:
        """{set: score} of the best partition, in its order."""
        found: dict[int, int] = {}
        while mask:
            best = self._best(mask)
            assert best is not None, "the required GPUs and others make a set, and the rest any"
            found[best[1]] = self._score(best[1])
            mask &= ~best[1]
        return found

    def _best(self, mask: int) -> tuple[int, int] | None:
        if mask not in self._known:
            lowest = mask & -mask
            rest = mask ^ lowest
            # Blanks count as the last GPUs. None are missing where another set has them, or none were needed.
            blanks = -mask.bit_count() % self._size
            found = [self._first_best(mask, lowest, subsets(rest, self._size - 1))]
            if blanks:
                found.append(self._first_best(mask, lowest, subsets(rest, self._size - 1 - blanks)))
            best = [each for each in found if each is not None]
            self._known[mask] = min(best, key=lambda each: (-each[0], self._place(each[1])), default=None)
        return self._known[mask]

    def _first_best(self, mask: int, lowest: int, others: Iterable[int]) -> tuple[int, int] | None:
        """(total, first set) of the best partition whose first set is the lowest GPU with some of these others."""
        best: tuple[int, int] | None = None
        for some in others:
            part = lowest | some
            if part & self._required and (part.bit_count() < self._size or self._required & ~part):
                continue
            rest = self._best(mask & ~part)
            if rest is not None and (best is None or self._score(part) + rest[0] > best[0]):
                best = (self._score(part) + rest[0], part)
        return best

    def _place(self, part: int) -> tuple[int, ...]:
        """Return the key of the order of sets: the members, then the blanks."""
        members = members_of(part)
        return (*members, *[self._shape.gpus] * (self._size - len(members)))

    def _score(self, part: int) -> int:
        if part not in self._scores:
            self._scores[part] = link_score(self._shape, part)
        return self._scores[part]
