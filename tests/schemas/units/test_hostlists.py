"""Hostlists: many names in their order as one short text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.units.hostlists import NAMES_MAX, expand, fold, is_foldable

NAMES = (
    st.text("ab-.:019", max_size=6)
    | st.integers(0, 1200).map(lambda n: f"n{n}")
    | st.integers(0, 120).map("x{:03d}".format)
)


@given(st.lists(NAMES, min_size=2, max_size=60))
def test_what_is_folded_expands_to_the_same_names_in_the_same_order(names: list[str]) -> None:
    """A rank is a place in the list, so no name may move."""
    assert is_foldable(names)
    assert expand(fold(names)) == tuple(names)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3", "n7", "x", "x"], "n[1-3,7],x*2"),
        (["n9", "n10", "n099", "n100"], "n[9-10,099-100]"),
        (["10.0.0.7", "10.0.0.8", "10.0.1.1"], "10.0.0.[7-8],10.0.1.1"),
        ([f"n{number}" for number in range(1000)], "n[0-999]"),
        (["", "a"], ",a"),
    ],
)
def test_numbers_that_follow_each_other_are_a_range(names: list[str], text: str) -> None:
    """With their leading zeros, as Slurm writes them."""
    assert fold(names) == text
    assert expand(text) == tuple(names)


@pytest.mark.parametrize("names", [["[fd00::1]", "b"], ["a,b", "c"], ["a*2", "b"], ["alone"]])
def test_names_with_a_meaning_in_hostlists_are_not_folded(names: list[str]) -> None:
    """The writer sends them in full."""
    assert not is_foldable(names)


@pytest.mark.parametrize(
    "text", ["n[", "n[1-", "n]", "n[1-2-3]", "n[a]", f"x*{NAMES_MAX + 1}", "n[0-999999999]", "a*b"]
)
def test_a_text_that_is_no_hostlist_is_refused(text: str) -> None:
    """No text makes the reader expand without bound."""
    with pytest.raises(ValueError, match="expected a"):
        expand(text)
