"""Streams of requests and releases: every grant legal, no used instance changed, no satisfiable request refused; and
the regret of the choice of a start, compared with the best possible rule."""

from collections import Counter
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_placer.mig.instance_choice import (
    AllowedChange,
    Demand,
    InstanceGrant,
    MigGpu,
    choose_gpu,
    choose_start,
    demand_of,
)
from fairlead_placer.mig.layouts import Instance, Layout, legal_fault
from fairlead_placer.mig.models import BY_NAME, Model
from tests.placer.mig.exhaustive import gpu, is_legal, layouts, multisets, profiles

A100 = "A100-40GB"


def granted(held: MigGpu, grant: InstanceGrant) -> MigGpu:
    """The GPU after the agent has done what the grant says."""
    layout = held.layout
    idle = tuple(instance for instance in layout.idle if instance not in (*grant.destroy, grant.instance))
    return held._replace(layout=Layout((*layout.busy, grant.instance), idle), enabled=True)


def served(model: str, requests: list[str], weights: dict[str, int] | None = None) -> list[bool]:
    """Return the requests that an empty GPU grants, in order; nothing is released."""
    held, answers = gpu(model), list[bool]()
    for profile in requests:
        grant = choose_start(held, profile, demand_of(held.model, weights), AllowedChange.ADD)
        answers.append(grant is not None)
        held = held if grant is None else granted(held, grant)
    return answers


@pytest.mark.parametrize(
    ("model", "requests", "refused"),
    [
        (A100, "1g.5gb " * 8, [7]),
        (A100, "3g.20gb 3g.20gb 1g.5gb", [2]),  # two halves take all memory
        (A100, "3g.20gb 4g.20gb", []),
        (A100, "2g.10gb 4g.20gb 1g.5gb", []),
        (A100, "1g.5gb 2g.10gb 3g.20gb 1g.5gb", [3]),  # the other half's starts are taken
        (A100, "2g.10gb 2g.10gb 2g.10gb 1g.10gb", []),
        (A100, "1g.10gb 3g.20gb 1g.10gb 1g.5gb", [3]),
        (A100, "1g.10gb 4g.20gb 2g.10gb", []),
        (A100, "7g.40gb 1g.5gb", [1]),
        (A100, "1g.5gb+me 1g.5gb+me 1g.5gb 4g.20gb", [1]),
        (A100, "1g.5gb 7g.40gb 4g.20gb 2g.10gb", [1]),
        ("A30-24GB", "1g.6gb 2g.12gb 1g.6gb", []),
        ("A30-24GB", "2g.12gb+me 1g.6gb+me 1g.6gb 1g.6gb", [1]),
        ("H100-80GB", "1g.10gb 1g.20gb 4g.40gb", []),
    ],
)
def test_streams_on_an_empty_gpu(model: str, requests: str, refused: list[int]) -> None:
    """Without demand seen: all profiles alike."""
    names = requests.split()
    assert served(model, names) == [position not in refused for position in range(len(names))]


def test_observed_demand_grants_what_the_default_would_not() -> None:
    """Two twos and a half fit only if the first two does not reserve four slices without demand."""
    stream = ["2g.10gb", "2g.10gb", "3g.20gb"]
    assert served(A100, stream) == [True, True, False]
    assert served(A100, stream, Counter(stream)) == [True, True, True]


# ------------------------------------------------------------------ as good as any rule can be

#: Profiles in the stream, length of the streams, streams of all that any rule must regret, that ours regrets.
MIXES = [
    (("1g.5gb", "2g.10gb"), 7, 0, 0),
    (("1g.5gb", "3g.20gb"), 7, 0, 0),
    (("2g.10gb", "3g.20gb"), 7, 0, 0),
    (("1g.5gb", "1g.10gb", "3g.20gb"), 5, 0, 0),
    (("1g.5gb", "2g.10gb", "3g.20gb"), 6, 30, 30),
    (("1g.5gb", "3g.20gb", "4g.20gb"), 6, 25, 25),
    (("2g.10gb", "3g.20gb", "4g.20gb"), 5, 27, 32),  # the one mix of these where another rule would do better
    (("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"), 5, 17, 17),
    (("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"), 5, 460, 460),
]


def regrets(mix: tuple[str, ...], length: int) -> int:
    """Streams in which ours refuses what would have fitted, had the starts of those before been chosen knowing it."""
    demand = demand_of(BY_NAME[A100], dict.fromkeys(mix, 1))

    @cache
    def grant(busy: tuple[Instance, ...], profile: str) -> Instance | None:
        found = choose_start(MigGpu("g", BY_NAME[A100], Layout(busy)), profile, demand, AllowedChange.ADD)
        return None if found is None else found.instance

    def regretted(stream: tuple[str, ...]) -> bool:
        busy: tuple[Instance, ...] = ()
        for profile in stream:
            instance = grant(busy, profile)
            if instance is not None:
                busy = tuple(sorted((*busy, instance)))
            elif tuple(sorted([*(held.profile for held in busy), profile])) in multisets(A100):
                return True
        return False

    return sum(map(regretted, product(mix, repeat=length)))


