"""Nodes: joined, changed, lost and returned, cordoned and drained.

Further parts:
- effects of the events about taints, health, quarantine and the breaker on the state;
- pool settings from the queue's events: moving runs to make room, and the policy that chooses nodes.

The module holds no rules.
"""

from fairlead_bus.core import EventHandlers, EventPosition
from fairlead_placer.apply.plans import forget_failures, mark_drained, strike_out
from fairlead_placer.apply.runs import send_away, stop
from fairlead_placer.cluster.entities import CORDONED, DRAINED, DRAINING, READY, ClusterNode, PlacedRun, RemovedNode
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.queuefile.settings import PoolSettings
from fairlead_schemas.units.taints import evicts, parse_pattern
from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Inventory

#: For how long the breaker counts a node that was taken out of work by itself.
ACTS_WITHIN_NS = 5 * MINUTE_NS


def _node_tainted(state: ClusterState, event: ev.NodeTainted, at: EventPosition) -> None:
    node, new = state.nodes[event.node], parse_pattern(event.taint)
    kept = [
        (taint, setter)
        for taint, setter in node.tainted
        if setter != event.setter or (parse_pattern(taint).key, parse_pattern(taint).effect) != (new.key, new.effect)
    ]
    state.change(node, tainted=tuple(sorted([*kept, (event.taint, event.setter)])))
    enforce_taints(state, node, at.time_ns)
    if event.setter != "person":
        _acted(state, event.node, at.time_ns)


def _node_untainted(state: ClusterState, event: ev.NodeUntainted, at: EventPosition) -> None:
    node = state.nodes[event.node]
    state.change(node, tainted=tuple(each for each in node.tainted if each != (event.taint, event.setter)))


def enforce_taints(state: ClusterState, node: ClusterNode, at_ns: int) -> None:
    """Stop the runs that the node's taints evict; they go elsewhere."""
    if evicts(node.taints, ()):
        send_away(state, node, at_ns, lambda run: _must_leave(state, node, run))


def _must_leave(state: ClusterState, node: ClusterNode, run: PlacedRun) -> bool:
    request = state.request_of(run.job)
    return evicts(node.taints, () if request is None else request.tolerations)


def _gpu_faulted(state: ClusterState, event: ev.GpuFaulted, at: EventPosition) -> None:
    node = state.nodes[event.node]
    _mark_gpus(state, node, {**node.faulted, event.gpu: event.code})
    for key, rank in sorted(node.held.items()) if event.stop else ():
        run = state.runs[key]
        if event.gpu in run.parts[rank].gpus and run.ended != run.all_ranks:
            stop(state, run, "gpu_fault", at.time_ns, notice=False)  # there is nothing to save on a faulted GPU
            state.set(run, "gpu_fault", run.gpu_fault or event.code)


def _gpu_restored(state: ClusterState, event: ev.GpuRestored, at: EventPosition) -> None:
    node = state.nodes[event.node]
    _mark_gpus(state, node, {uuid: code for uuid, code in node.faulted.items() if uuid != event.gpu})


def _node_ailed(state: ClusterState, event: ev.NodeUnhealthy, at: EventPosition) -> None:
    node = state.nodes[event.node]
    state.change(node, ills=tuple(sorted({*node.ills, event.code})))


def _node_recovered(state: ClusterState, event: ev.NodeRecovered, at: EventPosition) -> None:
    node = state.nodes[event.node]
    state.change(node, ills=tuple([code for code in node.ills if code != event.code]))


def _mark_gpus(state: ClusterState, node: ClusterNode, faulted: dict[str, str]) -> None:
    state.change(node, faulted=faulted)


def _node_suspected(state: ClusterState, event: ev.NodeSuspected, at: EventPosition) -> None:
    node = state.nodes[event.node]
    until_ns = event.rests_until_ns
    state.change(node, suspect=True, resting=until_ns > 0, rest_ns=until_ns or node.rest_ns)


def _node_cleared(state: ClusterState, event: ev.NodeCleared, at: EventPosition) -> None:
    state.change(state.nodes[event.node], suspect=False, resting=False, rest_ns=0)


