"""Choice of runs to move so that a big job starts: the cheapest set that makes its hole and fits elsewhere now.

Each plan is tried out: the hole is kept, and the runs are placed in turn where the placer would place them. All orders
in which they may return are tried (above ORDERS_MAX: the largest first, and the smallest first). A run without another
place is left out, and the search repeats without it, TRIES_MAX times.

A job's gain is its GPUs for as long again as it has waited: the best estimate for a job that waited an hour is another
hour. The module reads the state and takes back its trials.
"""

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

from fairlead_placer.capacity.gangs import Shortfall
from fairlead_placer.defragmenting.movable import SECOND_NS, movable
from fairlead_placer.entities import Offer, Reservation, pool_of, run_key
from fairlead_placer.evolve_kept import VICTIMS_MAX
from fairlead_placer.making_room.hole import Hole, find
from fairlead_placer.nodes.ahead import barred
from fairlead_placer.placing import find as find_place
from fairlead_placer.reasons import refusal
from fairlead_placer.state import State
from fairlead_schemas.wire.events import Victim

#: Runs without another place that are left out, one after the other, before there is no plan.
TRIES_MAX = 16
#: Runs whose every order is tried.
ORDERS_MAX = 3
#: Waiting jobs of a pool that are looked at, the first in their order.
JOBS_MAX = 8
#: Not before a job has waited so long: most places come free by themselves.
AFTER_NS = 60 * SECOND_NS


class Move(NamedTuple):
    """A run that goes from these nodes to those."""

    victim: Victim
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    gpu_milli: int


class Plan(NamedTuple):
    """Moves proposed for a job, and the nodes where it would start; without moves, the reason (`WHY_NOT`)."""

    offer: Offer
    moves: tuple[Move, ...] = ()
    nodes: tuple[str, ...] = ()
    gain_gpu_s: int = 0
    cost_gpu_s: int = 0
    why_not: str = ""


WHY_NOT: dict[str, str] = {
    "young": "it has not waited long enough",
    "kept": "nodes are kept for it already, or others yield to it",
    "few_free": "too few GPUs are free in all: moving runs frees none",
    "no_moves": "no runs that may be moved, and fit elsewhere, would make room",
    "costs_more": "the moves would cost more than it gains",
}


def plans(state: State, pool: str, now_ns: int, most: int = JOBS_MAX) -> list[Plan]:
    """A plan for each of the first `most` jobs of the pool that ask for GPUs and fit nowhere, in their order; each by itself,
    one of a kind."""
    groups = [
        group for group in state.classes.values() if pool_of(group.request) == pool and group.request.gpu_milli_total
    ]
    heads = sorted(group.offers[0] for group in groups)
    found: list[Plan] = []
    victims: list[Victim] | None = None
    for _, job in heads:
        offer = state.offers[job]
        if not isinstance(find_place(state, offer.request, barred(state, job, now_ns)), Shortfall):
            continue
        if len(found) == most:
            break
        if victims is None:
            victims = movable(state, pool, now_ns)
        found.append(plan(state, offer, victims, now_ns))
    return found


def plan(state: State, offer: Offer, victims: Sequence[Victim], now_ns: int) -> Plan:
    """Return the plan for one job that fits nowhere now, made of moves of `victims` (cheapest first)."""
    waited_ns = now_ns - offer.since_ns
    gain = offer.request.gpu_milli_total * (waited_ns // SECOND_NS) // 1000
    why_not = _why_not(state, offer, waited_ns)
    if why_not:
        return Plan(offer, gain_gpu_s=gain, why_not=why_not)
    left_out: set[str] = set()
    for _ in range(TRIES_MAX):
        able = [victim for victim in victims if victim.job not in left_out][:VICTIMS_MAX]
        hole = find(state, offer, able, now_ns)
        if hole is None or not hole.victims:
            break
        moves = _elsewhere(state, offer, hole, now_ns)
        if not isinstance(moves, str):
            cost = sum(victim.gpu_s for victim in hole.victims)
            return Plan(offer, moves, tuple(sorted(hole.nodes)), gain, cost, "" if gain > cost else "costs_more")
        left_out.add(moves)
    return Plan(offer, gain_gpu_s=gain, why_not="no_moves")


def _why_not(state: State, offer: Offer, waited_ns: int) -> str:
    if offer.job in state.reservations or offer.job in state.pleas or offer.job in state.claims:
        return "kept"
    if waited_ns < AFTER_NS:
        return "young"
    free = refusal(state, offer.request, offer.job).gpu_milli_free
    return "few_free" if free < offer.request.gpu_milli_total else ""


def _elsewhere(state: State, offer: Offer, hole: Hole, now_ns: int) -> tuple[Move, ...] | str:
    """Return the new place of each victim while the hole is kept, in the order of the queue, or the first job without a place."""
    largest_first = sorted(hole.victims, key=lambda victim: (-_gpu_milli(state, victim), victim.job))
    found: dict[str, Move] | None = None
    for order in _orders(largest_first):
        moves = _in_order(state, offer, hole, order, now_ns)
        if isinstance(moves, str):
            return moves
        found = found or moves
    assert found is not None
    return tuple(found[victim.job] for victim in hole.victims)


def _orders(victims: list[Victim]) -> Iterable[Sequence[Victim]]:
    """Orders in which they may come back: all of them while they are few."""
    return permutations(victims) if len(victims) <= ORDERS_MAX else (victims, victims[::-1])


def _in_order(state: State, offer: Offer, hole: Hole, order: Sequence[Victim], now_ns: int) -> dict[str, Move] | str:
    moves: dict[str, Move] = {}
    with state.trying():
        state.reserve(Reservation(offer.job, offer.attempt, "", tuple(sorted(hole.nodes)), 0, hole=True))
        for victim in order:
            move = _moved(state, victim, now_ns)
            if move is None:
                return victim.job
            moves[victim.job] = move
    return moves


def _moved(state: State, victim: Victim, now_ns: int) -> Move | None:
    """Take the victim's next place while it still holds its present one. Return None if it has no other place."""
    run, request = state.runs[run_key(victim.job, victim.attempt)], state.request_of(victim.job)
    assert request is not None
    place = find_place(state, request, barred(state, victim.job, now_ns))
    if isinstance(place, Shortfall):
        return None
    for rank, part in enumerate(place.parts):
        # Under a name that no run has: it may come to a node where it is.
        state.take(state.nodes[part.node], f"{run.key}.moved", rank, part)
    sources, targets = (tuple(part.node for part in parts) for parts in (run.parts, place.parts))
    return Move(victim, sources, targets, request.gpu_milli_total)


def _gpu_milli(state: State, victim: Victim) -> int:
    request = state.request_of(victim.job)
    return 0 if request is None else request.gpu_milli_total
