"""A warehouse fed with a log in pieces, and all of its folded rows."""

from collections.abc import Sequence
from pathlib import Path

from fairlead_bus.log import Chain
from fairlead_bus.port import Stored
from fairlead_schemas.wire.commit import decode_commit, decode_envelope
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Warehouse


def feed(warehouse: Warehouse, log: Sequence[Stored], sizes: Sequence[int]) -> None:
    """Store what follows the cursor, so many commits per transaction, the sizes in turn."""
    turn = 0
    while (begin := warehouse.cursor.sequence) < len(log):
        chain, commits = Chain(begin, warehouse.cursor.heads), list[CommitBytes]()
        for stored in log[begin : begin + sizes[turn % len(sizes)]]:
            commit = decode_commit(stored.payload)
            chain.extend(stored, commit)
            commits.append(CommitBytes.of(stored.sequence, decode_envelope(stored.payload)))
        warehouse.store(commits, chain.heads, "a log", SampleIntake([], [], {}))
        turn += 1


def folded(warehouse: Warehouse) -> dict[str, list[tuple]]:
    """Every row of every folded table."""
    names = warehouse.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = 'fold'")
    assert len(names) == 16
    return {name: warehouse.rows(f"FROM fold.{name} ORDER BY ALL") for (name,) in names}


def anew(directory: Path, log: Sequence[Stored], sizes: Sequence[int]) -> dict[str, list[tuple]]:
    warehouse = Warehouse(directory)
    feed(warehouse, log, sizes)
    told = folded(warehouse)
    warehouse.close()
    return told
