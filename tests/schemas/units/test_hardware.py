"""Groups of GPUs by their links."""

import pytest

from fairlead_schemas.units.hardware import linked_groups


@pytest.mark.parametrize(
    ("pairs", "sizes"),
    [([], [1, 1, 1, 1]), ([(0, 1)], [1, 1, 2]), ([(0, 2), (2, 3)], [1, 3]), ([(0, 1), (2, 3)], [2, 2])],
)
def test_gpus_are_of_one_group_where_links_lead_from_one_to_the_other(
    pairs: list[tuple[int, int]], sizes: list[int]
) -> None:
    """Also over other GPUs; a GPU without links is alone."""
    links = [[int((i, j) in pairs or (j, i) in pairs) for j in range(4)] for i in range(4)]
    assert sorted(linked_groups(links)) == sizes
    assert linked_groups(()) == []
