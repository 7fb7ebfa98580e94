"""Execution of defragmentation plans, in pools that enable it: one at a time in each pool, as a preemption by the rule
"defragmentation".

The runs get their notice and grace, the queue returns them to waiting, and the hole is kept for the job they made room
for. Their new places are not kept: jobs ahead of them may take those. The module emits on a draft.

Runs that may be moved, and the cost of a move in GPU-seconds.

A batch job whose file names `time.slice` may be interrupted after that slice: it saves and resumes. No other job is
moved. A move loses the time since the last reported save or since the start. This time is at most a slice (earlier work
was worth an interruption already) or the job's own save interval. The time in which the job works in neither place is
added.

Choice of runs to move so that a big job starts: the cheapest set that makes its hole and fits elsewhere now.

Each plan is tried out: the hole is kept, and the runs are placed in turn where the placer would place them. All orders
in which they may return are tried (above ORDERS_MAX: the largest first, and the smallest first). A run without another
place is left out, and the search repeats without it, TRIES_MAX times.

A job's gain is its GPUs for as long again as it has waited: the best estimate for a job that waited an hour is another
hour. The module reads the state and takes back its trials.
"""

from collections.abc import Iterable, Sequence
from itertools import permutations

from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.apply.jobs import VICTIMS_MAX
from fairlead_placer.cluster.entities import Offer, PlacedRun, Reservation, pool_of, run_key
from fairlead_placer.cluster.placement.gangs import Shortfall
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.upcoming_maintenance import barred
from fairlead_placer.explain.reasons import refusal
from fairlead_placer.scheduling.node_selection import find as find_place
from fairlead_placer.scheduling.preempt import VICTIM_BYTES
from fairlead_placer.scheduling.preemption.candidates import is_stopping
from fairlead_placer.scheduling.preemption.victim_set import VictimSet, find_victims
from fairlead_placer.scheduling.reserve import made_bytes, make
from fairlead_schemas.queries.explainer import DefragMove, DefragPlan
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.events import Victim

#: Notice, grace, start and reading what was saved.
RESTART_S = 120


def slice_of(state: ClusterState, job: str) -> int:
    """The slice of a kept job, or an element's array, in ns; 0: it is not to be moved."""
    kept = state.jobs.get(array_of(job) or job)
    return 0 if kept is None else kept.slice_ns


def movable(state: ClusterState, pool: str, now_ns: int) -> list[Victim]:
    """Return the pool's runs that have had their slice and run undisturbed, the cheapest first, with the cost of moving each."""
    found = [victim for run in state.runs.values() if (victim := _victim(state, run, pool, now_ns)) is not None]
    return sorted(found, key=lambda victim: (victim.gpu_s, victim.job))


def _victim(state: ClusterState, run: PlacedRun, pool: str, now_ns: int) -> Victim | None:
    slice_ns = slice_of(state, run.job)
    if not slice_ns or is_stopping(run) or run.ended or run.started != run.all_ranks:
        return None
    if run.began_ns + slice_ns > now_ns or state.nodes[run.parts[0].node].pool != pool:
        return None
    request = state.request_of(run.job)
    assert request is not None
    job = state.job_of(run)
    every_ns = job.checkpoint.every_ns if job is not None and job.checkpoint is not None else 0
    lost_ns = min(now_ns - max(run.began_ns, run.saved_ns), slice_ns, every_ns or slice_ns)
    lost_s = lost_ns // SECOND_NS + RESTART_S
    return Victim(
        job=run.job, attempt=run.attempt, rule="defragmentation", gpu_s=request.gpu_milli_total * lost_s // 1000
    )


#: Runs without another place that are left out, one after the other, before there is no plan.
TRIES_MAX = 16
#: Runs whose every order is tried.
ORDERS_MAX = 3
#: Waiting jobs of a pool that are looked at, the first in their order.
JOBS_MAX = 8
#: Not before a job has waited so long: most places come free by themselves.
AFTER_NS = MINUTE_NS


#: {`DefragPlan.why_not`: in words}
WHY_NOT: dict[str, str] = {
    "": "",
    "young": "it has not waited long enough",
    "kept": "nodes are kept for it already, or others yield to it",
    "few_free": "too few GPUs are free in all: moving runs frees none",
    "no_moves": "no runs that may be moved, and fit elsewhere, would make room",
    "costs_more": "the moves would cost more than it gains",
}


def plans(state: ClusterState, pool: str, now_ns: int, most: int = JOBS_MAX) -> list[DefragPlan]:
    """A plan for each of the first `most` jobs of the pool that ask for GPUs and fit nowhere, in their order; each by itself,
    one of a kind."""
    groups = [
        group for group in state.classes.values() if pool_of(group.request) == pool and group.request.gpu_milli_total
    ]
    heads = sorted(group.offers[0] for group in groups)
    found: list[DefragPlan] = []
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


