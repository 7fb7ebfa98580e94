"""Execution of defragmentation plans, in pools that enable it: one at a time in each pool, as a preemption by the rule
"defragmentation".

The runs get their notice and grace, the queue returns them to waiting, and the hole is kept for the job they made room
for. Their new places are not kept: jobs ahead of them may take those. The module emits on a draft.
"""

from fairlead_placer.defragmenting.movable import SECOND_NS
from fairlead_placer.defragmenting.planning import Plan, plans
from fairlead_placer.draft import Draft
from fairlead_placer.entities import pool_of
from fairlead_placer.preemption import VICTIM_BYTES
from fairlead_placer.reservations import made_bytes, make
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev

#: A look at all pools that ask for it, so often.
LOOK_NS = 30 * SECOND_NS


def next_look(state: State, looked_ns: int) -> int | None:
    """Return the time of the next search for runs to move; None if no pool enables it or no offer is open."""
    return looked_ns + LOOK_NS if state.defragmented and state.offers else None


def advance(draft: Draft) -> bool:
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


def _is_making_room(state: State, pool: str) -> bool:
    """Return True if runs of the pool already yield for a hole. The free room is then about to change."""
    requests = (state.request_of(job) for job, kept in state.reservations.items() if kept.hole)
    return any(request is not None and pool_of(request) == pool for request in requests)


def _begin(draft: Draft, plan: Plan) -> bool:
    nodes = list(plan.nodes)
    if not draft.has_room(len(plan.moves) * VICTIM_BYTES + made_bytes(nodes), len(plan.moves) + 1):
        return False
    for move in plan.moves:
        event = ev.PreemptionStarted(
            cause="clock", job=move.victim.job, attempt=move.victim.attempt, beneficiary=plan.offer.job,
            rule="defragmentation",
        )  # fmt: skip
        draft.emit(event, VICTIM_BYTES)
    make(draft, plan.offer, nodes, "clock")
    return True
