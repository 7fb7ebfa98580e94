"""Choice of the next commit: the order in which the rules run. Their events are tried on the state, in its journal, and
left there. The caller keeps them or takes them back (`core.py`).

Ends come before placements, so that one commit holds a run's end and the run that takes its place.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_bus.core import Decision, Input
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.decide import (
    circuit_breaker,
    cordon,
    fencing,
    health,
    maintenance_windows,
    membership,
    quarantine,
    reports,
    rollouts,
)
from fairlead_placer.decide.commands import decide_command
from fairlead_placer.scheduling import allocate, defragment, preempt, repartition, reserve
from fairlead_schemas.wire import events as ev


class PreparedDecision(NamedTuple):
    """The next commit, whether there is more to decide at once, and whether that needs a commit of its own."""

    decision: Decision
    more: bool
    crowded: bool


def decide(
    state: ClusterState, inputs: Sequence[Input], now_ns: int, *, roomy: bool = False, look_for_moves: bool = False
) -> PreparedDecision:
    """Return the next commit, tried on the state.

    `roomy`: the last draft was crowded. `look_for_moves`: it is time to look for runs to move. If `decide` raises, no events
    are left tried on the state.
    """
    draft = PlacerDraft(state, now_ns, roomy=roomy)
    state.begin()
    try:
        fencing.fence_lost(draft)
        for item in inputs:
            _take(draft, item)
        circuit_breaker.watch_losses(draft)
        reserve.end(draft)
        _return_offers(draft)
        fencing.fence_lost(draft)
        looked_after = _maintain_nodes(draft)
        repartition.reconcile(draft)
        placed_all = reserve.repair(draft) and allocate.place(draft)
        # Others yield to, and nodes are kept for, those who find no place even so.
        answered = placed_all and preempt.process(draft) and reserve.process(draft) and repartition.plan(draft)
        if look_for_moves and answered:
            answered = defragment.step(draft)
        more = draft.full or not answered or not looked_after
    except BaseException:
        state.abort()
        raise
    return PreparedDecision(Decision(draft.events, draft.cursors), more, draft.crowded)


def _take(draft: PlacerDraft, item: Input) -> None:
    """Apply one input by source: "CMD" a message of commands, "report" a batch, "silent" (node, ns), "quiet" and `"heard"` a
    node, "refused" a `reports.Refused`.
    """
    match item.source:
        case "CMD":
            for command in item.body:
                decide_command(draft, command)
            draft.cursors["CMD"] = item.position
        case "report":
            reports.batch(draft, item.body)
        case "refused":
            reports.refused(draft, item.body)
        case "silent":
            membership.silent(draft, *item.body)
        case "quiet":
            membership.quiet(draft, item.body)
        case "heard":
            membership.heard(draft, item.body, "clock")
        case _:
            raise AssertionError(f'expected an input of a known source, found "{item.source}"')


def _maintain_nodes(draft: PlacerDraft) -> bool:
    """Run the automatic actions on nodes. Return False if the commit was full before the end."""
    health.taint(draft)
    quarantine.judge(draft)
    whole = maintenance_windows.step(draft) and rollouts.step(draft)
    cordon.drains(draft)
    return whole


def _return_offers(draft: PlacerDraft) -> None:
    for job in sorted(draft.state.withdrawals):
        if draft.full:
            return
        withdrawal = draft.state.withdrawals[job]
        draft.emit(ev.OfferReturned(cause=withdrawal.cause, job=job, attempt=withdrawal.attempt))