def _node_quarantined(state: ClusterState, event: ev.NodeQuarantined, at: EventPosition) -> None:
    state.change(state.nodes[event.node], quarantined=True, resting=False)
    if event.setter != "person":
        _acted(state, event.node, at.time_ns)


def _node_released(state: ClusterState, event: ev.NodeUnquarantined, at: EventPosition) -> None:
    state.drop(state.failing, event.node)
    state.change(state.nodes[event.node], quarantined=False, suspect=False, resting=False, rest_ns=0)


def _acted(state: ClusterState, name: str, at_ns: int) -> None:
    for old in [node for node, when in state.acts.items() if when <= at_ns - ACTS_WITHIN_NS]:
        state.drop(state.acts, old)
    state.put(state.acts, name, at_ns)


def _breaker_tripped(state: ClusterState, event: ev.BreakerTripped, at: EventPosition) -> None:
    state.put(state.tripped, event.kind, at.time_ns)
    state.pools.stir_offers()


def _breaker_reset(state: ClusterState, event: ev.BreakerReset, at: EventPosition) -> None:
    for kind in sorted(state.tripped):
        state.drop(state.tripped, kind)
    for node in sorted(state.acts):
        state.drop(state.acts, node)
    state.set(state, "reset_ns", at.time_ns)
    state.pools.stir_offers()


#: Faulted GPUs that a node remembers beyond its inventory.
FAULTED_MAX = 64
#: Replaced incarnations that a node remembers, so that an older agent cannot come back as a new one.
SUPERSEDED_MAX = 8
#: Removed nodes whose journals are remembered.
REMOVED_MAX = 1024


def _node_joined(state: ClusterState, event: ev.NodeJoined, at: EventPosition) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        node = ClusterNode(event.node, event.incarnation, event.boot_id, event.inventory)
        removed = state.drop(state.removed, event.node)
        if removed is not None:
            node.superseded = removed.incarnations
        state.add_node(node)
    else:
        state.set(node, "superseded", (*node.superseded, node.incarnation)[-SUPERSEDED_MAX:])
        state.set(node, "incarnation", event.incarnation)
        state.set(node, "reported", 0)
        _take_stock(state, node, event.boot_id, event.inventory)
        state.change(node, lost=False, dead=False)
    state.touch(event.node)


def _node_changed(state: ClusterState, event: ev.NodeChanged, at: EventPosition) -> None:
    node = state.nodes[event.node]
    _take_stock(state, node, event.boot_id, event.inventory)
    enforce_taints(state, node, at.time_ns)
    state.touch(event.node)  # its desired state names the boot that it is meant for


def _take_stock(state: ClusterState, node: ClusterNode, boot_id: str, inventory: Inventory) -> None:
    """Replace the inventory under the held parts: parts that are held and gone stay unassigned until they are released."""
    if boot_id != node.boot_id and state.spoilt:
        forget_failures(state, node.name)
    faulted = node.faulted
    if len(faulted) > FAULTED_MAX:  # marks of absent GPUs are kept while there is room
        faulted = {gpu.uuid: faulted[gpu.uuid] for gpu in inventory.gpus if gpu.uuid in faulted}
    state.change(node, boot_id=boot_id, inventory=inventory, hosts=(inventory.address,), faulted=faulted)


def _node_lost(state: ClusterState, event: ev.NodeLost, at: EventPosition) -> None:
    state.change(state.nodes[event.node], lost=True, lost_ns=at.time_ns, dead=False)


def _node_declared_dead(state: ClusterState, event: ev.NodeDeclaredDead, at: EventPosition) -> None:
    state.change(state.nodes[event.node], dead=True)


def _node_returned(state: ClusterState, event: ev.NodeReturned, at: EventPosition) -> None:
    state.change(state.nodes[event.node], lost=False, dead=False)
    state.touch(event.node)


