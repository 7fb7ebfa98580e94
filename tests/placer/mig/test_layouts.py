"""Legal layouts, the room they leave, and the profiles that fit: against every combination of the published tables."""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_placer.mig.layouts import Instance, LayoutRoom, counts_in, layouts_of, legal_fault, remains, room_of, unit
from fairlead_placer.mig.models import BY_NAME
from tests.placer.mig.exhaustive import TABLES, addable, instances, is_legal, layouts, multisets, profiles
from tests.placer.mig.maximal import maximal_layouts

A100 = BY_NAME["A100-40GB"]


def names(model: str, packed: int) -> tuple[str, ...]:
    """A packed set as sorted profiles."""
    order = BY_NAME[model].profiles
    counts = counts_in(packed, len(order))
    return tuple(sorted(profile for profile, count in zip(order, counts, strict=True) for _ in range(count)))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("1g.6gb@0", "no profile 1g.6gb"),
        ("2g.10gb@6", "may start at 0, 2, 4, not at 6"),
        ("1g.5gb@7", "not at 7"),
        ("1g.5gb@0 1g.5gb@0", "overlaps"),
        ("3g.20gb@0 1g.5gb@3", "overlaps"),
        ("4g.20gb@0 4g.20gb@0", "more than 1 of 4g.20gb"),
        ("1g.5gb+me@0 1g.5gb+me@1", "more than 1 of 1g.5gb+me"),
        ("7g.40gb@0 1g.5gb@6", "overlaps"),
    ],
)
def test_an_illegal_layout_has_a_reason(text: str, word: str) -> None:
    """The first fault, in a sentence."""
    assert word in legal_fault(A100, instances(text))


def test_media_engines_are_given_once_whatever_the_profile() -> None:
    """An A30 has two profiles with them."""
    assert "media" in legal_fault(BY_NAME["A30-24GB"], instances("1g.6gb+me@0 2g.12gb+me@2"))
    assert legal_fault(BY_NAME["A30-24GB"], instances("1g.6gb@0 2g.12gb+me@2")) == ""


def placements(model: str) -> st.SearchStrategy[tuple[str, int]]:
    """A profile of the model, or of another, at some slice."""
    some = [*profiles(model), "1g.6gb"]
    return st.tuples(st.sampled_from(some), st.integers(0, 8))


@pytest.mark.parametrize("model", ["A100-40GB", "A30-24GB"])
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_legal_means_what_the_published_table_says(model: str, data: st.DataObject) -> None:
    """Any instances, mostly nonsense: the same verdict as the slow way's."""
    drawn = data.draw(st.lists(placements(model), max_size=4))
    found = legal_fault(BY_NAME[model], [Instance(*placed) for placed in drawn])
    assert (found == "") == is_legal(model, tuple(drawn))


@pytest.mark.parametrize("model", ["A100-40GB", "A30-24GB"])
def test_every_legal_layout_is_legal_and_nothing_else_can_be_added(model: str) -> None:
    """All of them: 2,319 on an A100. The free starts of each are exactly those that the slow way finds."""
    ours = BY_NAME[model]
    assert len(layouts(model)) == {"A100-40GB": 2319, "A30-24GB": 76}[model]
    for layout in layouts(model):
        held = [Instance(*placed) for placed in sorted(layout)]
        assert legal_fault(ours, held) == ""
        room = room_of(ours, held)
        free = {(p, start) for i, p in enumerate(ours.profiles) for start in room.free_starts(ours.shape, i)}
        assert free == {
            placed for placed in _places(model) if layout | {placed} in layouts(model) and placed not in layout
        }


def _places(model: str) -> list[tuple[str, int]]:
    return [(name, place["start"]) for name, row in profiles(model).items() for place in row["placements"]]


@pytest.mark.parametrize("model", ["A100-40GB", "A30-24GB"])
def test_remaining_sets_are_exactly_those_of_some_layout(model: str) -> None:
    """For every room that a layout leaves: the table's sets are those of all layouts that hold it."""
    ours = BY_NAME[model]
    table = remains(ours.shape)
    assert any(layouts(model))
    for layout in layouts(model):
        room = room_of(ours, [Instance(*placed) for placed in layout])
        found = {names(model, packed) for packed in table.sets(room)}
        assert found == addable(model, layout)
        assert table.most(room) == tuple(
            max(sum(name == profile for name in held) for held in found if set(held) <= {profile})
            for profile in ours.profiles
        )


def test_the_table_knows_every_room_and_no_other() -> None:
    """One per room of a legal layout."""
    rooms = {room_of(A100, [Instance(*placed) for placed in layout]) for layout in layouts("A100-40GB")}
    assert remains(A100.shape).rooms == len(rooms)
    with pytest.raises(KeyError):
        remains(A100.shape).sets(LayoutRoom(mask=0b1000_0000, compute=0))


@pytest.mark.parametrize("model", ["A100-40GB", "A30-24GB"])
def test_layouts_of_a_set_are_all_there_are_once_each(model: str) -> None:
    """For every set of profiles that fits an empty GPU."""
    ours = BY_NAME[model]
    by_names = Counter(tuple(sorted(name for name, _ in layout)) for layout in layouts(model))
    assert any(multisets(model))
    for held in multisets(model):
        found = list(layouts_of(ours, tuple(held.count(profile) for profile in ours.profiles)))
        assert len(found) == len({frozenset(one) for one in found}) == by_names[held]
        assert all(frozenset(one) in layouts(model) for one in found)


def test_layouts_of_a_set_respect_the_free_room() -> None:
    """With one half taken, the other half takes the same profiles at its own starts."""
    room = room_of(A100, instances("3g.20gb@4"))
    assert list(layouts_of(A100, (0, 0, 0, 2, 0, 0, 0), room)) == [(Instance("2g.10gb", 2), Instance("2g.10gb", 0))]
    assert list(layouts_of(A100, (0, 0, 0, 0, 2, 0, 0), room)) == []
    assert list(layouts_of(A100, (0, 0, 0, 0, 0, 0, 0), room)) == [()]


@pytest.mark.parametrize("model", TABLES)
def test_maximal_layouts_are_legal_and_full(model: str) -> None:
    """With "+me" too: nothing can be added to any of them, and every other layout is part of one."""
    ours = BY_NAME[model]
    full = [frozenset(layout) for layout in maximal_layouts(ours)]
    assert len(full) == len(set(full))
    assert all(_nothing_fits(model, layout) for layout in full)
    if model in ("A100-40GB", "A30-24GB"):
        assert {layout for layout in layouts(model) if addable(model, layout) == {()}} == set(full)


def _nothing_fits(model: str, layout: Iterable[Instance]) -> bool:
    ours = BY_NAME[model]
    room = room_of(ours, layout)
    return not any(room.free_starts(ours.shape, index) for index in range(len(ours.profiles)))


def test_sets_are_packed_in_digits() -> None:
    """Seven of the first and one of the last stay apart."""
    assert counts_in(7 * unit(0) + unit(6), 7) == (7, 0, 0, 0, 0, 0, 1)
