"""Runs that are being stopped: notice, TERM, grace, KILL, and the report that each has ended, which is made once. Pure.

`Stopping` has the steps by which one run is stopped; `RunStop` decides which run is stopped, and what the shell must do.
Times are monotonic nanoseconds except `at_ns`, the wall clock that reports carry for people.

Every stop takes these steps, whatever its cause: a preemption, a slice that is over, a drain, a job that is moved,
a time limit, a cancel. Only the length of the notice differs. There is none for a cancel (unless it was requested),
for a job that declines notices, and for a job that has not started. A fence shortens all of it to the time that the
placer waits.
"""

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.runs import CheckpointMark, Exit, RunKey
from fairlead_agent.core.steps import Draft, KillRun, NoticeRun, TerminateRun
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from fairlead_schemas.wire.events import RunOutcome, StartFault
from fairlead_schemas.wire.reports import CleanSeen, ExitSeen

#: What a fenced node's runs have, from notice to KILL: the placer counts on it (sources.py there).
FENCE_GRACE_NS = 30 * SECOND_NS
#: What uses more of a GPU than its share has no longer than this between TERM and KILL: its neighbours wait for it.
SHARE_GRACE_NS = 10 * SECOND_NS
#: An order that has not begun after so long is given up; images of a hundred gigabytes take their time.
START_NS = HOUR_NS
#: A kill that has not worked is tried again this often.
KILL_AGAIN_NS = 10 * SECOND_NS


class Stopping:
    """Run that is being stopped. Whatever its exit code from now on, its end is recorded as `outcome`."""

    __slots__ = ("_before", "fenced", "grace_ns", "kill_at", "message", "outcome", "term_at")

    def __init__(self, outcome: RunOutcome, grace_ns: int, now: int, notice_ns: int = 0, message: str = "") -> None:
        self.outcome: RunOutcome = outcome
        #: Why, in place of what the program's end would say.
        self.message = message
        #: Its end was brought forward by a fence.
        self.fenced = False
        self.grace_ns = grace_ns
        #: When its notice is over; None: it had none, or TERM was sent.
        self.term_at = now + notice_ns if notice_ns else None
        self.kill_at = now + notice_ns + grace_ns
        #: Stamp of the mark that existed at the notice; None: no notice was sent yet.
        self._before: int | None = None

    @property
    def in_notice(self) -> bool:
        """True while the run is in its notice and may still continue its work."""
        return self.term_at is not None

    @property
    def wake_at(self) -> int:
        """Time at which the next step is due."""
        return self.kill_at if self.term_at is None else self.term_at

    def noticed(self, stamp: int) -> None:
        """Record that the run is notified now. Any mark with another stamp answers the notice."""
        self._before = stamp

    def is_answered_by(self, mark: CheckpointMark) -> bool:
        """Return True if the mark was written after the notice. Such a mark ends the notice."""
        return self.in_notice and self._before is not None and mark.stamp != self._before

    def terminate(self, now: int) -> None:
        """TERM goes out now; grace begins."""
        self.term_at, self.kill_at = None, now + self.grace_ns

    def killed(self, now: int) -> None:
        """Record that KILL goes out now, and schedule the next one in case it does not work."""
        self.kill_at = now + KILL_AGAIN_NS

    def fence(self, now: int, room_ns: int = FENCE_GRACE_NS) -> bool:
        """The node is cut off: its end comes within `room_ns`. True where TERM is due at once for that."""
        self.fenced = True
        hurried = self.term_at is not None and self.term_at + self.grace_ns > now + room_ns
        self.grace_ns = min(self.grace_ns, room_ns)
        if hurried:
            self.terminate(now)
        self.kill_at = min(self.kill_at, now + room_ns)
        return hurried


