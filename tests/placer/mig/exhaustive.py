"""MIG's legal layouts, computed the slow way from the published tables alone: sets of slices, every combination tried.
Shares no code with the placer. A layout is a frozenset of (profile, start)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from fairlead_placer.mig.instance_choice import MigGpu
from fairlead_placer.mig.layouts import Instance, Layout
from fairlead_placer.mig.models import BY_NAME

DATA = Path(__file__).parents[2] / "data" / "mig"
TABLES: dict[str, Any] = json.loads((DATA / "mig_profiles.json").read_text())

type Placed = frozenset[tuple[str, int]]


def gpu(model: str, busy: str = "", idle: str = "", *, uuid: str = "g", enabled: bool = True) -> MigGpu:
    """`gpu("A100-40GB", "1g.5gb@6 3g.20gb@0", "2g.10gb@4")`."""
    return MigGpu(uuid, BY_NAME[model], Layout(instances(busy), instances(idle)), enabled)


def instances(text: str) -> tuple[Instance, ...]:
    """`instances("1g.5gb@6 3g.20gb@0")`."""
    parts = [part.partition("@") for part in text.split()]
    return tuple(Instance(profile, int(start)) for profile, _, start in parts)


@cache
def profiles(model: str) -> dict[str, dict[str, Any]]:
    """{profile: its row of the table}."""
    return {row["name"]: row for row in TABLES[model]["profiles"]}


def slices(model: str, placed: tuple[str, int]) -> set[int]:
    """The memory slices of one placement; KeyError where the table has none such."""
    sizes = {place["start"]: place["size"] for place in profiles(model)[placed[0]]["placements"]}
    return set(range(placed[1], placed[1] + sizes[placed[1]]))


def is_legal(model: str, layout: tuple[tuple[str, int], ...]) -> bool:
    """True when all may be on one GPU together. Unlike a set, a tuple may hold one placement twice."""
    table, taken = profiles(model), list[int]()
    for name, start in layout:
        if name not in table or start not in [place["start"] for place in table[name]["placements"]]:
            return False
        taken += slices(model, (name, start))
    names = [name for name, _ in layout]
    return (
        len(taken) == len(set(taken))
        and sum(table[name]["compute_slices"] for name in names) <= TABLES[model]["compute_slice_count"]
        and all(names.count(name) <= table[name]["max_instances"] for name in names)
        and sum(name.endswith("+me") for name in names) <= 1
    )


@cache
def layouts(model: str) -> frozenset[Placed]:
    """Every legal layout, the empty one too."""
    places = [(name, place["start"]) for name, row in profiles(model).items() for place in row["placements"]]
    found, edge = {frozenset[tuple[str, int]]()}, [frozenset[tuple[str, int]]()]
    while edge:
        held = edge.pop()
        for place in places:
            more = held | {place}
            if place not in held and more not in found and is_legal(model, tuple(more)):
                found.add(more)
                edge.append(more)
    return frozenset(found)


@cache
def multisets(model: str) -> frozenset[tuple[str, ...]]:
    """The profiles of every legal layout, sorted."""
    return frozenset(tuple(sorted(name for name, _ in layout)) for layout in layouts(model))


@cache
def addable(model: str, held: Placed) -> frozenset[tuple[str, ...]]:
    """Return every sorted tuple of profiles that some legal layout has with the held instances in place."""
    return frozenset(tuple(sorted(name for name, _ in layout - held)) for layout in layouts(model) if held <= layout)
