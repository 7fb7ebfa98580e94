"""Scarcity: for each kind of job, the room for it against the demand still to come; and the normal distribution as two
tables of integers: how likely is more, and how much more is to be expected.

A kind is a set of GPU models and a number of GPUs on one node. The price of its room is the chance that all of it will
be wanted before the pool is full. Whole nodes and rare models are therefore kept for jobs that need them, in proportion
to their arrival.

Made of additions, multiplications and divisions of Python integers, so that every machine has the same tables.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.policy import (
    ARRIVAL,
    PRICE_ONE,
    WHOLE_MILLI,
    Ints,
    NodeState,
    NodeStates,
    Population,
    RequestShape,
    TypicalWork,
)

#: Steps per standard deviation, and how far the tables go to each side.
STEPS, REACH = 64, 4
#: One, in the tables.
ONE = 4096

#: Fixed point of the sums below.
_FINE = 10**18


def _exponential(numerator: int, denominator: int) -> int:
    """e^(-numerator / denominator) in units of 1 / _FINE, by halving the argument until its series is short."""
    halvings = 0
    while numerator > denominator:
        denominator *= 2
        halvings += 1
    total, term, n = 0, _FINE, 0
    while term:
        total += term if n % 2 == 0 else -term
        n += 1
        term = term * numerator // (denominator * n)
    for _ in range(halvings):
        total = total * total // _FINE
    return total


def _tables() -> tuple[list[int], list[int]]:
    """Chance and loss at -REACH..REACH: from the far end, where both are all but 0, each the sum of the one before."""
    root = isqrt(2 * 3141592653589793238 * _FINE)
    density = [_exponential(n * n, 2 * STEPS * STEPS) * _FINE // root for n in range(2 * REACH * STEPS + 1)]
    chance, loss, tail = 0, 0, dict[int, tuple[int, int]]()
    for n in range(2 * REACH * STEPS, -REACH * STEPS - 1, -1):
        tail[n] = (chance, loss)
        more = chance + (density[abs(n)] + density[abs(n - 1)]) // (2 * STEPS)
        loss += (chance + more) // (2 * STEPS)
        chance = more
    span = range(-REACH * STEPS, REACH * STEPS + 1)
    return [tail[n][0] * ONE // _FINE for n in span], [tail[n][1] * ONE // _FINE for n in span]


#: `CHANCE[REACH * STEPS + n]`: the chance, of ONE, that a standard normal variable is above n / STEPS.
#: `LOSS[...]`: by how much it is above on average (0 where it is below), in units of 1 / ONE.
CHANCE, LOSS = _tables()


#: Kinds that are priced, those with most demand first.
KINDS_MAX = 48
#: How far the work to come may differ from what is expected, beyond chance, in percent.
UNSURE_PERCENT = 40
#: What room is worth where there is plenty: a fiftieth of the part that is expected to be wanted.
FLOOR_PARTS = 50


class JobKind(NamedTuple):
    """Models (bits), GPUs on one node, and what one such job needs of CPU and memory on average.

    `heavy` jobs need more CPU or memory than most nodes with such GPUs have even when empty. `wanted` of `total`
    thousandths of a GPU of the work that is seen are for jobs that only this kind of room, or less of it, will do for.
    """

    models: int
    gpus: int
    cpu_milli: int
    memory_mib: int
    heavy: bool
    wanted: int
    total: int


def kinds(pool: Population, work: TypicalWork) -> list[JobKind]:
    """The kinds that typical work consists of, and each number of GPUs on any model; not what any GPU suits."""
    everything = (1 << len(pool.models)) - 1
    typical, unseen = dict(work.with_gpus()), largest(pool)
    heavy = heavy_shapes(pool, [*typical, *unseen])
    for shape in unseen:
        if shape in heavy:
            typical[shape] = typical.get(shape, 0) + ARRIVAL
    masked = [(shape, pool.mask(shape) & everything, weight * shape.total_milli) for shape, weight in typical.items()]
    seen = [each for each in masked if each[1]]
    found: dict[tuple[int, int, bool], list[int]] = {}
    for shape, models, milli in seen:
        for key in {(of, shape.gpu_count, big) for of in (models, everything) for big in (False, shape in heavy)}:
            if key != (everything, 1, False):
                sums = found.setdefault(key, [0, 0, 0])
                sums[0] += milli
                sums[1] += milli * shape.cpu_milli
                sums[2] += milli * shape.memory_mib
    most = sorted(found.items(), key=lambda each: (-each[1][0], each[0]))[:KINDS_MAX]
    total = max(1, sum(milli for *_, milli in seen))
    kinds: list[JobKind] = []
    for (models, gpus, big), (milli, cpu, memory) in most:
        only = [
            each
            for shape, of, each in seen
            if shape.gpu_count >= gpus and not of & ~models and (not big or shape in heavy)
        ]
        kinds.append(JobKind(models, gpus, cpu // milli, memory // milli, big, sum(only), total))
    return kinds


def largest(pool: Population) -> list[RequestShape]:
    """Jobs that may come though none was seen: of the nodes with most GPUs, they fill one with most memory, or with most CPU.

    One of each, as if it had come first of all: it is soon outweighed by what does come. The sixteenth of a node that they
    leave allows for nodes that are not quite alike.
    """
    most = max((machine.gpus for machine in pool.machines), default=0)
    machines = [machine for machine in pool.machines if machine.gpus == most]
    if not most:
        return []
    found = {max(machines, key=lambda each: (each.memory_mib, each.cpu_milli)), max(machines)}
    needs = {(each.cpu_milli * 15 // 16, each.memory_mib * 15 // 16) for each in found}
    return [RequestShape(cpu, memory, most, WHOLE_MILLI) for cpu, memory in sorted(needs)]


def heavy_shapes(pool: Population, shapes: list[RequestShape]) -> set[RequestShape]:
    """Return the shapes that at most half of the nodes with suitable GPUs could take by CPU and memory, when empty."""
    machines = list(pool.machines.items())
    if not machines or not shapes:
        return set()
    has = np.array([(m.cpu_milli, m.memory_mib, m.gpus, 1 << pool.models[m.model]) for m, _ in machines], np.int64).T
    gpus = np.array([machine.gpus * count for machine, count in machines], np.int64)
    needs = np.array([(*shape[:3], pool.mask(shape)) for shape in shapes], np.int64).T[:, :, np.newaxis]
    would_do = (has[2] >= needs[2]) & ((has[3] & needs[3]) != 0)
    takes = would_do & (has[0] >= needs[0]) & (has[1] >= needs[1])
    few = (takes @ gpus) * 2 <= would_do @ gpus
    return {shape for shape, is_heavy in zip(shapes, few.tolist(), strict=True) if is_heavy}


def room(kinds: list[JobKind], states: NodeStates) -> Ints:
    """Thousandths of a GPU per state and kind: all that is left for one GPU or a share, else for whole jobs only. None where
    less than nothing is left of CPU or memory."""
    columns = np.zeros((len(states.cpu), len(kinds)), np.int64)
    free, whole = states.free_milli, states.whole
    cpu, memory = np.maximum(states.cpu, 0), np.maximum(states.memory, 0)
    for at, kind in enumerate(kinds):
        if kind.gpus == 1:
            jobs = free
        else:
            jobs = whole // kind.gpus * (kind.gpus * WHOLE_MILLI)
        if kind.gpus > 1 or kind.heavy:
            each = kind.gpus * WHOLE_MILLI
            if kind.cpu_milli:
                jobs = np.minimum(jobs, cpu // kind.cpu_milli * each)
            if kind.memory_mib:
                jobs = np.minimum(jobs, memory // kind.memory_mib * each)
        columns[:, at] = np.where(states.model & kind.models, jobs, 0)
    return columns


def room_of(kinds: list[JobKind], state: NodeState, free: int, whole: int) -> list[int]:
    """The same for one state with so much free, and so many whole GPUs."""
    found: list[int] = []
    for models, gpus, cpu, memory, heavy, _, _ in kinds:
        jobs = 0
        if state.model & models:
            each = gpus * WHOLE_MILLI
            jobs = free if gpus == 1 else whole // gpus * each
            if jobs and (gpus > 1 or heavy):
                if cpu:
                    jobs = min(jobs, max(state.cpu, 0) // cpu * each)
                if memory:
                    jobs = min(jobs, max(state.memory, 0) // memory * each)
        found.append(jobs)
    return found


def scarcity_prices(kinds: list[JobKind], pool: Population, room: Ints) -> Ints:
    """The price of each kind's room, in parts of PRICE_ONE; `room` is what the pool has of each, in thousandths."""
    prices: list[int] = []
    for kind, there in zip(kinds, room.tolist(), strict=True):
        wanted = kind.wanted * pool.free_milli // kind.total
        prices.append(_price(wanted // kind.gpus, there // kind.gpus))
    return np.array(prices, np.int64)


def _price(wanted: int, there: int) -> int:
    """Return the price of room for `there` jobs when `wanted` jobs will come, both in thousandths."""
    unsure = wanted * UNSURE_PERCENT // 100
    deviation = isqrt(max(wanted, 500) * 1000 + unsure * unsure)
    steps = min(max((there - wanted) * STEPS // deviation, -REACH * STEPS), REACH * STEPS)
    chance = CHANCE[steps + REACH * STEPS] * PRICE_ONE // ONE
    return chance + PRICE_ONE * min(wanted, max(there, 1000)) // (max(there, 1000) * FLOOR_PARTS)
