"""Nodes: joined, changed, lost and returned, cordoned and drained."""

from collections.abc import Callable
from typing import Any

from fairlead_placer.cutting.folding import forget_failures
from fairlead_placer.entities import CORDONED, DRAINED, DRAINING, READY, Node, Removed
from fairlead_placer.evolve_runs import send_away
from fairlead_placer.nodes.folding import heed_taints
from fairlead_placer.nodes.planfolding import mark_drained, strike_out
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Inventory

#: Faulted GPUs that a node remembers beyond its inventory.
FAULTED_MAX = 64
#: Replaced incarnations that a node remembers, so that an older agent cannot come back as a new one.
SUPERSEDED_MAX = 8
#: Removed nodes whose journals are remembered.
REMOVED_MAX = 1024


def _node_joined(state: State, seq: int, index: int, at_ns: int, event: ev.NodeJoined) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        node = Node(event.node, event.incarnation, event.boot_id, event.inventory)
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


def _node_changed(state: State, seq: int, index: int, at_ns: int, event: ev.NodeChanged) -> None:
    node = state.nodes[event.node]
    _take_stock(state, node, event.boot_id, event.inventory)
    heed_taints(state, node, at_ns)
    state.touch(event.node)  # its desired state names the boot that it is meant for


def _take_stock(state: State, node: Node, boot_id: str, inventory: Inventory) -> None:
    """Replace the inventory under the held parts: parts that are held and gone stay unassigned until they are released."""
    if boot_id != node.boot_id and state.spoilt:
        forget_failures(state, node.name)
    faulted = node.faulted
    if len(faulted) > FAULTED_MAX:  # marks of absent GPUs are kept while there is room
        faulted = {gpu.uuid: faulted[gpu.uuid] for gpu in inventory.gpus if gpu.uuid in faulted}
    state.change(node, boot_id=boot_id, inventory=inventory, hosts=(inventory.address,), faulted=faulted)


def _node_lost(state: State, seq: int, index: int, at_ns: int, event: ev.NodeLost) -> None:
    state.change(state.nodes[event.node], lost=True, lost_ns=at_ns, dead=False)


def _node_declared_dead(state: State, seq: int, index: int, at_ns: int, event: ev.NodeDeclaredDead) -> None:
    state.change(state.nodes[event.node], dead=True)


def _node_returned(state: State, seq: int, index: int, at_ns: int, event: ev.NodeReturned) -> None:
    state.change(state.nodes[event.node], lost=False, dead=False)
    state.touch(event.node)


def _node_removed(state: State, seq: int, index: int, at_ns: int, event: ev.NodeRemoved) -> None:
    node = state.nodes[event.node]
    if node.name not in state.removed and len(state.removed) >= REMOVED_MAX:
        state.drop(state.removed, min(state.removed, key=lambda name: (state.removed[name].at_ns, name)))
    incarnations = (*node.superseded, node.incarnation)[-SUPERSEDED_MAX:]
    state.put(state.removed, node.name, Removed(at_ns, incarnations))
    state.drop(state.failing, node.name)
    state.drop(state.acts, node.name)
    for job in sorted(job for job, failed in state.failed_on.items() if any(each.node == node.name for each in failed)):
        others = tuple([each for each in state.failed_on[job] if each.node != node.name])
        state.put(state.failed_on, job, others) if others else state.drop(state.failed_on, job)
    forget_failures(state, node.name)
    strike_out(state, node.name)
    state.remove_node(node)
    state.touch(event.node)


def _node_cordoned(state: State, seq: int, index: int, at_ns: int, event: ev.NodeCordoned) -> None:
    node = state.nodes[event.node]
    if node.duty in (READY, CORDONED):
        state.change(node, duty=CORDONED, by=event.by, reason=event.reason, setter=event.setter)
    elif node.setter != "person":  # a drain is more than a cordon and continues, but now as the person's
        state.change(node, by=event.by, reason=event.reason, setter=event.setter)


def _node_uncordoned(state: State, seq: int, index: int, at_ns: int, event: ev.NodeUncordoned) -> None:
    state.change(state.nodes[event.node], duty=READY, by="", reason="", cause="", deadline_ns=0, setter="person")
    state.touch(event.node)


def _node_draining(state: State, seq: int, index: int, at_ns: int, event: ev.NodeDraining) -> None:
    """A deadline that is not after the commit has come: the runs are stopped now."""
    node = state.nodes[event.node]
    due = 0 < event.deadline_ns <= at_ns
    cause = node.cause if event.cause == "clock" else event.cause
    deadline_ns = 0 if due else event.deadline_ns
    state.change(
        node, duty=DRAINING, by=event.by, reason=event.reason, cause=cause, deadline_ns=deadline_ns, setter=event.setter
    )
    if due:
        send_away(state, node, at_ns)


def _node_drained(state: State, seq: int, index: int, at_ns: int, event: ev.NodeDrained) -> None:
    node = state.nodes[event.node]
    state.change(node, duty=DRAINED, deadline_ns=0)
    state.touch(event.node)
    mark_drained(state, node)


HANDLERS: dict[type, Callable[[State, int, int, int, Any], None]] = {
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
}
