"""Turn order of the nodes in a rollout. The module reads the state and changes nothing."""

from fairlead_placer.entities import Node
from fairlead_placer.nodes.plans import Rollout
from fairlead_placer.state import State
from fairlead_schemas.units.ids import array_of


def next_turn(state: State, rollout: Rollout, now_ns: int) -> Node | None:
    """Return the next node to drain or to pass over: no other plan has it in hand, and its GPUs fit into the rest of the
    budget. Nodes without long runs go first, then those with the fewest runs, then by name.
    """
    if not rollout.pending or (rollout.nodes_max and len(rollout.in_hand) >= rollout.nodes_max):
        return None
    room = rollout.budget_gpus - gpus_away(state, rollout)
    waiting = [node for node in map(state.nodes.__getitem__, rollout.pending) if node.on_duty and not node.lost]
    may = [node for node in waiting if not node.open or len(node.inventory.gpus) <= room]
    return min(may, key=lambda node: (has_long_run(state, rollout, node, now_ns), node.live, node.name), default=None)


def gpus_away(state: State, rollout: Rollout) -> int:
    """Return the number of GPUs of the rollout's nodes that take no work now, for any cause."""
    members = set(rollout.nodes) & state.closed
    return sum(len(state.nodes[name].inventory.gpus) for name in members)


def has_long_run(state: State, rollout: Rollout, node: Node, now_ns: int) -> bool:
    """Return True if a run there may last beyond the deadline, judged by the known limits."""
    for key in node.held:
        run = state.runs[key]
        job = state.jobs.get(array_of(run.job) or run.job)
        if run.ended == run.all_ranks:
            continue
        if job is None or not job.total_ns or not rollout.deadline_ns:
            return True
        if (run.began_ns or now_ns) + job.total_ns > now_ns + rollout.deadline_ns:
            return True
    return False
