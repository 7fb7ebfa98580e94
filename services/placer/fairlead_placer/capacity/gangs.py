"""Places for several units at once, all or nothing, in the smallest domain that takes them.

Domains are tried from the smallest level up. Of those that take all units the one is chosen that they fill best; inside it, smaller
domains are filled one after the other, so that as few as can be are touched. A gang of several kinds gets all of them within
one domain.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from fairlead_placer.capacity.asks import Ask, asks_of, several
from fairlead_placer.capacity.choosing import NOBODY, Choice, ranked
from fairlead_placer.capacity.domains import LEVELS
from fairlead_placer.capacity.index import Index
from fairlead_placer.capacity.seats import Seat, seat, seat_several
from fairlead_placer.capacity.side_by_side import able_of, first_beyond, held, slack, spares
from fairlead_placer.packing.costs import NEVER
from fairlead_placer.packing.states import Flags, Ints
from fairlead_placer.packing.typical import Arrivals
from fairlead_schemas.resources import Request


class Shortfall(NamedTuple):
    """Why a gang has no place: how many units would fit, in all and in the best domain of the level that it requires. Of
    shares' memory and pinned CPUs columns do not tell: there it may be fewer."""

    units: int
    level: str
    best: int


class Kind:
    """One kind of units: how many of them are wanted, and how many each node would take (by the nodes' numbers)."""

    __slots__ = ("ask", "cost", "costs", "least", "line", "most", "room")

    def __init__(self, index: Index, ask: Ask, work: Arrivals[Request], avoided: Collection[str]) -> None:
        self.ask = ask
        request = ask.request
        self.most, self.least = request.nodes, request.nodes_min or request.nodes
        self.costs, self.line = index.line(ask, work)
        self.cost: Ints = self.line.cost
        domains = index.domains
        last = len(domains.names)
        rows = domains.rows[:last]
        #: One more, for nodes in no row (-1).
        fits = np.append(self.line.cost != NEVER, False)[rows]
        fits &= (domains.cpu[:last] >= request.cpu_milli) & (domains.memory[:last] >= request.memory_mib)
        self.room: Ints = _tasks(index, ask, rows, fits) if request.tasks else fits.astype(np.int64)
        for name in avoided:
            if name in index.members:
                self.room[index.members[name].slot] = 0
        if ask.inside.require or ask.stands or request.exclusive or request.profile:
            _leave_out(index, ask, self.room)


