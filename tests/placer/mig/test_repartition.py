"""Repartition plans of free GPUs: their gain, the instances that they may destroy, and the legality of every step."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_placer.mig.instance_choice import MigGpu, demand_of
from fairlead_placer.mig.layouts import Instance, Layout
from fairlead_placer.mig.models import BY_NAME
from fairlead_placer.mig.repartition import WAITING_MAX, RepartitionPlan, plan_for
from tests.placer.mig.exhaustive import gpu, is_legal, layouts, multisets, profiles

A100 = "A100-40GB"
SEVEN = " ".join(f"1g.5gb@{start}" for start in range(7))


def plan(busy: str, idle: str, waiting: str, **weights: int) -> RepartitionPlan | None:
    """Of an A100; weights as `w1g_5gb=3`."""
    held = gpu(A100, busy, idle)
    demand = demand_of(held.model, {name.removeprefix("w").replace("_", "."): n for name, n in weights.items()})
    return plan_for(held, waiting.split(), demand)


def told(found: RepartitionPlan | None) -> str | None:
    """ "-destroyed +created serves positions", in the order of its steps."""
    if found is None:
        return None
    steps = [f"{'+' if step.create else '-'}{step.instance.profile}@{step.instance.start}" for step in found.steps]
    return f"{' '.join(steps)} serves {','.join(map(str, found.served_after))}"


@pytest.mark.parametrize(
    ("busy", "idle", "waiting", "expected"),
    [
        # Nothing to gain.
        ("", "", "", None),
        ("", "1g.5gb@6", "1g.5gb", None),
        ("7g.40gb@0", "", "1g.5gb", None),
        ("1g.5gb@0", "", "7g.40gb 1g.6gb", None),
        ("3g.20gb@0 3g.20gb@4", "", "1g.5gb", None),
        # An empty GPU.
        ("", "", "7g.40gb 1g.5gb", "+7g.40gb@0 serves 0"),
        ("", "", "3g.20gb 2g.10gb 2g.10gb", "+2g.10gb@0 +2g.10gb@2 +3g.20gb@4 serves 0,1,2"),
        ("", "", "2g.10gb 2g.10gb 3g.20gb", "+2g.10gb@0 +2g.10gb@2 +3g.20gb@4 serves 0,1,2"),
        ("", "", "1g.5gb 4g.20gb 3g.20gb", "+4g.20gb@0 +1g.5gb@6 serves 0,1"),
        # The first in turn is served first, even where the others would be more.
        ("", "", "3g.20gb 3g.20gb 1g.5gb 1g.5gb 1g.5gb", "+3g.20gb@0 +3g.20gb@4 serves 0,1"),
        # Idle instances go as far as they are in the way.
        ("", SEVEN, "4g.20gb", "-1g.5gb@0 -1g.5gb@1 -1g.5gb@2 -1g.5gb@3 +4g.20gb@0 serves 0"),
        ("", SEVEN, "1g.10gb", "-1g.5gb@6 +1g.10gb@6 serves 0"),
        ("", "3g.20gb@4", "4g.20gb", "+4g.20gb@0 serves 0"),
        ("1g.5gb@6", "1g.5gb@0 1g.5gb@5", "4g.20gb", "-1g.5gb@0 +4g.20gb@0 serves 0"),
        # Whom an idle instance serves keeps one, and of several the one that leaves the others most.
        ("", SEVEN, "1g.5gb 3g.20gb 3g.20gb", "-1g.5gb@4 -1g.5gb@5 -1g.5gb@6 +3g.20gb@4 serves 0,1"),
        ("", "1g.5gb@0 1g.5gb@6", "1g.5gb 4g.20gb", "-1g.5gb@0 +4g.20gb@0 serves 0,1"),
        # He keeps it even where it lies badly, and though others came first.
        ("", "7g.40gb@0", "1g.5gb 7g.40gb", None),
        ("1g.5gb@6", "1g.5gb+me@0", "4g.20gb 1g.5gb+me", None),
    ],
)
def test_plans(busy: str, idle: str, waiting: str, expected: str | None) -> None:
    """On an A100, all profiles alike."""
    assert told(plan(busy, idle, waiting)) == expected


def test_a_plan_leaves_the_longest_runway() -> None:
    """The two is at the top if fours are requested, and at the side if halves and twos are."""
    assert told(plan("", "", "2g.10gb", w4g_20gb=1)) == "+2g.10gb@4 serves 0"
    assert told(plan("", "", "2g.10gb", w2g_10gb=2, w3g_20gb=1)) == "+2g.10gb@2 serves 0"


def test_a_plan_gives_its_reason_in_numbers() -> None:
    """Jobs served now and later, the cost, and the value of the GPU once all of them run."""
    found = plan("1g.5gb@6", "1g.5gb@5 2g.10gb@2", "1g.5gb 3g.20gb 7g.40gb", w3g_20gb=1, w1g_5gb=3)
    assert found is not None
    assert told(found) == "-2g.10gb@2 +3g.20gb@0 serves 0,1"
    assert (found.uuid, found.served_before) == ("g", (0,))
    assert found.reason == {
        "created": 1,
        "destroyed": 1,
        "runway_after_milli": 750,  # one slice is left: three of four requests would fit, and none after it
        "served_after": 2,
        "served_before": 1,
        "stranded_after_milli": 1250,  # of two: all for the half, one for the others
    }


def test_only_the_first_in_turn_are_looked_at() -> None:
    """A long line costs no more than a bounded one."""
    assert plan_for(gpu(A100), ["1g.6gb"] * (WAITING_MAX - 1) + ["1g.5gb"]) is not None
    assert plan_for(gpu(A100), ["1g.6gb"] * WAITING_MAX + ["1g.5gb"]) is None


def test_without_a_demand_all_profiles_count_alike() -> None:
    """The same as no demand seen."""
    held = gpu(A100, "1g.5gb@3", "2g.10gb@0")
    assert plan_for(held, ["3g.20gb"]) == plan_for(held, ["3g.20gb"], demand_of(held.model))


def test_the_order_within_a_layout_leaves_no_trace() -> None:
    """Instances are a set."""
    held, waiting = gpu(A100, "", SEVEN), ["1g.5gb", "1g.5gb", "1g.10gb"]
    idle = held.layout.idle
    plans = [plan_for(held._replace(layout=Layout((), idle[turn:] + idle[:turn])), waiting) for turn in range(7)]
    assert plans[0] is not None
    assert plans == [plans[0]] * 7


# ----------------------------------------------------------------------------- against everything


@st.composite
def cut_gpus(draw: st.DrawFn, model: str) -> MigGpu:
    """Any legal layout of the model, any part of it in use."""
    layout = draw(st.sampled_from(sorted(layouts(model), key=sorted)))
    held = [Instance(*placed) for placed in sorted(layout)]
    busy = tuple(instance for instance in held if draw(st.booleans()))
    return MigGpu("g", BY_NAME[model], Layout(busy, tuple(i for i in held if i not in busy)))


def most_served(held: MigGpu, waiting: list[str]) -> list[int]:
    """Return the jobs that can be served: first those with an idle instance, then each in turn, by trying every layout."""
    model = held.model.name
    left = [instance.profile for instance in held.layout.idle]
    served: list[int] = []
    for position, profile in enumerate(waiting):
        if profile in left:
            left.remove(profile)
            served.append(position)
    kept = sorted(waiting[position] for position in served)
    solids = [
        frozenset((*held.layout.busy, *chosen))
        for chosen in combinations(held.layout.idle, len(kept))
        if sorted(instance.profile for instance in chosen) == kept
    ]
    possible = {
        tuple(sorted(name for name, _ in layout - solid))
        for solid in solids
        for layout in layouts(model)
        if solid <= layout
    }
    added: list[str] = []
    for position, profile in enumerate(waiting):
        if position not in served and tuple(sorted([*added, profile])) in possible:
            added.append(profile)
            served.append(position)
    return sorted(served)


@pytest.mark.slow
@pytest.mark.parametrize("model", [A100, "A30-24GB"])
@given(data=st.data())
@settings(max_examples=250, deadline=None)
def test_a_plan_serves_every_job_that_some_layout_could_and_keeps_used_instances(
    model: str, data: st.DataObject
) -> None:
    """Every step is legal, idle instances are removed only if they must be, and none that serves a job."""
    held = data.draw(cut_gpus(model))
    waiting = data.draw(st.lists(st.sampled_from([*sorted(profiles(model)), "9g.99gb"]), max_size=6))
    found = plan_for(held, waiting)
    expected = most_served(held, waiting)
    if found is None:
        idle = [instance.profile for instance in held.layout.idle]
        assert len(expected) == sum(min(waiting.count(name), idle.count(name)) for name in set(waiting))
        return
    assert list(found.served_after) == expected
    assert set(found.served_before) < set(found.served_after)
    assert set(found.destroy) <= set(held.layout.idle)
    now = set(held.layout.instances)
    for step in found.steps:
        assert (step.instance in now) != step.create
        now ^= {step.instance}
        assert is_legal(model, tuple(now))
    assert set(held.layout.busy) <= now
    free = [instance.profile for instance in now - set(held.layout.busy)]
    for name in set(waiting):
        assert free.count(name) >= sum(waiting[position] == name for position in found.served_after)
    for spared in found.destroy:
        assert not is_legal(model, (*now, spared))


@pytest.mark.parametrize("model", [A100, "A30-24GB"])
def test_an_empty_gpu_can_be_partitioned_into_every_legal_set(model: str) -> None:
    """In any order of the requests."""
    assert any(multisets(model))
    for names in sorted(multisets(model) - {()})[:: 1 if model == "A30-24GB" else 5]:
        for waiting in (list(names), list(names[::-1])):
            found = plan_for(gpu(model), waiting)
            assert found is not None
            assert sorted(made.profile for made in found.create) == sorted(names)
            assert is_legal(model, found.create)
