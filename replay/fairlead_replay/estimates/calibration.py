"""Intervals that hold as often as they say: futures are corrected by what came of earlier estimates. Pure.

Scores are distances from the middle future in log(wait + 1 s), in units of the futures' own spread, of estimates like it:
pool, size, and whether anybody was ahead. The parts of scores that bound an interval move with every hit and miss of the queue (online
conformal prediction), so that coverage holds where users or settings change.

Jobs of one batch wait for the same thing: a hundred of them that all start late are one miss, not a hundred. If each counted, one sweep
would decide how wide the next intervals are. So outcomes have weights, and those of a batch weigh as much as one.
"""

from collections import deque
from collections.abc import Mapping
from math import exp, log1p
from typing import Any, NamedTuple

import msgspec

from fairlead_replay.estimates.forecast import Forecast
from fairlead_schemas.units.timestamps import SECOND_NS

#: Share of starts that the interval is to hold, and the parts below and above it.
COVERAGE = 0.8
TAIL = (1 - COVERAGE) / 2
#: Scores that are kept of each kind, and least weight of those that bound an interval.
SCORES_MAX, WEIGHT_MIN = 500, 25.0
#: Least spread that futures are taken to have, in log seconds.
SPREAD_MIN = 0.35
#: Widening on each side without enough scores, in log seconds.
WIDER = 1.1
#: Name of the way of estimating that is our own; how much more the better ways count, and how fast errors are forgotten.
FUTURES_WAY, SHARPNESS, FORGETS = "futures", 4.0, 0.04
#: How far a hit or a miss of weight 1 moves a queue's parts.
STEP = 0.05
PART_MIN, PART_MAX = 0.004, 0.45

type WeightedScore = tuple[float, float]


class Kind(NamedTuple):
    """Estimates that are alike."""

    pool: str
    size: str
    busy: bool

    @property
    def key(self) -> str:
        """The kind as text."""
        return f"{self.pool}/{self.size}/{'busy' if self.busy else 'idle'}"


class StartInterval(NamedTuple):
    """Waits in ns: from, middle, to; and whether there were scores enough."""

    low_ns: int
    middle_ns: int
    high_ns: int
    wide: bool
    #: Earlier estimates of its queue that have come to an end, and how many of them held.
    like_it: int = 0
    held: int = 0


class ForecastShape(NamedTuple):
    """Middle and spread of a forecast, in log seconds."""

    middle: float
    spread: float


class QueueParts(msgspec.Struct):
    """Of one queue: parts of scores below and above the interval, and how often it has held."""

    low: float = TAIL
    high: float = TAIL
    #: Newest outcomes: True where the interval held.
    outcomes: list[bool] = []
    #: {way of estimating: its mean error in log seconds, the newest counting most}
    errors: dict[str, float] = {}


def size_of(gpu_milli: int) -> str:
    """Return the size class of a job's GPUs."""
    if gpu_milli <= 1000:
        return "1" if gpu_milli == 1000 else "part"
    return "2-8" if gpu_milli <= 8000 else "more"


def log_s(wait_ns: int) -> float:
    """Return a wait as log seconds."""
    return log1p(max(0, wait_ns) / SECOND_NS)


def from_log_s(value: float) -> int:
    """Return log seconds as a wait in ns."""
    return max(0, round((exp(min(value, 30.0)) - 1) * SECOND_NS))


def spread_of(forecast: Forecast) -> float:
    """Return the spread of a forecast's futures, in log seconds."""
    low, high = (log_s(forecast.wait_ns(part)) for part in (TAIL, 1 - TAIL))
    return max(SPREAD_MIN, (high - low) / 2)