def fenced_times(notice_ns: int, grace_ns: int, room_ns: int = FENCE_GRACE_NS) -> tuple[int, int]:
    """(notice, grace) of a run that a fence ends: both within `room_ns`, and half of it for the grace."""
    notice_ns = min(notice_ns, room_ns // 2)
    return notice_ns, min(grace_ns, room_ns - notice_ns)


class RunStop:
    """Stops of one node's runs, and the reports of their ends. `fence_grace_ns`: what a run of a fenced node has, from notice
    to KILL.
    """

    def __init__(self, draft: Draft, fence_grace_ns: int) -> None:
        self._draft, self._fence_grace_ns = draft, fence_grace_ns
        #: What is being stopped, and has not ended.
        self.stopping: dict[RunKey, Stopping] = {}

    def stop(
        self,
        run: RunEntry,
        outcome: RunOutcome,
        reason: str,
        notice_ns: int,
        grace_ns: int,
        now: int,
        message: str = "",
    ) -> None:
        """Begin its end. Asked again while its notice runs, without one: the notice is over."""
        stopping = self.stopping.get(run.key)
        if stopping is not None:
            if stopping.in_notice and not notice_ns:
                self.terminate(run.key, now)
            return
        checkpoint = run.checkpoint if run.checkpoint is not None and run.checkpoint.is_told else None
        if checkpoint is None or run.phase != "running":
            notice_ns = 0
        self.stopping[run.key] = Stopping(outcome, grace_ns, now, notice_ns, message)
        if notice_ns and checkpoint is not None:
            self._draft.ask(NoticeRun(run.key, checkpoint, reason))
        else:
            self._draft.ask(TerminateRun(run.key))

    def cut_off(self, run: RunEntry, late_ns: int, now: int) -> None:
        """Stop a run early enough for the placer's deadline, notice and grace together. The delay `late_ns` is taken off both."""
        stopping = self.stopping.get(run.key)
        if stopping is None:
            requested_ns = run.checkpoint.notice_ns if run.checkpoint else 0
            notice_ns, grace_ns = fenced_times(requested_ns, run.grace_ns, self._fence_grace_ns)
            grace_ns = max(0, grace_ns - max(0, late_ns - notice_ns))
            self.stop(run, "node_lost", "node_lost", max(0, notice_ns - late_ns), grace_ns, now)
            self.stopping[run.key].fenced = True
        elif not stopping.fenced and stopping.fence(now, max(0, self._fence_grace_ns - late_ns)):
            self._draft.ask(TerminateRun(run.key))

    def terminate(self, key: RunKey, now: int) -> None:
        """Send TERM now: the run's notice is over, or there was nothing to notify yet. Do nothing for a run that is not being
        stopped.
        """
        stopping = self.stopping.get(key)
        if stopping is not None:
            stopping.terminate(now)
            self._draft.ask(TerminateRun(key))

    def tick(self, now: int) -> None:
        """Time has passed: notices and graces end."""
        for key, stopping in self.stopping.items():
            if stopping.wake_at > now:
                continue
            if stopping.in_notice:
                self.terminate(key, now)
            else:
                stopping.killed(now)
                self._draft.ask(KillRun(key))

    def ended(self, key: RunKey, exit: Exit, clean: bool, at_ns: int, now: int = 0) -> None:
        """Record that the program of a run has ended. A run that was being stopped gets the outcome of its stop."""
        stopping = self.stopping.get(key)
        if stopping is None:
            self.end(key, outcome_of(exit), exit, clean, at_ns, now=now)
        else:
            exit = exit._replace(message=stopping.message or exit.message)
            self.end(key, stopping.outcome, exit, clean, at_ns, now=now)

    def never_began(self, key: RunKey, outcome: RunOutcome, message: str, at_ns: int, fault: StartFault = "") -> None:
        """Record the end of a run of which nothing exists. A run that was ordered to stop first counts as stopped, whatever
        else is known.
        """
        stopping = self.stopping.get(key)
        if stopping is not None:
            outcome, fault, message = stopping.outcome, "", stopping.message or message
        self.end(key, outcome, Exit(message=message), True, at_ns, fault)

    def end(
        self,
        key: RunKey,
        outcome: RunOutcome,
        exit: Exit,
        clean: bool,
        at_ns: int,
        fault: StartFault = "",
        blames: int | None = None,
        now: int = 0,
    ) -> None:
        """Report the end of a run at `now` (0: the time was not observed). `clean`: with evidence that its devices are free."""
        run = self._draft.ledger.runs.get(key)
        if run is None or not run.open:
            return  # an end is reported once
        self.stopping.pop(key, None)
        self._draft.report(
            ExitSeen(
                n=self._draft.n,
                job=key.job,
                attempt=key.attempt,
                rank=key.rank,
                outcome=outcome,
                exit_code=exit.code,
                signal=exit.signal,
                message=exit.message[:1000],
                clean=clean,
                at_ns=at_ns,
                fault=fault,
                blames=blames,
                ran_ns=run.ran_ns(now),
            )
        )

    def clean(self, key: RunKey) -> None:
        """The devices of one that has ended are free now."""
        self._draft.report(CleanSeen(n=self._draft.n, job=key.job, attempt=key.attempt, rank=key.rank))


def outcome_of(exit: Exit) -> RunOutcome:
    """Return the outcome of a run that this agent has not stopped."""
    if exit.fenced:
        return "node_lost"
    if exit.over_memory:
        return "oom"
    return "exited" if exit.known else "exit_unknown"
