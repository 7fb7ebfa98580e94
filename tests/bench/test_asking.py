"""The rows about the warehouse come from a warehouse that holds what they say. No figure is looked at."""

from pathlib import Path

from bench import asking, warehouse
from fairlead_telemetry.warehouse.warehouse import Warehouse


def test_every_row_is_measured() -> None:
    """Submitted, queried in three ways, folded again."""
    rows = asking.rows(jobs=200)
    assert [row.measured != "" for row in rows] == [True] * 5
    assert "1,200 events of 200 jobs" in rows[0].what
    assert "200 jobs: gpu_hours_by_user" in rows[3].what


def test_the_lives_are_whole(tmp_path: Path) -> None:
    """So that looking for a job finds one that has ended, and GPU-hours are spread over users."""
    filled = Warehouse(tmp_path)
    warehouse.fill(filled, warehouse.log_of(6 * 300, asking.EVENTS_PER_COMMIT))
    assert filled.rows("SELECT state, count(*) FROM jobs GROUP BY ALL") == [("succeeded", 300)]
    assert filled.rows("SELECT count(*), sum(runs) FROM gpu_hours_by_user") == [(warehouse.USERS, 300)]
    filled.close()