def _node_removed(state: ClusterState, event: ev.NodeRemoved, at: EventPosition) -> None:
    node = state.nodes[event.node]
    if node.name not in state.removed and len(state.removed) >= REMOVED_MAX:
        state.drop(state.removed, min(state.removed, key=lambda name: (state.removed[name].at_ns, name)))
    incarnations = (*node.superseded, node.incarnation)[-SUPERSEDED_MAX:]
    state.put(state.removed, node.name, RemovedNode(at.time_ns, incarnations))
    state.drop(state.failing, node.name)
    state.drop(state.acts, node.name)
    for job in sorted(job for job, failed in state.failed_on.items() if any(each.node == node.name for each in failed)):
        others = tuple([each for each in state.failed_on[job] if each.node != node.name])
        state.put(state.failed_on, job, others) if others else state.drop(state.failed_on, job)
    forget_failures(state, node.name)
    strike_out(state, node.name)
    state.remove_node(node)
    state.touch(event.node)


def _node_cordoned(state: ClusterState, event: ev.NodeCordoned, at: EventPosition) -> None:
    node = state.nodes[event.node]
    if node.duty in (READY, CORDONED):
        state.change(node, duty=CORDONED, by=event.by, reason=event.reason, setter=event.setter)
    elif node.setter != "person":  # a drain is more than a cordon and continues, but now as the person's
        state.change(node, by=event.by, reason=event.reason, setter=event.setter)


def _node_uncordoned(state: ClusterState, event: ev.NodeUncordoned, at: EventPosition) -> None:
    state.change(state.nodes[event.node], duty=READY, by="", reason="", cause="", deadline_ns=0, setter="person")
    state.touch(event.node)


def _node_draining(state: ClusterState, event: ev.NodeDraining, at: EventPosition) -> None:
    """A deadline that is not after the commit has come: the runs are stopped now."""
    node = state.nodes[event.node]
    due = 0 < event.deadline_ns <= at.time_ns
    cause = node.cause if event.cause == "clock" else event.cause
    deadline_ns = 0 if due else event.deadline_ns
    state.change(
        node, duty=DRAINING, by=event.by, reason=event.reason, cause=cause, deadline_ns=deadline_ns, setter=event.setter
    )
    if due:
        send_away(state, node, at.time_ns)


def _node_drained(state: ClusterState, event: ev.NodeDrained, at: EventPosition) -> None:
    node = state.nodes[event.node]
    state.change(node, duty=DRAINED, deadline_ns=0)
    state.touch(event.node)
    mark_drained(state, node)


def _configured(state: ClusterState, event: ev.PoolConfigured, at: EventPosition) -> None:
    _set(state, event.pool, event.settings)


def _removed(state: ClusterState, event: ev.PoolRemoved, at: EventPosition) -> None:
    _set(state, event.pool, PoolSettings())  # its nodes, if any, continue with the defaults


def _set(state: ClusterState, pool: str, settings: PoolSettings) -> None:
    if settings.defragment:
        state.put(state.defragmented, pool, True)
    else:
        state.drop(state.defragmented, pool)
    state.pack(pool, settings.packing)


HANDLERS: EventHandlers[ClusterState] = {
    ev.NodeTainted: _node_tainted,
    ev.NodeUntainted: _node_untainted,
    ev.GpuFaulted: _gpu_faulted,
    ev.GpuRestored: _gpu_restored,
    ev.NodeUnhealthy: _node_ailed,
    ev.NodeRecovered: _node_recovered,
    ev.NodeSuspected: _node_suspected,
    ev.NodeCleared: _node_cleared,
    ev.NodeQuarantined: _node_quarantined,
    ev.NodeUnquarantined: _node_released,
    ev.BreakerTripped: _breaker_tripped,
    ev.BreakerReset: _breaker_reset,
    ev.NodeJoined: _node_joined,
    ev.NodeChanged: _node_changed,
    ev.NodeLost: _node_lost,
    ev.NodeReturned: _node_returned,
    ev.NodeDeclaredDead: _node_declared_dead,
    ev.NodeRemoved: _node_removed,
    ev.NodeCordoned: _node_cordoned,
    ev.NodeUncordoned: _node_uncordoned,
    ev.NodeDraining: _node_draining,
    ev.NodeDrained: _node_drained,
    ev.PoolConfigured: _configured,
    ev.PoolRemoved: _removed,
}
