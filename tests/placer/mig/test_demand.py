"""The two figures of a room, against their definitions taken literally."""

from fractions import Fraction
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_placer.mig.instance_choice import PARTS, Demand, demand_of, rounded
from fairlead_placer.mig.layouts import Instance, LayoutRoom, room_of
from fairlead_placer.mig.models import BY_NAME
from tests.placer.mig.exhaustive import addable, instances, layouts, profiles

A100, A30 = BY_NAME["A100-40GB"], BY_NAME["A30-24GB"]


def runway(model: str, held: frozenset[tuple[str, int]], weights: dict[str, int]) -> Fraction:
    """Every stream of requests, as long as a GPU can serve: its probability, if all of it fits."""
    fits, total = addable(model, held), sum(weights.values())
    longest = max(len(names) for names in fits)
    return sum(
        (
            Fraction(prod(weights[name] for name in stream), total**length)
            for length in range(1, longest + 1)
            for stream in product(weights, repeat=length)
            if tuple(sorted(stream)) in fits
        ),
        Fraction(0),
    )


def stranded(model: str, held: frozenset[tuple[str, int]], weights: dict[str, int]) -> Fraction:
    """Free slices, less those that as many as fit of one profile alone would use: on average."""
    fits, rows = addable(model, held), profiles(model)
    free = {"A100-40GB": 8, "A30-24GB": 4}[model] - sum(rows[name]["memory_slices"] for name, _ in held)
    used = {
        name: max(len(names) for names in fits if set(names) <= {name}) * rows[name]["memory_slices"]
        for name in weights
    }
    return Fraction(sum(weights[name] * (free - used[name]) for name in weights), sum(weights.values()))


def room(model: str, held: frozenset[tuple[str, int]]) -> LayoutRoom:
    return room_of(BY_NAME[model], [Instance(*placed) for placed in held])


WEIGHTS = [
    ("A30-24GB", {"1g.6gb": 1, "2g.12gb": 1, "4g.24gb": 1}),
    ("A30-24GB", {"1g.6gb": 7, "1g.6gb+me": 1, "2g.12gb": 3, "2g.12gb+me": 2}),
    ("A100-40GB", {"3g.20gb": 1, "2g.10gb": 4}),
    ("A100-40GB", {"1g.5gb": 5, "4g.20gb": 2}),
]


@pytest.mark.parametrize(("model", "weights"), WEIGHTS)
def test_figures_are_what_their_definitions_say(model: str, weights: dict[str, int]) -> None:
    """For every room: exactly for the runway, and in whole thousandths."""
    demand = demand_of(BY_NAME[model], weights)
    assert any(layouts(model))
    for held in sorted(layouts(model), key=sorted)[:: 1 if model == "A30-24GB" else 97]:
        of, wanted = room(model, held), runway(model, held, weights)
        assert Fraction(demand.runway(of), demand.runway_unit) == wanted
        assert demand.runway_milli(of) == int(wanted * 1000)
        assert demand.stranded_milli(of) == int(stranded(model, held, weights) * 1000)


def test_one_profile_alone_has_its_own_count_for_a_runway() -> None:
    """Seven slices of one are seven requests; the eighth memory slice is of no use to them."""
    demand = demand_of(A100, {"1g.5gb": 3})
    assert demand.runway_milli(LayoutRoom()) == 7000
    assert demand.stranded_milli(LayoutRoom()) == 1000
    assert demand.runway_milli(room_of(A100, instances("7g.40gb@0"))) == 0


def test_more_room_is_worth_more() -> None:
    """Taking an instance away never shortens the runway."""
    demand = demand_of(A30)
    assert any(layouts("A30-24GB"))
    for held in layouts("A30-24GB"):
        for gone in held:
            assert demand.runway(room("A30-24GB", held - {gone})) >= demand.runway(room("A30-24GB", held))


@pytest.mark.parametrize("weights", [None, {}, {"1g.5gb": 0}, {"9g.99gb": 12, "nvidia.com/gpu": 1}])
def test_without_demand_of_the_model_s_own_all_plain_profiles_count_alike(weights: dict[str, int] | None) -> None:
    """Profiles with media engines are left out: few ask for them."""
    assert demand_of(A100, weights).parts == (1, 0, 1, 1, 1, 1, 1)
    assert demand_of(A30, weights).parts == (1, 0, 1, 0, 1)


def test_demand_keeps_to_the_model_s_own_profiles() -> None:
    """Others' are passed over; the scale does not count."""
    assert demand_of(A100, {"1g.5gb": 20, "3g.20gb": 10, "1g.6gb": 99}).parts == (2, 0, 0, 0, 1, 0, 0)
    assert demand_of(A100, {"1g.5gb": 2, "3g.20gb": 1}) is demand_of(A100, {"3g.20gb": 500, "1g.5gb": 1000})


def test_negative_weights_are_refused() -> None:
    """They mean nothing."""
    with pytest.raises(ValueError, match="negative"):
        demand_of(A100, {"1g.5gb": 3, "2g.10gb": -1})


def test_a_room_that_no_layout_leaves_has_no_figures() -> None:
    """Slice 7 alone cannot be taken."""
    demand = Demand(A100.shape, (1, 1, 1, 1, 1, 1, 1))
    with pytest.raises(KeyError):
        demand.runway(LayoutRoom(0b1000_0000, 1))


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8).filter(any))
def test_rounded_weights_keep_their_order_and_stay_small(weights: list[int]) -> None:
    """Nonzero weights stay nonzero, zero weights stay zero, and the order is kept."""
    parts = rounded(weights, PARTS)
    assert [part > 0 for part in parts] == [weight > 0 for weight in weights]
    assert sum(parts) <= PARTS + len(weights)
    assert all(parts[i] >= parts[j] for i in range(len(parts)) for j in range(len(parts)) if weights[i] > weights[j])
    assert rounded([weight * 3 for weight in weights], PARTS) == parts


def test_rounding_moves_little() -> None:
    """A request more among thousands changes no part."""
    assert rounded([3000, 1000, 2], 60) == rounded([3001, 1000, 2], 60) == (45, 15, 1)
    assert rounded([1, 1, 1], 60) == (1, 1, 1)
