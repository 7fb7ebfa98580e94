"""The page of figures: rows that are measured again take the place of the old ones, and of no others."""

import pytest

from bench.__main__ import document
from bench.table import Row, markdown, measured_elsewhere, named_by_build, replaced

OLD = [Row("a", "1/s", "≥ 2/s", False, "x"), Row("a, more", "3/s", "≥ 2/s", True, "y")]


def test_a_row_that_is_measured_again_takes_its_place() -> None:
    """By what it measures, to the last character."""
    new = Row("a", "4/s", "≥ 2/s", True, "z")
    assert replaced(f"# Page\n\n{markdown(OLD)}\n", [new]) == f"# Page\n\n{markdown([new, OLD[1]])}\n"


def test_a_new_row_comes_at_the_end_of_the_table() -> None:
    """Before what follows the table."""
    new = [Row("b", "1 s", "none", True, "x"), Row("c", "2 s", "none", True, "x")]
    page = f"# Page\n\n{markdown(OLD)}\n\n## More\n\n| x |\n"
    assert replaced(page, new) == f"# Page\n\n{markdown([*OLD, *new])}\n\n## More\n\n| x |\n"


def test_a_page_that_cannot_take_a_row_is_refused() -> None:
    """Its place is unknown: the label is there twice, or there is no table."""
    with pytest.raises(ValueError, match='at most one row "a" on the page, found 2'):
        replaced(markdown([OLD[0], OLD[0]]), [OLD[0]])
    with pytest.raises(ValueError, match="what"):
        replaced("# Page\n", [OLD[0]])


def test_a_new_page_keeps_the_sections_after_its_table() -> None:
    """Such as the profile, which another command writes."""
    page = f"# Performance\n\nMachine: old.\n\n{markdown(OLD)}\n\n## CPU by function\n\ntext\n"
    new = document("2 cores", OLD[:1], page)
    assert new.endswith(f"Machine: 2 cores.\n\n{markdown(OLD[:1])}\n\n## CPU by function\n\ntext\n")
    assert document("2 cores", OLD[:1], new) == new


def test_a_row_of_another_machine_names_it() -> None:
    """Rows of the page's own machine do not."""
    page = f"# Page\n\nMachine: 2 cores, CPU A, Python 3.13.0, built without PGO, fsync p50 54 µs.\n\n{markdown(OLD)}\n"
    assert measured_elsewhere(page, "2 cores, CPU A, Python 3.13.0, cores plain, fsync p50 99 µs", OLD) == OLD
    (row, *_) = measured_elsewhere(page, "2 cores, CPU B, Python 3.13.0, cores plain, fsync p50 99 µs", OLD)
    assert row.ceiling == f"{OLD[0].ceiling}; on CPU B, Python 3.13.0"


def test_a_row_of_compiled_cores_stands_beside_the_one_of_plain_cores() -> None:
    """Their labels differ, so that each is written in its own place."""
    row = Row("a", "2/s", "≥ 1/s", True, "none")
    assert named_by_build(row, "plain Python") == row
    assert named_by_build(row, "compiled").what == "a, compiled cores"
