"""What a log tells of jobs to come: how long runs last, how long nodes take, and who submits what at which hour. Pure.

Bounded: the newest lengths of the most recent groups, and the submits of four weeks.
"""

from collections import deque
from collections.abc import Callable
from statistics import median_low
from typing import Any

import msgspec

from fairlead_replay.whatif.lengths import OWN_OUTCOMES
from fairlead_replay.whatif.survival import Groups, SeenLength
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import DAY_NS, SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.resources import Request

#: Groups of run lengths that are kept, each with its newest ones.
GROUPS_MAX = 6_000
#: Submits are kept for so long, and so many of them.
SUBMITS_NS, SUBMITS_MAX = 28 * DAY_NS, 20_000
#: Delays of nodes of which the median is taken.
DELAYS_MAX = 63
#: A run this near its limit was ended by it.
LIMIT_NS = 2 * SECOND_NS

type Keys = tuple[tuple[str, ...], ...]


class JobFacts(msgspec.Struct):
    """What is known of a job that has not ended."""

    user: str
    name: str
    queue: str
    request: Request
    total_ns: int
    kind: str
    #: Its next run continues where the last one was.
    keeps: bool
    submitted_ns: int
    placed_ns: int = 0
    #: 0: it does not run.
    started_ns: int = 0
    stop_ns: int = 0
    #: Of earlier runs, as far as it counts.
    done_ns: int = 0

    @property
    def keys(self) -> Keys:
        """Groups of jobs that are like it, the most alike first."""
        size = str(self.request.gpu_milli_total)
        return (
            ("name", self.user, self.name),
            ("size", self.user, self.queue, size),
            ("queue", self.queue, size),
            ("pool", self.request.pool),
        )


class PastSubmit(msgspec.Struct, frozen=True, array_like=True):
    """Submit that may come again."""

    at_ns: int
    user: str
    name: str
    queue: str
    request: Request
    priority: int
    total_ns: int
    slice_ns: int