class Calibrator:
    """Scores of what came, by kind and by queue."""

    def __init__(self) -> None:
        #: {kind, or pool: (score, weight), the newest last}
        self._scores: dict[str, deque[WeightedScore]] = {}
        self._queues: dict[str, QueueParts] = {}

    def blend(self, queue: str, middles_ns: Mapping[str, int]) -> float:
        """Return the middle of several ways of estimating, in log seconds: each counts the more, the smaller its errors in this queue
        have been. Without any, that of the futures."""
        errors = (self._queues.get(queue) or QueueParts()).errors
        known = {way: errors[way] for way in middles_ns if way in errors}
        if FUTURES_WAY not in known:
            return log_s(middles_ns[FUTURES_WAY])
        weights = {way: exp(-SHARPNESS * error) for way, error in known.items()}
        return sum(log_s(middles_ns[way]) * weight for way, weight in weights.items()) / sum(weights.values())

    def compare(self, queue: str, middles_ns: Mapping[str, int], wait_ns: int, weight: float = 1.0) -> None:
        """Take note of how far each way of estimating was off."""
        parts = self._queues.setdefault(queue, QueueParts(outcomes=[], errors={}))
        for way, said_ns in middles_ns.items():
            error = abs(log_s(said_ns) - log_s(wait_ns))
            before = parts.errors.get(way, error)
            parts.errors[way] = before + (error - before) * FORGETS * weight

    def interval(self, kind: Kind, queue: str, shape: ForecastShape, forecast: Forecast) -> StartInterval:
        """Return the interval for a forecast."""
        parts = self._queues.get(queue) or QueueParts()
        outcomes = parts.outcomes
        scores = self._of(kind)
        if scores is None:
            low = from_log_s(log_s(forecast.wait_ns(TAIL)) - WIDER)
            high = from_log_s(log_s(forecast.wait_ns(1 - TAIL)) + WIDER)
            middle = min(high, max(low, from_log_s(shape.middle)))
            return StartInterval(low, middle, high, True, len(outcomes), sum(outcomes))
        low, middle, high = (_part(scores, each) for each in (parts.low, 0.5, 1 - parts.high))
        bounds = [from_log_s(shape.middle + shape.spread * each) for each in (low, middle, high)]
        return StartInterval(bounds[0], bounds[1], bounds[2], False, len(outcomes), sum(outcomes))

    def learn(self, kind: Kind, shape: ForecastShape, wait_ns: int, weight: float = 1.0) -> None:
        """Take note of a wait that was estimated."""
        score = (log_s(wait_ns) - shape.middle) / shape.spread
        for key in (kind.key, kind.pool):
            self._scores.setdefault(key, deque(maxlen=SCORES_MAX)).append((score, weight))

    def judge(self, queue: str, *, below: bool, above: bool, weight: float = 1.0) -> None:
        """Take note of whether an interval held. What comes below makes it longer below, and so above."""
        parts = self._queues.setdefault(queue, QueueParts(outcomes=[], errors={}))
        parts.low = _bounded(parts.low + STEP * weight * (TAIL - below))
        parts.high = _bounded(parts.high + STEP * weight * (TAIL - above))
        parts.outcomes = [*parts.outcomes[-SCORES_MAX + 1 :], not (below or above)]

    def _of(self, kind: Kind) -> list[WeightedScore] | None:
        for key in (kind.key, kind.pool):
            scores = self._scores.get(key, ())
            if sum(weight for _, weight in scores) >= WEIGHT_MIN:
                return sorted(scores)
        return None

    def dump(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"scores": {key: list(scores) for key, scores in self._scores.items()}, "queues": self._queues}

    @classmethod
    def load(cls, dumped: Any) -> "Calibrator":
        """The inverse of `dump`. Raises msgspec.ValidationError."""
        found, self = msgspec.convert(dumped, _Dumped), cls()
        self._scores = {key: deque(scores, maxlen=SCORES_MAX) for key, scores in found.scores.items()}
        self._queues = found.queues
        return self


class _Dumped(msgspec.Struct):
    scores: dict[str, list[WeightedScore]]
    queues: dict[str, QueueParts]


def _bounded(part: float) -> float:
    return min(PART_MAX, max(PART_MIN, part))


def _part(rising: list[WeightedScore], part: float) -> float:
    """Return the score up to which this part of the weight lies."""
    wanted = part * sum(weight for _, weight in rising)
    for score, weight in rising:
        wanted -= weight
        if wanted <= 0:
            return score
    return rising[-1][0]
