"""Standing of queues as the queue service itself counts it: idle guarantees that are not lent, past use, GPU time of budgets.
Pure, and changes nothing.
"""

from collections.abc import Sequence

from fairlead_queue.fairness.budgets import UNIT
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import LiveQueue
from fairlead_schemas.queries.explainer import QueueStanding


def standings(state: QueueState) -> tuple[QueueStanding, ...]:
    """Return the standing of every queue, by path.

    Budgets are counted up to the placer's newest commit: only its clock measures GPU time, and `fairlead usage` counts to the
    same moment.
    """
    return tuple(_standing(state, path, queue) for path, queue in sorted(state.queues.items()))


def _standing(state: QueueState, path: str, queue: LiveQueue) -> QueueStanding:
    pool, node = queue.pool, queue.node
    names = pool.tree.resources
    kept = [max(0, most - held) for most, held in zip(node.kept, node.held, strict=True)]
    account = state.accounts.get(path)
    spent = None if account is None else account.at(max(state.heard_ns, account.since_ns))[1] // UNIT
    past = None if pool.past is None else _named(names, pool.past.value(node))
    return QueueStanding(queue=path, kept=_named(names, kept), past_use=past, spent=spent)


def _named(names: Sequence[str], amounts: Sequence[int]) -> dict[str, int]:
    """{resource: amount} of those of which there is some."""
    return {name: amount for name, amount in zip(names, amounts, strict=True) if amount}
