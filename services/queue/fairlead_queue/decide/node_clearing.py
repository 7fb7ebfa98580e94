"""Order in which runs would have to end so that capacity comes free by whole nodes. Pure.

A job whose units are larger than the runs that may yield gains nothing from the cheapest runs when these are scattered.
Only a node that holds enough of them together counts. The placer alone knows the other free capacity of a node and its
fitting topology; it picks among the nominated runs.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Going(NamedTuple):
    """A run that may yield: its cost, what it has on a node for each of its units, and the node of each unit."""

    cost: int
    held: int
    nodes: Sequence[str]


class _Room(NamedTuple):
    """Cost of clearing one node; runs are given by their places in the list of runs."""

    #: What is missing even so, the cost, and who goes.
    short: int
    cost: int
    runs: list[int]


def units_freed(runs: Iterable[Going], unit: int, *, shared: bool) -> int:
    """Return the number of units that would fit on the runs' nodes if the runs were gone: one per node, or (`shared`) as many
    as fit.
    """
    held: dict[str, int] = {}
    for run in runs:
        for node in run.nodes:
            held[node] = held.get(node, 0) + run.held
    return sum(amount // unit if shared else amount >= unit for amount in held.values())


def by_node(runs: Sequence[Going], unit: int) -> list[int]:
    """Places of runs (given the cheapest first): node by node those who make room for a unit, the cheapest node first; then
    nodes where they do not suffice, those that lack least first; then the rest in their order."""
    tenants: dict[str, list[int]] = {}
    for at, run in enumerate(runs):
        for node in run.nodes:
            tenants.setdefault(node, []).append(at)
    rooms = sorted(_room(runs, here, unit) for here in tenants.values())
    order = dict.fromkeys(at for room in rooms for at in room.runs)
    return [*order, *(at for at in range(len(runs)) if at not in order)]


def _room(runs: Sequence[Going], here: Sequence[int], unit: int) -> _Room:
    short, cost, going = unit, 0, list[int]()
    for at in here:
        if short <= 0:
            break
        short -= runs[at].held
        if not going or going[-1] != at:
            going.append(at)
            cost += runs[at].cost
    return _Room(max(0, short), cost, going)
