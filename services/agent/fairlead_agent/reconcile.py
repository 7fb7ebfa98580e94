"""The agent's core: what should be on the node against what is. Pure: no I/O, clock, random or bus.

Every method takes one thing that happened and returns a `Step`: records to journal, then
instructions to carry out and reports to send once those records are durable, never before.
Start at `Reconciler.desired`. Times are monotonic nanoseconds (`now`) but for `at_ns`, the wall
clock that reports carry for people.
"""

from fairlead_agent.instructions import CutGpu, GiveUp, KillRun, StartRun, Step, TerminateRun
from fairlead_agent.pasts import Pasts
from fairlead_agent.records import (
    Accepted,
    Booted,
    Condemned,
    Confirmed,
    Cut,
    Forgot,
    Ledger,
    Record,
    Reported,
    RunEntry,
    Took,
)
from fairlead_agent.run import Exit, Found, RunKey, key_of
from fairlead_schemas.desired import Desired, LayoutOrder, RunOrder
from fairlead_schemas.events import RunOutcome
from fairlead_schemas.reports import CleanSeen, Confirm, ExitSeen, InventorySeen, Report, StartSeen
from fairlead_schemas.resources import Inventory

SECOND_NS = 1_000_000_000
FENCE_GRACE_NS = 30 * SECOND_NS
#: A kill that has not worked is tried again this often.
KILL_AGAIN_NS = 10 * SECOND_NS


class _Stopping:
    __slots__ = ("grace_ns", "kill_at", "outcome")

    def __init__(self, outcome: RunOutcome, grace_ns: int, now: int) -> None:
        self.outcome: RunOutcome = outcome
        self.grace_ns = grace_ns
        self.kill_at = now + grace_ns


