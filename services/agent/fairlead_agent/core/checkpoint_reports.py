"""Save reports of runs: the ones passed on to the placer, and the ones that end a notice. Pure.

Of many reports the newest is passed on from time to time. A report that answers a notice, and the last one before an
end, are always passed on.
"""

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.run_stop import RunStop
from fairlead_agent.core.runs import CheckpointMark, RunKey
from fairlead_agent.core.steps import Draft
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.reports import CheckpointSeen

#: Marks of one run are reported this often at most, the newest of them.
MARK_EVERY_NS = 10 * SECOND_NS


class CheckpointReports:
    """Checkpoint marks of one node's runs, and their reports to the placer."""

    def __init__(self, draft: Draft, run_stop: RunStop) -> None:
        self._draft, self._run_stop = draft, run_stop
        #: {run: when its newest mark was reported}
        self._reported_at: dict[RunKey, int] = {}

    def marked(self, key: RunKey, mark: CheckpointMark, now: int) -> None:
        """Handle a run's current save report.

        A report that answers a notice ends the notice. Any other report that comes soon after the last one is skipped: it is
        still there the next time, unless a newer one replaces it.
        """
        run, stopping = self._draft.ledger.runs.get(key), self._run_stop.stopping.get(key)
        if run is None or run.phase != "running" or mark.stamp == run.saved:
            return
        if stopping is not None and stopping.is_answered_by(mark):
            self._report(run, mark, now)
            self._run_stop.terminate(key, now)
        elif now - self._reported_at.get(key, -MARK_EVERY_NS) >= MARK_EVERY_NS:
            self._report(run, mark, now)

    def noticed(self, key: RunKey, mark: CheckpointMark | None, now: int) -> None:
        """Record that a run is notified now that its end is near (NoticeRun). `mark`: its newest save report before that."""
        run, stopping = self._draft.ledger.runs.get(key), self._run_stop.stopping.get(key)
        if run is not None and stopping is not None:
            if mark is not None and mark.stamp != run.saved:
                self._report(run, mark, now)
            stopping.noticed(run.saved)

    def command_ended(self, key: RunKey, saved: bool, now: int) -> None:
        """End the notice of a run, because the command that notified it has ended, with success or without.

        In a gang only rank 0's command counts for all: the other ranks continue until the placer orders their stop.
        """
        run, stopping = self._draft.ledger.runs.get(key), self._run_stop.stopping.get(key)
        if run is not None and stopping is not None and stopping.in_notice and key.rank == 0:
            if saved:
                self._report(run, CheckpointMark(run.saved), now, noticed=True)
            self._run_stop.terminate(key, now)

    def last(self, run: RunEntry, mark: CheckpointMark) -> None:
        """Report the last mark that a run wrote just before its end, unless it is reported already. The end of the run
        follows.
        """
        if run.checkpoint is not None and mark.stamp != run.saved:
            self._report(run, mark, self._reported_at.get(run.key, 0))
        self._reported_at.pop(run.key, None)

    def forget(self, key: RunKey) -> None:
        """Drop the state kept for a run that has ended."""
        self._reported_at.pop(key, None)

    def _report(self, run: RunEntry, mark: CheckpointMark, now: int, *, noticed: bool = False) -> None:
        key = run.key
        self._reported_at[key] = now
        stopping = self._run_stop.stopping.get(key)
        noticed = noticed or (stopping is not None and stopping.is_answered_by(mark))
        self._draft.report(
            CheckpointSeen(
                n=self._draft.n,
                job=key.job,
                attempt=key.attempt,
                rank=key.rank,
                at_ns=mark.stamp,
                note=mark.note,
                noticed=noticed,
            )
        )
