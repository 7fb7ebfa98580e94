"""The DuckDB file: rows and cursor in one transaction, so a crash leaves both or neither.

Owns the file and everything that writes to it. Knows nothing about the bus, tasks or people's
SQL. One thread uses a `Warehouse`; the service gives it one. Start at `store`.

Events are never decoded one by one in Python: each commit's bytes become one line of a scratch
file, which DuckDB reads, splits and types in bulk (README.md says what that saves).
"""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec

from fairlead_bus.log import Head
from fairlead_telemetry import schema
from fairlead_telemetry.fold.folding import Folding
from fairlead_telemetry.rollup import GRACE_NS, MINUTE_NS, Rollup
from fairlead_telemetry.samples import SampleHead, SampleIntake

FILE = "warehouse.duckdb"
THREADS = 1  # the machine is shared with the services that decide
MEMORY_LIMIT = "256MB"
#: A checkpoint writes every touched part of the folded tables anew; at DuckDB's 16 MB that was a quarter of all the work.
WAL_BYTES = "128MB"
#: Samples kept at most, whatever their age.
SAMPLE_ROWS_MAX = 100_000_000


class WarehouseRefused(Exception):
    """The warehouse cannot be used with this log or by this process; the message says how to mend it."""


class WarehouseBusy(WarehouseRefused):
    """Another process has the warehouse open; only one may."""


class Cursor(NamedTuple):
    """How far the warehouse has read."""

    sequence: int
    at_ns: int
    created: str
    heads: dict[str, Head]
    events: int
    samples_lost: int


class CommitBytes(NamedTuple):
    """One checked commit of the log as it goes into the warehouse."""

    sequence: int
    at_ns: int
    events: int
    payload: bytes


class Kept(NamedTuple):
    """Of samples and of their sums per minute and hour: how long they are kept, or from which Unix time on."""

    samples_ns: int
    minutes_ns: int = 0
    hours_ns: int = 0


_INSERT_EVENTS = """
INSERT INTO events
WITH line AS (FROM read_json(?, format = 'newline_delimited', maximum_object_size = 4194304,
    columns = {s: 'UBIGINT', c: 'STRUCT(writer VARCHAR, at_ns BIGINT, events JSON[])'})),
  event AS (SELECT s, c.writer AS writer, c.at_ns AS at_ns, unnest(c.events) AS body,
    generate_subscripts(c.events, 1) - 1 AS idx FROM line),
  typed AS (SELECT *, from_json(body, '{"type": "VARCHAR", "job": "VARCHAR", "attempt": "UINTEGER",
    "node": "VARCHAR", "queue": "VARCHAR", "user": "VARCHAR", "cause": "VARCHAR"}') AS e FROM event)
SELECT s, idx, writer, make_timestamp_ns(at_ns), at_ns, e.type, e.job, e.attempt, e.node, e.queue, e."user", e.cause, body
FROM typed"""

_INSERT_SAMPLES = """
INSERT INTO samples
WITH line AS (FROM read_json(?, format = 'newline_delimited', maximum_object_size = 4194304,
    columns = {node: 'VARCHAR', incarnation: 'VARCHAR', n: 'UBIGINT', at_ns: 'BIGINT', simulated: 'BOOLEAN',
      gpus: 'STRUCT(uuid VARCHAR, run VARCHAR, utilization_pct INTEGER, memory_used_mib BIGINT, power_mw BIGINT,
        temperature_c INTEGER, sm_clock_mhz INTEGER)[]'})),
  gpu AS (SELECT *, unnest(gpus) AS g FROM line)
SELECT make_timestamp_ns(at_ns), at_ns, node, incarnation, n, g.uuid, coalesce(g.run, ''), g.utilization_pct,
  g.memory_used_mib, coalesce(g.power_mw, 0), coalesce(g.temperature_c, 0), coalesce(g.sm_clock_mhz, 0),
  coalesce(simulated, false)
FROM gpu"""


