"""The view of jobs: one row per job, array or element, moved by the table of `lifecycle`; and the view of runs: what the
placer says of an offered job, folded into the rows of jobs.

A move that the table does not hold raises KeyError: the log is then not valid, and a view that
guessed would show something that never was. Finished rows leave on JobsRetired.
"""

from collections.abc import Callable

import msgspec

from fairlead_gateway.views.queues import QueuesView
from fairlead_gateway.views.rows import NO_SPEC, EndedAttempt, JobRow
from fairlead_schemas.http.api import ATTEMPT_MESSAGE_CHARS_MAX, ATTEMPTS_MAX
from fairlead_schemas.jobfile.update import updated_spec
from fairlead_schemas.units.ids import PRIORITY_MAX, array_of, element_id
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.lifecycle import END_STATES, GOES_ON, NEXT, next_state


def row_of(e: ev.JobSubmitted | SubmitJob, job: str, state: str, born: int, at_ns: int, seq: int) -> JobRow:
    """Return the first row of a job that was submitted at a time (Unix ns), or would be."""
    # The copy keeps one job's bytes alive, not the whole commit's.
    return JobRow(
        job, e.name, e.queue, e.user, e.project, e.kind, e.priority, e.request, e.spec.copy(), state,
        born, at_ns, seq, e.start_at_ns, array_limit=e.array_limit, after=e.after, deadline_ns=e.deadline_ns,
        slice_ns=e.slice_ns, total_ns=e.total_ns, grace_ns=e.grace_ns, on_partition=e.on_partition,
        notice_ns=e.checkpoint.notice_ns if e.checkpoint is not None else 0,
    )  # fmt: skip


