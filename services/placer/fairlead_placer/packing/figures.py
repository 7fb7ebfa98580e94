"""Facts about a pool for people: how fragmented it is, and the largest job that could start now."""

from typing import NamedTuple

import numpy as np

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


def largest_job(pool: Population, cpu_milli: int = 0, memory_mib: int = 0) -> int:
    """Most whole GPUs that one job could have on one node now, with so much CPU and memory for each of them."""
    states, taken = pool.states, pool.counts > 0
    gpus = states.whole
    if cpu_milli:
        gpus = np.minimum(gpus, states.cpu // cpu_milli)
    if memory_mib:
        gpus = np.minimum(gpus, states.memory // memory_mib)
    return int(gpus[taken].max(initial=0))
