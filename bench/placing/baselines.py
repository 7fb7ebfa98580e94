"""Least cost of a placement: three bare ways to choose a node by best fit, which record nothing and constrain nothing.

They run in turn with what they are compared with, a few choices after each batch of it: a machine that is slow for a while is slow
for both, so that their ratio says more than either figure.
"""

import random
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

GPUS = 8
#: Choices that are made over and over: by each way, so many of them per turn.
CHOICES = 4_000
SCANS, SCORES, BUCKETS = 40, 250, 2_000


class Baselines(NamedTuple):
    """Choices per second of CPU."""

    scan: float
    score: float
    buckets: float


class Measuring:
    """All three on so many nodes, nine tenths full; `turn` after turn."""

    def __init__(self, nodes: int) -> None:
        chance = random.Random(nodes)
        free = [chance.choice((0, 0, 0, 0, 1, 1, 2, 4, 8)) for _ in range(nodes)]
        self._wanted = [chance.choice((1, 1, 1, 1, 2, 2, 4, 8)) for _ in range(CHOICES)]
        self._ways = (_Timed(_scan(free), SCANS), _Timed(_score(free), SCORES), _Timed(_buckets(free), BUCKETS))

    def turn(self) -> None:
        """Some choices by each."""
        for way in self._ways:
            way.choose(self._wanted)

    @property
    def found(self) -> Baselines:
        """The rates of all turns together."""
        scan, score, buckets = (way.per_s for way in self._ways)
        return Baselines(scan, score, buckets)


class _Timed:
    """Timed way to choose: so many choices at a time, and their duration."""

    def __init__(self, way: Callable[[list[int]], None], count: int) -> None:
        self._way, self._count = way, count
        self._chosen, self._took_s = 0, 0.0

    def choose(self, wanted: list[int]) -> None:
        """The next ones of what is wanted, from the start again at the end."""
        first = self._chosen % len(wanted)
        some = wanted[first : first + self._count]
        began = time.process_time()
        self._way(some)
        self._took_s += time.process_time() - began
        self._chosen += len(some)

    @property
    def per_s(self) -> float:
        return self._chosen / self._took_s


def _scan(free: list[int]) -> Callable[[list[int]], None]:
    """Look at every node."""

    def choose(wanted: list[int]) -> None:
        for gpus in wanted:
            best, least = -1, GPUS + 1
            for node, have in enumerate(free):
                if gpus <= have < least:
                    best, least = node, have
            if best >= 0:
                free[best] -= gpus
                free[best] += gpus  # at once free again: it stays as full as it is

    return choose


def _score(free: list[int]) -> Callable[[list[int]], None]:
    """Compare over one column."""
    column = np.array(free, np.int64)

    def choose(wanted: list[int]) -> None:
        for gpus in wanted:
            left = np.where(column >= gpus, column, GPUS + 1)
            best = int(left.argmin())
            if left[best] <= GPUS:
                column[best] -= gpus
                column[best] += gpus

    return choose


def _buckets(free: list[int]) -> Callable[[list[int]], None]:
    """Nodes by what they have free."""
    buckets: list[list[int]] = [[] for _ in range(GPUS + 1)]
    for node, have in enumerate(free):
        buckets[have].append(node)

    def choose(wanted: list[int]) -> None:
        for gpus in wanted:
            for have in range(gpus, GPUS + 1):
                if buckets[have]:
                    node = buckets[have].pop()
                    buckets[have - gpus].append(node)
                    buckets[have - gpus].pop()
                    buckets[have].append(node)
                    break

    return choose
