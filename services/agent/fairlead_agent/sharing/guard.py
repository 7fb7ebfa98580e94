"""Who uses more GPU memory than its share, and for how long that is borne. Pure: takes what is used, says what follows.

A share's memory is a promise to its neighbours, and the driver enforces it for nobody. So use is held against the share at
every look: who is above it is told once, and stopped when it has been above it for the grace. Time below it counts back, so
a program that swings around its share is stopped if it is above it for more of the time than below. Where what it takes is
promised to others, the grace is a fifth: they would fail while it lasts.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fairlead_agent.run import RunKey

SECOND_NS = 1_000_000_000
#: Where the excess is taken from others' promises, the grace is divided by this.
HARM_DIVISOR = 5
#: Looks that are further apart count as this far: the agent stood still, and saw nothing between.
GAP_NS_MAX = 5 * SECOND_NS


class Share(NamedTuple):
    """What one run may use of one GPU."""

    key: RunKey
    gpu: str  # UUID
    memory_mib: int


class Finding(NamedTuple):
    """What follows for a run. "warn" comes once each time that it goes above its share; "stop" once."""

    what: Literal["warn", "stop"]
    share: Share
    used_mib: int
    #: How long it has been above its share, as it is counted.
    over_ns: int
    grace_ns: int

    @property
    def message(self) -> str:
        """For people."""
        used = f"{self.used_mib:,} MiB of its {self.share.memory_mib:,} MiB share of {self.share.gpu}"
        if self.what == "stop":
            return f"used {used} for {max(1, round(self.over_ns / SECOND_NS))} s"
        return (
            f"uses {used}; it will be stopped unless it uses less within {max(1, round(self.grace_ns / SECOND_NS))} s"
        )


class _Over:
    __slots__ = ("above", "ns", "stopped", "warned")

    def __init__(self) -> None:
        #: At the last look; what was seen then is taken to have been so until this one.
        self.above = False
        self.ns = 0
        self.warned = False
        self.stopped = False


class Guard:
    """The shares of one node."""

    def __init__(self, grace_ns: int) -> None:
        self._grace_ns = grace_ns
        self._over: dict[tuple[RunKey, str], _Over] = {}
        self._looked_at: int | None = None

    def look(
        self, shares: Sequence[Share], used: Mapping[tuple[RunKey, str], int], total_mib: Mapping[str, int], now: int
    ) -> list[Finding]:
        """`used`: {(run, GPU): MiB}, of runs without an entry nothing; `total_mib`: {GPU: what it has}. By rising GPU and
        run. Runs that have no share any more are forgotten."""
        passed = 0 if self._looked_at is None else min(GAP_NS_MAX, max(0, now - self._looked_at))
        self._looked_at = now
        self._over = {(each.key, each.gpu): self._over.get((each.key, each.gpu), _Over()) for each in shares}
        promised: dict[str, int] = {}
        for each in shares:
            promised[each.gpu] = promised.get(each.gpu, 0) + each.memory_mib
        found: list[Finding] = []
        for each in sorted(shares, key=lambda share: (share.gpu, share.key)):
            mib = used.get((each.key, each.gpu), 0)
            others = promised[each.gpu] - each.memory_mib
            harms = others > 0 and mib > total_mib.get(each.gpu, 0) - others
            found += self._judge(each, mib, self._grace_ns // HARM_DIVISOR if harms else self._grace_ns, passed)
        return found

    def _judge(self, share: Share, mib: int, grace_ns: int, passed: int) -> list[Finding]:
        over = self._over[share.key, share.gpu]
        over.ns = over.ns + passed if over.above else max(0, over.ns - passed)
        over.above = mib > share.memory_mib
        if not over.above:
            over.warned = over.warned and over.ns > 0
            return []
        if not over.warned:
            over.warned = True
            return [Finding("warn", share, mib, over.ns, grace_ns)]
        if over.stopped or over.ns < grace_ns:
            return []
        over.stopped = True
        return [Finding("stop", share, mib, over.ns, grace_ns)]
