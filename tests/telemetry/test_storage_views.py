"""Views of volumes and datasets: one row each, as the log has it."""

from pathlib import Path

from fairlead_schemas.wire import events as ev
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import Story

GIB = 2**30


def made(name: str, owner: str, gib: int) -> ev.VolumeCreated:
    """A volume in the class `shared`."""
    return ev.VolumeCreated(
        cause="cmd:c", volume=name, owner=owner, storage_class="shared", quota_bytes=gib * GIB, by="ann"
    )


def test_each_volume_is_a_row_with_its_last_quota_and_its_end(tmp_path: Path) -> None:
    """One that is made again is another row, which takes nothing of the first; a removed queue owns nothing."""
    story = Story()
    story.at(0, made("data", "queue:research", 1), made("own", "user:ann", 2))
    story.at(10, ev.VolumeResized(cause="cmd:r", volume="data", quota_bytes=3 * GIB, by="ann"))
    story.at(20, ev.VolumeDeleted(cause="cmd:d", volume="data", by="ann"))
    story.at(30, made("data", "queue:research", 4))
    story.at(40, ev.VolumeResized(cause="cmd:r", volume="own", quota_bytes=GIB, by="ann"))
    story.at(50, ev.QueueRemoved(cause="cmd:q", path="research", by="ann"))
    story.at(60, ev.QueueConfigured(cause="cmd:q", path="research", settings=None), made("new", "queue:research", 5))
    warehouse = Warehouse(tmp_path)
    store(warehouse, story)
    rows = warehouse.rows(
        f"SELECT name, owner, class, quota_bytes // {GIB}, created_by, deleted_at IS NOT NULL FROM volumes ORDER BY sequence, name"
    )
    assert rows == [
        ("data", "", "shared", 3, "ann", True),
        ("own", "user:ann", "shared", 1, "ann", False),
        ("data", "", "shared", 4, "ann", False),
        ("new", "queue:research", "shared", 5, "ann", False),
    ]


def test_each_version_of_a_dataset_is_a_row(tmp_path: Path) -> None:
    """With the time at which it was retired."""
    story = Story()
    added = {"owner": "project:llm", "size_bytes": 15, "files": 2, "digest": f"sha256:{64 * 'a'}", "by": "ann"}
    story.at(0, *(ev.DatasetAdded(cause="cmd:a", dataset=f"flowers@{version}", **added) for version in (1, 2)))
    story.at(10, ev.DatasetRetired(cause="cmd:r", dataset="flowers@1", by="bob"))
    warehouse = Warehouse(tmp_path)
    store(warehouse, story)
    rows = warehouse.rows(
        "SELECT dataset, owner, size_bytes, files, added_by, retired_at IS NULL FROM datasets ORDER BY 1"
    )
    assert rows == [
        ("flowers@1", "project:llm", 15, 2, "ann", False),
        ("flowers@2", "project:llm", 15, 2, "ann", True),
    ]
