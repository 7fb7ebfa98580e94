"""How right estimates are: coverage, and pinball loss of their quantiles beside that of three baselines. Pure."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from fairlead_replay.estimates.calibration import TAIL, log_s

PARTS = (TAIL, 0.5, 1 - TAIL)


def pinball(quantiles_ns: Sequence[int], wait_ns: int) -> float:
    """Return the mean pinball loss of three quantiles of a wait, in log seconds: 0 is best, and a bound on the wrong side
    counts most."""
    came = log_s(wait_ns)
    losses: list[float] = []
    for part, said_ns in zip(PARTS, quantiles_ns, strict=True):
        missed = came - log_s(said_ns)
        losses.append(missed * part if missed >= 0 else -missed * (1 - part))
    return fmean(losses)


class Scored(NamedTuple):
    """An estimate of which it is known what came."""

    queue: str
    said_ns: tuple[int, int, int]
    wait_ns: int
    held: bool
    #: {baseline: its three quantiles}
    baselines: dict[str, tuple[int, int, int]]


class QueueScore(NamedTuple):
    """Estimates of one queue."""

    queue: str
    estimates: int
    coverage: float
    pinball: float
    #: {baseline: our loss over its loss}; 1: neither is better.
    against: dict[str, float]
    #: Median length of the interval over the middle of it.
    width: float


def score(queue: str, scored: Iterable[Scored]) -> QueueScore:
    """Return the score of estimates; of none, zeros."""
    all_ = list(scored)
    if not all_:
        return QueueScore(queue, 0, 0.0, 0.0, {}, 0.0)
    against: dict[str, float] = {}
    for name in sorted({name for each in all_ for name in each.baselines}):
        both = [each for each in all_ if name in each.baselines]
        theirs = sum(pinball(each.baselines[name], each.wait_ns) for each in both)
        against[name] = sum(pinball(each.said_ns, each.wait_ns) for each in both) / theirs if theirs else 1.0
    widths = sorted((each.said_ns[2] - each.said_ns[0]) / max(1, each.said_ns[1]) for each in all_)
    return QueueScore(
        queue,
        len(all_),
        sum(each.held for each in all_) / len(all_),
        fmean([pinball(each.said_ns, each.wait_ns) for each in all_]),
        against,
        widths[len(widths) // 2],
    )
