"""Sample batches by state: new, repeated, or lost. Pure.

The SAMPLE stream may lose its tail and reuse its sequences, so the numbers inside the batches are the cursor: each agent
incarnation counts its batches from 1. Loss is counted, never an error.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple

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


class Refusal(NamedTuple):
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
    refusals: Mapping[tuple[str, str], Refusal] = {}


class SampleBook:
    """Keeps the newest number per (node, incarnation) and collects what is new until `take`."""

    def __init__(self, heads: dict[tuple[str, str], SampleHead]) -> None:
        self._heads = heads
        self._intake = SampleIntake([], [], {})
        self._minutes = set[int]()
        self._refusals: dict[tuple[str, str], Refusal] = {}
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
        self._minutes.add(batch.at_ns // (60 * 10**9))
        return True

    def is_known(self, batch: SampleColumns) -> bool:
        """Return True if the batch, or a later one of its incarnation, has been taken."""
        head = self._heads.get((batch.node, batch.incarnation))
        return head is not None and batch.n <= head.n

    def refuse(self, node: str, reason: str, words: str) -> int:
        """Count a batch that is not taken; how many there are of that node and reason. Of more than so many nodes they are
        counted together."""
        key = (node, reason) if (node, reason) in self._refusals or len(self._refusals) < REFUSERS_MAX else ("", reason)
        batches = self._refusals.get(key, Refusal(0, "")).batches + 1
        self._refusals[key] = Refusal(batches, words[:WORDS_MAX])
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
        told = dict(self._refusals) if self._refused_since else {}
        taken, self._intake = self._intake._replace(minutes=self._minutes, refusals=told), SampleIntake([], [], {})
        self._minutes, self._refused_since = set(), False
        return taken

    def forget(self, before_ns: int) -> None:
        """Drop incarnations that have been silent since `before_ns`, as the warehouse does."""
        self._heads = {key: head for key, head in self._heads.items() if head.at_ns >= before_ns}
