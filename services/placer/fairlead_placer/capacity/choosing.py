"""The best node of a pool for one unit: the cheapest row, in it the best set of GPUs, then the first name.

Exact: a unit that fits somewhere finds a place. What a row's columns do not tell (links, NUMA nodes, memory of shares) is
looked at in the nodes of the row, and where none of them does, in the next row.
"""

from collections.abc import Collection
from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.index import Index
from fairlead_placer.capacity.seats import Seat, seat
from fairlead_placer.entities import Node
from fairlead_placer.packing.typical import Arrivals
from fairlead_schemas.resources import Request

NOBODY: frozenset[str] = frozenset()


class Choice(NamedTuple):
    """A node, and where in it."""

    node: Node
    ask: Ask
    seat: Seat
    #: What the choice costs, in thousandths of a GPU: what becomes unusable, and what is scarce of it.
    cost: tuple[int, int]
    tasks: int = 1


def best(index: Index, ask: Ask, work: Arrivals[Request], avoided: Collection[str] = NOBODY) -> Choice | None:
    """The best node for one unit, none of the avoided ones; None where it fits nowhere now."""
    costs, line = index.line(ask, work)
    tried: set[int] = set()
    for alike in costs.ranked(line):
        for _, _, row, choice in alike if len(alike) == 1 else _by_name(index, alike):
            if row not in tried:  # where one choice in it found no place, none does
                tried.add(row)
                found = _in_row(index, row, ask, int(line.move.rests[choice]), avoided)
                if found is not None:
                    return Choice(found[0], ask, found[1], costs.parts(line, choice))
    return None


def _by_name(index: Index, alike: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Choices that cost the same by the first names of their rows, of a row the fullest GPU first."""
    return sorted(alike, key=lambda each: (min(names[0] for names in index.inhabitants[each[2]].values()), each[3]))


def _in_row(index: Index, row: int, ask: Ask, rest: int, avoided: Collection[str]) -> tuple[Node, Seat] | None:
    for _, names in ranked(index, row, ask):
        for name in names:
            if name not in avoided:
                node = index.members[name]
                found = seat(node.left, ask, rest)
                if isinstance(found, Seat):
                    return node, found
                if found == "free_mig":  # all of a row have the same instances to give
                    return None
    return None


def ranked(index: Index, row: int, ask: Ask) -> list[tuple[int, list[str]]]:
    """(links given up, names) of the row's nodes by their free GPUs, best links first, then first names; those left out whose
    free GPUs are not so connected."""
    masks = index.inhabitants[row]
    if len(masks) == 1:
        return [(0, next(iter(masks.values())))]
    build = index.builds[index.rows.keys[row].build]
    if ask.gpus < 2 or not ask.whole or not build.telling:
        return sorted(((0, names) for names in masks.values()), key=lambda each: each[1][0])
    found: list[tuple[int, list[str]]] = []
    suits, choices = ask.verdict(build).suits, build.inside.choices
    if build.single:  # instances are not linked
        return sorted(((0, names) for names in masks.values()), key=lambda each: each[1][0])
    for mask, names in masks.items():
        chosen = choices.choose(mask & suits, ask.gpus, ask.inside.require)
        if isinstance(chosen, int):
            found.append((-choices.facts(chosen)[0], names))
    return sorted(found, key=lambda each: (each[0], each[1][0]))