def plan(state: ClusterState, offer: Offer, victims: Sequence[Victim], now_ns: int) -> DefragPlan:
    """Return the plan for one job that fits nowhere now, made of moves of `victims` (cheapest first)."""
    waited_ns = now_ns - offer.since_ns
    gpu_milli = offer.request.gpu_milli_total
    why_not = _why_not(state, offer, waited_ns)
    moves: tuple[DefragMove, ...] = ()
    nodes: tuple[str, ...] = ()
    if not why_not:
        moves, nodes = _moves(state, offer, victims, now_ns)
        why_not = "" if moves else "no_moves"
    gain, cost = gpu_milli * (waited_ns // SECOND_NS) // 1000, sum(move.cost_gpu_s for move in moves)
    if moves and gain <= cost:
        why_not = "costs_more"
    return DefragPlan(
        job=offer.job,
        attempt=offer.attempt,
        gpu_milli=gpu_milli,
        moves=moves,
        nodes=nodes,
        gain_gpu_s=gain,
        cost_gpu_s=cost,
        why_not=why_not,
        message=WHY_NOT[why_not],
    )


def _moves(
    state: ClusterState, offer: Offer, victims: Sequence[Victim], now_ns: int
) -> tuple[tuple[DefragMove, ...], tuple[str, ...]]:
    """Return (the moves that make room for the job, its nodes then); nothing where no such moves are found."""
    left_out: set[str] = set()
    for _ in range(TRIES_MAX):
        able = [victim for victim in victims if victim.job not in left_out][:VICTIMS_MAX]
        hole = find_victims(state, offer, able, now_ns)
        if hole is None or not hole.victims:
            break
        moves = _elsewhere(state, offer, hole, now_ns)
        if not isinstance(moves, str):
            return moves, tuple(sorted(hole.nodes))
        left_out.add(moves)
    return (), ()


def _why_not(state: ClusterState, offer: Offer, waited_ns: int) -> str:
    if offer.job in state.reservations or offer.job in state.preemption_requests or offer.job in state.claims:
        return "kept"
    if waited_ns < AFTER_NS:
        return "young"
    free = refusal(state, offer).gpu_milli_free
    return "few_free" if free < offer.request.gpu_milli_total else ""


def _elsewhere(state: ClusterState, offer: Offer, hole: VictimSet, now_ns: int) -> tuple[DefragMove, ...] | str:
    """Return the new place of each victim while the hole is kept, in the order of the queue, or the first job without a place."""
    largest_first = sorted(hole.victims, key=lambda victim: (-_gpu_milli(state, victim), victim.job))
    found: dict[str, DefragMove] | None = None
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


def _in_order(
    state: ClusterState, offer: Offer, hole: VictimSet, order: Sequence[Victim], now_ns: int
) -> dict[str, DefragMove] | str:
    moves: dict[str, DefragMove] = {}
    with state.trying():
        state.reserve(Reservation(offer.job, offer.attempt, "", tuple(sorted(hole.nodes)), 0, hole=True))
        for victim in order:
            move = _moved(state, victim, now_ns)
            if move is None:
                return victim.job
            moves[victim.job] = move
    return moves


def _moved(state: ClusterState, victim: Victim, now_ns: int) -> DefragMove | None:
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
    return DefragMove(
        job=victim.job,
        attempt=victim.attempt,
        gpu_milli=request.gpu_milli_total,
        sources=sources,
        targets=targets,
        cost_gpu_s=victim.gpu_s,
    )


def _gpu_milli(state: ClusterState, victim: Victim) -> int:
    request = state.request_of(victim.job)
    return 0 if request is None else request.gpu_milli_total


#: A look at all pools that ask for it, so often.
LOOK_NS = 30 * SECOND_NS


def next_look_ns(state: ClusterState, looked_ns: int) -> int | None:
    """Return the time of the next search for runs to move; None if no pool enables it or no offer is open."""
    return looked_ns + LOOK_NS if state.defragmented and state.offers else None


def step(draft: PlacerDraft) -> bool:
    """Begin what is worth it. False when the commit was full before the end."""
    state = draft.state
    for pool in sorted(state.defragmented):
        if draft.full:
            return False
        if _is_making_room(state, pool):
            continue
        worth = next((plan for plan in plans(state, pool, draft.now_ns) if not plan.why_not), None)
        if worth is not None and not _begin(draft, worth):
            return False
    return True


def _is_making_room(state: ClusterState, pool: str) -> bool:
    """Return True if runs of the pool already yield for a hole. The free room is then about to change."""
    requests = (state.request_of(job) for job, kept in state.reservations.items() if kept.hole)
    return any(request is not None and pool_of(request) == pool for request in requests)


def _begin(draft: PlacerDraft, plan: DefragPlan) -> bool:
    nodes = list(plan.nodes)
    if not draft.has_room(len(plan.moves) * VICTIM_BYTES + made_bytes(nodes), len(plan.moves) + 1):
        return False
    for move in plan.moves:
        event = ev.PreemptionStarted(
            cause="clock",
            job=move.job,
            attempt=move.attempt,
            beneficiary=plan.job,
            rule="defragmentation",
        )
        draft.emit(event, VICTIM_BYTES)
    make(draft, draft.state.offers[plan.job], nodes, "clock")
    return True
