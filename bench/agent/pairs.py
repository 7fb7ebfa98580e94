"""Small differences between two durations on a noisy machine: both are measured right after each other, the first of them by turns,
and the median of the differences is taken.
"""

from collections.abc import Awaitable, Callable

from bench.table import percentile

Measured = Callable[[int], Awaitable[float]]


class Pairs:
    """Milliseconds of each, by pair."""

    def __init__(self) -> None:
        self.bare: list[float] = []
        self.ours: list[float] = []

    def more(self, of: float = 0.5) -> float:
        """Return the extra time of ours over the bare one; `of`: which of the sorted differences (0.5: the median)."""
        return percentile([ours - bare for ours, bare in zip(self.ours, self.bare, strict=True)], of)

    def __str__(self) -> str:
        return f"{len(self.ours)} pairs"


async def in_pairs(bare: Measured, ours: Measured, count: int, *, warm: int = 0) -> Pairs:
    """Measure pairs. The first `warm` pairs do not count. Each measurement gets its number, counted from 0."""
    pairs = Pairs()
    for at in range(warm + count):
        first = await bare(at) if at % 2 else None
        took = await ours(at)
        other = first if first is not None else await bare(at)
        if at >= warm:
            pairs.bare.append(other)
            pairs.ours.append(took)
    return pairs