def least_regrets(mix: tuple[str, ...], length: int) -> int:
    """The fewest such streams that any rule has which sees one request at a time, by trying all."""
    starts = {name: [place["start"] for place in profiles(A100)[name]["placements"]] for name in mix}

    @cache
    def least(held: frozenset[tuple[str, int]], left: int) -> int:
        if left == 0:
            return 0
        names, count = [name for name, _ in held], 0
        for profile in mix:
            ways = [held | {(profile, at)} for at in starts[profile] if (profile, at) not in held]
            ways = [more for more in ways if more in layouts(A100)]
            if ways:
                count += min(least(more, left - 1) for more in ways)
            elif tuple(sorted([*names, profile])) in multisets(A100):
                count += len(mix) ** (left - 1)
            else:
                count += least(held, left - 1)
        return count

    return least(frozenset(), length)


@pytest.mark.parametrize(("mix", "length", "least", "ours"), MIXES)
def test_no_rule_regrets_less_on_most_mixes(mix: tuple[str, ...], length: int, least: int, ours: int) -> None:
    """Over all streams of a mix with equal probability: an online rule must regret some."""
    assert (least_regrets(mix, length), regrets(mix, length)) == (least, ours)


# ------------------------------------------------------------------------- requests and releases


class Stream:
    """Some GPUs, a random history, and what must hold after each step."""

    def __init__(self, models: list[str], change: AllowedChange) -> None:
        self.gpus = [gpu(model, uuid=f"{position}", enabled=False) for position, model in enumerate(models)]
        self.change = change
        self.seen: Counter[str] = Counter()

    def request(self, profile: str) -> None:
        """Grant a request exactly if some GPU has a legal layout with it and everything that must stay."""
        self.seen[profile] += 1
        grant = choose_gpu(self.gpus, profile, dict(self.seen), self.change)
        assert (grant is not None) == any(self.could(held, profile) for held in self.gpus)
        if grant is not None:
            (position,) = [place for place, held in enumerate(self.gpus) if held.uuid == grant.uuid]
            before = self.gpus[position]
            self.gpus[position] = granted(before, grant)
            assert set(before.layout.busy) | {grant.instance} == set(self.gpus[position].layout.busy)
        self.check()

    def could(self, held: MigGpu, profile: str) -> bool:
        """By trying every start."""
        model, layout = held.model.name, held.layout
        if any(instance.profile == profile for instance in layout.idle):
            return True
        stay = layout.busy if self.change == AllowedChange.RECUT else layout.instances
        starts = profiles(model).get(profile, {"placements": []})["placements"]
        return self.change > AllowedChange.TAKE and any(
            is_legal(model, (*stay, (profile, at["start"]))) for at in starts
        )

    def release(self, which: int, *, destroyed: bool) -> None:
        """One of those in use ends; its instance stays idle, or goes."""
        used = [(position, instance) for position, held in enumerate(self.gpus) for instance in held.layout.busy]
        if used:
            position, instance = used[which % len(used)]
            busy, idle = self.gpus[position].layout
            left = tuple(other for other in busy if other != instance)
            layout = Layout(left, idle if destroyed else (*idle, instance))
            self.gpus[position] = self.gpus[position]._replace(layout=layout)
        self.check()

    def check(self) -> None:
        """Legal, by the slow way and by ours."""
        for held in self.gpus:
            assert is_legal(held.model.name, held.layout.instances)
            assert legal_fault(held.model, held.layout.instances) == ""


steps = st.one_of(
    st.tuples(st.just("request"), st.sampled_from(sorted({*profiles(A100), *profiles("A30-24GB")}))),
    st.tuples(st.just("release"), st.integers(0, 99)),
    st.tuples(st.just("destroy"), st.integers(0, 99)),
)


@pytest.mark.parametrize("change", AllowedChange)
@given(
    models=st.sampled_from([[A100], [A100, A100], [A100, "A30-24GB"]]),
    history=st.lists(steps, min_size=5, max_size=30),
)
@settings(max_examples=80, deadline=None)
def test_no_history_breaks_a_layout_or_refuses_what_fits(
    change: AllowedChange, models: list[str], history: list[tuple[str, str | int]]
) -> None:
    """With arrivals, ends and demand learned on the way."""
    stream = Stream(models, change)
    for what, argument in history:
        if isinstance(argument, str):
            stream.request(argument)
        else:
            stream.release(argument, destroyed=what == "destroy")


def test_the_same_stream_gives_the_same_answers_whatever_the_order_within_a_layout() -> None:
    """Instances are a set: how their list came about leaves no trace."""

    def answer(model: Model, layout: Layout, demand: Demand) -> list[InstanceGrant | None]:
        held = MigGpu("g", model, layout)
        return [choose_start(held, name, demand, change) for name in model.profiles for change in AllowedChange]

    model = BY_NAME[A100]
    demand = demand_of(model)
    assert len(layouts(A100)) > 53
    for layout in sorted(layouts(A100), key=sorted)[::53]:
        held = [Instance(*placed) for placed in sorted(layout)]
        one = Layout(tuple(held[::2]), tuple(held[1::2]))
        other = Layout(one.busy[::-1], one.idle[::-1])
        assert answer(model, one, demand) == answer(model, other, demand)
