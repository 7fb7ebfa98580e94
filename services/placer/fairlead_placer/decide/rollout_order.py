"""Turn order of the nodes in a rollout; and nodes of a plan: the named ones, and those that match a label selector. The
module reads the state and changes nothing.
"""

from fairlead_bus.core import CommandRefusal
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.plans import RolloutPlan
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.units import selectors
from fairlead_schemas.units.ids import array_of, is_token


def next_turn(state: ClusterState, rollout: RolloutPlan, now_ns: int) -> ClusterNode | None:
    """Return the next node to drain or to pass over: no other plan has it in hand, and its GPUs fit into the rest of the
    budget. Nodes without long runs go first, then those with the fewest runs, then by name.
    """
    if not rollout.pending or (rollout.nodes_max and len(rollout.in_hand) >= rollout.nodes_max):
        return None
    room = rollout.budget_gpus - gpus_away(state, rollout)
    waiting = [node for node in map(state.nodes.__getitem__, rollout.pending) if node.on_duty and not node.lost]
    may = [node for node in waiting if not node.open or len(node.inventory.gpus) <= room]
    return min(may, key=lambda node: (has_long_run(state, rollout, node, now_ns), node.live, node.name), default=None)


def gpus_away(state: ClusterState, rollout: RolloutPlan) -> int:
    """Return the number of GPUs of the rollout's nodes that take no work now, for any cause."""
    members = set(rollout.nodes) & state.closed
    return sum(len(state.nodes[name].inventory.gpus) for name in members)


def has_long_run(state: ClusterState, rollout: RolloutPlan, node: ClusterNode, now_ns: int) -> bool:
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


def selected(
    state: ClusterState, named: tuple[str, ...], selector: tuple[str, ...], *, every: bool = False, most: int
) -> tuple[str, ...] | CommandRefusal:
    """Return the names of the selected nodes, sorted, at least one; or the refusal."""
    unknown = sorted(set(named) - state.nodes.keys())
    if unknown:
        return CommandRefusal("not_found", f'expected names of known nodes, found "{unknown[0][:80]}"')
    found = set(named)
    if every:
        found.update(state.nodes)
    elif selector:
        found.update(name for name, node in state.nodes.items() if selectors.suits(node.inventory.labels, selector))
    if not 0 < len(found) <= most:
        return CommandRefusal("bad_nodes", f"expected 1 to {most} nodes, found {len(found)}")
    return tuple(sorted(found))


def fault_of_name(name: str) -> CommandRefusal | None:
    """Return the refusal of a plan's name, None if it is valid."""
    return (
        None if is_token(name) else CommandRefusal("bad_name", f'expected a name of a-z 0-9 _ -, found "{name[:80]}"')
    )
