"""Best node of a pool for one unit: the cheapest row, in it the best set of GPUs, then the first name.

Exact: a unit that fits somewhere finds a place. The columns of a row do not show links, NUMA nodes and memory of shares.
These are checked at the nodes of the row, and where no node of it fits, at those of the next row.
"""

from collections.abc import Collection

import msgspec

from fairlead_placer.cluster.capacity.node_allocation import NodeAllocation, seat
from fairlead_placer.cluster.capacity.unit_request import UnitRequest
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.pools import PoolIndex
from fairlead_placer.packing.costs import Ranked
from fairlead_placer.packing.policy import Arrivals
from fairlead_schemas.wire.resources import Request

NOBODY: frozenset[str] = frozenset()


class NodeChoice(msgspec.Struct, frozen=True):
    """A node, and where in it."""

    node: ClusterNode
    ask: UnitRequest
    seat: NodeAllocation
    #: What the choice costs, in thousandths of a GPU: what becomes unusable, and what is scarce of it.
    cost: tuple[int, int]
    tasks: int = 1


def best(
    index: PoolIndex, ask: UnitRequest, work: Arrivals[Request], avoided: Collection[str] = NOBODY
) -> NodeChoice | None:
    """The best node for one unit, none of the avoided ones; None where it fits nowhere now."""
    costs, line = index.line(ask, work)
    for alike in costs.ranked(line):
        for _, _, row, choice in alike if len(alike) == 1 else _by_name(index, alike):
            found = _in_row(index, row, ask, line.move.rest(choice), avoided)
            if found is not None:
                return NodeChoice(found[0], ask, found[1], costs.parts(line, choice))
    return None


def _by_name(index: PoolIndex, alike: list[Ranked]) -> list[Ranked]:
    """Sort rows of equal cost by the name of their first node."""
    return sorted(alike, key=lambda each: min(names[0] for names in index.inhabitants[each[2]].values()))


def _in_row(
    index: PoolIndex, row: int, ask: UnitRequest, rest: int, avoided: Collection[str]
) -> tuple[ClusterNode, NodeAllocation] | None:
    first = _first(index, row, ask)
    if first and first not in avoided:
        node = index.members[first]
        found = seat(node.left, ask, rest)
        if isinstance(found, NodeAllocation):
            return node, found
    for _, names in ranked(index, row, ask):
        for name in names:
            if name != first and name not in avoided:
                node = index.members[name]
                found = seat(node.left, ask, rest)
                if isinstance(found, NodeAllocation):
                    return node, found
                if found == "free_mig":  # all of a row have the same instances to give
                    return None
    return None


def _first(index: PoolIndex, row: int, ask: UnitRequest) -> str:
    """The first name that `ranked` says; "" where it says none."""
    masks = index.inhabitants[row]
    if len(masks) == 1:
        return next(iter(masks.values()))[0]
    links = _links(index, row, ask)
    if links is None:
        return min([names[0] for names in masks.values()])
    best, first = -1, ""
    for mask, names in masks.items():
        score = links.get(mask)
        if score is None:
            score = _learn_links(index, row, ask, links, mask)
        if score > best or (score == best >= 0 and names[0] < first):
            best, first = score, names[0]
    return first


def ranked(index: PoolIndex, row: int, ask: UnitRequest) -> list[tuple[int, list[str]]]:
    """(links given up, names) of the row's nodes by their free GPUs, best links first, then first names; those left out whose
    free GPUs are not so connected."""
    masks = index.inhabitants[row]
    if len(masks) == 1:
        return [(0, next(iter(masks.values())))]
    links = _links(index, row, ask)
    if links is None:
        return sorted(((0, names) for names in masks.values()), key=_by_link)
    found: list[tuple[int, list[str]]] = []
    for mask, names in masks.items():
        score = links.get(mask)
        if score is None:
            score = _learn_links(index, row, ask, links, mask)
        if score >= 0:
            found.append((-score, names))
    return sorted(found, key=_by_link)


def _by_link(each: tuple[int, list[str]]) -> tuple[int, str]:
    return each[0], each[1][0]


def _links(index: PoolIndex, row: int, ask: UnitRequest) -> dict[int, int] | None:
    """Return the known link scores that the ask gets from the free GPUs of such nodes; None where links do not matter."""
    if ask.gpus < 2 or not ask.whole:
        return None
    build = index.builds[index.rows.keys[row].build]
    return ask.links(build.number) if build.telling and not build.single else None  # instances are not linked


def _learn_links(index: PoolIndex, row: int, ask: UnitRequest, links: dict[int, int], mask: int) -> int:
    """The score of one mask of free GPUs; -1 where so many are not so connected."""
    build = index.builds[index.rows.keys[row].build]
    choices = build.inside.choices
    chosen = choices.choose(mask & ask.verdict(build).suits, ask.gpus, ask.inside.require)
    links[mask] = score = choices.facts(chosen)[0] if isinstance(chosen, int) else -1
    return score
