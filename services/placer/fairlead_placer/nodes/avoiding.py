"""Nodes that a job does not go to again: it has failed there. Reads state, changes nothing.

A job avoids them as long as enough others could take it, busy ones included; it waits for those. Where there are none
it goes back: with nothing left to try, a retry on the same node is better than none.
"""

from fairlead_placer.capacity import node_suits
from fairlead_placer.entities import pool_of
from fairlead_placer.nodes.taints import tolerates, tolerations_of
from fairlead_placer.state import State
from fairlead_schemas.resources import Request

NOWHERE: frozenset[str] = frozenset()


def avoided(state: State, job: str) -> frozenset[str]:
    """Nodes on which the job has failed and to which it shall not go; none when it has nowhere else to go."""
    failed = state.failed_on.get(job)
    request = state.request_of(job) if failed else None
    if not failed or request is None:
        return NOWHERE
    return frozenset(failed) if _others_serve(state, request, failed) else NOWHERE


def _others_serve(state: State, request: Request, failed: tuple[str, ...]) -> bool:
    """True when enough open nodes besides these, empty, would take a part each."""
    wanted, pool, tolerations = request.nodes, pool_of(request), tolerations_of(request)
    for node in state.pools.of(request).members.values():
        inventory = node.inventory
        wanted -= (
            node.name not in failed
            and node.serving
            and node.pool == pool
            and inventory.cpu_milli >= request.cpu_milli
            and inventory.memory_mib >= request.memory_mib
            and tolerates(node.taints, tolerations)
            and node_suits(node, request)
        )
        if wanted <= 0:
            return True
    return False
