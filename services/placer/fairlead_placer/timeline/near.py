"""Near misses of a refusal: nodes that would take a unit once a single job there has ended.

Bounded: of the rows of nodes that the unit could ever use, those that lack least are examined, NODES_MAX nodes in all,
and at most RUNS_MAX runs of each. Computed only for a published refusal.
"""

from collections.abc import Iterator

from fairlead_placer.capacity.asks import Ask, asks_of
from fairlead_placer.capacity.index import Index
from fairlead_placer.capacity.seats import Seat, seat
from fairlead_placer.entities import Node
from fairlead_placer.nodes.ahead import barred
from fairlead_placer.state import State
from fairlead_placer.timeline.ends import end_of
from fairlead_placer.timeline.openings import NEVER_NS
from fairlead_schemas.wire.events import NearMiss, Part
from fairlead_schemas.wire.resources import Request

NODES_MAX = 8
RUNS_MAX = 16
NEAR_MAX = 3


def near_misses(state: State, request: Request, job: str, now_ns: int) -> tuple[NearMiss, ...]:
    """Return the earliest near misses, each on another node. For several kinds of units, the first kind counts."""
    index, ask = state.pools.of(request), asks_of(request)[0]
    beside = barred(state, job, now_ns)
    found: list[tuple[int, NearMiss]] = []
    for node in _closest(index, ask):
        if node.name not in beside:
            ends = [(miss.at_ns or NEVER_NS, miss.job, miss) for miss in _on(state, node, ask, now_ns)]
            if ends:
                at_ns, _, miss = min(ends, key=lambda each: each[:2])
                found.append((at_ns, miss))
    found.sort(key=lambda each: (each[0], each[1].node))
    return tuple(miss for _, miss in found[:NEAR_MAX])


def _closest(index: Index, ask: Ask) -> list[Node]:
    """Busy nodes that take work, those that lack least first."""
    rows: list[tuple[int, int, int, int]] = []
    for row, masks in enumerate(index.inhabitants):
        if not masks:
            continue
        key, build = index.rows.keys[row], index.builds[index.rows.keys[row].build]
        if not ask.verdict(build).cause:
            gpus = max(0, ask.gpus - key.whole) if ask.whole else 0
            cpu, memory = ask.request.cpu_milli - key.cpu_milli, ask.request.memory_mib - key.memory_mib
            rows.append((gpus, max(0, cpu), max(0, memory), row))
    found: list[Node] = []
    for *_, row in sorted(rows):
        names = sorted(name for inside in index.inhabitants[row].values() for name in inside)
        found += [index.members[name] for name in names[: NODES_MAX - len(found)]]
        if len(found) >= NODES_MAX:
            break
    return found


def _on(state: State, node: Node, ask: Ask, now_ns: int) -> Iterator[NearMiss]:
    """The runs of the node each of which is all that is in the way."""
    if isinstance(seat(node.left, ask), Seat):
        return
    for key in sorted(node.held)[:RUNS_MAX]:
        run, rank = state.runs[key], node.held[key]
        part = run.parts[rank]
        left = node.left.copy()
        left.give(part)
        if isinstance(seat(left, ask), Seat):
            end = end_of(state, run, rank, now_ns)
            yield NearMiss(
                node=node.name, job=run.job, at_ns=end.at_ns, basis=end.basis, gpu_milli=_milli(part),
                cpu_milli=part.cpu_milli, memory_mib=part.memory_mib,
            )  # fmt: skip


def _milli(part: Part) -> int:
    return len(part.gpus) * (part.gpu_milli or 1000)
