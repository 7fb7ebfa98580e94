"""Runs' words that their work is saved: which of them are reported, and which of them end a notice. Pure.

Of many words the newest is told now and then; one that answers a notice, and the last before an end, are told always.
"""

from fairlead_agent.drafting import Draft
from fairlead_agent.records import RunEntry
from fairlead_agent.run import RunKey, Word
from fairlead_agent.stopping import SECOND_NS
from fairlead_agent.way_out import WayOut
from fairlead_schemas.reports import CheckpointSeen

#: Words of one run are reported this often at most, the newest of them.
WORD_EVERY_NS = 10 * SECOND_NS


class SavedWords:
    """Of one node's runs."""

    def __init__(self, draft: Draft, way_out: WayOut) -> None:
        self._draft, self._way_out = draft, way_out
        #: {run: when its newest word was reported}
        self._told: dict[RunKey, int] = {}

    def lies_there(self, key: RunKey, word: Word, now: int) -> None:
        """One that answers a notice ends it; of the others, one that comes soon after the last is passed over: it lies there
        the next time, too, unless a newer one does."""
        run, stopping = self._draft.ledger.runs.get(key), self._way_out.stopping.get(key)
        if run is None or run.phase != "running" or word.stamp == run.saved:
            return
        if stopping is not None and stopping.is_answered_by(word):
            self._tell(run, word, now)
            self._way_out.terminate(key, now)
        elif now - self._told.get(key, -WORD_EVERY_NS) >= WORD_EVERY_NS:
            self._tell(run, word, now)

    def noticed(self, key: RunKey, word: Word | None, now: int) -> None:
        """A run is told now that its end is near (NoticeRun); `word`: its newest before that."""
        run, stopping = self._draft.ledger.runs.get(key), self._way_out.stopping.get(key)
        if run is not None and stopping is not None:
            if word is not None and word.stamp != run.saved:
                self._tell(run, word, now)
            stopping.told(run.saved)

    def command_ended(self, key: RunKey, saved: bool, now: int) -> None:
        """The command that a run was told by has ended, with success or without: so has its notice. Of a gang, only
        rank 0's speaks for all: the others go on until the placer says so."""
        run, stopping = self._draft.ledger.runs.get(key), self._way_out.stopping.get(key)
        if run is not None and stopping is not None and stopping.in_notice and key.rank == 0:
            if saved:
                self._tell(run, Word(run.saved), now, noticed=True)
            self._way_out.terminate(key, now)

    def last(self, run: RunEntry, word: Word) -> None:
        """What it said just before its end, which comes next."""
        if run.checkpoint is not None and word.stamp != run.saved:
            self._tell(run, word, self._told.get(run.key, 0))
        self._told.pop(run.key, None)

    def forget(self, key: RunKey) -> None:
        """It has ended."""
        self._told.pop(key, None)

    def _tell(self, run: RunEntry, word: Word, now: int, *, noticed: bool = False) -> None:
        key = run.key
        self._told[key] = now
        stopping = self._way_out.stopping.get(key)
        noticed = noticed or (stopping is not None and stopping.is_answered_by(word))
        self._draft.report(CheckpointSeen(
            n=self._draft.n, job=key.job, attempt=key.attempt, rank=key.rank, at_ns=word.stamp, note=word.note, noticed=noticed,
        ))  # fmt: skip
