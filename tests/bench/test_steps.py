"""Progress of the benchmark: a line before each row."""

import pytest

from bench.__main__ import Steps


def test_each_row_begins_with_how_far_the_run_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Done rows of all, the rate and the time left; rows that were not asked for are left out, and a single row has no line."""
    times = iter([0.0, 0.0, 60.0])
    steps = Steps(["run", "rest", "run"], lambda: next(times))
    assert [steps.begins(name) for name in ("cli", "run", "rest")] == [False, True, True]
    assert capsys.readouterr().err.splitlines() == [
        "bench: 0 of 2 rows (0 %); now run",
        "bench: 1 of 2 rows (50 %), 1.0 a minute, 1m 00s left; now rest",
    ]
    assert Steps(["sync"], lambda: 0.0).begins("sync") and capsys.readouterr().err == ""
