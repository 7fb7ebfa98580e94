"""Nodes that a job does not go to again: it has failed there. Reads state, changes nothing.

A job avoids them as long as enough others could take it, busy ones included; it waits for those. Where there are none
it goes back: with nothing left to try, a retry on the same node is better than none.
"""

from fairlead_placer.capacity.asks import asks_of
from fairlead_placer.capacity.seats import never
from fairlead_placer.state import State
from fairlead_schemas.resources import Request

NOWHERE: frozenset[str] = frozenset()


def avoided(state: State, job: str) -> frozenset[str]:
    """Nodes on which the job has failed and to which it shall not go; none when it has nowhere else to go."""
    failed = state.failed_on.get(job)
    request = state.request_of(job) if failed else None
    if not failed or request is None:
        return NOWHERE
    names = frozenset(each.node for each in failed)
    return names if _others_serve(state, request, names) else NOWHERE


def _others_serve(state: State, request: Request, failed: frozenset[str]) -> bool:
    """True when enough open nodes besides these, empty, would take a part each."""
    ask, wanted = asks_of(request)[0], request.nodes_min or request.nodes
    for node in state.pools.of(request).members.values():
        wanted -= node.name not in failed and node.serving and not never(node.left, ask)
        if wanted <= 0:
            return True
    return False
