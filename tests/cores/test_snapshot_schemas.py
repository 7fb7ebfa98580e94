"""The shapes of the cores' snapshots, pinned: a change of a type that is folded is seen in a review.

Each change makes services fold the whole log at their next start. After a wanted one:
`make test ARGS="tests/cores/test_snapshot_schemas.py --update-golden"`, and read the difference.
"""

from pathlib import Path

import msgspec
import pytest

from fairlead_access.snapshot import AccessSnapshot
from fairlead_bus.snapshot_codec import described
from fairlead_placer.snapshot import PlacerSnapshot
from fairlead_queue.snapshot import QueueSnapshot
from fairlead_replay import fold
from fairlead_storage.snapshot import StorageSnapshot
from fairlead_telemetry.idle.snapshot import IdleSnapshot

GOLDEN = Path(__file__).parent / "data" / "snapshot_schemas.txt"
DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "queue": QueueSnapshot,
    "placer": PlacerSnapshot,
    "telemetry": IdleSnapshot,
    "access": AccessSnapshot,
    "storage": StorageSnapshot,
}


def test_the_shapes_of_snapshots_are_those_that_are_pinned(request: pytest.FixtureRequest) -> None:
    """Names and every line that goes into them, for each writer of the log."""
    assert list(DOCUMENTS) == list(fold.CORES)
    found = "".join(
        f"{writer} {core.schema}\n" + "".join(f"  {line}\n" for line in described(DOCUMENTS[writer]))
        for writer, core in fold.CORES.items()
    )
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text(), "the shape of a snapshot has changed: see above for what to do"
