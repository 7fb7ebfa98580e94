"""GPUs for which a node's CPU or memory will not suffice: a newsvendor's loss.

The GPUs that a node has left will be filled by typical work, whose need of CPU (or memory) per GPU varies. The average
need beyond the node's remainder leaves GPUs unusable.
"""

from math import isqrt
from typing import NamedTuple

import numpy as np

from fairlead_placer.packing.normal import LOSS, ONE, REACH, STEPS
from fairlead_placer.packing.policy import POINTS
from fairlead_placer.packing.states import Ints
from fairlead_placer.packing.typical import TypicalWork

_LOSS = np.array(LOSS, np.int64)
#: Fixed point of the needs below: GPUs per unit, and units per thousandth of a GPU.
_FINE = 1 << 16
#: Beyond any machine, and such that what a node of 64 GPUs needs is exact in 64 bits, as its root is: a job may ask for more
#: than there can be.
MEAN_MAX, DEVIATION_MAX = 1 << 46, (1 << 23) - 1


class Need(NamedTuple):
    """Need of typical work for a resource: the average per thousandth of a GPU, in units / 2^16; the deviation of the need of
    one whole GPU, in units; thousandths of a GPU per unit, by 2^16. All 0 when it needs none.
    """

    mean: int = 0
    deviation: int = 0
    gpu_per_unit: int = 0


def need(work: TypicalWork, of: str) -> Need:
    """The need of the typical work with GPUs; `of` names the resource as `Shape` does."""
    shapes = [(shape.total_milli, getattr(shape, of), weight) for shape, weight in work.with_gpus()]
    gpus = sum(weight * milli for milli, _, weight in shapes)
    units = sum(weight * each for _, each, weight in shapes)
    if not units:
        return Need()
    squares = sum(weight * (each - milli * units // gpus) ** 2 for milli, each, weight in shapes)
    mean, deviation = units * _FINE // gpus, isqrt(squares * 1000 // gpus)
    return Need(min(mean, MEAN_MAX), min(deviation, DEVIATION_MAX), min(gpus * _FINE // units, 1 << 32))


def stranded(need: Need, useful_milli: Ints, left: Ints) -> Ints:
    """Return points for the GPUs, among the useful ones, that are stranded on average with `left` of the resource."""
    if not need.mean:
        return np.zeros(len(left), np.int64)
    deviation = np.sqrt(useful_milli * need.deviation**2 // 1000).astype(np.int64) + 1
    surplus = left - (useful_milli * need.mean >> 16)
    steps = surplus * STEPS // deviation
    far = -REACH * STEPS
    lacking = deviation * _LOSS[np.clip(steps, far, -far) - far] // ONE
    lacking = np.where(steps < far, -surplus, lacking)
    gpus = np.minimum(lacking * need.gpu_per_unit >> 16, useful_milli)
    return gpus * POINTS


def stranded_by(need: Need, useful_milli: int, left: int) -> int:
    """The same for one state."""
    if not need.mean:
        return 0
    deviation = isqrt(useful_milli * need.deviation**2 // 1000) + 1
    surplus = left - (useful_milli * need.mean >> 16)
    steps = surplus * STEPS // deviation
    if steps < -REACH * STEPS:
        lacking = -surplus
    else:
        lacking = deviation * LOSS[min(steps, REACH * STEPS) + REACH * STEPS] // ONE
    return min(lacking * need.gpu_per_unit >> 16, useful_milli) * POINTS