class JobsView:
    """Rows by job id, in order of submission. `jobs.py` folds events on nodes, `waiting.py` the reasons that jobs wait."""

    def __init__(self, queues: QueuesView) -> None:
        self.rows: dict[str, JobRow] = {}
        self.born = 0
        self._queues = queues
        self.handlers = {
            ev.JobSubmitted: self._submitted,
            ev.JobQueued: self._queued,
            ev.JobOffered: self._offered,
            ev.OfferWithdrawn: self._recalled,
            ev.JobHeld: self._held,
            ev.JobReleased: self._released,
            ev.JobStopRequested: self._stop_requested,
            ev.JobRequeued: self._requeued,
            ev.JobSucceeded: self._succeeded,
            ev.JobFailed: self._failed,
            ev.JobCancelled: self._cancelled,
            ev.JobsRetired: self._retired,
            ev.JobMoved: self._moved,
            ev.JobUpdated: self._updated,
            ev.QueueRemoved: self._queue_removed,
            ev.PriorityAged: self._aged,
            ev.DeadlineMissed: self._deadline_missed,
        }

    def has_live_run(self, job: str, attempt: int) -> bool:
        """True while the run of this attempt has not ended."""
        row = self.rows.get(job)
        return row is not None and row.attempt == attempt and not row.run_ended

    def spec_of(self, row: JobRow) -> bytes:
        """The job file of a row; an element's is its array's."""
        holder = self.rows.get(row.array_id, row) if row.array_id else row
        return bytes(holder.spec)

    def is_open(self, one: ev.Dependency) -> bool:
        """Return True if a job that another waits for has not reached the required end. A cancelled job counts as failed, too."""
        row = self.rows.get(one.job)
        if row is None or row.state not in END_STATES:
            return True
        return one.state not in ("ended", "failed" if row.state == "cancelled" else row.state)

    # ------------------------------------------------------------------ submission and retirement

    def _submitted(self, e: ev.JobSubmitted, seq: int, at_ns: int) -> None:
        self.born += 1
        waits = e.start_at_ns > at_ns or any(self.is_open(one) for one in e.after)
        state = "held" if e.held else "scheduled" if waits else "queued"
        row = row_of(e, e.job, state, self.born, at_ns, seq)
        row.by = e.user if e.held else ""
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
            "", self.born, array.submitted_ns, seq, array_id=array.id, deadline_ns=array.deadline_ns,
            slice_ns=array.slice_ns, total_ns=array.total_ns, grace_ns=array.grace_ns,
            on_partition=array.on_partition,
            notice_ns=array.notice_ns, aged=array.aged,
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

    def move(self, row: JobRow, event: str, seq: int) -> None:
        """Move a job to the state that an event leads to, counted in its queue and its array. Raise KeyError for a move that
        is not legal.
        """
        old = row.state
        new = NEXT.get((old, event)) or next_state(old, event)
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

    def place(self, row: JobRow, units: int, at_ns: int) -> None:
        """The attempt has its place, with so many of the units that it asks for: for the others it is charged no more."""
        if row.charged and not row.placed_ns:
            if row.request.nodes_min and units < row.request.units:
                self._queues.charge(row.queue, row.user, row.request, -1)
                row.missing = row.request.units - units
                self._queues.charge(row.queue, row.user, row.holds)
            self._queues.use(row.queue, row.holds)
        row.placed_ns = at_ns

    def uncharge(self, row: JobRow) -> None:
        """Release the charge of the attempt."""
        if row.charged:
            row.charged, holds = False, row.holds
            self._queues.charge(row.queue, row.user, holds, -1)
            if row.placed_ns:
                self._queues.use(row.queue, holds, -1)
            row.missing = 0

    def _queued(self, e: ev.JobQueued, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self.move(row, "JobQueued", seq)
        row.not_before_ns = 0

    def _offered(self, e: ev.JobOffered, seq: int, at_ns: int) -> None:
        row = self.rows.get(e.job) or self._element(e.job, seq)
        before = row.state
        self.move(row, "JobOffered", seq)
        row.offer_rank = e.rank
        if before in ("", "queued"):  # else an open offer has another rank, or had been placed before it was seen
            row.attempt = e.attempt
            row.offered_seq = seq
            row.not_before_ns = 0
            row.charged = True
            self._queues.charge(row.queue, row.user, row.request)

    def _recalled(self, e: ev.OfferWithdrawn, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self.move(row, "OfferWithdrawn", seq)

    def _held(self, e: ev.JobHeld, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self.move(row, "JobHeld", seq)
        row.by = e.by

    def _released(self, e: ev.JobReleased, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self.move(row, "JobReleased", seq)
        row.by = ""

    def _stop_requested(self, e: ev.JobStopRequested, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self.move(row, "JobStopRequested", seq)
        row.reason = e.reason
        row.by = e.by

    def _requeued(self, e: ev.JobRequeued, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self.move(row, "JobRequeued", seq)
        self.uncharge(row)
        if row.parts:
            row.past[str(row.attempt)] = tuple(part.node for part in row.parts)
            row.attempts = (*row.attempts, _ended(row, e.reason))[-ATTEMPTS_MAX:]
        row.attempt = e.attempt
        row.reason = e.reason
        if row.has_yielded:
            row.preempted += 1
            self._queues.rows[row.queue].preempted += 1
        if e.reason not in GOES_ON:
            row.used_ns = 0
        row.priority, row.aged = row.priority - row.aged, 0
        row.not_before_ns = e.not_before_ns
        row.parts = ()
        row.placed_ns = row.started_ns = 0
        row.run_ended = False
        # The log keeps how the last attempt ended; a waiting job has not ended.
        row.exit_code = row.signal = None
        row.message = ""

    def _moved(self, e: ev.JobMoved, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        self.move(row, "JobMoved", seq)
        self._put(row, e.queue)

    def _updated(self, e: ev.JobUpdated, seq: int, _at_ns: int) -> None:
        row = self.rows[e.job]
        spec = updated_spec(bytes(row.spec), e.name, e.priority, e.total_ns, e.labels)
        row.spec, row.changed_seq = msgspec.Raw(spec), seq
        first, last = row.array or (0, -1)
        elements = (self.rows.get(element_id(row.id, index)) for index in range(first, last + 1))
        for each in (
            row,
            *(element for element in elements if element is not None and element.state not in END_STATES),
        ):
            each.name = row.name if e.name is None else e.name
            each.total_ns = row.total_ns if e.total_ns is None else e.total_ns
            if e.priority is not None:
                each.aged = min(each.aged, PRIORITY_MAX - e.priority)
                each.priority = e.priority + each.aged

    def _queue_removed(self, e: ev.QueueRemoved, _seq: int, _at_ns: int) -> None:
        """Move the jobs that wait in a removed queue to the queue that it names. A removed queue holds no other jobs."""
        if e.move_to:
            for row in self.rows.values():
                if row.queue == e.path and row.state not in END_STATES:
                    self._put(row, e.move_to)

    def _put(self, row: JobRow, queue: str) -> None:
        old, new = self._queues.rows[row.queue], self._queues.of(queue)
        row.queue, row.deferral = queue, None
        if row.elements is None:
            old.states[row.state] -= 1
            new.states[row.state] = new.states.get(row.state, 0) + 1
        else:
            old.unborn -= row.elements["waiting"]
            new.unborn += row.elements["waiting"]

    def _aged(self, e: ev.PriorityAged, _seq: int, _at_ns: int) -> None:
        for job in e.jobs:
            row = self.rows[job]
            row.priority, row.aged = row.priority + 1, row.aged + 1

    def _deadline_missed(self, e: ev.DeadlineMissed, _seq: int, _at_ns: int) -> None:
        self.rows[e.job].deadline_missed = True

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
        self.move(row, event, seq)
        self.uncharge(row)
        row.ended_ns = at_ns


def _ended(row: JobRow, reason: str) -> EndedAttempt:
    """The row's attempt, which is over."""
    return EndedAttempt(
        row.attempt,
        tuple([part.node for part in row.parts]),
        row.started_ns,
        row.run_ended_ns,
        reason,
        row.exit_code,
        row.signal,
        row.gpu_fault,
        row.message[:ATTEMPT_MESSAGE_CHARS_MAX],
    )


class RunsView:
    """Has no rows of its own."""

    def __init__(self, jobs: JobsView, clock: Callable[[], int]) -> None:
        self._jobs = jobs
        #: The newest time of any commit so far.
        self._clock = clock
        self.handlers = {
            ev.JobPlaced: self._placed,
            ev.JobUnplaceable: self._unplaceable,
            ev.OfferReturned: self._returned,
            ev.RankStarted: self._rank_started,
            ev.RunStarted: self._run_started,
            ev.AppReady: self._app_ready,
            ev.CheckpointSaved: self._saved,
            ev.RankEnded: self._rank_ended,
            ev.RunEnded: self._run_ended,
        }

    def _placed(self, e: ev.JobPlaced, seq: int, at_ns: int) -> None:
        row = self._jobs.rows[e.job]
        self._jobs.move(row, "JobPlaced", seq)
        row.parts = e.parts
        self._jobs.place(row, e.units, at_ns)
        row.run_ended = False
        row.exit_code = row.signal = None
        row.message, row.end_rank = "", 0
        row.run_ended_ns, row.gpu_fault = 0, ""

    def _unplaceable(self, e: ev.JobUnplaceable, seq: int, _at_ns: int) -> None:
        self._jobs.move(self._jobs.rows[e.job], "JobUnplaceable", seq)

    def _returned(self, e: ev.OfferReturned, seq: int, _at_ns: int) -> None:
        row = self._jobs.rows[e.job]
        self._jobs.move(row, "OfferReturned", seq)
        self._jobs.uncharge(row)

    def _rank_started(self, e: ev.RankStarted, seq: int, _at_ns: int) -> None:
        self._jobs.move(self._jobs.rows[e.job], "RankStarted", seq)

    def _run_started(self, e: ev.RunStarted, seq: int, at_ns: int) -> None:
        row = self._jobs.rows[e.job]
        self._jobs.move(row, "RunStarted", seq)
        row.started_ns = at_ns
        row.runs_since_ns = self._clock()
        row.app_ready_ns = 0
        if row.array_id:
            array = self._jobs.rows.get(row.array_id)
            if array is not None and not array.started_ns:
                array.started_ns = at_ns

    def _app_ready(self, e: ev.AppReady, seq: int, at_ns: int) -> None:
        row = self._jobs.rows[e.job]
        row.app_ready_ns, row.changed_seq = at_ns, seq

    def _saved(self, e: ev.CheckpointSaved, seq: int, _at_ns: int) -> None:
        row = self._jobs.rows[e.job]
        row.saved_ns, row.saved_note = self._clock(), e.note

    def _rank_ended(self, e: ev.RankEnded, seq: int, _at_ns: int) -> None:
        self._jobs.move(self._jobs.rows[e.job], "RankEnded", seq)

    def _run_ended(self, e: ev.RunEnded, seq: int, at_ns: int) -> None:
        row = self._jobs.rows[e.job]
        self._jobs.move(row, "RunEnded", seq)
        self._jobs.uncharge(row)
        if row.runs_since_ns:
            row.used_ns += e.ran_ns or self._clock() - row.runs_since_ns
            well = e.outcome == "exited" and e.exit_code == 0
            row.lost_last_ns = 0 if well else self._clock() - max(row.runs_since_ns, row.saved_ns)
            row.lost_ns += row.lost_last_ns
            row.runs_since_ns = 0
        row.run_ended = True
        row.run_ended_ns, row.gpu_fault = at_ns, e.gpu_fault
        row.exit_code = e.exit_code
        row.signal = e.signal
        row.end_rank = e.rank
        row.message = e.message
