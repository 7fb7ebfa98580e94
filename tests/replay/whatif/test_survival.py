"""Run lengths that a log does not have: conditional Kaplan-Meier by hand, and what a cut run tells."""

import pytest

from fairlead_replay.whatif.survival import OWN_ENDS_MIN, Groups, SeenLength, SurvivalCurve, uniform


def seen(*lengths: int) -> list[SeenLength]:
    """Return lengths; those below zero were cut there."""
    return [SeenLength(abs(length), length > 0) for length in lengths]


def test_draws_follow_the_share_of_runs_that_last_longer() -> None:
    """Of four whole runs a quarter ends at each length."""
    curve = SurvivalCurve(seen(10, 20, 30, 40))
    assert [curve.draw(0, chance) for chance in (0.0, 0.24, 0.26, 0.51, 0.76, 0.99)] == [10, 10, 20, 30, 40, 40]


def test_a_cut_run_counts_for_as_long_as_it_was_seen() -> None:
    """Two are cut at 15: of those at risk at 20 there are two, so half of what is left ends there."""
    curve = SurvivalCurve(seen(10, -15, -15, 20, 30))
    assert curve.own_ends == 3
    assert [curve.draw(0, chance) for chance in (0.19, 0.21, 0.59, 0.61)] == [10, 20, 20, 30]


def test_left_out_cut_runs_would_look_shorter() -> None:
    """The same lengths without those that were cut have a smaller median."""
    cut = seen(10, 20, -30, -30, -30, 40, 50)
    with_them, without = SurvivalCurve(cut), SurvivalCurve([each for each in cut if each.is_whole])
    assert (with_them.draw(0, 0.5), without.draw(0, 0.5)) == (40, 20)


def test_a_draw_is_longer_than_the_run_so_far() -> None:
    """A draw is always above what was seen, and None where nothing is known to last longer."""
    curve = SurvivalCurve(seen(10, 20, 30, 40))
    assert [curve.draw(20, chance) for chance in (0.0, 0.49, 0.51)] == [30, 30, 40]
    assert curve.draw(40, 0.5) is None
    assert SurvivalCurve([]).draw(0, 0.5) is None


def test_the_most_alike_group_with_enough_own_ends_is_asked() -> None:
    """A name with too few of its own is passed over."""
    groups = Groups()
    for n in range(OWN_ENDS_MIN):
        groups.add([("user",), ("pool",)], SeenLength(100 + n, True))
    groups.add([("name",), ("user",), ("pool",)], SeenLength(5, True))
    assert groups.draw([("name",), ("user",)], 0, 0.0) == 5  # of the user's, it is the shortest
    assert groups.draw([("name",), ("user",)], 6, 0.0) == 100


def test_a_run_longer_than_all_others_is_doubled() -> None:
    """Nothing better is known."""
    groups = Groups()
    groups.add([("pool",)], SeenLength(5, True))
    assert groups.draw([("pool",)], 50, 0.3) == 100
    assert groups.draw([("other",)], 0, 0.3) == 1


def test_a_small_group_is_used_where_no_group_is_large_enough() -> None:
    """Fewer own ends than a group should have are still better than none."""
    groups = Groups()
    groups.add([("pool",)], SeenLength(70, True))
    assert groups.draw([("name",), ("pool",)], 50, 0.3) == 70


@pytest.mark.parametrize("parts", [(0, "a"), (1, "a"), (0, "b"), (0, "a", "length")])
def test_chances_depend_on_their_names_only(parts: tuple[object, ...]) -> None:
    """They are repeatable, from 0 to 1, and differ by name."""
    assert uniform(*parts) == uniform(*parts)
    assert 0 <= uniform(*parts) < 1
    assert uniform(*parts) != uniform(*parts, "x")
