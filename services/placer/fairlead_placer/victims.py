"""Which runs must yield so that a job fits: the fewest of those named, in the order in which they were named.

Bounded: VICTIMS_MAX runs are looked at, and only nodes on which one of them runs (or that are kept for the job
already). A job on one node takes the node where least is lost. Runs that are stopping anyhow count as gone, parts that
have ended and are not clean do not: nobody knows when they will be. Reads state, changes nothing.
"""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask, asks_of
from fairlead_placer.capacity.seats import Seat, seat
from fairlead_placer.entities import Node, Offer, Run, run_key
from fairlead_placer.nodes.avoiding import avoided
from fairlead_placer.placing import fitting
from fairlead_placer.reservations import lack, serves
from fairlead_placer.state import State
from fairlead_schemas.events import Part, Victim


class Room:
    """What a node would have if some runs were gone."""

    __slots__ = ("_cause", "ask", "left", "node")

    def __init__(self, node: Node, ask: Ask) -> None:
        self.node = node
        self.ask = ask
        self.left = node.left.copy()
        self._cause: str | None = None

    def add(self, part: Part, sign: int = 1) -> None:
        """The part comes free; with -1, it does not."""
        (self.left.give if sign > 0 else self.left.take)(part)
        self._cause = None

    @property
    def cause(self) -> str:
        """What would still be too little for a unit of the request; "" when nothing is."""
        if self._cause is None:
            found = seat(self.left, self.ask)
            self._cause = "" if isinstance(found, Seat) else found
        return self._cause


class Candidate(NamedTuple):
    """A run that may yield, and what would come free."""

    victim: Victim
    parts: tuple[Part, ...]


class Hole(NamedTuple):
    """Who must yield, in the order of the request, and on which nodes the job then fits."""

    victims: list[Victim]
    nodes: list[str]


def is_stopping(run: Run) -> bool:
    """True when every rank that lives has been, or is being, told to stop."""
    return bool(run.stop) or run.verdict is not None


def living_parts(run: Run) -> tuple[Part, ...]:
    """Parts whose rank has not ended."""
    return tuple(part for rank, part in enumerate(run.parts) if not run.ended >> rank & 1)


def may_yield(state: State, victims: Sequence[Victim]) -> list[Candidate]:
    """Those that run under that attempt and are not stopping, each once, in order."""
    found: dict[str, Candidate] = {}
    for victim in victims:
        key = run_key(victim.job, victim.attempt)
        run = state.runs.get(key)
        if run is not None and key not in found and not is_stopping(run) and (parts := living_parts(run)):
            found[key] = Candidate(victim, parts)
    return list(found.values())


def rooms_for(state: State, offer: Offer, victims: Sequence[Victim]) -> dict[str, Room]:
    """{node: what it would have without those that are stopping}, of the nodes where something may come free."""
    runs = [run for victim in victims if (run := state.runs.get(run_key(victim.job, victim.attempt))) is not None]
    names = {part.node for run in runs for part in living_parts(run)}
    if offer.job in state.reservations:
        names.update(state.reservations[offer.job].nodes)
    nodes = [state.nodes[name] for name in sorted(names - avoided(state, offer.job))]
    return {node.name: _room(state, node, offer) for node in nodes if serves(node, offer.request, offer.job)}


def _room(state: State, node: Node, offer: Offer) -> Room:
    room = Room(node, asks_of(offer.request)[0])
    for key, rank in node.held.items():
        run = state.runs[key]
        if is_stopping(run) and not run.ended >> rank & 1:
            room.add(run.parts[rank])
    return room


def find(state: State, offer: Offer, victims: Sequence[Victim]) -> Hole | None:
    """Who must yield to an offer that fits nowhere; None when all of them together would not make room."""
    rooms, candidates = rooms_for(state, offer, victims), may_yield(state, victims)
    request = offer.request
    beside = rooms.keys() | avoided(state, offer.job)
    free = list(islice((name for name in fitting(state, request) if name not in beside), request.nodes))
    if request.nodes == 1:
        candidates = _cheapest(rooms, candidates)
    chosen = least(candidates, rooms, request.nodes - len(free))
    if chosen is None:
        return None
    for candidate in chosen:
        go(candidate, rooms)
    roomy = sorted((room.node for room in rooms.values() if not room.cause), key=lambda node: lack(node, request))
    nodes = free + [node.name for node in roomy][: request.nodes - len(free)]
    return Hole([candidate.victim for candidate in chosen], nodes)


def _cheapest(rooms: dict[str, Room], candidates: list[Candidate]) -> list[Candidate]:
    """The victims of the one node where least is lost (GPU-seconds, then their number, then the node's name)."""
    here: dict[str, list[Candidate]] = {name: [] for name in rooms}
    for candidate in candidates:
        for part in candidate.parts:
            if part.node in here:
                here[part.node].append(candidate)
    best: tuple[int, int, str] | None = None
    cheapest: list[Candidate] = []
    for name, room in rooms.items():
        chosen = least(here[name], {name: room}, 1)
        if chosen is None:
            continue
        cost = (sum(candidate.victim.gpu_s for candidate in chosen), len(chosen), name)
        if best is None or cost < best:
            best, cheapest = cost, chosen
    return cheapest


def least(candidates: list[Candidate], rooms: dict[str, Room], wanted: int) -> list[Candidate] | None:
    """The first in order that make `wanted` rooms fit, without those that need not go (the last are spared first).
    None when all of them are too few. The rooms are left as they were."""
    roomy = sum(not room.cause for room in rooms.values())
    gone: list[Candidate] = []
    for candidate in candidates:
        if roomy >= wanted:
            break
        roomy += go(candidate, rooms)
        gone.append(candidate)
    enough = roomy >= wanted
    needed: list[Candidate] = []
    for candidate in reversed(gone):
        lost = go(candidate, rooms, -1)
        if roomy + lost >= wanted:
            roomy += lost
        else:
            go(candidate, rooms)
            needed.append(candidate)
    for candidate in needed:
        go(candidate, rooms, -1)
    return needed[::-1] if enough else None


def go(candidate: Candidate, rooms: dict[str, Room], sign: int = 1) -> int:
    """Let a run go (with -1: stay); how many rooms more fit the job."""
    change = 0
    for part in candidate.parts:
        room = rooms.get(part.node)
        if room is not None:
            change -= not room.cause
            room.add(part, sign)
            change += not room.cause
    return change
