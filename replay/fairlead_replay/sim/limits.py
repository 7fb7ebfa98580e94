"""Time limits against the truth: no run is ended for a limit that it has not reached, whatever the clocks were set
to.

The truth is the virtual time for which processes ran on their machines (`machine.Starts`). For an attempt
without this measure (its node was lost, its agent died at the start), the log's own measure is used, as in the
queue.
"""

from collections.abc import Callable

from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.lifecycle import GOES_ON

#: Rounding between seconds of the loop and nanoseconds of the log.
ROUNDING_NS = 1_000_000

#: (job, attempt) -> nanoseconds for which its longest process has run.
type Truly = Callable[[str, int], int]


class LimitBooks:
    """{job: its limit}, and how long each job has really run since it last began from nothing."""

    def __init__(self, truly: Truly | None = None) -> None:
        self._truly = truly
        self.limits: dict[str, tuple[int, int]] = {}  # {job or array: (limit, notice)}
        self.ran: dict[str, int] = {}
        self.started: dict[str, int] = {}
        self.outcomes: dict[str, ev.RunOutcome] = {}
        #: Runs that were stopped for their limit, and rightly so.
        self.judged = 0

    def take(self, commit: Commit) -> str:
        """Book a commit; returns what is wrong with it, "" if nothing is."""
        for event in commit.events:
            match event:
                case ev.JobSubmitted():
                    notice_ns = event.checkpoint.notice_ns if event.checkpoint is not None else 0
                    self.limits[event.job] = event.total_ns, notice_ns
                case ev.RunStarted():
                    self.started[event.job] = commit.at_ns
                case ev.RunEnded():
                    self._ended(event, commit.at_ns)
                case ev.JobRequeued() if event.reason not in GOES_ON:
                    self.ran.pop(event.job, None)
                case ev.JobFailed() if event.reason == "time_limit" and self.outcomes.get(event.job) == "stopped":
                    wrong = self._early(event.job)
                    if wrong:
                        return wrong
                case _:
                    pass
        return ""

    def _ended(self, event: ev.RunEnded, at_ns: int) -> None:
        ran_ns = at_ns - self.started.pop(event.job, at_ns)
        if event.ran_ns and self._truly is not None:
            ran_ns = self._truly(event.job, event.attempt)
        self.ran[event.job] = self.ran.get(event.job, 0) + ran_ns
        self.outcomes[event.job] = event.outcome

    def _early(self, job: str) -> str:
        limit_ns, notice_ns = self.limits[array_of(job) or job]
        self.judged += 1
        ran_ns = self.ran.get(job, 0)
        if ran_ns + ROUNDING_NS < limit_ns - notice_ns:
            return f"{job} was ended early: its limit is {limit_ns} ns, and it has run for {ran_ns} ns"
        return ""
