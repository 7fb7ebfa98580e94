"""Goldens of a policy test: the digest of the unshaken play and the figures of each queue, kept in a file beside the test. Pure.

A changed digest says that some decision is another one; the figures say which queue it moved, and by how much.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from fairlead_replay.policy_test.plays import PolicyPlays, QueueFigures

FORMAT = 1


class GoldensRefused(ValueError):
    """Goldens that cannot be compared with; the message says why and what to do."""


class Goldens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Goldens as they are stored."""

    goldens: int
    #: SHA-256 of the load that was played, and of the play.
    load: str
    play: str
    #: {queue: {metric: value}}
    queues: dict[str, dict[str, float]]


class GoldenDifference(NamedTuple):
    """Figure that differs from its golden; `queue` is "" where only single decisions differ."""

    queue: str
    metric: str
    golden: float
    value: float

    @property
    def words(self) -> str:
        """The difference in words."""
        if not self.queue:
            return "decisions differ from the golden play, no figure of a queue does"
        change = self.value - self.golden
        part = f" ({change / self.golden:+.0%})" if self.golden else ""
        return (
            f"{self.metric} of queue {self.queue}: {self.golden:g} in the golden, now {self.value:g}, {change:+g}{part}"
        )


def goldens_of(load_sha256: str, plays: PolicyPlays) -> bytes:
    """Return the goldens of plays as they are stored: one figure a line, so that a change shows what moved."""
    queues = {each.queue: each.figures for each in plays.queues}
    goldens = Goldens(goldens=FORMAT, load=load_sha256, play=plays.play_sha256, queues=queues)
    return msgspec.json.format(msgspec.json.encode(goldens), indent=1) + b"\n"


def compare_goldens(stored: bytes, load_sha256: str, plays: PolicyPlays) -> list[GoldenDifference]:
    """Return what differs. Raises GoldensRefused for goldens of another log, or none."""
    try:
        found = msgspec.json.decode(stored, type=Goldens)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GoldensRefused(f"they cannot be read: {error}; --update writes new ones") from error
    if found.goldens != FORMAT:
        raise GoldensRefused(f"expected format {FORMAT}, found {found.goldens}")
    if found.load != load_sha256:
        raise GoldensRefused(
            f"they are of another log: expected {load_sha256[:16]}…, found {found.load[:16]}…; --update writes those of this one"
        )
    if found.play == plays.play_sha256:
        return []
    return [*_differences(found.queues, plays.queues)] or [GoldenDifference("", "", 0.0, 0.0)]


def _differences(golden: dict[str, dict[str, float]], queues: tuple[QueueFigures, ...]) -> Iterator[GoldenDifference]:
    now = {each.queue: each.figures for each in queues}
    for queue in sorted(golden.keys() | now.keys()):
        before, after = golden.get(queue, {}), now.get(queue, {})
        for metric in sorted(before.keys() | after.keys()):
            if before.get(metric, 0.0) != after.get(metric, 0.0):
                yield GoldenDifference(queue, metric, before.get(metric, 0.0), after.get(metric, 0.0))