class Warehouse:
    """The one writer of the DuckDB file."""

    def __init__(self, directory: Path) -> None:
        """Open or create `directory`/warehouse.duckdb. Raises WarehouseBusy while another process has it, else WarehouseRefused."""
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / FILE
        self._scratch = directory / "scratch.ndjson"
        config: dict[str, Any] = {
            "threads": THREADS,
            "wal_autocheckpoint": WAL_BYTES,
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(directory / "spill"),
        }
        try:
            self._db = duckdb.connect(str(self.path), config=config)
        except duckdb.IOException as error:
            kind = WarehouseBusy if "lock" in str(error) else WarehouseRefused
            raise kind(f"cannot open {self.path}: {str(error).splitlines()[0]}") from error
        for statement in ("BEGIN", *schema.table_ddl()):
            self._db.execute(statement)
        self._folding, self._rollup = Folding(self._db), Rollup(self._db)
        for statement in (*schema.view_ddl(), "COMMIT"):
            self._db.execute(statement)
        self.cursor = self._read_cursor()
        self._fold_rest()
        #: Rises with every transaction; tells a copy whether it is still the newest.
        self.version = 0

    def _read_cursor(self) -> Cursor:
        row = self._db.execute("SELECT * FROM cursor").fetchone()
        if row is None:
            return Cursor(0, 0, "", {}, 0, 0)
        sequence, at_ns, created, heads, events, lost = row
        return Cursor(sequence, at_ns, created, msgspec.json.decode(heads, type=dict[str, Head]), events, lost)

    def sample_heads(self) -> dict[tuple[str, str], SampleHead]:
        """{(node, incarnation): newest batch} as stored."""
        rows = self._db.execute("SELECT node, incarnation, n, at_ns, lost FROM sample_heads").fetchall()
        return {(node, incarnation): SampleHead(n, at_ns, lost) for node, incarnation, n, at_ns, lost in rows}

    def store(
        self, commits: Sequence[CommitBytes], heads: dict[str, Head], created: str, samples: SampleIntake
    ) -> Cursor:
        """Store these commits' events and these samples, and move the cursor, together or not at all.

        `commits` follow the cursor without a gap and `heads` is the chain after the last of them.
        """
        old = self.cursor
        sequence = commits[-1].sequence if commits else old.sequence
        assert sequence == old.sequence + len(commits), (
            f"cursor {old.sequence} + {len(commits)} commits is not {sequence}"
        )
        new = Cursor(
            sequence,
            max(old.at_ns, commits[-1].at_ns) if commits else old.at_ns,
            created,
            dict(heads) if commits else old.heads,
            old.events + sum(commit.events for commit in commits),
            old.samples_lost + sum(gap.lost for gap in samples.gaps),
        )
        try:
            with self._transaction():
                inserted = self._insert_events(commits)
                if inserted != new.events - old.events:
                    raise AssertionError(f"{inserted} rows for {new.events - old.events} events up to {sequence}")
                self._insert_samples(samples)
                self._write_cursor(new)
                if commits:
                    self._folding.advance(new.sequence)
        except BaseException:
            self._folding.sequence = old.sequence
            raise
        self.cursor = new
        self.version += 1
        return new

    def rebuild(self) -> int:
        """Drop what was folded and fold all stored events anew; how many they are."""
        with self._transaction():
            self._folding.drop()
        self._fold_rest()
        self.version += 1
        return self.cursor.events

    def _fold_rest(self) -> None:
        """Fold what is stored and not folded: all of it in a new version, or where a rebuild was cut short."""
        while (reached := self._folding.sequence) < self.cursor.sequence:
            try:
                with self._transaction():
                    self._folding.advance(self._folding.next_step(self.cursor.sequence))
            except BaseException:
                self._folding.sequence = reached
                raise

    def _insert_events(self, commits: Sequence[CommitBytes]) -> int:
        if not commits:
            return 0
        with self._scratch.open("wb") as scratch:
            scratch.writelines(b'{"s":%d,"c":%b}\n' % (commit.sequence, _line(commit.payload)) for commit in commits)
        return self._count(_INSERT_EVENTS)

    def _insert_samples(self, samples: SampleIntake) -> None:
        if samples.payloads:
            with self._scratch.open("wb") as scratch:
                scratch.writelines(b"%b\n" % _line(payload) for payload in samples.payloads)
            self._count(_INSERT_SAMPLES)
            self._rollup.mark(samples.minutes)
        if samples.gaps:
            self._db.executemany("INSERT INTO sample_gaps VALUES (?, ?, ?, ?, ?, ?)", list(samples.gaps))
        if samples.heads:
            rows = [(*key, *head) for key, head in samples.heads.items()]
            self._db.executemany(
                "DELETE FROM sample_heads WHERE node = ? AND incarnation = ?", [row[:2] for row in rows]
            )
            self._db.executemany("INSERT INTO sample_heads VALUES (?, ?, ?, ?, ?)", rows)

    def _count(self, insert: str) -> int:
        row = self._db.execute(insert, [str(self._scratch)]).fetchone()
        return row[0] if row else 0

    def _write_cursor(self, new: Cursor) -> None:
        heads = msgspec.json.encode(new.heads, order="deterministic").decode()
        self._db.execute("DELETE FROM cursor")
        self._db.execute("INSERT INTO cursor VALUES (?, ?, ?, ?, ?, ?)", [*new[:3], heads, *new[4:]])

    def roll_up(self, now_ns: int) -> None:
        """Add up the samples of minutes and hours that are over."""
        with self._transaction():
            rolled = self._rollup.roll(now_ns)
        self.version += rolled

    def drop_samples(self, before: Kept, rows_max: int = SAMPLE_ROWS_MAX) -> None:
        """Forget samples and their sums older than `before`, and the oldest samples beyond `rows_max`, whole minutes at a
        time; with them stale heads and gaps."""
        before_ns = before.samples_ns
        over = self.rows("SELECT greatest(0, count(*) - ?), count(*) FROM samples", [rows_max])[0]
        if over[0]:
            share = over[0] / over[1]
            before_ns = max(
                before_ns, self.rows("SELECT quantile_disc(at_ns, ?) FROM samples", [share])[0][0] + MINUTE_NS
            )
        before_ns -= before_ns % MINUTE_NS
        with self._transaction():
            self._rollup.roll(before_ns + GRACE_NS)
            self._rollup.drop(before_ns, before.minutes_ns, before.hours_ns)
            for statement in (
                "DELETE FROM samples WHERE at_ns < ?",
                "DELETE FROM sample_gaps WHERE noticed_at_ns < ?",
                "DELETE FROM sample_heads WHERE at_ns < ?",
            ):
                self._db.execute(statement, [before_ns])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Answer one of the service's own questions."""
        return self._db.execute(query, list(parameters)).fetchall()

    def copy_to(self, target: Path) -> None:
        """Write a consistent copy of the file. The caller's thread is the only writer, so nothing moves meanwhile.

        `cp` copies in a process of its own (and shares blocks where the file system can): a copy made here
        would, on closing its descriptor, drop the POSIX lock that keeps a second telemetry service out.
        """
        self._db.execute("CHECKPOINT")
        subprocess.run(["cp", "--", str(self.path), str(target)], check=True, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        """Close the file; everything stored is on disk already."""
        self._db.close()
        with contextlib.suppress(OSError):  # a leftover is overwritten at the next start
            self._scratch.unlink()


def _line(payload: bytes) -> bytes:
    """A payload on one line: raw line breaks can only be white space between JSON tokens."""
    if b"\n" in payload or b"\r" in payload:
        return payload.replace(b"\r", b" ").replace(b"\n", b" ")
    return payload
