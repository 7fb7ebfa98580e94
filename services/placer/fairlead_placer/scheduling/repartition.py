"""Plans to repartition GPUs for jobs that found no place; and ends of plans: done, failed, or given up. The module emits
on a draft.

Planning runs after all placements of a decision, so that existing room is given first. A plan names the jobs that it is
for. Jobs that precede them in the order when the plan is done still get the instances first.

Emits on a draft.

A plan is done when its agent has reported the inventory that it wanted. It is given up when its node takes no work
any more, the GPU is no longer well, or no answer comes; later changes by the agent appear in its next inventory.
"""

import msgspec

from fairlead_bus.core import MESSAGE_CHARS_MAX, encoded_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import ClusterNode, OfferClass
from fairlead_placer.cluster.plans import LATE_NS, LayoutPlan
from fairlead_placer.cluster.repartition_demand import WaitingOffer, may_gain, of_pool, waiting_offers
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.cluster.timeline.upcoming_maintenance import barred
from fairlead_placer.scheduling.repartition_choice import GpuRepartition, choose
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import InventorySeen
from fairlead_schemas.wire.resources import Gpu, Inventory

#: Plans of one decision; the others follow in the next.
PLANS_MAX = 32


def plan(draft: PlacerDraft) -> bool:
    """Plan for those who wait. False when there is more to plan."""
    state = draft.state
    if not any(may_gain(state, group.request) for group in state.classes.values()):
        return True
    found, planned, given = waiting_offers(state), 0, set[str]()
    #: Classes, and the nodes that the job avoids, for which nothing was found.
    hopeless: list[tuple[OfferClass, frozenset[str]]] = []
    for want in found:
        beyond = want.group, barred(state, want.job, draft.now_ns)
        if want.job in given or beyond in hopeless or not _may_help(draft, want.group):
            continue
        if draft.full or planned >= PLANS_MAX:
            return False
        beside = [each for each in of_pool(found, want) if each.job not in given]
        repartitions = choose(state, want, beside, draft.now_ns)
        if not repartitions:
            hopeless.append(beyond)
            continue
        for repartition in repartitions:
            if not _emit(draft, want, repartition):
                return False
            given.update(repartition.jobs)
            planned += 1
    for group, beside in hopeless:  # a memory of work done, as `OfferClass.failed_at`
        if not beside:
            group.uncut_at = state.pools.version, draft.now_ns
    return True


def _may_help(draft: PlacerDraft, group: OfferClass) -> bool:
    """False where nothing has come free, and no GPU may be tried again, since nothing was found for the class."""
    state = draft.state
    version, looked_ns = group.uncut_at
    if version < 0 or any(looked_ns < each.until_ns <= draft.now_ns for each in state.spoilt.values()):
        return True
    return state.pools.of(group.request).anything_gained_since(version)


def _emit(draft: PlacerDraft, want: WaitingOffer, repartition: GpuRepartition) -> bool:
    event = ev.MigLayoutPlanned(
        cause=want.cause,
        node=repartition.node.name,
        gpu=repartition.gpu,
        jobs=repartition.jobs,
        mode=repartition.mode,
        destroy=repartition.destroy,
        create=repartition.create,
        score=repartition.score,
    )
    extra_bytes = len(msgspec.json.encode(event))
    if not draft.has_room(extra_bytes):
        return False
    draft.emit(event, extra_bytes)
    return True


def deadlines(state: ClusterState, looked_ns: int) -> list[int]:
    """Return the times at which plans are late and, if a waiting job could gain, at which failed GPUs may be tried again."""
    late = [plan.at_ns + LATE_NS for plan in state.layouts.values()]
    if state.spoilt and any(may_gain(state, group.request) for group in state.classes.values()):
        late += [each.until_ns for each in state.spoilt.values() if each.until_ns > looked_ns]
    return late


def process_report(draft: PlacerDraft, node: ClusterNode, report: InventorySeen, cause: str) -> None:
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
        draft.emit(event, draft.EVENT_BYTES * len(gpu.instances))
        return
    reason = reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.MigLayoutFailed(cause=cause, node=node.name, gpu=plan.gpu, plan=plan.sequence, reason=reason),
        encoded_bytes(reason),
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


def agent_restarted(draft: PlacerDraft, node: ClusterNode) -> None:
    """Drop the node's plan because the node has a new journal or boot: the agent that had the order is gone."""
    if node.name in draft.state.layouts:
        _drop(draft, node, "node")


def reconcile(draft: PlacerDraft) -> None:
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


def _drop(draft: PlacerDraft, node: ClusterNode, reason: ev.MigDropReason) -> None:
    plan = draft.state.layouts[node.name]
    draft.emit(ev.MigLayoutDropped(cause="clock", node=node.name, gpu=plan.gpu, plan=plan.sequence, reason=reason))
