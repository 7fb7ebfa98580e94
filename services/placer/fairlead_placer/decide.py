"""Choice of the next commit: the order in which the rules run. Their events are tried on the state, in its journal, and
left there. The caller keeps them or takes them back (`core.py`).

Ends come before placements, so that one commit holds a run's end and the run that takes its place.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead_bus.core import Decision, Input
from fairlead_placer import parking, preemption, reports, reservations
from fairlead_placer.cutting import ending, planning
from fairlead_placer.defragmenting import carrying_out
from fairlead_placer.draft import Draft
from fairlead_placer.nodes import blackhole, breaker, coming, duty, fencing, health, rollouts, windows
from fairlead_placer.nodes.commands import command
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev


class Drawn(NamedTuple):
    """The next commit, whether there is more to decide at once, and whether that needs a commit of its own."""

    decision: Decision
    more: bool
    crowded: bool


def decide(
    state: State, inputs: Sequence[Input], now_ns: int, *, roomy: bool = False, defragment: bool = False
) -> Drawn:  # fmt: skip
    """Return the next commit, tried on the state.

    `roomy`: the last draft was crowded. `defragment`: it is time to look for runs to move. If `decide` raises, no events
    are left tried on the state.
    """
    draft = Draft(state, now_ns, roomy=roomy)
    state.begin()
    try:
        fencing.fence_lost(draft)
        for item in inputs:
            _take(draft, item)
        breaker.watch_losses(draft)
        reservations.end(draft)
        _return_offers(draft)
        fencing.fence_lost(draft)
        looked_after = _look_after_nodes(draft)
        ending.tend(draft)
        placed_all = reservations.mend(draft) and parking.place(draft)
        # Others yield to, and nodes are kept for, those who find no place even so.
        answered = placed_all and preemption.answer(draft) and reservations.answer(draft) and planning.plan(draft)
        if defragment and answered:
            answered = carrying_out.advance(draft)
        more = draft.full or not answered or not looked_after
    except BaseException:
        state.abort()
        raise
    return Drawn(Decision(draft.events, draft.cursors), more, draft.crowded)


def _take(draft: Draft, item: Input) -> None:
    """Apply one input by source: "CMD" a message of commands, "report" a batch, "silent" (node, ns), "quiet" and `"heard"` a
    node, "refused" a `reports.Refused`.
    """
    match item.source:
        case "CMD":
            for asked in item.body:
                command(draft, asked)
            draft.cursors["CMD"] = item.position
        case "report":
            reports.batch(draft, item.body)
        case "refused":
            reports.refused(draft, item.body)
        case "silent":
            coming.silent(draft, *item.body)
        case "quiet":
            coming.quiet(draft, item.body)
        case "heard":
            coming.heard(draft, item.body, "clock")
        case _:
            raise AssertionError(f'expected an input of a known source, found "{item.source}"')


def _look_after_nodes(draft: Draft) -> bool:
    """Run the automatic actions on nodes. Return False if the commit was full before the end."""
    health.taint(draft)
    blackhole.judge(draft)
    whole = windows.advance(draft) and rollouts.advance(draft)
    duty.drains(draft)
    return whole


def _return_offers(draft: Draft) -> None:
    for job in sorted(draft.state.withdrawals):
        if draft.full:
            return
        withdrawal = draft.state.withdrawals[job]
        draft.emit(ev.OfferReturned(cause=withdrawal.cause, job=job, attempt=withdrawal.attempt))
