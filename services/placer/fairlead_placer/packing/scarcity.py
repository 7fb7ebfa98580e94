"""What is scarce: for each kind of job, how much room there is for it, against how much of it is still to come.

A kind is a set of GPU models and a number of GPUs on one node. The price of its room is the chance that all of it will be
wanted before the pool is full; so whole nodes, and rare models, are kept for those who need them, as far as they come.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.normal import CHANCE, REACH, STEPS
from fairlead_placer.packing.normal import ONE as CHANCE_ONE
from fairlead_placer.packing.policy import PRICE_ONE
from fairlead_placer.packing.population import Population
from fairlead_placer.packing.shapes import WHOLE_MILLI
from fairlead_placer.packing.states import Ints, States
from fairlead_placer.packing.typical import TypicalWork

#: Kinds that are priced, those with most demand first.
KINDS_MAX = 48
#: How far the work to come may differ from what is expected, beyond chance, in percent.
UNSURE_PERCENT = 40
#: What room is worth where there is plenty: a fiftieth of the part that is expected to be wanted.
FLOOR_PARTS = 50

_ALL = -1


class Kind(NamedTuple):
    """Models (bits), GPUs on one node, and what one such job needs of CPU and memory on average."""

    models: int
    gpus: int
    cpu_milli: int
    memory_mib: int


def kinds(pool: Population, work: TypicalWork) -> list[Kind]:
    """The kinds that typical work consists of, and each number of GPUs on any model; not what any GPU suits."""
    everything = (1 << len(pool.models)) - 1
    found: dict[tuple[int, int], list[int]] = {}
    for shape, weight in work.with_gpus():
        models = pool.mask(shape) & everything
        for key in {(models, shape.gpu_count), (everything, shape.gpu_count)}:
            if key != (everything, 1) and models:
                sums = found.setdefault(key, [0, 0, 0])
                milli = weight * shape.total_milli
                sums[0] += milli
                sums[1] += milli * shape.cpu_milli
                sums[2] += milli * shape.memory_mib
    most = sorted(found.items(), key=lambda each: (-each[1][0], each[0]))[:KINDS_MAX]
    return [Kind(models, gpus, cpu // milli, memory // milli) for (models, gpus), (milli, cpu, memory) in most]


def room(kinds: list[Kind], states: States) -> Ints:
    """Thousandths of a GPU per state and kind: all that is left for one GPU or a share, else for whole jobs only."""
    columns = np.zeros((len(states.cpu), len(kinds)), np.int64)
    free, whole = states.free_milli, states.whole
    for at, kind in enumerate(kinds):
        if kind.gpus == 1:
            jobs = free
        else:
            jobs = whole // kind.gpus
            if kind.cpu_milli:
                jobs = np.minimum(jobs, states.cpu // kind.cpu_milli)
            if kind.memory_mib:
                jobs = np.minimum(jobs, states.memory // kind.memory_mib)
            jobs = jobs * kind.gpus * WHOLE_MILLI
        columns[:, at] = np.where(states.model & kind.models, jobs, 0)
    return columns


def scarcity_prices(kinds: list[Kind], pool: Population, work: TypicalWork, room: Ints) -> Ints:
    """The price of each kind's room, in parts of PRICE_ONE; `room` is what the pool has of each, in thousandths."""
    shapes = [(pool.mask(shape), shape.gpu_count, weight * shape.total_milli) for shape, weight in work.with_gpus()]
    total = max(1, sum(milli for *_, milli in shapes))
    everything = (1 << len(pool.models)) - 1
    prices: list[int] = []
    for kind, there in zip(kinds, room.tolist(), strict=True):
        wanted = sum(
            milli for models, gpus, milli in shapes if gpus >= kind.gpus and not models & everything & ~kind.models
        )
        prices.append(_price(wanted * pool.free_milli // total // kind.gpus, there // kind.gpus))
    return np.array(prices, np.int64)


def _price(wanted: int, there: int) -> int:
    """Of so many jobs that will come, and room for so many, both in thousandths."""
    unsure = wanted * UNSURE_PERCENT // 100
    deviation = isqrt(max(wanted, 500) * 1000 + unsure * unsure)
    steps = min(max((there - wanted) * STEPS // deviation, -REACH * STEPS), REACH * STEPS)
    chance = CHANCE[steps + REACH * STEPS] * PRICE_ONE // CHANCE_ONE
    return chance + PRICE_ONE * min(wanted, max(there, 1000)) // (max(there, 1000) * FLOOR_PARTS)
