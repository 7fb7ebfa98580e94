"""Which sample batches are new, which are repetitions, and which were lost. Pure.

The SAMPLE stream may lose its tail and reuse its sequences, so the numbers inside the batches are
the cursor: each agent incarnation counts its batches from 1. Loss is counted, never an error.
"""

from collections.abc import Set
from typing import NamedTuple

from fairlead_schemas.samples import SampleBatch


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


class SampleIntake(NamedTuple):
    """What goes into the warehouse in one transaction: batches' bytes, gaps, and the heads that moved."""

    payloads: list[bytes]
    gaps: list[SampleGap]
    heads: dict[tuple[str, str], SampleHead]
    #: Minutes since 1970 that the batches are of.
    minutes: Set[int] = frozenset()


class SampleBook:
    """Keeps the newest number per (node, incarnation) and collects what is new until `take`."""

    def __init__(self, heads: dict[tuple[str, str], SampleHead]) -> None:
        self._heads = heads
        self._intake = SampleIntake([], [], {})
        self._minutes = set[int]()
        self.repeated = 0

    def add(self, batch: SampleBatch, payload: bytes) -> bool:
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
        self._intake.payloads.append(payload)
        self._minutes.add(batch.at_ns // (60 * 10**9))
        return True

    def take(self) -> SampleIntake:
        """Everything new since the last call."""
        taken, self._intake = self._intake._replace(minutes=self._minutes), SampleIntake([], [], {})
        self._minutes = set()
        return taken

    def forget(self, before_ns: int) -> None:
        """Drop incarnations that have been silent since `before_ns`, as the warehouse does."""
        self._heads = {key: head for key, head in self._heads.items() if head.at_ns >= before_ns}
