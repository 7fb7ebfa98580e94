"""What placement costs at least: three bare ways to choose a node by best fit, which record nothing and constrain nothing."""

import random
import time
from typing import NamedTuple

import numpy as np

GPUS = 8
CHOICES = 4_000


class Baselines(NamedTuple):
    """Choices per second of CPU."""

    scan: float
    score: float
    buckets: float


def measure_baselines(nodes: int) -> Baselines:
    """All three on so many nodes, nine tenths full."""
    chance = random.Random(nodes)
    free = [chance.choice((0, 0, 0, 0, 1, 1, 2, 4, 8)) for _ in range(nodes)]
    wanted = [chance.choice((1, 1, 1, 1, 2, 2, 4, 8)) for _ in range(CHOICES)]
    return Baselines(_scan(free, wanted), _score(free, wanted), _buckets(free, wanted))


def _scan(free: list[int], wanted: list[int]) -> float:
    """Look at every node."""
    free = free.copy()
    began = time.process_time()
    for gpus in wanted:
        best, least = -1, GPUS + 1
        for node, have in enumerate(free):
            if gpus <= have < least:
                best, least = node, have
        if best >= 0:
            free[best] -= gpus
            free[best] += gpus  # at once free again: it stays as full as it is
    return len(wanted) / (time.process_time() - began)


def _score(free: list[int], wanted: list[int]) -> float:
    """One comparison over a column."""
    column = np.array(free, np.int64)
    began = time.process_time()
    for gpus in wanted:
        left = np.where(column >= gpus, column, GPUS + 1)
        best = int(left.argmin())
        if left[best] <= GPUS:
            column[best] -= gpus
            column[best] += gpus
    return len(wanted) / (time.process_time() - began)


def _buckets(free: list[int], wanted: list[int]) -> float:
    """Nodes by what they have free."""
    buckets: list[list[int]] = [[] for _ in range(GPUS + 1)]
    for node, have in enumerate(free):
        buckets[have].append(node)
    began = time.process_time()
    for gpus in wanted:
        for have in range(gpus, GPUS + 1):
            if buckets[have]:
                node = buckets[have].pop()
                buckets[have - gpus].append(node)
                buckets[have - gpus].pop()
                buckets[have].append(node)
                break
    return len(wanted) / (time.process_time() - began)
