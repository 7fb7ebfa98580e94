"""The view of runs: what the placer says of an offered job, folded into the rows of jobs."""

from collections.abc import Callable

from fairlead_gateway.views.jobs import JobsView
from fairlead_schemas.wire import events as ev


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
        if row.array_id:
            array = self._jobs.rows.get(row.array_id)
            if array is not None and not array.started_ns:
                array.started_ns = at_ns

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
