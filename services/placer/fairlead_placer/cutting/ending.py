"""Ends of plans: done, failed, or given up. Emits on a draft.

A plan is done when its agent has reported the inventory that it wanted. It is given up when its node takes no work
any more, the GPU is no longer well, or no answer comes; later changes by the agent appear in its next inventory.
"""

from fairlead_placer.cutting.plans import LATE_NS, LayoutPlan
from fairlead_placer.draft import EVENT_BYTES, Draft, encoded_bytes
from fairlead_placer.entities import Node
from fairlead_placer.nodes.answers import MESSAGE_CHARS_MAX
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import InventorySeen
from fairlead_schemas.wire.resources import Gpu, Inventory


def answered(draft: Draft, node: Node, report: InventorySeen, cause: str) -> None:
    """The node has taken stock, and that is folded already. Where it answers the plan, the plan ends."""
    plan = draft.state.layouts.get(node.name)
    if plan is None or report.plan != plan.sequence:
        return
    gpu = _gpu_of(node.inventory, plan.gpu)
    reason = report.failure or _difference(plan, gpu)
    if gpu is not None and not reason:
        event = ev.MigLayoutChanged(
            cause=cause, node=node.name, gpu=plan.gpu, plan=plan.sequence, instances=gpu.instances
        )
        draft.emit(event, EVENT_BYTES * (1 + len(gpu.instances)))
        return
    reason = reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.MigLayoutFailed(cause=cause, node=node.name, gpu=plan.gpu, plan=plan.sequence, reason=reason),
        EVENT_BYTES + encoded_bytes(reason),
    )


def _gpu_of(inventory: Inventory, uuid: str) -> Gpu | None:
    return next((gpu for gpu in inventory.gpus if gpu.uuid == uuid), None)


def _difference(plan: LayoutPlan, gpu: Gpu | None) -> str:
    """Return the first way in which the GPU differs from its plan, "" if it matches."""
    if gpu is None:
        return "the GPU is not in the inventory any more"
    if gpu.mig == (plan.mode == "off"):
        return f"MIG mode is {'on' if gpu.mig else 'off'}"
    there = {(each.profile, each.start) for each in gpu.instances}
    missing = [each for each in plan.create if (each.profile, each.start) not in there]
    left = {each.uuid for each in plan.destroy} & {each.uuid for each in gpu.instances}
    if missing:
        return f"there is no {missing[0].profile} at {missing[0].start}"
    return f"{min(left)} is still there" if left else ""


def began_anew(draft: Draft, node: Node) -> None:
    """Drop the node's plan because the node has a new journal or boot: the agent that had the order is gone."""
    if node.name in draft.state.layouts:
        _drop(draft, node, "node")


def tend(draft: Draft) -> None:
    """Drop the plans that can no longer succeed. Driven by state."""
    state = draft.state
    for name in sorted(state.layouts):
        if draft.full:
            return
        node, plan = state.nodes[name], state.layouts[name]
        if not node.serving:
            _drop(draft, node, "node")
        elif plan.gpu in node.faulted or plan.gpu not in node.left.at:
            _drop(draft, node, "gpu")
        elif draft.now_ns >= plan.at_ns + LATE_NS:
            _drop(draft, node, "late")


def _drop(draft: Draft, node: Node, reason: ev.MigDropReason) -> None:
    plan = draft.state.layouts[node.name]
    draft.emit(ev.MigLayoutDropped(cause="clock", node=node.name, gpu=plan.gpu, plan=plan.sequence, reason=reason))
