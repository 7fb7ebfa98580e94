"""Core of the agent: desired state of the node against its actual state, the repartitions that the placer has ordered included. Pure: no I/O,
clock, random or bus.

Every method takes one event and returns a `Step`: records to journal, then instructions to carry out and reports to
send once those records are durable, never before. Start at `Reconciler.desired`. Its parts: `steps.py` collects the
step, `placer_lease.py` knows the lease, `run_start.py` has runs started, `run_stop.py` brings them to their end,
`checkpoint_reports.py` tracks that they have saved, and this module has GPUs repartitioned. Times are monotonic nanoseconds (`now`)
except for `at_ns`, the wall clock that reports carry for people.

Each plan of a repartition runs once, and never removes anything that a run uses.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from fairlead_agent.core.checkpoint_reports import CheckpointReports
from fairlead_agent.core.divergence import REMOVED, Divergence
from fairlead_agent.core.ledger import Booted, Condemned, Confirmed, Cut, Forgot, Ledger, RunEntry, Signalled, Took
from fairlead_agent.core.placer_lease import PlacerLease
from fairlead_agent.core.run_start import RunStart
from fairlead_agent.core.run_stop import FENCE_GRACE_NS, SHARE_GRACE_NS, START_NS, RunStop, Stopping
from fairlead_agent.core.runs import CheckpointMark, Exit, Found, RunKey, key_of
from fairlead_agent.core.steps import Draft, GiveUp, RepartitionGpu, SignalRun, Step
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.desired import Desired, LayoutOrder, RunOrder
from fairlead_schemas.wire.events import StartFault
from fairlead_schemas.wire.reports import AppSeen, HealthSeen, InventorySeen, ReportAck
from fairlead_schemas.wire.resources import Inventory


def begin(draft: Draft, layouts: Iterable[LayoutOrder]) -> None:
    """Begin the orders that are newer than the newest one begun."""
    for order in layouts:
        if order.plan > draft.ledger.cut:
            draft.record(Cut(plan=order.plan))
            draft.ask(RepartitionGpu(order, _in_use(draft.ledger, order)))


def pending(ledger: Ledger) -> int:
    """A plan that was begun under an earlier process and not answered; it is over, and the inventory says how far it came. 0: none."""
    return ledger.cut if ledger.cut > ledger.cut_answered else 0


def _in_use(ledger: Ledger, order: LayoutOrder) -> str:
    """Return the reason for which the order would remove devices in use, "" if none are. The placer does not order
    this knowingly.
    """
    going = {each.uuid for each in order.destroy}
    for run in ledger.runs.values():
        if run.phase != "clean" and (going & set(run.devices) or (order.mode and order.gpu in run.gpus)):
            return f"it is in use by {run.key.name}"
    return ""


class Reconciler:
    """Desired state, journal and runs of one node, and the lease that lets it start anything."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        fence_ns: int,
        now: int,
        grace_ns: int = FENCE_GRACE_NS,
        renewed: int | None = None,
        start_ns: int = START_NS,
    ) -> None:
        """`grace_ns`: of runs that a fence ends; `renewed`: the lease of an earlier process (`PlacerLease`); `start_ns`: how
        long an order may take to begin."""
        self.ledger = ledger
        #: None until a desired state was taken up in this process.
        self.wanted: dict[RunKey, RunOrder] | None = None
        self.layouts: list[LayoutOrder] = []
        #: Sequence of the oldest desired state from which something may be started.
        self._oldest = 0
        self._draft = Draft(ledger)
        self._divergence = Divergence(ledger, now)
        self._start_ns = start_ns
        self._placer_lease = PlacerLease(fence_ns, now, renewed)
        self._run_stop = RunStop(self._draft, grace_ns)
        self._checkpoint_reports = CheckpointReports(self._draft, self._run_stop)
        self._run_start = RunStart(self._draft, self._run_stop, self._checkpoint_reports, start_ns)

    # ------------------------------------------------------------------ what the placer says

    def begin(self, *, boot_id: str, inventory: Inventory, found: dict[RunKey, Found], now: int, at_ns: int) -> Step:
        """The agent has started and looked at what the journal holds open. Always the first call."""
        rebooted = self.ledger.boot_id not in ("", boot_id)
        if self.ledger.boot_id != boot_id:
            self._draft.record(Booted(boot_id=boot_id))
        self._introduce(inventory, plan=pending(self.ledger))
        for run in self.ledger.runs.values():
            if rebooted:
                self._run_start.booted(run, at_ns)
            elif run.open:
                self._run_start.resume(run, found.get(run.key, Found("lost")), at_ns)
        return self._draft.take()

    def desired(self, desired: Desired, now: int, at_ns: int) -> Step:
        """The placer's list. One for another node, incarnation or boot, or of a lower sequence, changes nothing."""
        ledger = self.ledger
        if desired.node != ledger.node or desired.incarnation != ledger.incarnation:
            return self._draft.take()
        if desired.boot_id not in ("", ledger.boot_id):
            return self._draft.take()  # the placer does not know yet that the node has rebooted
        if desired.sequence < ledger.sequence:
            return self._draft.take()
        if desired.sequence == ledger.sequence and self.wanted is not None:
            return self._draft.take()
        self.wanted = {key_of(order): order for order in desired.runs}
        self.layouts = desired.layouts
        if desired.sequence > ledger.sequence:
            self._draft.record(Took(sequence=desired.sequence))
            for run in [r for r in ledger.runs.values() if r.phase == "clean" and r.key not in self.wanted]:
                self._draft.record(Forgot(job=run.key.job, attempt=run.key.attempt, rank=run.key.rank))
        self._reconcile(now, at_ns)
        return self._draft.take()

    def confirmed(self, confirm: ReportAck, now: int, at_ns: int) -> Step:
        """The placer has committed our reports up to a number, and renewed our lease, from the moment of the beat
        that it answers: it may have lain in a buffer while this process stood still. One for another incarnation
        does neither: that placer does not know us. One that does not fit our past ends the agent."""
        ledger = self.ledger
        if confirm.node != ledger.node:
            return self._draft.take()
        if confirm.removed == ledger.incarnation:
            self._draft.ask(GiveUp(REMOVED, removed=True))
            return self._draft.take()
        if reason := self._divergence.journal_went_back(confirm):
            if not ledger.condemned:
                self._draft.record(Condemned(reason=reason))
            self._draft.ask(GiveUp(reason))
            return self._draft.take()
        if reason := self._divergence.log_went_back(confirm, now):
            self._draft.ask(GiveUp(reason))
            return self._draft.take()
        if confirm.incarnation != ledger.incarnation:
            return self._draft.take()
        if ledger.confirmed < confirm.through <= ledger.reported:
            self._draft.record(Confirmed(through=confirm.through))
        self._oldest = max(self._oldest, confirm.desired)
        if self._placer_lease.broken(confirm.beat, now):
            self._reconcile(now, at_ns)
        return self._draft.take()

    # ------------------------------------------------------------------ what becomes of runs

    def may_start(self, key: RunKey, now: int) -> bool:
        """Return True if the accepted run may still be started.

        Called when an order's acceptance is durable, or its job file is here. That may have taken so long that the lease is
        over or a stop was ordered. After False the caller must call `not_started`.
        """
        run = self.ledger.runs.get(key)
        return run is not None and run.phase == "accepted" and key not in self.stopping and self.has_lease(now)

    def not_started(self, key: RunKey, at_ns: int) -> Step:
        """A run that may not be started any more: nothing of it is there."""
        self._run_stop.never_began(key, "node_lost", "it could not be started in time", at_ns)
        return self._draft.take()

    def start_failed(self, key: RunKey, message: str, at_ns: int, fault: StartFault = "") -> Step:
        """Record that a run could not be started, or was ordered to stop before its start. No part of it is left."""
        self._run_stop.never_began(key, "start_failed", message, at_ns, fault)
        return self._draft.take()

    def unfit(self, key: RunKey, message: str, at_ns: int, blames: int | None = None) -> Step:
        """A run was not started, because this node has failed the check before it, or that of the rank that is blamed;
        nothing of it is there."""
        self._run_stop.end(key, "preflight", Exit(message=message), True, at_ns, blames=blames)
        return self._draft.take()

    def started(self, key: RunKey, now: int, at_ns: int, image: str = "") -> Step:
        """A run's process or container runs; `image`: what it was made of, by its digest."""
        run = self.ledger.runs.get(key)
        if run is not None and run.phase == "accepted":
            self._run_start.started(key, image, at_ns, now)
            self._run_stop.terminate(key, now)  # for a stop that was requested while it was starting
            order = (self.wanted or {}).get(key)
            if order is not None:
                self._signal(run, order)
        return self._draft.take()

    def exited(
        self, key: RunKey, exit: Exit, clean: bool, at_ns: int, mark: CheckpointMark | None = None, *, now: int = 0
    ) -> Step:
        """Record that a run has ended at `now` (0: the time is unknown).

        `clean`: there is evidence that its devices are free; `mark`: its last report that its work is saved.
        """
        run = self.ledger.runs.get(key)
        if mark is not None and run is not None and run.open:
            self._checkpoint_reports.last(run, mark)
        self._run_stop.ended(key, exit, clean, at_ns, now)
        self._checkpoint_reports.forget(key)
        return self._draft.take()

    def cleaned(self, key: RunKey) -> Step:
        """The devices of an ended run are free."""
        run = self.ledger.runs.get(key)
        if run is not None and run.phase == "ended":
            self._run_stop.clean(key)
        return self._draft.take()

    def over_share(self, key: RunKey, message: str, now: int) -> Step:
        """A run uses more of a GPU than its share: it ends, alone."""
        run = self.ledger.runs.get(key)
        if run is not None and run.open:
            self._run_stop.stop(run, "gpu_memory", "gpu_memory", 0, min(run.grace_ns, SHARE_GRACE_NS), now, message)
        return self._draft.take()

    def not_alive(self, key: RunKey, message: str, now: int) -> Step:
        """The application of a run is dead: the run ends, as if its program had crashed."""
        run = self.ledger.runs.get(key)
        if run is not None and run.open:
            self._run_stop.stop(run, "exited", "not_alive", 0, min(run.grace_ns, SHARE_GRACE_NS), now, message)
        return self._draft.take()

    def checkpoint_marked(self, key: RunKey, mark: CheckpointMark, now: int) -> Step:
        """Record a run's report that its work is saved. The same report may come again and again."""
        self._checkpoint_reports.marked(key, mark, now)
        return self._draft.take()

    def app_serves(self, key: RunKey, at_ns: int) -> Step:
        """Record that a run's application serves. The first word counts."""
        run = self.ledger.runs.get(key)
        if run is not None and run.phase == "running" and not run.app_ready and not key.rank:
            self._draft.report(AppSeen(n=self._draft.n, job=key.job, attempt=key.attempt, rank=key.rank, at_ns=at_ns))
        return self._draft.take()

    def noticed(self, key: RunKey, mark: CheckpointMark | None, now: int) -> Step:
        """Record that a run is notified now that its end is near (NoticeRun). `mark`: its newest save report before that."""
        self._checkpoint_reports.noticed(key, mark, now)
        return self._draft.take()

    def notice_command_ended(self, key: RunKey, saved: bool, now: int) -> Step:
        """Record that the command that notified a run has ended, with success or without."""
        self._checkpoint_reports.command_ended(key, saved, now)
        return self._draft.take()

    # ------------------------------------------------------------------ what becomes of the node

    def was_cut(self, plan: int, failure: str, inventory: Inventory) -> Step:
        """Record the result of cutting a GPU, "" or a failure, and the node's inventory after it."""
        self._introduce(inventory, plan=plan, failure=failure)
        return self._draft.take()

    def changed(self, inventory: Inventory) -> Step:
        """The node says something else of itself than before."""
        self._introduce(inventory)
        return self._draft.take()

    def ailed(self, seen: Iterable[HealthSeen]) -> Step:
        """Something is not well, or is again (their numbers are given here)."""
        for each in seen:
            self._draft.report(msgspec.structs.replace(each, n=self._draft.n))
        return self._draft.take()

    def tick(self, now: int) -> Step:
        """Time has passed: graces end, and silence of the placer fences the node."""
        for run, late_ns in self._placer_lease.over_for(self.ledger.runs.values(), now):
            self._run_stop.cut_off(run, late_ns, now)
        for run, order in self._held_back():
            if not self._is_early(run, order, now):
                self._run_stop.stop(run, "stopped", order.stop, order.notice_ns, order.grace_ns, now)
        for run in self._run_start.late(now):
            message = f"it had not begun {self._start_ns // SECOND_NS} s after its order (FAIRLEAD_START_S)"
            self._run_stop.stop(run, "start_failed", "", 0, 0, now, message)
        self._run_stop.tick(now)
        return self._draft.take()

    # ------------------------------------------------------------------ what it knows

    def wake_at(self) -> int | None:
        """Return the time of the next `tick` that would have an effect without other events; None if there is none."""
        times = [stopping.wake_at for stopping in self.stopping.values()]
        if (due_at := self._run_start.due_at) is not None:
            times.append(due_at)
        times += self._placer_lease.wake_at(run for run in self.ledger.runs.values() if run.key not in self.stopping)
        times += [run.began_ns + order.ran_ns for run, order in self._held_back()]
        return min(times, default=None)

    def has_lease(self, now: int) -> bool:
        """True while something may be started (`PlacerLease.has_lease`)."""
        return self._placer_lease.has_lease(now)

    @property
    def fenced(self) -> bool:
        """True while no run is started, until the placer answers again."""
        return self._placer_lease.fenced

    @property
    def renewed(self) -> int:
        """The moment that the placer's last word was about; before the first one, of this start or an earlier one."""
        return self._placer_lease.since

    @property
    def stopping(self) -> Mapping[RunKey, Stopping]:
        """Runs that are being stopped and have not ended."""
        return self._run_stop.stopping

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
        may_begin = self.has_lease(now) and self.ledger.sequence >= self._oldest
        for key, order in self.wanted.items():
            run = runs.get(key)
            if run is None:
                self._run_start.take_up(order, may_begin=may_begin, now=now, at_ns=at_ns)
            elif order.stop and run.open and not self._is_early(run, order, now):
                self._run_stop.stop(run, "stopped", order.stop, order.notice_ns, order.grace_ns, now)
            else:
                self._signal(run, order)
        for key, run in runs.items():
            if run.open and key not in self.wanted:
                self._run_stop.stop(run, "stopped", "", 0, run.grace_ns, now)
        if may_begin:
            begin(self._draft, self.layouts)

    def _signal(self, run: RunEntry, order: RunOrder) -> None:
        """Send the signals of the order that were not sent yet. Each is journalled first: after a crash between the two it is lost,
        never sent twice, because a second one could end a program that handles the first."""
        if run.phase != "running" or run.key in self.stopping:
            return
        job, attempt, rank = run.key
        for number, name in order.signals:
            if number > run.signalled:
                self._draft.record(Signalled(job=job, attempt=attempt, rank=rank, number=number))
                self._draft.ask(SignalRun(run.key, name))

    def _held_back(self) -> Iterator[tuple[RunEntry, RunOrder]]:
        """Runs with an order to stop for a time limit that they have not reached by this node's own clock."""
        for key, order in (self.wanted or {}).items():
            if order.ran_ns and order.stop and key not in self.stopping:
                run = self.ledger.runs.get(key)
                if run is not None and run.phase == "running" and run.began_ns:
                    yield run, order

    def _is_early(self, run: RunEntry, order: RunOrder, now: int) -> bool:
        """True where a time limit is not reached yet: the clock of the service that found so had been set."""
        return run.phase == "running" and bool(run.began_ns) and run.ran_ns(now) < order.ran_ns

    def _introduce(self, inventory: Inventory, *, plan: int = 0, failure: str = "") -> None:
        self._draft.report(
            InventorySeen(
                n=self._draft.n, boot_id=self.ledger.boot_id, inventory=inventory, plan=plan, failure=failure[:1000]
            )
        )