class Reconciler:
    """Desired state, journal and runs of one node, and the lease that lets it start anything."""

    def __init__(self, ledger: Ledger, *, fence_ns: int, now: int) -> None:
        self.ledger = ledger
        self.fence_ns = fence_ns
        #: None until a desired state was taken up in this process.
        self.wanted: dict[RunKey, RunOrder] | None = None
        self.layouts: list[LayoutOrder] = []
        self.stopping: dict[RunKey, _Stopping] = {}
        self.fenced = False
        #: Sequence of the oldest desired state from which something may be started.
        self._oldest = 0
        self._confirmed_at: int | None = None
        self._silent_since = now
        self._pasts = Pasts(ledger, now)
        self._step = Step([], [], [])

    # ------------------------------------------------------------------ what happens

    def begin(self, *, boot_id: str, inventory: Inventory, found: dict[RunKey, Found], now: int, at_ns: int) -> Step:
        """The agent has started and looked at what the journal holds open. Always the first call."""
        rebooted = self.ledger.boot_id not in ("", boot_id)
        if self.ledger.boot_id != boot_id:
            self._record(Booted(boot_id=boot_id))
        # A cut that was begun under an earlier process is over: the inventory says how far it came.
        pending = self.ledger.cut if self.ledger.cut > self.ledger.cut_answered else 0
        self._report(InventorySeen(n=self._next(), boot_id=boot_id, inventory=inventory, plan=pending))
        for run in list(self.ledger.runs.values()):
            if rebooted and run.open:
                self._end(run.key, "node_rebooted", Exit(message="the node booted anew under the run"), True, at_ns)
            elif rebooted and run.phase == "ended":
                self._clean(run.key)
            elif run.open:
                self._resume(run, found.get(run.key, Found("lost")), at_ns)
        return self._take()

    def desired(self, desired: Desired, now: int, at_ns: int) -> Step:
        """The placer's list. One for another node, incarnation or boot, or of a lower sequence, changes nothing."""
        ledger = self.ledger
        if desired.node != ledger.node or desired.incarnation != ledger.incarnation:
            return self._take()
        if desired.boot_id not in ("", ledger.boot_id):
            return self._take()  # the placer does not know yet that the node has booted anew
        if desired.sequence < ledger.sequence:
            return self._take()
        if desired.sequence == ledger.sequence and self.wanted is not None:
            return self._take()
        self.wanted = {key_of(order): order for order in desired.runs}
        self.layouts = desired.layouts
        if desired.sequence > ledger.sequence:
            self._record(Took(sequence=desired.sequence))
            for run in [r for r in ledger.runs.values() if r.phase == "clean" and r.key not in self.wanted]:
                self._record(Forgot(job=run.key.job, attempt=run.key.attempt, rank=run.key.rank))
        self._reconcile(now, at_ns)
        return self._take()

    def confirmed(self, confirm: Confirm, now: int, at_ns: int) -> Step:
        """The placer has committed our reports up to a number, and renewed our lease, from the moment of the beat
        that it answers: it may have lain in a buffer while this process stood still. One for another incarnation
        does neither: that placer does not know us. One that does not fit our past ends the agent."""
        if confirm.node != self.ledger.node:
            return self._take()
        if reason := self._pasts.journal_went_back(confirm):
            if not self.ledger.condemned:
                self._record(Condemned(reason=reason))
            self._step.instructions.append(GiveUp(reason))
            return self._take()
        if reason := self._pasts.log_went_back(confirm, now):
            self._step.instructions.append(GiveUp(reason))
            return self._take()
        if confirm.incarnation != self.ledger.incarnation:
            return self._take()
        if confirm.through > self.ledger.confirmed and confirm.through <= self.ledger.reported:
            self._record(Confirmed(through=confirm.through))
        self._oldest = max(self._oldest, confirm.desired)
        # A beat of the future was one of an earlier boot, whose time began anew.
        if (self._confirmed_at or 0) < confirm.beat <= now and now - confirm.beat < self.fence_ns:
            had_lease = self.has_lease(now)
            self._confirmed_at = confirm.beat
            self._silent_since = max(self._silent_since, confirm.beat)
            self.fenced = False
            if not had_lease:
                self._reconcile(now, at_ns)
        return self._take()

    def started(self, key: RunKey, now: int, at_ns: int) -> Step:
        """A run's process or container runs."""
        run = self.ledger.runs.get(key)
        if run is not None and run.phase == "accepted":
            self._report(StartSeen(n=self._next(), job=key.job, attempt=key.attempt, rank=key.rank, at_ns=at_ns))
            stopping = self.stopping.get(key)
            if stopping is not None:  # the wish to end it came while it was starting
                stopping.kill_at = now + stopping.grace_ns
                self._step.instructions.append(TerminateRun(key))
        return self._take()

    def may_start(self, key: RunKey, now: int) -> bool:
        """Asked when an order's acceptance is durable, or its job file is here: that may have taken so long that the
        lease is over, or that it was told to stop. `not_started` is then what follows."""
        run = self.ledger.runs.get(key)
        return run is not None and run.phase == "accepted" and key not in self.stopping and self.has_lease(now)

    def not_started(self, key: RunKey, at_ns: int) -> Step:
        """A run that may not be started any more: nothing of it is there."""
        stopping = self.stopping.get(key)
        outcome: RunOutcome = stopping.outcome if stopping is not None else "node_lost"
        self._end(key, outcome, Exit(message="it could not be started in time"), True, at_ns)
        return self._take()

    def start_failed(self, key: RunKey, message: str, at_ns: int) -> Step:
        """A run could not be started; nothing of it is there."""
        self._end(key, "start_failed", Exit(message=message), True, at_ns)
        return self._take()

    def exited(self, key: RunKey, exit: Exit, clean: bool, at_ns: int) -> Step:
        """A run has ended. `clean`: with evidence that its devices are free."""
        stopping = self.stopping.get(key)
        outcome: RunOutcome = "exited" if exit.known else "exit_unknown"
        self._end(key, stopping.outcome if stopping is not None else outcome, exit, clean, at_ns)
        return self._take()

    def cleaned(self, key: RunKey) -> Step:
        """The devices of an ended run are free."""
        run = self.ledger.runs.get(key)
        if run is not None and run.phase == "ended":
            self._clean(key)
        return self._take()

    def was_cut(self, plan: int, failure: str, inventory: Inventory) -> Step:
        """A GPU was cut anew, or was not; what the node has now."""
        self._report(
            InventorySeen(
                n=self._next(), boot_id=self.ledger.boot_id, inventory=inventory, plan=plan, failure=failure[:1000]
            )
        )
        return self._take()

    def tick(self, now: int) -> Step:
        """Time has passed: graces end, and silence of the placer fences the node."""
        if not self.fenced and now - self._silent_since >= self.fence_ns:
            self.fenced = True
            for run in self.ledger.runs.values():
                if run.open:
                    self._stop(run, "node_lost", min(run.grace_ns, FENCE_GRACE_NS), now)
        for key, stopping in self.stopping.items():
            if stopping.kill_at <= now:
                stopping.kill_at = now + KILL_AGAIN_NS
                self._step.instructions.append(KillRun(key))
        return self._take()

    def wake_at(self) -> int | None:
        """When `tick` would do something, if nothing else happens."""
        times = [stopping.kill_at for stopping in self.stopping.values()]
        if not self.fenced:
            times.append(self._silent_since + self.fence_ns)
        return min(times, default=None)

    def has_lease(self, now: int) -> bool:
        """True while the placer's last word is younger than the fence: only then is anything started, since
        otherwise the placer may have given the work to another node."""
        return not self.fenced and self._confirmed_at is not None and now - self._confirmed_at < self.fence_ns

    @property
    def taken(self) -> int:
        """Sequence of the desired state that this process has taken up; 0 while it has none, whatever an earlier
        process took: the placer then writes it again, should the bucket hold an older one."""
        return self.ledger.sequence if self.wanted is not None else 0

    def dirty(self) -> list[RunEntry]:
        """Ended runs whose devices are not known to be free."""
        return [run for run in self.ledger.runs.values() if run.phase == "ended"]

    # ------------------------------------------------------------------ how it follows

    def _reconcile(self, now: int, at_ns: int) -> None:
        if self.wanted is None:
            return
        runs = self.ledger.runs
        lease = self.has_lease(now)
        for key, order in self.wanted.items():
            run = runs.get(key)
            if run is None:
                self._take_up(key, order, lease, at_ns)
            elif order.stop and run.open:
                self._stop(run, "stopped", order.grace_ns, now)
        for key, run in runs.items():
            if run.open and key not in self.wanted:
                self._stop(run, "stopped", run.grace_ns, now)
        if lease and self.ledger.sequence >= self._oldest:
            for order in self.layouts:
                if order.plan > self.ledger.cut:
                    self._record(Cut(plan=order.plan))
                    self._step.instructions.append(CutGpu(order, self._in_use(order)))

    def _in_use(self, order: LayoutOrder) -> str:
        """Which run uses what the order takes away, "" where none does; the placer has not ordered that knowingly."""
        going = {each.uuid for each in order.destroy}
        for run in self.ledger.runs.values():
            if run.phase != "clean" and (going & set(run.devices) or (order.mode and order.gpu in run.gpus)):
                return f"it is in use by {run.key.name}"
        return ""

    def _take_up(self, key: RunKey, order: RunOrder, lease: bool, at_ns: int) -> None:
        if (not lease or self.ledger.sequence < self._oldest) and not order.stop:
            return  # looked at again when the lease is back, or a newer desired state is here
        accepted = Accepted(
            job=key.job, attempt=key.attempt, rank=key.rank, epoch=order.epoch, gpus=order.gpus, grace_ns=order.grace_ns,
            instances=order.instances,
        )  # fmt: skip
        self._record(accepted)
        if order.stop:
            self._end(key, "stopped", Exit(message="was asked to stop before it was started"), True, at_ns)
        else:
            self._step.instructions.append(StartRun(order))

    def _resume(self, run: RunEntry, found: Found, at_ns: int) -> None:
        key = run.key
        if run.phase == "accepted" and found.state in ("running", "ended"):
            self._report(StartSeen(n=self._next(), job=key.job, attempt=key.attempt, rank=key.rank, at_ns=at_ns))
        match found.state:
            case "running":
                pass
            case "ended":
                self._end(key, "exited" if found.exit.known else "exit_unknown", found.exit, found.clean, at_ns)
            case "never":
                message = found.exit.message or "the agent ended before it could start the run"
                self._end(key, "start_failed", Exit(message=message), True, at_ns)
            case "lost":
                message = found.exit.message or "it ended while the agent was away"
                self._end(key, "exit_unknown", Exit(message=message), found.clean, at_ns)

    def _stop(self, run: RunEntry, outcome: RunOutcome, grace_ns: int, now: int) -> None:
        if run.key in self.stopping:
            return
        self.stopping[run.key] = _Stopping(outcome, grace_ns, now)
        self._step.instructions.append(TerminateRun(run.key))

    def _end(self, key: RunKey, outcome: RunOutcome, exit: Exit, clean: bool, at_ns: int) -> None:
        run = self.ledger.runs.get(key)
        if run is None or not run.open:
            return  # an end is said once
        self.stopping.pop(key, None)
        seen = ExitSeen(
            n=self._next(), job=key.job, attempt=key.attempt, rank=key.rank, outcome=outcome, exit_code=exit.code,
            signal=exit.signal, message=exit.message[:1000], clean=clean, at_ns=at_ns,
        )  # fmt: skip
        self._report(seen)

    def _clean(self, key: RunKey) -> None:
        self._report(CleanSeen(n=self._next(), job=key.job, attempt=key.attempt, rank=key.rank))

    def _next(self) -> int:
        return self.ledger.reported + 1

    def _report(self, report: Report) -> None:
        self._record(Reported(report=report))
        self._step.reports.append(report)

    def _record(self, record: Record) -> None:
        self.ledger.apply(record)
        self._step.records.append(record)

    def _take(self) -> Step:
        step, self._step = self._step, Step([], [], [])
        return step
