"""The agent's core: what should be on the node against what is. Pure: no I/O, clock, random or bus.

Every method takes one thing that happened and returns a `Step`: records to journal, then
instructions to carry out and reports to send once those records are durable, never before.
Start at `Reconciler.desired`. Times are monotonic nanoseconds (`now`) but for `at_ns`, the wall
clock that reports carry for people.
"""

from collections.abc import Iterable

import msgspec

from fairlead_agent.instructions import CutGpu, GiveUp, KillRun, NoticeRun, StartRun, Step, TerminateRun
from fairlead_agent.lease import NEVER_NS, STOP_AFTER_LEAST_NS
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
from fairlead_agent.run import Exit, Found, RunKey, Word, key_of
from fairlead_agent.stopping import FENCE_GRACE_NS, SECOND_NS, SHARE_GRACE_NS, Stopping, fenced_times
from fairlead_schemas.desired import Desired, LayoutOrder, RunOrder
from fairlead_schemas.events import RunOutcome, StartFault
from fairlead_schemas.reports import (
    IMAGE_CHARS_MAX,
    CheckpointSeen,
    CleanSeen,
    Confirm,
    ExitSeen,
    HealthSeen,
    InventorySeen,
    Report,
    StartSeen,
)
from fairlead_schemas.resources import Inventory

#: Words of one run that its work is saved are reported this often at most, the newest of them.
WORD_EVERY_NS = 10 * SECOND_NS


