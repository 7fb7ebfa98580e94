"""Runs on their way out, and the word that each has ended, which is said once. Pure.

How one run is brought to its end step by step is in `stopping.py`; here is which run, and what the shell is asked for. Times are
monotonic nanoseconds but for `at_ns`, the wall clock that reports carry for people.
"""

from fairlead_agent.drafting import Draft
from fairlead_agent.instructions import KillRun, NoticeRun, TerminateRun
from fairlead_agent.records import RunEntry
from fairlead_agent.run import Exit, RunKey
from fairlead_agent.stopping import Stopping, fenced_times
from fairlead_schemas.events import RunOutcome, StartFault
from fairlead_schemas.reports import CleanSeen, ExitSeen


class WayOut:
    """`fence_grace_ns`: what a run of a fenced node has, from notice to KILL."""

    def __init__(self, draft: Draft, fence_grace_ns: int) -> None:
        self._draft, self._fence_grace_ns = draft, fence_grace_ns
        #: What is being stopped, and has not ended.
        self.stopping: dict[RunKey, Stopping] = {}

    def stop(
        self, run: RunEntry, outcome: RunOutcome, reason: str, notice_ns: int, grace_ns: int, now: int, message: str = ""
    ) -> None:  # fmt: skip
        """Begin its end. Asked again while its notice runs, without one: the notice is over."""
        stopping = self.stopping.get(run.key)
        if stopping is not None:
            if stopping.in_notice and not notice_ns:
                self.terminate(run.key, now)
            return
        told = run.checkpoint if run.checkpoint is not None and run.checkpoint.is_told else None
        if told is None or run.phase != "running":
            notice_ns = 0
        self.stopping[run.key] = Stopping(outcome, grace_ns, now, notice_ns, message)
        if notice_ns and told is not None:
            self._draft.ask(NoticeRun(run.key, told, reason))
        else:
            self._draft.ask(TerminateRun(run.key))

    def cut_off(self, run: RunEntry, late_ns: int, now: int) -> None:
        """Its end comes in time for the other side, notice and grace together; what was noticed late is taken off them."""
        stopping = self.stopping.get(run.key)
        if stopping is None:
            told_ns = run.checkpoint.notice_ns if run.checkpoint else 0
            notice_ns, grace_ns = fenced_times(told_ns, run.grace_ns, self._fence_grace_ns)
            grace_ns = max(0, grace_ns - max(0, late_ns - notice_ns))
            self.stop(run, "node_lost", "node_lost", max(0, notice_ns - late_ns), grace_ns, now)
            self.stopping[run.key].fenced = True
        elif not stopping.fenced and stopping.fence(now, max(0, self._fence_grace_ns - late_ns)):
            self._draft.ask(TerminateRun(run.key))

    def terminate(self, key: RunKey, now: int) -> None:
        """TERM now: its notice is over, or there was nothing to notice yet. One that nobody stops is let alone."""
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
        """Its program has ended: as it was stopped for, where it was."""
        stopping = self.stopping.get(key)
        if stopping is None:
            self.end(key, outcome_of(exit), exit, clean, at_ns, now=now)
        else:
            exit = exit._replace(message=stopping.message or exit.message)
            self.end(key, stopping.outcome, exit, clean, at_ns, now=now)

    def never_began(self, key: RunKey, outcome: RunOutcome, message: str, at_ns: int, fault: StartFault = "") -> None:
        """Nothing of it is there. One that was told to stop first has been stopped, whatever else there is to say of it."""
        stopping = self.stopping.get(key)
        if stopping is not None:
            outcome, fault, message = stopping.outcome, "", stopping.message or message
        self.end(key, outcome, Exit(message=message), True, at_ns, fault)

    def end(
        self, key: RunKey, outcome: RunOutcome, exit: Exit, clean: bool, at_ns: int, fault: StartFault = "",
        blames: int | None = None, now: int = 0,
    ) -> None:  # fmt: skip
        """Report that it has ended so, at `now` (0: nobody saw when). `clean`: with evidence that its devices are free."""
        run = self._draft.ledger.runs.get(key)
        if run is None or not run.open:
            return  # an end is said once
        self.stopping.pop(key, None)
        self._draft.report(ExitSeen(
            n=self._draft.n, job=key.job, attempt=key.attempt, rank=key.rank, outcome=outcome, exit_code=exit.code,
            signal=exit.signal, message=exit.message[:1000], clean=clean, at_ns=at_ns, fault=fault, blames=blames,
            ran_ns=run.ran_ns(now),
        ))  # fmt: skip

    def clean(self, key: RunKey) -> None:
        """The devices of one that has ended are free now."""
        self._draft.report(CleanSeen(n=self._draft.n, job=key.job, attempt=key.attempt, rank=key.rank))


def outcome_of(exit: Exit) -> RunOutcome:
    """Of a run that nobody here has stopped."""
    if exit.fenced:
        return "node_lost"
    if exit.over_memory:
        return "oom"
    return "exited" if exit.known else "exit_unknown"