class ClusterHistory:
    """Folded from every commit of the log."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobFacts] = {}
        self.lengths = Groups(GROUPS_MAX)
        self.submits: deque[PastSubmit] = deque(maxlen=SUBMITS_MAX)
        #: Time of the log's first commit.
        self.begin_ns = 0
        self._start_delays: deque[int] = deque(maxlen=DELAYS_MAX)
        self._stop_delays: deque[int] = deque(maxlen=DELAYS_MAX)

    @property
    def start_ns(self) -> int:
        """The usual time from a place to the run."""
        return median_low(self._start_delays) if self._start_delays else 0

    @property
    def stop_ns(self) -> int:
        """The usual time from the order to stop to the end."""
        return median_low(self._stop_delays) if self._stop_delays else 0

    def take(self, commit: Commit) -> None:
        """Fold the next commit."""
        self.begin_ns = self.begin_ns or commit.at_ns
        for event in commit.events:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, commit.at_ns)

    def facts_of(self, id_: str) -> JobFacts | None:
        """What is known of a job; of an array's element as long as it has not begun, what is known of the array."""
        return self.jobs.get(id_) or self.jobs.get(array_of(id_) or "")

    def own(self, id_: str) -> JobFacts | None:
        """As `facts_of`, with facts of its own for an element."""
        found, parent = self.jobs.get(id_), self.jobs.get(array_of(id_) or "")
        if found is None and parent is not None:
            found = self.jobs[id_] = msgspec.structs.replace(parent, placed_ns=0, started_ns=0, stop_ns=0, done_ns=0)
        return found

    # ------------------------------------------------------------------ handlers

    def submitted(self, event: ev.JobSubmitted, at_ns: int) -> None:
        """A job enters."""
        self.jobs[event.job] = JobFacts(
            event.user,
            event.name,
            event.queue,
            event.request,
            event.total_ns,
            event.kind,
            event.checkpoint is not None,
            at_ns,
        )
        if event.array is None and not event.after and not event.held and not event.start_at_ns:
            self.submits.append(
                PastSubmit(
                    at_ns,
                    event.user,
                    event.name,
                    event.queue,
                    event.request,
                    event.priority,
                    event.total_ns,
                    event.slice_ns,
                )
            )
        while self.submits and self.submits[0].at_ns < at_ns - SUBMITS_NS:
            self.submits.popleft()

    def moved(self, event: ev.JobMoved, at_ns: int) -> None:
        """It waits elsewhere."""
        if (facts := self.own(event.job)) is not None:
            facts.queue = event.queue

    def placed(self, event: ev.JobPlaced, at_ns: int) -> None:
        """It has a place."""
        if (facts := self.own(event.job)) is not None:
            facts.placed_ns, facts.started_ns, facts.stop_ns = at_ns, 0, 0

    def started(self, event: ev.RunStarted, at_ns: int) -> None:
        """It runs."""
        if (facts := self.own(event.job)) is not None:
            facts.started_ns = at_ns
            if facts.placed_ns:
                self._start_delays.append(at_ns - facts.placed_ns)

    def saved(self, event: ev.CheckpointSaved, at_ns: int) -> None:
        """It saves its work: what it has done counts."""
        if (facts := self.own(event.job)) is not None:
            facts.keeps = True

    def ordered(self, event: ev.PreemptionStarted | ev.JobStopRequested, at_ns: int) -> None:
        """Its run is asked to end."""
        if (facts := self.own(event.job)) is not None and not facts.stop_ns:
            facts.stop_ns = at_ns

    def run_ended(self, event: ev.RunEnded, at_ns: int) -> None:
        """Its run is over: a length, where it came to its own end."""
        facts = self.own(event.job)
        if facts is None or not facts.started_ns:
            return
        ran_ns = max(1, at_ns - facts.started_ns)
        if facts.stop_ns and event.outcome == "stopped":
            self._stop_delays.append(max(0, at_ns - facts.stop_ns))
        if event.outcome in OWN_OUTCOMES:
            self.lengths.add(facts.keys, SeenLength(facts.done_ns + ran_ns, is_whole=True))
            facts.done_ns = 0
        elif facts.total_ns and facts.done_ns + ran_ns >= facts.total_ns - LIMIT_NS:
            self.lengths.add(facts.keys, SeenLength(facts.done_ns + ran_ns, is_whole=False))
            facts.done_ns = 0
        else:
            facts.done_ns = facts.done_ns + ran_ns if facts.keeps or event.preempted else ran_ns
        facts.started_ns = facts.stop_ns = facts.placed_ns = 0

    def job_ended(self, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled, at_ns: int) -> None:
        """It is over. What was cut for good ran at least so long."""
        facts = self.jobs.pop(event.job, None)
        if facts is not None and (ran_ns := facts.done_ns + (at_ns - facts.started_ns if facts.started_ns else 0)):
            self.lengths.add(facts.keys, SeenLength(ran_ns, is_whole=False))

    # ------------------------------------------------------------------ kept state

    def dump(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "jobs": self.jobs,
            "lengths": self.lengths.kept(),
            "submits": list(self.submits),
            "begin_ns": self.begin_ns,
            "start_delays": list(self._start_delays),
            "stop_delays": list(self._stop_delays),
        }

    @classmethod
    def load(cls, dumped: Any) -> "ClusterHistory":
        """The inverse of `dump`. Raises msgspec.ValidationError."""
        history, found = cls(), msgspec.convert(dumped, _Dumped)
        history.jobs, history.begin_ns = found.jobs, found.begin_ns
        for key, lengths in found.lengths:
            for seen in lengths:
                history.lengths.add((key,), SeenLength(*seen))
        history.submits.extend(found.submits)
        history._start_delays.extend(found.start_delays)
        history._stop_delays.extend(found.stop_delays)
        return history


class _Dumped(msgspec.Struct):
    jobs: dict[str, JobFacts]
    lengths: list[tuple[tuple[str, ...], list[tuple[int, bool]]]]
    submits: list[PastSubmit]
    begin_ns: int
    start_delays: list[int]
    stop_delays: list[int]


_HANDLERS: dict[type, Callable[[ClusterHistory, Any, int], None]] = {
    ev.JobSubmitted: ClusterHistory.submitted,
    ev.JobMoved: ClusterHistory.moved,
    ev.JobPlaced: ClusterHistory.placed,
    ev.RunStarted: ClusterHistory.started,
    ev.CheckpointSaved: ClusterHistory.saved,
    ev.PreemptionStarted: ClusterHistory.ordered,
    ev.JobStopRequested: ClusterHistory.ordered,
    ev.RunEnded: ClusterHistory.run_ended,
    ev.JobSucceeded: ClusterHistory.job_ended,
    ev.JobFailed: ClusterHistory.job_ended,
    ev.JobCancelled: ClusterHistory.job_ended,
}
