"""The page of figures: rows that are measured again take the place of the old ones, and of no others."""

import pytest

from bench.table import Row, markdown, replaced

OLD = [Row("a", "1/s", "≥ 2/s", False, "x"), Row("a, more", "3/s", "≥ 2/s", True, "y")]


def test_a_row_that_is_measured_again_takes_its_place() -> None:
    """By what it measures, to the last character."""
    new = Row("a", "4/s", "≥ 2/s", True, "z")
    assert replaced(f"# Page\n\n{markdown(OLD)}\n", [new]) == f"# Page\n\n{markdown([new, OLD[1]])}\n"


def test_a_missing_row_is_refused() -> None:
    """Its place in the table is unknown."""
    with pytest.raises(ValueError, match='"b" on the page, found 0'):
        replaced(markdown(OLD), [OLD[0]._replace(what="b")])
