"""The ledger of estimates: what would have been said of submits, and what came. Pure.

Questions are not in the log, submits are: of a sample of them it is worked out, at their sequence, what a dry run would have
said, and joined later with the start or the cancel. So the ledger follows from the log, and anybody can fold it again.
"""

from collections import Counter, deque
from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from fairlead_replay.estimates.calibration import Calibrator, ForecastShape, Kind, StartInterval
from fairlead_replay.estimates.lengths_now import BATCH_NS
from fairlead_replay.estimates.scores import Scored
from fairlead_schemas.units.timestamps import DAY_NS

#: Entries that are kept.
ENTRIES_MAX = 5_000
#: Submits of which an estimate is worked out: so many a day, and so many at once.
PER_DAY, AT_ONCE = 200, 40
#: Waits of a queue that its quantiles are taken from.
WAITS_MAX = 200

type Quantiles = tuple[int, int, int]


class EstimateEntry(msgspec.Struct):
    """An estimate and what came of it."""

    job: str
    user: str
    queue: str
    pool: str
    sequence: int
    at_ns: int
    basis: str
    futures: int
    #: "it starts at once" was said.
    at_once: bool
    nodes: tuple[str, ...] = ()
    #: Why no interval could be given.
    unknown: str = ""
    #: Waits in ns: from, middle, to.
    said_ns: Quantiles = (0, 0, 0)
    #: Too few earlier estimates were like it.
    wide: bool = False
    baselines: dict[str, Quantiles] = {}
    #: {way of estimating: the wait that it says}
    middles_ns: dict[str, int] = {}
    kind: Kind = Kind("", "", False)
    shape: ForecastShape = ForecastShape(0.0, 1.0)
    #: waiting | started | cancelled | ended (without a start)
    outcome: str = "waiting"
    #: When that was.
    over_ns: int = 0
    #: Whether the start lies in the interval; None: it is not known yet.
    held: bool | None = None
    #: Where it started.
    got: tuple[str, ...] = ()

    @property
    def batch(self) -> tuple[str, str, str, int]:
        """The batch of jobs that were submitted together."""
        return self.user, self.queue, self.kind.size, self.at_ns // BATCH_NS

    @property
    def wait_ns(self) -> int:
        """From the submit to what came; 0: nothing yet."""
        return max(0, self.over_ns - self.at_ns) if self.over_ns else 0

    @property
    def bounds_ns(self) -> tuple[int, int]:
        """The interval as Unix ns."""
        return self.at_ns + self.said_ns[0], self.at_ns + self.said_ns[2]


