"""Placement of a request: the rule for starts, the rule for GPUs, and the changes that either may make."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_placer.mig.instance_choice import (
    AllowedChange,
    InstanceGrant,
    MigGpu,
    choose_gpu,
    choose_start,
    demand_of,
    in_the_way,
)
from fairlead_placer.mig.layouts import Instance, Layout
from fairlead_placer.mig.models import BY_NAME
from tests.placer.mig.exhaustive import gpu, instances, is_legal, layouts, profiles

A100 = "A100-40GB"


def start(
    busy: str, idle: str, profile: str, change: AllowedChange = AllowedChange.RECUT, **weights: int
) -> str | None:
    """Return the grant of the profile on an A100 with these instances, as "change start, destroyed…"; weights as
    `w1g_5gb=3`."""
    demand = demand_of(BY_NAME[A100], {_profile(name): weight for name, weight in weights.items()})
    grant = choose_start(gpu(A100, busy, idle), profile, demand, change)
    return None if grant is None else told(grant)


def _profile(name: str) -> str:
    return name.removeprefix("w").replace("_", ".")


def told(grant: InstanceGrant) -> str:
    gone = "".join(f" -{instance.profile}@{instance.start}" for instance in grant.destroy)
    return f"{grant.change.name.lower()} {grant.instance.start}{gone}"


@pytest.mark.parametrize(
    ("busy", "profile", "expected"),
    [
        ("", "1g.5gb", "add 6"),  # beside the slice that only waste reaches
        ("", "1g.10gb", "add 6"),
        ("", "2g.10gb", "add 4"),  # leaves 4g.20gb
        ("", "3g.20gb", "add 4"),  # the same
        ("", "4g.20gb", "add 0"),
        ("", "7g.40gb", "add 0"),
        ("1g.5gb@6", "1g.5gb", "add 5"),
        ("1g.5gb@6", "3g.20gb", "add 0"),
        ("1g.5gb@6", "7g.40gb", None),
        ("3g.20gb@4", "4g.20gb", "add 0"),
        ("3g.20gb@4 4g.20gb@0", "1g.5gb", None),
        ("1g.5gb+me@6", "1g.5gb+me", None),
        ("1g.5gb+me@6", "1g.5gb", "add 5"),
    ],
)
def test_the_start_that_leaves_most(busy: str, profile: str, expected: str | None) -> None:
    """With all profiles alike, on an A100."""
    assert start(busy, "", profile) == expected


def test_demand_decides_what_is_kept_free() -> None:
    """If fours are requested, the lower half is kept whole; if twos and threes are, they are packed together."""
    assert start("", "", "2g.10gb", w4g_20gb=1) == "add 4"
    assert start("", "", "2g.10gb", w2g_10gb=2, w3g_20gb=1) == "add 2"
    assert start("2g.10gb@2", "", "2g.10gb", w2g_10gb=2, w3g_20gb=1) == "add 0"
    assert start("2g.10gb@2 2g.10gb@0", "", "3g.20gb") == "add 4"


def test_profiles_without_recent_demand_still_break_ties() -> None:
    """All starts are equal to a demand for ones; the GPU is still not fragmented."""
    assert start("", "", "1g.5gb", w1g_5gb=9) == "add 6"


@pytest.mark.parametrize(
    ("busy", "idle", "profile", "take", "add", "recut"),
    [
        # Below RECUT an idle instance is taken whatever else there is.
        ("", "1g.5gb@0", "1g.5gb", "take 0", "take 0", "add 6"),
        ("", "1g.5gb@6", "1g.5gb", "take 6", "take 6", "take 6"),
        # No idle one of that profile.
        ("", "1g.5gb@0", "2g.10gb", None, "add 2", "add 4"),  # what stays decides which half is kept whole
        ("", "1g.5gb@0", "4g.20gb", None, None, "recut 0 -1g.5gb@0"),
        ("", "3g.20gb@0 3g.20gb@4", "1g.5gb", None, None, "recut 6 -3g.20gb@4"),
        # Among equals the fewest go.
        ("3g.20gb@4", "1g.5gb@0 1g.5gb@1 1g.5gb@2", "2g.10gb", None, None, "recut 2 -1g.5gb@2"),
        # What is in use stays, whatever is asked for.
        ("1g.5gb@0", "3g.20gb@4", "4g.20gb", None, None, None),
        ("1g.5gb@0", "3g.20gb@4", "3g.20gb", "take 4", "take 4", "take 4"),
        # The one instance with media engines is in the way without an overlap.
        ("", "1g.5gb+me@0", "1g.5gb+me", "take 0", "take 0", "recut 6 -1g.5gb+me@0"),
    ],
)
def test_the_allowed_change_limits_the_choice(
    busy: str, idle: str, profile: str, take: str | None, add: str | None, recut: str | None
) -> None:
    """Levels: use free instances; add instances; replace idle instances."""
    assert (
        start(busy, idle, profile, AllowedChange.TAKE),
        start(busy, idle, profile, AllowedChange.ADD),
        start(busy, idle, profile, AllowedChange.RECUT),
    ) == (take, add, recut)


def test_a_profile_of_another_model_is_nowhere() -> None:
    """No error: a pool may hold several models."""
    assert start("", "", "1g.6gb") is None
    assert choose_gpu([gpu(A100)], "1g.6gb") is None
    assert choose_gpu([], "1g.5gb") is None


def test_a_grant_says_what_it_costs() -> None:
    """Half of an empty A100, with only halves asked for: four slices stay free, and useful."""
    demand = demand_of(BY_NAME[A100], {"3g.20gb": 1})
    grant = choose_start(gpu(A100), "3g.20gb", demand, AllowedChange.ADD)
    assert grant == InstanceGrant("g", Instance("3g.20gb", 4), AllowedChange.ADD, (), 2000, 0, 1000, 0)
    one = choose_start(gpu(A100), "1g.5gb", demand, AllowedChange.ADD)
    assert one is not None and one.stranded_more_milli == 3000


def described(grant: InstanceGrant | None) -> str | None:
    return None if grant is None else f"{grant.uuid} {told(grant)}"


def test_a_partitioned_gpu_goes_before_a_whole_one() -> None:
    """In use, then partitioned but idle, then whole; the order of the GPUs does not count."""
    used, cut, whole = gpu(A100, "1g.5gb@6", uuid="used"), gpu(A100, uuid="cut"), gpu(A100, uuid="whole", enabled=False)
    for gpus in ([used, cut, whole], [whole, cut, used]):
        assert described(choose_gpu(gpus, "1g.5gb")) == "used add 5"
    assert described(choose_gpu([whole, cut], "1g.5gb")) == "cut add 6"
    assert described(choose_gpu([whole], "1g.5gb")) == "whole add 6"


def test_a_whole_gpu_is_opened_where_the_others_would_strand_more() -> None:
    """Halves are asked for: a one in the last free half spoils it, in a GPU with a spoilt half it would not."""
    halves = {"3g.20gb": 9, "1g.5gb": 1}
    last = gpu(A100, "4g.20gb@0", uuid="last")
    spoilt = gpu(A100, "4g.20gb@0 1g.5gb@6", uuid="spoilt")
    assert described(choose_gpu([last, spoilt], "1g.5gb", halves)) == "spoilt add 5"
    whole = gpu(A100, uuid="whole", enabled=False)
    twos = {"2g.10gb": 9, "1g.5gb": 1}
    odd = gpu(A100, "1g.5gb@6 2g.10gb@4 2g.10gb@2", uuid="odd")
    assert described(choose_gpu([odd, whole], "1g.5gb", twos)) == "whole add 6"
    assert described(choose_gpu([odd, whole], "1g.5gb", {"1g.5gb": 1})) == "odd add 1"


def test_equal_gpus_are_taken_in_order() -> None:
    """The first of them."""
    assert described(choose_gpu([gpu(A100, uuid="b"), gpu(A100, uuid="a")], "2g.10gb")) == "b add 4"


def test_an_idle_instance_anywhere_goes_before_a_new_one() -> None:
    """Below RECUT, where idle instances stay."""
    gpus = [gpu(A100, "1g.5gb@6", uuid="used"), gpu(A100, "", "1g.5gb@0", uuid="idle")]
    assert described(choose_gpu(gpus, "1g.5gb", change=AllowedChange.ADD)) == "idle take 0"
    assert described(choose_gpu(gpus, "1g.5gb", change=AllowedChange.RECUT)) == "used add 5"


def test_models_of_one_pool_are_looked_at_together() -> None:
    """10 GB are two slices of one A100 and one of the other: the one goes that strands less."""
    gpus = [gpu("A100-40GB", uuid="small"), gpu("A100-80GB", uuid="large"), gpu("A30-24GB", uuid="other")]
    assert described(choose_gpu(gpus[:1], "1g.10gb")) == "small add 6"
    assert described(choose_gpu(gpus, "1g.6gb")) == "other add 3"
    assert described(choose_gpu(gpus, "1g.10gb")) in ("small add 6", "large add 6")


def test_only_what_is_in_the_way_goes() -> None:
    """By overlap, or because there is one instance with media engines."""
    layout = Layout(instances("3g.20gb@4"), instances("1g.5gb@3 1g.5gb@0 1g.5gb+me@1"))
    model = BY_NAME[A100]
    assert in_the_way(model, layout, instances("2g.10gb@2")) == instances("1g.5gb@3")
    assert in_the_way(model, layout, instances("1g.5gb+me@2")) == instances("1g.5gb+me@1")
    with pytest.raises(AssertionError):
        in_the_way(model, layout, instances("7g.40gb@0"))


# ----------------------------------------------------------------------------- against everything


@st.composite
def cut_gpus(draw: st.DrawFn, model: str) -> MigGpu:
    """Any legal layout of the model, any part of it in use."""
    layout = draw(st.sampled_from(sorted(layouts(model), key=sorted)))
    held = [Instance(*placed) for placed in sorted(layout)]
    busy = tuple(instance for instance in held if draw(st.booleans()))
    return MigGpu("g", BY_NAME[model], Layout(busy, tuple(i for i in held if i not in busy)))


@pytest.mark.slow
@pytest.mark.parametrize("model", [A100, "A30-24GB"])
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_request_is_granted_exactly_if_some_legal_layout_grants_it(model: str, data: st.DataObject) -> None:
    """Each allowed change has its own set of layouts; a grant is legal with everything that stays."""
    held = data.draw(cut_gpus(model))
    profile = data.draw(st.sampled_from(sorted(profiles(model))))
    change = data.draw(st.sampled_from(AllowedChange))
    weights = data.draw(st.dictionaries(st.sampled_from(sorted(profiles(model))), st.integers(0, 9)))
    grant = choose_start(held, profile, demand_of(held.model, weights), change)
    starts = [place["start"] for place in profiles(model)[profile]["placements"]]
    stay = held.layout.busy if change == AllowedChange.RECUT else held.layout.instances
    possible = any(instance.profile == profile for instance in held.layout.idle) or (
        change > AllowedChange.TAKE and any(is_legal(model, (*stay, (profile, at))) for at in starts)
    )
    assert (grant is not None) == possible
    if grant is not None:
        assert grant.change <= change and grant.instance.profile == profile
        assert (grant.change == AllowedChange.TAKE) == (grant.instance in held.layout.idle)
        assert set(grant.destroy) <= set(held.layout.idle)
        assert (grant.destroy != ()) == (grant.change == AllowedChange.RECUT)
        after = set(held.layout.instances) - set(grant.destroy) | {grant.instance}
        assert is_legal(model, tuple(after))
        assert set(held.layout.busy) <= after
        for spared in grant.destroy:  # none goes without need
            assert not is_legal(model, (*after, spared))
