"""The best node of a pool for one unit: the cheapest row, in it the best set of GPUs, then the first name.

Exact: a unit that fits somewhere finds a place. What a row's columns do not tell (links, NUMA nodes, memory of shares) is
looked at in the nodes of the row, and where none of them does, in the next row.
"""

from collections.abc import Collection, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.index import Index
from fairlead_placer.capacity.seats import Seat, seat
from fairlead_placer.entities import Node
from fairlead_placer.packing.costs import Line
from fairlead_placer.packing.typical import Arrivals
from fairlead_schemas.resources import Request

#: Rows that are looked at one by one, before the rest is at once.
WALKED = 48

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
    for row in rows_of(index, line):
        found = _in_row(index, row, ask, int(line.rest[row]), avoided)
        if found is not None:
            return Choice(found[0], ask, found[1], costs.parts(line, row))
    return None


def rows_of(index: Index, line: Line) -> Iterator[int]:
    """Rows that nodes are in and that it fits: the cheapest first, of these the tightest, then the first name."""
    here, order = index.rows.here, line.order
    at, last = 0, len(order)
    while at < last:
        if at >= WALKED:
            yield from _others(index, order[at:])
            return
        cost, tight, row = order[at]
        at += 1
        if not here[row]:
            continue
        if at < last and order[at][0] == cost and order[at][1] == tight:
            ties = [row]
            while at < last and order[at][0] == cost and order[at][1] == tight:
                ties.append(order[at][2])
                at += 1
            yield from _by_name(index, ties)
        else:
            yield row


def _others(index: Index, order: list[tuple[int, int, int]]) -> Iterator[int]:
    """The same of many rows that are mostly empty."""
    filled = np.flatnonzero(index.rows.counts[np.array([row for _, _, row in order], np.int64)]).tolist()
    for _, ties in groupby((order[each] for each in filled), key=itemgetter(0, 1)):
        yield from _by_name(index, [row for _, _, row in ties])


def _by_name(index: Index, rows: list[int]) -> list[int]:
    filled = [row for row in rows if index.rows.here[row]]
    return sorted(filled, key=lambda row: min(names[0] for names in index.inhabitants[row].values()))


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