class EstimateLedger:
    """Entries in the order of their submits."""

    def __init__(self) -> None:
        self.calibrator = Calibrator()
        self.entries: deque[EstimateEntry] = deque()
        self._waiting: dict[str, EstimateEntry] = {}
        #: {batch: its entries}
        self._batches: Counter[tuple[str, str, str, int]] = Counter()
        #: (upper bound, job) of entries that have not started.
        self._bounds: list[tuple[int, str]] = []
        #: {queue: newest waits of those that had to wait}
        self._waits: dict[str, deque[int]] = {}
        self._tokens, self._tokens_ns = float(AT_ONCE), 0

    def samples(self, at_ns: int) -> bool:
        """Return True if the submit at this time is one of the sample, and count it."""
        earned = (at_ns - self._tokens_ns) * PER_DAY / DAY_NS if self._tokens_ns else 0.0
        self._tokens = min(float(AT_ONCE), self._tokens + max(0.0, earned))
        self._tokens_ns = max(self._tokens_ns, at_ns)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def add(self, entry: EstimateEntry) -> None:
        """Keep an estimate; the oldest goes."""
        self.entries.append(entry)
        self._waiting[entry.job] = entry
        self._batches[entry.batch] += 1
        if not entry.unknown and not entry.at_once:
            heappush(self._bounds, (entry.bounds_ns[1], entry.job))
        while len(self.entries) > ENTRIES_MAX:
            gone = self.entries.popleft()
            self._batches[gone.batch] -= 1
            if not self._batches[gone.batch]:
                del self._batches[gone.batch]
            self._waiting.pop(gone.job, None)

    def pass_time(self, now_ns: int) -> None:
        """What has not started by its upper bound is a miss."""
        while self._bounds and self._bounds[0][0] < now_ns:
            _, job = heappop(self._bounds)
            entry = self._waiting.get(job)
            if entry is not None and entry.held is None:
                entry.held = False
                self.calibrator.judge(entry.queue, below=False, above=True, weight=self._weight(entry))

    def started(self, job: str, nodes: tuple[str, ...], at_ns: int) -> None:
        """A job has started."""
        entry = self._waiting.pop(job, None)
        if entry is None:
            return
        entry.outcome, entry.over_ns, entry.got = "started", at_ns, nodes
        if entry.unknown:
            return
        if entry.at_once:
            entry.held = at_ns <= entry.bounds_ns[1]
            return
        self._waits.setdefault(entry.queue, deque(maxlen=WAITS_MAX)).append(entry.wait_ns)
        weight = self._weight(entry)
        self.calibrator.compare(entry.queue, entry.middles_ns, entry.wait_ns, weight)
        self.calibrator.learn(entry.kind, entry.shape, entry.wait_ns, weight)
        if entry.held is None:
            low_ns, high_ns = entry.bounds_ns
            entry.held = low_ns <= at_ns <= high_ns
            self.calibrator.judge(entry.queue, below=at_ns < low_ns, above=at_ns > high_ns, weight=weight)

    def _weight(self, entry: EstimateEntry) -> float:
        """Return what an outcome counts: those of one batch count as one."""
        return 1 / max(1, self._batches[entry.batch])

    def ended(self, job: str, outcome: str, at_ns: int) -> None:
        """A job has ended before it started: it says nothing of the estimate, unless it was beyond its interval."""
        entry = self._waiting.pop(job, None)
        if entry is not None:
            entry.outcome, entry.over_ns = outcome, at_ns

    def queue_quantiles(self, queue: str) -> Quantiles | None:
        """Return the quantiles of the newest waits of a queue, None for few."""
        waits = sorted(self._waits.get(queue, ()))
        if len(waits) < 10:
            return None
        last = len(waits) - 1
        return waits[last // 10], waits[last // 2], waits[last * 9 // 10]

    def scored(self) -> list[Scored]:
        """Return the entries with an interval of which it is known what came."""
        return [
            Scored(each.queue, each.said_ns, each.wait_ns, bool(each.held), each.baselines)
            for each in self.entries
            if each.outcome == "started" and not each.unknown and not each.at_once
        ]

    # ------------------------------------------------------------------ kept state

    def dump(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "calibrator": self.calibrator.dump(),
            "entries": list(self.entries),
            "waits": {queue: list(waits) for queue, waits in self._waits.items()},
            "tokens": self._tokens,
            "tokens_ns": self._tokens_ns,
        }

    @classmethod
    def load(cls, dumped: Any) -> "EstimateLedger":
        """The inverse of `dump`. Raises msgspec.ValidationError."""
        found, self = msgspec.convert(dumped, _Dumped), cls()
        self.calibrator = Calibrator.load(found.calibrator)
        self.entries.extend(found.entries)
        self._batches.update(each.batch for each in self.entries)
        self._waiting = {each.job: each for each in self.entries if each.outcome == "waiting"}
        self._bounds = [
            (each.bounds_ns[1], each.job)
            for each in self._waiting.values()
            if not each.unknown and not each.at_once and each.held is None
        ]
        heapify(self._bounds)
        self._waits = {queue: deque(waits, maxlen=WAITS_MAX) for queue, waits in found.waits.items()}
        self._tokens, self._tokens_ns = found.tokens, found.tokens_ns
        return self


class _Dumped(msgspec.Struct):
    calibrator: Any
    entries: list[EstimateEntry]
    waits: dict[str, list[int]]
    tokens: float
    tokens_ns: int


def quantiles_of(interval: StartInterval) -> Quantiles:
    """Return an interval as an entry keeps it."""
    return interval.low_ns, interval.middle_ns, interval.high_ns
