"""State of idle runs, as telemetry reports it: policies by scope, runs that were warned, asked back or extended, and
what dry runs would have saved.

A run's idle state ends with its attempt. The request by which a run was taken back stays with the job
(`reclaimed`), for `why`.
"""

import msgspec

from fairlead_gateway.views.jobs import JobsView
from fairlead_gateway.views.rows import DryRunSavings, IdlePolicies, IdleReport, JobRow, SimulatedReclaim
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev

_TELLS_ONLY = ("note", "warn")


class IdleView:
    """Policies, savings, and each row's standing."""

    def __init__(self, jobs: JobsView) -> None:
        self._jobs = jobs
        self.policies: dict[str, IdlePolicies] = {}
        #: By scope, rule and action, in the order in which they were seen first.
        self.savings: dict[tuple[str, str, str], DryRunSavings] = {}
        #: Jobs that lie idle or are foreseen as such (derived).
        self.idle: dict[str, None] = {}
        self.handlers = {
            ev.IdlePoliciesSet: self._policies_set,
            ev.JobIdle: self._idle,
            ev.LeaseShrunk: self._lease_shrunk,
            ev.ReclaimRequested: self._reclaim_requested,
            ev.ReclaimSimulated: self._foreseen,
            ev.JobActive: self._active,
            ev.JobExtended: self._extended,
            ev.JobStopRequested: self._stop_requested,
            ev.PreemptionStarted: self._preemption_started,
            ev.RunEnded: self._run_ended,
            ev.JobRequeued: self._requeued,
        }

    def restore(self, policies: list[IdlePolicies], savings: list[DryRunSavings]) -> None:
        """From a snapshot; rows have been read already."""
        self.policies.update((each.scope, each) for each in policies)
        self.savings.update(((each.scope, each.rule, each.action), each) for each in savings)
        self.idle.update((row.id, None) for row in self._jobs.rows.values() if row.idle or row.foreseen)

    def _row(self, job: str, attempt: int) -> JobRow | None:
        """The run that is meant, if it is the current one and has not ended."""
        row = self._jobs.rows.get(job)
        return None if row is None or row.attempt != attempt or row.run_ended or not row.placed_ns else row

    def _policies_set(self, e: ev.IdlePoliciesSet, seq: int, at_ns: int) -> None:
        self.policies.pop(e.scope, None)
        if e.policies:
            self.policies[e.scope] = IdlePolicies(e.scope, e.policies, e.by, seq, at_ns)

    def _idle(self, e: ev.JobIdle, seq: int, at_ns: int) -> None:
        row = self._row(e.job, e.attempt)
        if row is not None:
            seen = IdleReport(seq, e.scope, e.rule, e.action, e.mode, e.since_ns, at_ns, e.reclaim_at_ns, 0, e.evidence)
            self._set(row, (*_others(row, e.rule), seen))

    def _lease_shrunk(self, e: ev.LeaseShrunk, _seq: int, _at_ns: int) -> None:
        row = self._row(e.job, e.attempt)
        if row is not None:
            changed = [
                msgspec.structs.replace(seen, reclaim_at_ns=e.until_ns) if seen.rule == e.rule else seen
                for seen in row.idle
            ]
            self._set(row, tuple(changed))

    def _reclaim_requested(self, e: ev.ReclaimRequested, seq: int, at_ns: int) -> None:
        row = self._row(e.job, e.attempt)
        if row is None or e.action in _TELLS_ONLY:
            return
        before = next((seen for seen in row.idle if seen.rule == e.rule), None)
        reclaim_at_ns = before.reclaim_at_ns if before is not None else at_ns
        mode = "on_demand" if e.on_demand else "always"
        seen = IdleReport(seq, e.scope, e.rule, e.action, mode, e.since_ns, at_ns, reclaim_at_ns, at_ns, e.evidence)
        self._set(row, (*_others(row, e.rule), seen))

    def _active(self, e: ev.JobActive, _seq: int, at_ns: int) -> None:
        row = self._row(e.job, e.attempt)
        if row is not None:
            self._save(row, at_ns, e.rule, came_alive=e.reason == "active")
            self._set(row, _others(row, e.rule))

    def _extended(self, e: ev.JobExtended, _seq: int, at_ns: int) -> None:
        row = self._row(e.job, e.attempt)
        if row is not None:
            row.extended_until_ns, row.extensions = e.until_ns, e.count
            self._save(row, at_ns)
            self._set(row, ())

    # ------------------------------------------------------------------ what is taken back

    def _stop_requested(self, e: ev.JobStopRequested, _seq: int, _at_ns: int) -> None:
        if e.reason == "idle":
            self._taken_back(self._jobs.rows[e.job])

    def _preemption_started(self, e: ev.PreemptionStarted, _seq: int, _at_ns: int) -> None:
        row = self._jobs.rows.get(e.job)
        if e.rule != "idle" or row is None:
            return
        self._taken_back(row)
        other = self._jobs.rows.get(e.beneficiary)
        if other is not None:
            other.idle_from = (*other.idle_from, e.job)

    def _taken_back(self, row: JobRow) -> None:
        status = decisive(row)
        row.reclaimed = status if status is not None and status.reclaim_requested_ns else None

    def _run_ended(self, e: ev.RunEnded, _seq: int, at_ns: int) -> None:
        row = self._jobs.rows.get(e.job)
        if row is None or row.attempt != e.attempt:
            return
        if row.idle or row.foreseen:  # most runs end without a report
            self._save(row, at_ns)
            self._set(row, ())
        row.extended_until_ns = row.extensions = 0

    def _requeued(self, e: ev.JobRequeued, _seq: int, _at_ns: int) -> None:
        self._jobs.rows[e.job].idle_from = ()

    # ------------------------------------------------------------------ what a dry run would have saved

    def _foreseen(self, e: ev.ReclaimSimulated, _seq: int, at_ns: int) -> None:
        row = self._row(e.job, e.attempt)
        if row is None or any(each.rule == e.rule for each in row.foreseen):
            return
        row.foreseen = (*row.foreseen, SimulatedReclaim(e.scope, e.rule, e.action, at_ns))
        self.idle[row.id] = None
        saved = self._saved(e.scope, e.rule, e.action)
        saved.runs += 1

    def _saved(self, scope: str, rule: str, action: str) -> DryRunSavings:
        return self.savings.setdefault((scope, rule, action), DryRunSavings(scope, rule, action))

    def _save(self, row: JobRow, at_ns: int, rule: str = "", *, came_alive: bool = False) -> None:
        """The time from where a policy would have acted until now counts as saved (""; of every rule)."""
        for each in row.foreseen:
            if rule in ("", each.rule):
                saved = self._saved(each.scope, each.rule, each.action)
                saved.gpu_milli_s += held_milli_s(row, each, at_ns)
                saved.came_alive += came_alive
        row.foreseen = tuple(each for each in row.foreseen if rule not in ("", each.rule))

    def _set(self, row: JobRow, seen: tuple[IdleReport, ...]) -> None:
        row.idle = seen
        if seen or row.foreseen:
            self.idle[row.id] = None
        else:
            self.idle.pop(row.id, None)


def _others(row: JobRow, rule: str) -> tuple[IdleReport, ...]:
    return tuple(seen for seen in row.idle if seen.rule != rule)


def held_milli_s(row: JobRow, each: SimulatedReclaim, at_ns: int) -> int:
    """milli-GPU-seconds that a run has held since a policy would have taken it back."""
    return row.holds.gpu_milli_total * max(0, at_ns - each.at_ns) // SECOND_NS


def decisive(row: JobRow) -> IdleReport | None:
    """Return the policy to name first: one that has asked the run back, "always" before "on_demand"; else the one that
    acts first. None where there is none.
    """
    return min(row.idle, key=_urgency, default=None)


def _urgency(seen: IdleReport) -> tuple[bool, bool, int]:
    return (
        not seen.reclaim_requested_ns,
        seen.mode == "on_demand" and bool(seen.reclaim_requested_ns),
        seen.reclaim_at_ns or 1 << 62,
    )
