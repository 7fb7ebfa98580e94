"""A fact about a pool for people: how fragmented it is (what could start now: capacity/facts.py)."""

from typing import NamedTuple

from fairlead_placer.packing.fgd import fragments
from fairlead_placer.packing.population import Population
from fairlead_placer.packing.states import Ints
from fairlead_placer.packing.typical import TypicalWork


class Fragmented(NamedTuple):
    """Free GPUs, and how much of them the typical request cannot use, both in thousandths of a GPU."""

    free_milli: int
    unusable_milli: int


def fragmentation(
    pool: Population, work: TypicalWork, left_out: Ints | int = 0, free_milli_left_out: int = 0
) -> Fragmented:
    """Measure by the typical work; nothing is unusable as long as no work was seen.

    `left_out`: the nodes of each row that do not count, which have `free_milli_left_out` together.
    """
    free_milli = pool.free_milli - free_milli_left_out
    typical = [(shape, weight, pool.mask(shape)) for shape, weight in work.with_gpus()]
    total = sum(weight for _, weight, _ in typical)
    if not total:
        return Fragmented(free_milli, 0)
    unusable = int((pool.counts - left_out) @ fragments(pool.states, typical))
    return Fragmented(free_milli, unusable // total)
