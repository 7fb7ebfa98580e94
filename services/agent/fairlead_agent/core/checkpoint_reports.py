"""Save reports of runs: the ones passed on to the placer, and the ones that end a notice. Pure.

Of many reports the newest is passed on from time to time. A report that answers a notice, and the last one before an
end, are always passed on.
"""

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.run_stop import SECOND_NS, WayOut
from fairlead_agent.core.runs import RunKey, Word
from fairlead_agent.core.steps import Draft
from fairlead_schemas.wire.reports import CheckpointSeen

#: Words of one run are reported this often at most, the newest of them.
WORD_EVERY_NS = 10 * SECOND_NS


class SavedWords:
    """Save reports of one node's runs."""

    def __init__(self, draft: Draft, way_out: WayOut) -> None:
        self._draft, self._way_out = draft, way_out
        #: {run: when its newest word was reported}
        self._told: dict[RunKey, int] = {}

    def lies_there(self, key: RunKey, word: Word, now: int) -> None:
        """Handle a run's current save report.

        A report that answers a notice ends the notice. Any other report that comes soon after the last one is skipped: it is
        still there the next time, unless a newer one replaces it.
        """
        run, stopping = self._draft.ledger.runs.get(key), self._way_out.stopping.get(key)
        if run is None or run.phase != "running" or word.stamp == run.saved:
            return
        if stopping is not None and stopping.is_answered_by(word):
            self._tell(run, word, now)
            self._way_out.terminate(key, now)
        elif now - self._told.get(key, -WORD_EVERY_NS) >= WORD_EVERY_NS:
            self._tell(run, word, now)

    def noticed(self, key: RunKey, word: Word | None, now: int) -> None:
        """Record that a run is notified now that its end is near (NoticeRun). `word`: its newest save report before that."""
        run, stopping = self._draft.ledger.runs.get(key), self._way_out.stopping.get(key)
        if run is not None and stopping is not None:
            if word is not None and word.stamp != run.saved:
                self._tell(run, word, now)
            stopping.told(run.saved)

    def command_ended(self, key: RunKey, saved: bool, now: int) -> None:
        """End the notice of a run, because the command that notified it has ended, with success or without.

        In a gang only rank 0's command counts for all: the other ranks continue until the placer orders their stop.
        """
        run, stopping = self._draft.ledger.runs.get(key), self._way_out.stopping.get(key)
        if run is not None and stopping is not None and stopping.in_notice and key.rank == 0:
            if saved:
                self._tell(run, Word(run.saved), now, noticed=True)
            self._way_out.terminate(key, now)

    def last(self, run: RunEntry, word: Word) -> None:
        """Report the last word that a run wrote just before its end, unless it is reported already. The end of the run
        follows.
        """
        if run.checkpoint is not None and word.stamp != run.saved:
            self._tell(run, word, self._told.get(run.key, 0))
        self._told.pop(run.key, None)

    def forget(self, key: RunKey) -> None:
        """Drop the state kept for a run that has ended."""
        self._told.pop(key, None)

    def _tell(self, run: RunEntry, word: Word, now: int, *, noticed: bool = False) -> None:
        key = run.key
        self._told[key] = now
        stopping = self._way_out.stopping.get(key)
        noticed = noticed or (stopping is not None and stopping.is_answered_by(word))
        self._draft.report(CheckpointSeen(
            n=self._draft.n, job=key.job, attempt=key.attempt, rank=key.rank, at_ns=word.stamp, note=word.note, noticed=noticed,
        ))  # fmt: skip
