"""Time at which one node has room for one unit: its work ends step by step, and the one test for room is applied each
time.
"""

from typing import NamedTuple

from fairlead_placer.capacity.asks import Ask
from fairlead_placer.capacity.left import Left
from fairlead_placer.capacity.seats import Seat, seat
from fairlead_placer.entities import Node, Reservation, Run
from fairlead_placer.nodes.ahead import returns_ns
from fairlead_placer.state import State
from fairlead_placer.timeline.ends import HORIZON_NS, end_of, promised_end_ns
from fairlead_schemas.wire.events import Basis, Part

#: After every time that is known.
NEVER_NS = 1 << 62


class Opening(NamedTuple):
    """Opening of a node. The time is Unix ns (`NEVER_NS`: once the present work has ended, which may be any time), with its
    basis and (`told`) the jobs that it follows.
    """

    at_ns: int
    basis: Basis = ""
    waits_for: tuple[tuple[int, str], ...] = ()  # (when it ends, job)


class _Going(NamedTuple):
    at_ns: int
    run: Run
    part: Part
    basis: Basis


def opening(
    state: State, node: Node, ask: Ask, now_ns: int, kept: Reservation | None = None, *, told: bool = False
) -> Opening | None:
    """The node's opening for a unit; None when there is none, whatever ends. One that a maintenance window has in hand is empty
    at its end. `kept`: what is kept for its job by now, whose guests without a limit stay. `told`: with the jobs that are in
    the way, which costs as much again."""
    if not node.serving:
        back_ns = returns_ns(state, node)
        return Opening(max(back_ns, now_ns), "limits") if 0 < back_ns <= now_ns + HORIZON_NS else None
    free = not (node.suspect and node.held)
    if free and isinstance(seat(node.left, ask), Seat):
        return Opening(max(now_ns, node.rest_ns) if node.resting else now_ns)
    left, gone = node.left.copy(), list[_Going]()
    going = _going(state, node, now_ns, kept)
    for each in going:
        left.give(each.part)
        gone.append(each)
        if (free or len(gone) == len(going)) and isinstance(seat(left, ask), Seat):
            if not told:
                return Opening(each.at_ns)
            needed = gone if node.suspect else _needed(left, ask, gone)
            basis = "evidence" if any(one.basis == "evidence" for one in needed) else each.basis
            return Opening(each.at_ns, basis, tuple((one.at_ns, one.run.job) for one in needed))
    return None


def _going(state: State, node: Node, now_ns: int, kept: Reservation | None) -> list[_Going]:
    """Return the parts that the node holds and will give back, the soonest first."""
    found: list[_Going] = []
    for key, rank in node.held.items():
        run = state.runs[key]
        if kept is not None and is_guest(kept, node, run) and stays(state, run, rank, 0):
            continue
        end = end_of(state, run, rank, now_ns)
        found.append(_Going(end.at_ns or NEVER_NS, run, run.parts[rank], end.basis))
    return sorted(found, key=lambda each: (each.at_ns, each.run.key))


def _needed(left: Left, ask: Ask, gone: list[_Going]) -> list[_Going]:
    """Return the parts without whose end there is no room, the last to end first."""
    needed = [gone[-1]]
    for each in reversed(gone[:-1]):
        left.take(each.part)
        if not isinstance(seat(left, ask), Seat):
            left.give(each.part)
            needed.append(each)
    return needed


# ---------------------------------------------------------------------------- guests of kept nodes


def is_guest(kept: Reservation, node: Node, run: Run) -> bool:
    """True for a run that was placed on the node while it was kept for another job."""
    return node.name in kept.nodes and run.epoch > kept.since_of(node.name)


def stays(state: State, run: Run, rank: int, start_ns: int) -> bool:
    """True for a guest that may still be there at that time (0: at whatever time)."""
    if run.ended >> rank & 1 or run.is_stopping:
        return False
    end_ns = promised_end_ns(state, run)
    return not end_ns or 0 < start_ns < end_ns


def is_sound(state: State, kept: Reservation, node: Node, ask: Ask) -> bool:
    """Return True if the kept node has room for a unit at the start, together with the guests that may still be there."""
    left: Left | None = None
    for key, rank in node.held.items():
        run = state.runs[key]
        if left is None and is_guest(kept, node, run) and stays(state, run, rank, kept.start_ns):
            left = node.left.copy()
    if left is None:  # all who are there go
        return True
    for key, rank in node.held.items():
        run = state.runs[key]
        if not (is_guest(kept, node, run) and stays(state, run, rank, kept.start_ns)):
            left.give(run.parts[rank])
    return isinstance(seat(left, ask), Seat)
