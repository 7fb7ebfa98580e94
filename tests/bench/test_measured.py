"""The rows about samples come from a warehouse that holds what they say. No figure is looked at."""

from bench import measured


def test_every_row_is_measured() -> None:
    """Two hours of two nodes: the job of the first, two of the second; a member sees one of these."""
    averages, day, carved = measured.rows(samples=10, seconds=7200)
    assert "115,200 samples: averages of each of 3 jobs (3 rows)" in averages.what
    assert "(96 rows)" in day.what
    assert "who sees 28,800 of them" in carved.what
