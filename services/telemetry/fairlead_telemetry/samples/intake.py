"""Sample batches by state (new, repeated, or lost), and their delays. Pure.

The SAMPLE stream may lose its tail and reuse its sequences, so the numbers inside the batches are the cursor: each agent
incarnation counts its batches from 1. Loss is counted, never an error.

Delays run from the node's clock into the warehouse, and are counted in steps.
"""

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_schemas.wire.samples import SampleColumns

#: Pairs of node and reason whose refusals are counted each by itself, and the length of what is kept of a message.
REFUSERS_MAX, WORDS_MAX = 10_000, 300


class SampleHead(NamedTuple):
    """Newest batch of one incarnation of a node's agent."""

    n: int
    at_ns: int
    lost: int


class SampleGap(NamedTuple):
    """Batches that never came: `first_lost` to `last_lost`, both included."""

    node: str
    incarnation: str
    first_lost: int
    last_lost: int
    lost: int
    noticed_at_ns: int


class SampleRefusal(NamedTuple):
    """Batches of one node that were refused for one reason: how many, and what was wrong with the newest."""

    batches: int
    newest: str


class SampleIntake(NamedTuple):
    """Input of the warehouse for one transaction: batches, gaps, and the heads that moved."""

    batches: list[SampleColumns]
    gaps: list[SampleGap]
    heads: dict[tuple[str, str], SampleHead]
    #: Minutes since 1970 that the batches are of.
    minutes: Set[int] = frozenset()
    #: {(node, reason)}: all since the start, where there are new ones.
    refusals: Mapping[tuple[str, str], SampleRefusal] = {}


class SampleBook:
    """Keeps the newest number per (node, incarnation) and collects what is new until `take`."""

    def __init__(self, heads: dict[tuple[str, str], SampleHead]) -> None:
        self._heads = heads
        self._intake = SampleIntake([], [], {})
        self._minutes = set[int]()
        self._refusals: dict[tuple[str, str], SampleRefusal] = {}
        self._refused_since = False
        self.repeated = 0

    def add(self, batch: SampleColumns) -> bool:
        """Take a batch; False when it (or a later one of its incarnation) is known already."""
        key = (batch.node, batch.incarnation)
        head = self._heads.get(key, SampleHead(0, 0, 0))
        if batch.n <= head.n:
            self.repeated += 1
            return False
        missing = batch.n - head.n - 1
        if missing:
            gap = SampleGap(batch.node, batch.incarnation, head.n + 1, batch.n - 1, missing, batch.at_ns)
            self._intake.gaps.append(gap)
        moved = SampleHead(batch.n, max(batch.at_ns, head.at_ns), head.lost + missing)
        self._heads[key] = self._intake.heads[key] = moved
        self._intake.batches.append(batch)
        self._minutes.add(batch.at_ns // MINUTE_NS)
        return True

    def is_known(self, batch: SampleColumns) -> bool:
        """Return True if the batch, or a later one of its incarnation, has been taken."""
        head = self._heads.get((batch.node, batch.incarnation))
        return head is not None and batch.n <= head.n

    def refuse(self, node: str, reason: str, words: str) -> int:
        """Count a batch that is not taken; how many there are of that node and reason. Of more than so many nodes they are
        counted together."""
        key = (node, reason) if (node, reason) in self._refusals or len(self._refusals) < REFUSERS_MAX else ("", reason)
        batches = self._refusals.get(key, SampleRefusal(0, "")).batches + 1
        self._refusals[key] = SampleRefusal(batches, words[:WORDS_MAX])
        self._refused_since = True
        return batches

    @property
    def refused(self) -> dict[str, int]:
        """{reason: batches that were refused}."""
        found: dict[str, int] = {}
        for (_, reason), refusal in self._refusals.items():
            found[reason] = found.get(reason, 0) + refusal.batches
        return found

    def take(self) -> SampleIntake:
        """Everything new since the last call."""
        refusals = dict(self._refusals) if self._refused_since else {}
        taken, self._intake = self._intake._replace(minutes=self._minutes, refusals=refusals), SampleIntake([], [], {})
        self._minutes, self._refused_since = set(), False
        return taken

    def forget(self, before_ns: int) -> None:
        """Drop incarnations that have been silent since `before_ns`, as the warehouse does."""
        self._heads = {key: head for key, head in self._heads.items() if head.at_ns >= before_ns}


STEP_MS = 50
#: What took longer counts as this.
MOST_MS = 60_000


class SampleDelays:
    """Since it was made."""

    def __init__(self) -> None:
        self._counts = [0] * (MOST_MS // STEP_MS + 1)
        self._total = 0

    def add(self, measured_ns: Iterable[int], now_ns: int) -> None:
        """Batches measured at these times were stored at `now_ns`; a clock that is ahead counts as no delay."""
        for at_ns in measured_ns:
            steps = max(0, now_ns - at_ns) // (STEP_MS * 1_000_000)
            self._counts[min(steps, len(self._counts) - 1)] += 1
            self._total += 1

    def within_ms(self, percent: int) -> int | None:
        """Return the delay in ms, rounded up to a step, within which that percentage of all samples arrived; None before the first."""
        wanted, passed = -(-self._total * percent // 100), 0
        for steps, count in enumerate(self._counts):
            passed += count
            if count and passed >= wanted:
                return (steps + 1) * STEP_MS
        return None
