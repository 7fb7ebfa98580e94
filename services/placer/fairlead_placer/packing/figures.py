"""A fact about a pool for people: how fragmented it is (what could start now: capacity/facts.py)."""

from typing import NamedTuple

from fairlead_placer.packing.fgd import fragments
from fairlead_placer.packing.population import Population
from fairlead_placer.packing.typical import TypicalWork


class Fragmented(NamedTuple):
    """Free GPUs, and how much of them the typical request cannot use, both in thousandths of a GPU."""

    free_milli: int
    unusable_milli: int


def fragmentation(pool: Population, work: TypicalWork) -> Fragmented:
    """By the typical work; nothing is unusable as long as no work was seen."""
    typical = [(shape, weight, pool.mask(shape)) for shape, weight in work.with_gpus()]
    total = sum(weight for _, weight, _ in typical)
    if not total:
        return Fragmented(pool.free_milli, 0)
    unusable = int(pool.counts @ fragments(pool.states, typical))
    return Fragmented(pool.free_milli, unusable // total)