def _tasks(index: Index, ask: Ask, rows: Ints, fits: Flags) -> Ints:
    """Tasks that each node takes, as far as columns tell."""
    request, domains = ask.request, index.domains
    units: Ints = np.full(len(rows), request.nodes, np.int64)
    if request.profile:
        idle = [dict(key.cut).get(request.profile, 0) // ask.gpus for key in index.rows.keys]
        units = np.minimum(units, np.array([*idle, 0], np.int64)[rows])
    elif ask.gpus:
        able = (index.rows.states.gpus >= index.wanted(ask).shape.gpu_milli).sum(axis=1) // ask.gpus
        units = np.minimum(units, np.append(able, 0)[rows])
    if request.cpu_milli:
        units = np.minimum(units, domains.cpu[: len(rows)] // request.cpu_milli)
    if request.memory_mib:
        units = np.minimum(units, domains.memory[: len(rows)] // request.memory_mib)
    return np.where(fits, np.maximum(units, 0), 0)


def _leave_out(index: Index, ask: Ask, room: Ints) -> None:
    """No room where the free GPUs are not connected as required, where somebody is, where the node stands elsewhere, or no
    MIG instance is free."""
    for row in {int(index.domains.rows[number]) for number in np.flatnonzero(room)}:
        able = {name for _, names in ranked(index, row, ask) for name in names}
        for name in able.copy():
            if not isinstance(seat(index.members[name].left, ask), Seat):
                able.discard(name)
        for names in index.inhabitants[row].values():
            for name in names:
                if name not in able:
                    room[index.members[name].slot] = 0


def choose(
    index: Index, request: Request, work: Arrivals[Request], avoided: Collection[str] = NOBODY
) -> list[Choice] | Shortfall:
    """Places for all units (of an elastic request: as many as can be had, at least its least), in the order of ranks."""
    kinds = [Kind(index, ask, work, avoided) for ask in asks_of(request)]
    while True:
        numbers = _domain(index, kinds)
        if isinstance(numbers, Shortfall):
            return numbers
        found = _fill(index, kinds, numbers)
        if isinstance(found, list):
            return found
        kind, number, units = found  # a node that has less room than its columns said
        kind.room[number] = units


# ---------------------------------------------------------------------------- where


def _domain(index: Index, kinds: Sequence[Kind]) -> Ints | Shortfall:
    """Numbers of the nodes of the domain to take: with as many units as can be, smallest level first, filled best."""
    request, level = kinds[0].ask.request, kinds[0].ask.level
    domains = _domains(index, level, len(kinds[0].room))
    rooms, least = [kind.room for kind in kinds], [kind.least for kind in kinds]
    most = int(first_beyond(spares(rooms, least, domains)).max(initial=-1))
    if most < 0:
        return _shortfall(kinds, level, domains)
    beyond = min(most, kinds[0].most - kinds[0].least)  # no other kind is elastic
    for each in _levels(index, level, request.tasks):
        domains = _domains(index, each, len(kinds[0].room))
        found = spares(rooms, least, domains)
        able = np.flatnonzero(first_beyond(found) >= beyond)
        if len(able):
            left = found[-1][1][able]
            return np.flatnonzero(domains == _first(index, each, able[left == left.min()]))
    raise AssertionError("the last level is the one that takes them")


def _levels(index: Index, required: str, tasks: bool) -> list[str]:
    """Levels to try, smallest first; "" stands for the pool."""
    levels = ["node"] if tasks else []
    if not required:
        return [*levels, *(level for level in LEVELS if index.domains.known(level)), ""]
    if required == "node":
        return ["node"]
    below = LEVELS[: LEVELS.index(required)]
    return [*levels, *(level for level in below if index.domains.nested(level, required)), required]


def _domains(index: Index, level: str, nodes: int) -> Ints:
    """[node's number]: its domain; a node that is in none is one by itself, after all others."""
    if level in ("", "node"):
        return np.arange(nodes) if level else np.zeros(nodes, np.int64)
    of = index.domains.of[level][:nodes]
    return np.where(of < 0, np.arange(nodes) + len(index.domains.domains[level]), of)


def _first(index: Index, level: str, domains: Ints) -> int:
    """The one with the first name."""
    if not level:
        return 0
    ranks = index.domains.names_ranked() if level == "node" else index.domains.ranks(level)
    return int(domains[ranks[domains].argmin()])


def _shortfall(kinds: Sequence[Kind], level: str, domains: Ints) -> Shortfall:
    units = sum(min(int(kind.room.sum()), kind.most) for kind in kinds)
    if not level or not len(domains):
        return Shortfall(units, level, 0)
    best: Ints = np.sum([np.minimum(held(domains, kind.room), kind.most) for kind in kinds], axis=0)
    if len(kinds) > 1:  # a node takes one unit of one kind
        best = np.minimum(best, held(domains, able_of([kind.room for kind in kinds]) != 0))
    return Shortfall(units, level, int(best.max()))


# ---------------------------------------------------------------------------- on which nodes


def _fill(index: Index, kinds: Sequence[Kind], numbers: Ints) -> list[Choice] | tuple[Kind, int, int]:
    """Seats on these nodes; or the kind and node where one was not to be had, and how many units it does take."""
    chosen: list[Choice] = []
    for at, kind in enumerate(kinds):
        able, others = numbers[kind.room[numbers] > 0], kinds[at + 1 :]
        units = min(kind.most, int(kind.room[able].sum()))
        picked = _spread(index, kind, able, units, LEVELS[::-1])
        if others and min(_slack(others, _without(numbers, [number for number, _ in picked])).values()) < 0:
            picked = [(number, 1) for number in _leaving_room(index, kind, able, others, numbers)]
        found: list[Choice] = []
        for number, part in picked:
            seated = _seat(index, kind, number, part)
            if seated is None:
                return kind, number, part - 1
            found.append(seated)
        found.sort(key=_name_of)
        chosen += found
        if others:
            numbers = _without(numbers, [choice.node.slot for choice in found])
    return chosen


def _without(numbers: Ints, taken: Sequence[int]) -> Ints:
    return numbers[~np.isin(numbers, np.array(taken, np.int64))]


def _slack(others: Sequence[Kind], numbers: Ints) -> dict[int, int]:
    return slack([kind.room[numbers] for kind in others], [kind.least for kind in others])


def _leaving_room(index: Index, kind: Kind, able: Ints, others: Sequence[Kind], numbers: Ints) -> list[int]:
    """The cheapest nodes with which all other kinds still find room. As all find room on `numbers`, there are enough:
    a node that is taken is one less to take, and what must be left to others never becomes less."""
    left, bits = _slack(others, numbers), able_of([other.room for other in others])
    found: list[int] = []
    for number, _ in _cheapest(index, kind, able, len(able)):
        touched = [some for some in left if some & int(bits[number])]
        if len(found) < kind.most and all(left[some] > 0 for some in touched):
            found.append(number)
            for some in touched:
                left[some] -= 1
    assert len(found) >= kind.least, f"expected {kind.least} nodes that others can do without, found {len(found)}"
    return found


def _name_of(choice: Choice) -> str:
    return choice.node.name


def _seat(index: Index, kind: Kind, number: int, units: int) -> Choice | None:
    node = index.members[index.domains.names[number]]
    if units == 1:
        ask, found = kind.ask, seat(node.left, kind.ask, int(kind.line.rest[node.row]))
    else:
        ask, found = several(kind.ask, units), seat_several(node.left, kind.ask, units)
    if not isinstance(found, Seat):
        return None
    return Choice(node, ask, found, kind.costs.parts(kind.line, node.row), units)


def _spread(index: Index, kind: Kind, able: Ints, units: int, levels: Sequence[str]) -> list[tuple[int, int]]:
    """(node, its units): whole domains first, those that take most; the last one is the smallest that takes the rest."""
    known = [level for level in levels if index.domains.known(level)]
    if not known:
        return _cheapest(index, kind, able, units)
    level, below = known[0], known[1:]
    of = index.domains.of[level][able]
    # A node in no domain is one by itself, after all others.
    domains, where = np.unique(np.where(of < 0, able + len(index.domains.domains[level]), of), return_inverse=True)
    if len(domains) == 1:
        return _spread(index, kind, able, units, below)
    rooms = np.bincount(where, weights=kind.room[able]).astype(np.int64)
    ranks = index.domains.ranks(level)[domains]
    order = np.lexsort((ranks, -rooms))
    held = np.cumsum(rooms[order])
    full = int(np.searchsorted(held, units))  # so many are taken whole, and one more
    units_left = units - (int(held[full - 1]) if full else 0)
    rest = order[full:][rooms[order[full:]] >= units_left]
    last = rest[np.lexsort((ranks[rest], rooms[rest]))[0]]
    whole = able[np.isin(where, order[:full])]
    found = list(zip(whole.tolist(), kind.room[whole].tolist(), strict=True))
    return found + _spread(index, kind, able[where == last], units_left, below)


def _cheapest(index: Index, kind: Kind, able: Ints, units: int) -> list[tuple[int, int]]:
    """Nodes by cost; of tasks, as few nodes as can be."""
    rows = index.domains.rows[able]
    order = able[np.lexsort((index.domains.names_ranked()[able], index.rows.tightness[rows], kind.cost[rows]))].tolist()
    if not kind.ask.request.tasks:
        return [(number, 1) for number in order[:units]]
    found: list[tuple[int, int]] = []
    while units and order:
        enough = next((number for number in order if int(kind.room[number]) >= units), None)
        number = enough if enough is not None else max(order, key=lambda each: int(kind.room[each]))
        order.remove(number)
        part = min(units, int(kind.room[number]))
        found.append((number, part))
        units -= part
    return found
