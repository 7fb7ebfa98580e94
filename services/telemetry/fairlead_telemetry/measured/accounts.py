"""Accounts of samples apart from their rows: the newest batch of each node, losses, and refusals."""

import duckdb

from fairlead_telemetry.measured.column_batches import heads_arrays
from fairlead_telemetry.samples import SampleHead, SampleIntake


def keep(db: duckdb.DuckDBPyConnection, samples: SampleIntake) -> None:
    """The accounts of what has come. The caller owns the transaction."""
    if samples.gaps:
        db.executemany("INSERT INTO sample_gaps VALUES (?, ?, ?, ?, ?, ?)", list(samples.gaps))
    if samples.heads:
        db.register("moved", heads_arrays(samples.heads))
        db.execute("DELETE FROM sample_heads WHERE (node, incarnation) IN (SELECT (node, incarnation) FROM moved)")
        db.execute("INSERT INTO sample_heads BY NAME FROM moved")
        db.unregister("moved")
    if samples.refusals:
        db.execute("DELETE FROM sample_refusals")
        rows = [(*key, *refusal) for key, refusal in samples.refusals.items()]
        db.executemany("INSERT INTO sample_refusals VALUES (?, ?, ?, ?)", rows)


def forget(db: duckdb.DuckDBPyConnection, before_ns: int) -> None:
    """Delete the accounts recorded before that time."""
    db.execute("DELETE FROM sample_gaps WHERE noticed_at_ns < ?", [before_ns])
    db.execute("DELETE FROM sample_heads WHERE at_ns < ?", [before_ns])


def heads(db: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], SampleHead]:
    """{(node, incarnation): newest batch} as stored."""
    rows = db.execute("SELECT node, incarnation, n, at_ns, lost FROM sample_heads").fetchall()
    return {(node, incarnation): SampleHead(n, at_ns, lost) for node, incarnation, n, at_ns, lost in rows}
