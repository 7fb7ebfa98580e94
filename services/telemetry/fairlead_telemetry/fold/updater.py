"""Takes the newest events into the folded tables, within the transaction that stores them. Start at `Folding.advance`.

Each span of the log is added up by SQL over whole sets. Only moves between queues depend on the order among jobs: the
log is cut before each, so a span is a few moves and then no more of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from fairlead_telemetry.fold import cluster, jobs, runs, tables
from fairlead_telemetry.fold.tables import FRESH, PlaceSpan

#: Events folded in one transaction when all of them are folded again.
EVENTS_PER_STEP = 100_000

#: Which types of events there are, so that statements which have nothing to do are left out, and where jobs change their queue.
_SURVEY = f"""
WITH {FRESH}
SELECT type, list(place ORDER BY place) FILTER (type IN ('JobMoved', 'QueueRemoved')) FROM fresh GROUP BY type"""

#: Bodies are looked at of births alone.
_DEPENDENT = f"""
WITH {FRESH} SELECT 1 FROM fresh WHERE type = 'JobSubmitted'
  AND (contains(body::VARCHAR, '"after":[') OR contains(body::VARCHAR, '"held":true')) LIMIT 1"""

_STEPS = (*jobs.STEPS, *runs.RUN_STEPS, *jobs.LAST_STEPS, *cluster.STEPS, *runs.IDLE_STEPS)


class FoldCut(NamedTuple):
    """Places `low` to `high` to be folded at once, after `moves`, which stand at their start, in places up to `moved`."""

    low: int
    high: int
    moves: tuple[str, ...] = ()
    moved: int = 0


class FoldUpdater:
    """Keeps the tables of `fold` at the events that are stored."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        """Create what is missing; tables of another version are dropped (`sequence` is 0 then)."""
        self._db = db
        self.sequence = 0
        self._create()

    def _create(self) -> None:
        self._db.execute(tables.SCHEMA)
        for statement in tables.TABLES:
            self._db.execute(statement)
        row = self._db.execute("SELECT version, sequence FROM fold.state").fetchone()
        if row is not None and row[0] == tables.VERSION:
            self.sequence = row[1]
        elif row is not None:
            self.drop()
        else:
            self._db.execute("INSERT INTO fold.state VALUES (?, 0)", [tables.VERSION])

    def drop(self) -> None:
        """Forget all that was folded."""
        self._db.execute("DROP SCHEMA fold CASCADE")
        self.sequence = 0
        self._create()

    def advance(self, to: int) -> None:
        """Take in the stored events after `sequence` up to sequence `to`. The caller owns the transaction, and
        sets `sequence` back where it is rolled back."""
        span = PlaceSpan.of_sequences(self.sequence + 1, to)
        seen: dict[str, list[int] | None] = dict(self._db.execute(_SURVEY, dict(span)).fetchall())
        moved, removed = seen.get("JobMoved") or [], seen.get("QueueRemoved") or []
        for cut in cuts(span["low"], span["high"], moved, removed):
            for statement in cut.moves:
                self._db.execute(statement, dict(PlaceSpan(cut.low, cut.moved)))
            self._fold(PlaceSpan(cut.low, cut.high), [*seen])
        self._db.execute("UPDATE fold.state SET sequence = ?", [to])
        self.sequence = to

    def next_step(self, end: int, stride: int = 1, table: str = "events") -> int:
        """The sequence up to which about `stride` times EVENTS_PER_STEP events of `table` reach, at most `end`."""
        query = f"SELECT max(sequence) FROM (SELECT sequence FROM {table} WHERE sequence > ? ORDER BY sequence LIMIT ?)"
        row = self._db.execute(query, [self.sequence, stride * EVENTS_PER_STEP]).fetchone()
        return min(end, row[0]) if row and row[0] is not None else end

    def _fold(self, span: PlaceSpan, kinds: Sequence[str]) -> None:
        """Fold a piece without moves; `kinds` holds at least the types of its events."""
        seen = [*kinds]
        if "JobSubmitted" in seen and self._db.execute(_DEPENDENT, dict(span)).fetchone():
            seen.append(jobs.DEPENDENT)
        for step in _STEPS:
            if any(kind.startswith(step.needs) for kind in seen):
                self._db.execute(step.statement, dict(span) if step.reads_events else None)


def cuts(low: int, high: int, moved: list[int], removed: list[int]) -> list[FoldCut]:
    """Places `low` to `high` cut before every removal and every run of moves in neighbouring places. Pure."""
    found: list[FoldCut] = []
    kinds = dict.fromkeys(moved, jobs.BY_WORD) | dict.fromkeys(removed, jobs.BY_REMOVAL)
    for place in sorted(kinds):
        last = found[-1] if found else None
        if last is not None and last.moved == place - 1 and last.moves is kinds[place] is jobs.BY_WORD:
            found[-1] = last._replace(moved=place)
        else:
            found.append(FoldCut(place, 0, kinds[place], place))
    starts = [cut.low for cut in found]
    pieces = [cut._replace(high=end - 1) for cut, end in zip(found, [*starts, high + 1][1:], strict=True)]
    first_end = starts[0] - 1 if starts else high
    return ([FoldCut(low, first_end)] if first_end >= low else []) + pieces
