"""The view of jobs: one row per job, array or element, moved by the table of `lifecycle`.

A move that the table does not hold raises KeyError: the log is then not valid, and a view that
guessed would show something that never was. Finished rows leave on JobsRetired.
"""

from fairlead_gateway.views.queues import QueuesView
from fairlead_gateway.views.rows import NO_SPEC, JobRow, Refusal
from fairlead_schemas import events as ev
from fairlead_schemas.ids import array_of, element_id
from fairlead_schemas.lifecycle import next_state
from fairlead_schemas.resources import Request

#: Refused classes remembered; beyond it the oldest refusal is forgotten (its jobs then just wait their turn).
REFUSALS_MAX = 10_000


class JobsView:
    """Rows by job id, in order of birth, and the newest refusal of each refused class."""

    def __init__(self, queues: QueuesView) -> None:
        self.rows: dict[str, JobRow] = {}
        self.refusals: dict[Request, Refusal] = {}
        self.born = 0
        self._queues = queues
        self.handlers = {
            ev.JobSubmitted: self._submitted,
            ev.JobQueued: self._queued,
            ev.JobOffered: self._offered,
            ev.JobRecalled: self._recalled,
            ev.JobHeld: self._held,
            ev.JobReleased: self._released,
            ev.JobStopRequested: self._stop_requested,
            ev.JobRequeued: self._requeued,
            ev.JobSucceeded: self._succeeded,
            ev.JobFailed: self._failed,
            ev.JobCancelled: self._cancelled,
            ev.JobsRetired: self._retired,
            ev.JobPlaced: self._placed,
            ev.JobUnplaceable: self._unplaceable,
            ev.OfferReturned: self._returned,
            ev.RankStarted: self._rank_started,
            ev.RunStarted: self._run_started,
            ev.RankEnded: self._rank_ended,
            ev.RunEnded: self._run_ended,
        }

    def spec_of(self, row: JobRow) -> bytes:
        """The job file of a row; an element's is its array's."""
        holder = self.rows.get(row.array_id, row) if row.array_id else row
        return bytes(holder.spec)

    # ------------------------------------------------------------------ birth and retirement

    def _submitted(self, e: ev.JobSubmitted, seq: int, at_ns: int) -> None:
        self.born += 1
        state = "scheduled" if e.start_at_ns > at_ns else "queued"
        # The copy keeps one job's bytes alive, not the whole commit's.
        row = JobRow(
            e.job, e.name, e.queue, e.user, e.project, e.kind, e.priority, e.request, e.spec.copy(), state,
            self.born, at_ns, seq, e.start_at_ns,
        )  # fmt: skip
        self.rows[e.job] = row
        queue = self._queues.of(e.queue)
        if e.array is None:
            queue.states[state] = queue.states.get(state, 0) + 1
        else:
            row.array = e.array
            size = e.array[1] - e.array[0] + 1
            row.elements = {"waiting": size}
            queue.unborn += size

    def _element(self, job: str, seq: int) -> JobRow:
        """The row of an array's element, made at its first offer."""
        array_id = array_of(job)
        array = self.rows[array_id] if array_id else None
        if array is None or array.elements is None:
            raise KeyError(f"job {job!r} was offered but never submitted")
        self.born += 1
        row = JobRow(
            job, array.name, array.queue, array.user, array.project, array.kind, array.priority, array.request, NO_SPEC,
            "", self.born, array.submitted_ns, seq, array_id=array.id,
        )  # fmt: skip
        self.rows[job] = row
        array.elements["waiting"] -= 1
        self._queues.of(row.queue).unborn -= 1
        return row

    def _retired(self, e: ev.JobsRetired, _seq: int, _at_ns: int) -> None:
        rows = self.rows
        for job in e.jobs:
            row = rows.pop(job, None)
            if row is not None and row.array is not None:
                for index in range(row.array[0], row.array[1] + 1):
                    rows.pop(element_id(job, index), None)

    # ------------------------------------------------------------------ moves

    def _move(self, row: JobRow, event: str, seq: int) -> None:
        old = row.state
        new = next_state(old, event)
        row.changed_seq = seq
        if new == old:
            return
        row.state = new
        if row.elements is not None:
            return
        states = self._queues.rows[row.queue].states
        if old:
            states[old] -= 1
        states[new] = states.get(new, 0) + 1
        if row.array_id:
            self._count_element(row.array_id, old, new)

    def _count_element(self, array_id: str, old: str, new: str) -> None:
        array = self.rows.get(array_id)
        if array is not None and array.elements is not None:
            if old:
                array.elements[old] -= 1
            array.elements[new] = array.elements.get(new, 0) + 1

    def _uncharge(self, row: JobRow) -> None:
        if row.charged:
            row.charged = False
            self._queues.rows[row.queue].gpu_milli_charged -= row.request.gpu_milli_total

    def _queued(self, e: ev.JobQueued, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "JobQueued", seq)
        row.not_before_ns = 0

    def _offered(self, e: ev.JobOffered, seq: int, at_ns: int) -> None:
        row = self.rows.get(e.job) or self._element(e.job, seq)
        self._move(row, "JobOffered", seq)
        row.attempt = e.attempt
        row.offer_rank = e.rank
        row.not_before_ns = 0
        if not row.charged:
            row.charged = True
            self._queues.rows[row.queue].gpu_milli_charged += row.request.gpu_milli_total

    def _recalled(self, e: ev.JobRecalled, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "JobRecalled", seq)

    def _held(self, e: ev.JobHeld, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "JobHeld", seq)
        row.by = e.by

    def _released(self, e: ev.JobReleased, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "JobReleased", seq)
        row.by = ""

    def _stop_requested(self, e: ev.JobStopRequested, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "JobStopRequested", seq)
        row.reason = e.reason
        row.by = e.by

    def _requeued(self, e: ev.JobRequeued, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "JobRequeued", seq)
        self._uncharge(row)
        if row.parts:
            row.past[row.attempt] = tuple(part.node for part in row.parts)
        row.attempt = e.attempt
        row.reason = e.reason
        row.not_before_ns = e.not_before_ns
        row.parts = ()
        row.placed_ns = row.started_ns = 0
        row.run_ended = False
        # How the last attempt ended stands in the log; a job that waits has not ended.
        row.exit_code = row.signal = None
        row.message = ""

    def _succeeded(self, e: ev.JobSucceeded, seq: int, at_ns: int) -> None:
        self._end(self.rows[e.job], "JobSucceeded", seq, at_ns)

    def _failed(self, e: ev.JobFailed, seq: int, at_ns: int) -> None:
        row = self.rows[e.job]
        self._end(row, "JobFailed", seq, at_ns)
        row.reason = e.reason
        row.exit_code = e.exit_code
        row.signal = e.signal
        row.message = e.message or row.message

    def _cancelled(self, e: ev.JobCancelled, seq: int, at_ns: int) -> None:
        row = self.rows[e.job]
        self._end(row, "JobCancelled", seq, at_ns)
        row.by = e.by
        if row.elements is not None and row.elements["waiting"]:
            row.elements["cancelled"] = row.elements.get("cancelled", 0) + row.elements["waiting"]
            self._unborn_end(row, "cancelled")

    def _unborn_end(self, array: JobRow, state: str) -> None:
        """Elements that were never offered end with their array."""
        assert array.elements is not None
        count = array.elements["waiting"]
        array.elements["waiting"] = 0
        queue = self._queues.rows[array.queue]
        queue.unborn -= count
        queue.states[state] = queue.states.get(state, 0) + count

    def _end(self, row: JobRow, event: str, seq: int, at_ns: int) -> None:
        self._move(row, event, seq)
        self._uncharge(row)
        row.ended_ns = at_ns

    # ------------------------------------------------------------------ offers and runs

    def _placed(self, e: ev.JobPlaced, seq: int, at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "JobPlaced", seq)
        row.parts = e.parts
        row.placed_ns = at_ns
        row.run_ended = False
        row.exit_code = row.signal = None
        row.message = ""
        if self.refusals:
            self.refusals.pop(row.request, None)

    def _unplaceable(self, e: ev.JobUnplaceable, seq: int, at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "JobUnplaceable", seq)
        self.refusals.pop(row.request, None)
        self.refusals[row.request] = Refusal(
            row.request,
            e.job,
            e.attempt,
            seq,
            at_ns,
            e.reasons,
            e.nodes,
            e.fitting,
            e.gpu_milli_free,
            e.gpu_milli_total,
        )
        if len(self.refusals) > REFUSALS_MAX:
            del self.refusals[next(iter(self.refusals))]

    def _returned(self, e: ev.OfferReturned, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "OfferReturned", seq)
        self._uncharge(row)

    def _rank_started(self, e: ev.RankStarted, seq: int, _at_ns: int) -> None:
        self._move(self.rows[e.job], "RankStarted", seq)

    def _run_started(self, e: ev.RunStarted, seq: int, at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "RunStarted", seq)
        row.started_ns = at_ns
        if row.array_id:
            array = self.rows.get(row.array_id)
            if array is not None and not array.started_ns:
                array.started_ns = at_ns

    def _rank_ended(self, e: ev.RankEnded, seq: int, _at_ns: int) -> None:
        self._move(self.rows[e.job], "RankEnded", seq)

    def _run_ended(self, e: ev.RunEnded, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self._move(row, "RunEnded", seq)
        self._uncharge(row)
        row.run_ended = True
        row.exit_code = e.exit_code
        row.signal = e.signal
        row.message = e.message