class Reconciler:
    """Desired state, journal and runs of one node, and the lease that lets it start anything."""

    def __init__(
        self, ledger: Ledger, *, fence_ns: int, now: int, grace_ns: int = FENCE_GRACE_NS, renewed: int | None = None
    ) -> None:  # fmt: skip
        """`renewed`: when an earlier process of this boot had its lease renewed last (lease_file.py). An agent that
        starts again, and again, must not give its work another while each time."""
        self.ledger = ledger
        self.fence_ns = fence_ns
        self.fence_grace_ns = grace_ns
        #: None until a desired state was taken up in this process.
        self.wanted: dict[RunKey, RunOrder] | None = None
        self.layouts: list[LayoutOrder] = []
        self.stopping: dict[RunKey, Stopping] = {}
        #: {run: when its newest word was reported}
        self._words: dict[RunKey, int] = {}
        self.fenced = False
        #: Sequence of the oldest desired state from which something may be started.
        self._oldest = 0
        self._confirmed_at: int | None = None
        self._silent_since = now if renewed is None else min(now, renewed)
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

    def started(self, key: RunKey, now: int, at_ns: int, image: str = "") -> Step:
        """A run's process or container runs; `image`: what it was made of, by its digest."""
        run = self.ledger.runs.get(key)
        if run is not None and run.phase == "accepted":
            self._report_start(key, image, at_ns)
            stopping = self.stopping.get(key)
            if stopping is not None:  # the wish to end it came while it was starting
                self._terminate(key, stopping, now)
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

    def start_failed(self, key: RunKey, message: str, at_ns: int, fault: StartFault = "") -> Step:
        """A run could not be started, or was told to stop before it was; nothing of it is there."""
        stopping = self.stopping.get(key)
        if stopping is not None:
            self._end(key, stopping.outcome, Exit(message=message), True, at_ns)
        else:
            self._end(key, "start_failed", Exit(message=message), True, at_ns, fault)
        return self._take()

    def said(self, key: RunKey, word: Word, now: int) -> Step:
        """A run's word that its work is saved, as it lies there. One that answers a notice ends it; of the others, one
        that comes soon after the last is passed over: it lies there the next time, too, unless a newer one does."""
        run, stopping = self.ledger.runs.get(key), self.stopping.get(key)
        if run is not None and run.phase == "running" and word.stamp != run.saved:
            if stopping is not None and stopping.is_answered_by(word):
                self._say(run, word, now)
                self._terminate(key, stopping, now)
            elif now - self._words.get(key, -WORD_EVERY_NS) >= WORD_EVERY_NS:
                self._say(run, word, now)
        return self._take()

    def told(self, key: RunKey, word: Word | None, now: int) -> Step:
        """A run is told now that its end is near (NoticeRun); `word`: its newest before that."""
        run, stopping = self.ledger.runs.get(key), self.stopping.get(key)
        if run is not None and stopping is not None:
            if word is not None and word.stamp != run.saved:
                self._say(run, word, now)
            stopping.told(run.saved)
        return self._take()

    def command_ended(self, key: RunKey, saved: bool, now: int) -> Step:
        """The command that a run was told by has ended, with success or without: so has its notice. Of a gang, only
        rank 0's speaks for all: the others go on until the placer says so."""
        run, stopping = self.ledger.runs.get(key), self.stopping.get(key)
        if run is not None and stopping is not None and stopping.in_notice and key.rank == 0:
            if saved:
                self._say(run, Word(run.saved), now, noticed=True)
            self._terminate(key, stopping, now)
        return self._take()

    def exited(self, key: RunKey, exit: Exit, clean: bool, at_ns: int, word: Word | None = None) -> Step:
        """A run has ended. `clean`: with evidence that its devices are free; `word`: its last that its work is saved."""
        stopping = self.stopping.get(key)
        if word is not None and (run := self.ledger.runs.get(key)) is not None and run.open:
            self._say_last(run, word)
        outcome: RunOutcome = _outcome_of(exit)
        if stopping is not None:
            outcome, exit = stopping.outcome, exit._replace(message=stopping.message or exit.message)
        self._end(key, outcome, exit, clean, at_ns)
        return self._take()

    def over_share(self, key: RunKey, message: str, now: int) -> Step:
        """A run uses more of a GPU than its share: it ends, alone."""
        run = self.ledger.runs.get(key)
        if run is not None and run.open:
            self._stop(run, "gpu_memory", "gpu_memory", 0, min(run.grace_ns, SHARE_GRACE_NS), now, message)
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

    def ailed(self, seen: Iterable[HealthSeen]) -> Step:
        """Something is not well, or is again (their numbers are given here)."""
        for each in seen:
            self._report(msgspec.structs.replace(each, n=self._next()))
        return self._take()

    def unfit(self, key: RunKey, message: str, at_ns: int, blames: int | None = None) -> Step:
        """A run was not started, because this node has failed the check before it, or that of the rank that is blamed;
        nothing of it is there."""
        self._end(key, "preflight", Exit(message=message), True, at_ns, blames=blames)
        return self._take()

    def changed(self, inventory: Inventory) -> Step:
        """The node says something else of itself than before."""
        self._report(InventorySeen(n=self._next(), boot_id=self.ledger.boot_id, inventory=inventory))
        return self._take()

    def tick(self, now: int) -> Step:
        """Time has passed: graces end, and silence of the placer fences the node."""
        self._fence(now)
        for key, stopping in self.stopping.items():
            if stopping.wake_at > now:
                continue
            if stopping.in_notice:
                self._terminate(key, stopping, now)
            else:
                stopping.killed(now)
                self._step.instructions.append(KillRun(key))
        return self._take()

    def wake_at(self) -> int | None:
        """When `tick` would do something, if nothing else happens."""
        times = [stopping.wake_at for stopping in self.stopping.values()]
        if not self.fenced:
            times.append(self._silent_since + self.fence_ns)
        times += [
            self._silent_since + run.stop_after_ns
            for run in self.ledger.runs.values()
            if run.stop_after_ns > 0 and run.open and run.key not in self.stopping
        ]
        return min(times, default=None)

    def has_lease(self, now: int) -> bool:
        """True while the placer's last word is younger than the fence: only then is anything started, since
        otherwise the placer may have given the work to another node."""
        return not self.fenced and self._confirmed_at is not None and now - self._confirmed_at < self.fence_ns

    @property
    def renewed(self) -> int:
        """The moment that the placer's last word was about; before the first one, of this start or an earlier one."""
        return self._silent_since

    @property
    def taken(self) -> int:
        """Sequence of the desired state that this process has taken up; 0 while it has none, whatever an earlier
        process took: the placer then writes it again, should the bucket hold an older one."""
        return self.ledger.sequence if self.wanted is not None else 0

    def dirty(self) -> list[RunEntry]:
        """Ended runs whose devices are not known to be free."""
        return [run for run in self.ledger.runs.values() if run.phase == "ended"]

    # ------------------------------------------------------------------ how it follows

    def _fence(self, now: int) -> None:
        """Nothing is started without a lease; each run ends when its own time without one is over."""
        silence = now - self._silent_since
        self.fenced = self.fenced or silence >= self.fence_ns
        for run in self.ledger.runs.values() if silence >= min(self.fence_ns, STOP_AFTER_LEAST_NS) else ():
            after = run.stop_after_ns or self.fence_ns
            if run.open and after != NEVER_NS and silence >= after:
                self._cut_off(run, silence - after, now)  # late after a sleep, say

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
                self._stop(run, "stopped", order.stop, order.notice_ns, order.grace_ns, now)
        for key, run in runs.items():
            if run.open and key not in self.wanted:
                self._stop(run, "stopped", "", 0, run.grace_ns, now)
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
            instances=order.instances, stop_after_ns=order.stop_after_ns, checkpoint=order.checkpoint,
        )  # fmt: skip
        self._record(accepted)
        if order.stop:
            self._end(key, "stopped", Exit(message="was asked to stop before it was started"), True, at_ns)
        else:
            self._step.instructions.append(StartRun(order))

    def _resume(self, run: RunEntry, found: Found, at_ns: int) -> None:
        key = run.key
        if run.phase == "accepted" and found.state in ("running", "ended"):
            self._report_start(key, found.image, at_ns)
        if found.word is not None and found.state != "running":
            self._say_last(run, found.word)
        match found.state:
            case "running":
                pass
            case "ended":
                self._end(key, _outcome_of(found.exit), found.exit, found.clean, at_ns)
            case "never":
                message = found.exit.message or "the agent ended before it could start the run"
                self._end(key, "start_failed", Exit(message=message), True, at_ns)
            case "lost":
                message = found.exit.message or "it ended while the agent was away"
                outcome: RunOutcome = "node_lost" if found.exit.fenced else "exit_unknown"
                self._end(key, outcome, Exit(message=message), found.clean, at_ns)

    def _stop(
        self, run: RunEntry, outcome: RunOutcome, reason: str, notice_ns: int, grace_ns: int, now: int, message: str = ""
    ) -> None:  # fmt: skip
        """Begin its end. Asked again while its notice runs, without one: the notice is over."""
        stopping = self.stopping.get(run.key)
        if stopping is not None:
            if stopping.in_notice and not notice_ns:
                self._terminate(run.key, stopping, now)
            return
        told = run.checkpoint if run.checkpoint is not None and run.checkpoint.is_told else None
        if told is None or run.phase != "running":
            notice_ns = 0
        self.stopping[run.key] = Stopping(outcome, grace_ns, now, notice_ns, message)
        if notice_ns and told is not None:
            self._step.instructions.append(NoticeRun(run.key, told, reason))
        else:
            self._step.instructions.append(TerminateRun(run.key))

    def _cut_off(self, run: RunEntry, late_ns: int, now: int) -> None:
        """Its end comes in time for the other side, notice and grace together; what was noticed late is taken off them."""
        stopping = self.stopping.get(run.key)
        if stopping is None:
            told_ns = run.checkpoint.notice_ns if run.checkpoint else 0
            notice_ns, grace_ns = fenced_times(told_ns, run.grace_ns, self.fence_grace_ns)
            grace_ns = max(0, grace_ns - max(0, late_ns - notice_ns))
            self._stop(run, "node_lost", "node_lost", max(0, notice_ns - late_ns), grace_ns, now)
            self.stopping[run.key].fenced = True
        elif not stopping.fenced and stopping.fence(now, max(0, self.fence_grace_ns - late_ns)):
            self._step.instructions.append(TerminateRun(run.key))

    def _terminate(self, key: RunKey, stopping: Stopping, now: int) -> None:
        stopping.terminate(now)
        self._step.instructions.append(TerminateRun(key))

    def _say(self, run: RunEntry, word: Word, now: int, *, noticed: bool = False) -> None:
        self._words[run.key] = now
        stopping = self.stopping.get(run.key)
        noticed = noticed or (stopping is not None and stopping.is_answered_by(word))
        key = run.key
        self._report(
            CheckpointSeen(
                n=self._next(), job=key.job, attempt=key.attempt, rank=key.rank, at_ns=word.stamp, note=word.note,
                noticed=noticed,
            )
        )  # fmt: skip

    def _say_last(self, run: RunEntry, word: Word) -> None:
        """What it said just before its end, which comes next."""
        if run.checkpoint is not None and word.stamp != run.saved:
            self._say(run, word, self._words.get(run.key, 0))

    def _end(
        self,
        key: RunKey,
        outcome: RunOutcome,
        exit: Exit,
        clean: bool,
        at_ns: int,
        fault: StartFault = "",
        blames: int | None = None,
    ) -> None:
        run = self.ledger.runs.get(key)
        if run is None or not run.open:
            return  # an end is said once
        self.stopping.pop(key, None)
        self._words.pop(key, None)
        seen = ExitSeen(
            n=self._next(), job=key.job, attempt=key.attempt, rank=key.rank, outcome=outcome, exit_code=exit.code,
            signal=exit.signal, message=exit.message[:1000], clean=clean, at_ns=at_ns, fault=fault, blames=blames,
        )  # fmt: skip
        self._report(seen)

    def _report_start(self, key: RunKey, image: str, at_ns: int) -> None:
        seen = StartSeen(
            n=self._next(), job=key.job, attempt=key.attempt, rank=key.rank, image=image[:IMAGE_CHARS_MAX], at_ns=at_ns
        )
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


def _outcome_of(exit: Exit) -> RunOutcome:
    """Of a run that nobody here has stopped."""
    if exit.fenced:
        return "node_lost"
    return "exited" if exit.known else "exit_unknown"
