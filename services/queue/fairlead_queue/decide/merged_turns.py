"""The next turns of a pool found at once: the leaves' candidates merged by their keys. Pure; nothing is charged.

PROBLEM. A review gives turns to every open offer again. Turn by turn, each of them asks the order for the first leaf, charges the
leaf, and measures it again.

METHOD. While the same resources are saturated, a leaf's key depends on the leaf alone: on what is charged to it and on its next
job. So the keys of its next turns are known in advance, and the pool's turns are those of its leaves, merged. A leaf whose key falls
after a turn keeps its turn, so each key counts as the largest so far, and the merge is one sort. A merge holds until

    a resource becomes saturated         the leaves are merged again from there, by other keys
    a leaf has more candidates           they are merged again from there, with the next candidates of each leaf
    a gate could close                   from there the turns are taken one by one (turns.py)

Only pools whose queues are all directly below the root are merged: above a leaf, a key depends on other leaves, too.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, count, islice, repeat
from typing import Any

from fairlead_queue.decide.candidates import OfferCandidate, job_order, leaf_candidates
from fairlead_queue.fairness.budgets import refusing_account
from fairlead_queue.fairness.ordering import Key
from fairlead_queue.fairness.tree import Amounts, Parts, QueueNode
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.before_images import image_uses
from fairlead_queue.waiting.pending import Lane, Leaf, LiveJob, PoolState, RequestClass

#: Candidates of each leaf that one merge takes.
MERGED_MAX = 64


#: A candidate in a merge: the largest key of its leaf so far, the leaf's path (ties go by it), its place among the
#: candidates of its leaf in this merge, and the leaf's candidates.
type _Entry = tuple[Key, str, int, "LeafCandidates"]


class LeafCandidates:
    """Candidates of one leaf in the order of their turns, found as they are needed."""

    def __init__(self, leaf: Leaf, candidates: Iterator[OfferCandidate]) -> None:
        self.leaf = leaf
        self._rest = candidates
        #: Candidates found so far with their orders and charges, the number of those that have had a turn, and whether there
        #: are more.
        self.found: list[OfferCandidate] = []
        self.orders: list[int] = []
        self.gains: list[Parts] = []
        self.given = 0
        self.has_more = True

    def look_ahead(self) -> None:
        """Find the candidates that the next merge takes."""
        missing = self.given + MERGED_MAX - len(self.found)
        if self.has_more and missing > 0:
            more = list(islice(self._rest, missing))
            self.has_more = len(more) == missing
            self.found += more
            self.orders += [candidate.order for candidate in more]
            self.gains += [candidate.job.lane.request_class.gain for candidate in more]

    @property
    def is_empty(self) -> bool:
        """Return True if every candidate has had its turn."""
        return self.given == len(self.found) and not self.has_more

    def first_refused(self) -> int:
        """Return the place of the first candidate that breaks the leaf's own limit; the number of those found if none does."""
        ceiling, usage = self.leaf.node.ceiling, list(self.leaf.node.usage)
        for place, gain in enumerate(self.gains):
            for at, more in gain:
                usage[at] += more
                if usage[at] > ceiling[at]:
                    return place
        return len(self.gains)


def mergeable_leaves(
    state: QueueState, pool: PoolState, reopened: Mapping[Lane, Sequence[LiveJob]], moved: Collection[str]
) -> list[LeafCandidates] | None:
    """Return the leaves with candidates, if all are directly below the root, and nothing but the turns' look-ahead and the leaves'
    own limits could close a gate; else None. `reopened`: jobs whose offers were taken back; `moved`: jobs that have no turn.
    """
    root, accounts, jobs, closures = pool.tree.root, state.accounts, state.jobs, state.closures
    if not pool.sequencer.has_keys or root.bounded or root.claim or root.held is not root.usage:
        return None
    if any(job in jobs and jobs[job].wait == "line" for job in moved):
        return None
    by_leaf: dict[Leaf, list[LiveJob]] = {}
    for lane, again in reopened.items():
        by_leaf.setdefault(lane.leaf, []).extend(again)
    found: list[LeafCandidates] = []
    for node in root.children.values():
        leaf: Leaf | None = node.leaf
        if node.children or node.keeps or node.claim is not None:
            return None
        if leaf is None or not node.wants:
            continue
        if closures.held and closures.holding(leaf.queue.path):
            return None
        if accounts and refusing_account(accounts, leaf.queue.path) is not None:
            return None
        again = sorted(by_leaf.get(leaf, ()), key=job_order)
        found.append(LeafCandidates(leaf, leaf_candidates(leaf, again, moved)))
    return found


def all_turns(
    state: QueueState, pool: PoolState, stuck: Sequence[LiveJob], moved: Collection[str], limit: int
) -> list[OfferCandidate] | None:
    """Return the turns of every job in line and every stuck offer, were these not offered yet; None if not all of them are known
    at once, or if they are not fewer than `limit`. Nothing is changed.
    """
    reopened: dict[Lane, list[LiveJob]] = {}
    for job in stuck:
        reopened.setdefault(job.lane, []).append(job)
    with state.speculating():
        _release(state, pool, reopened)
        leaves = mergeable_leaves(state, pool, reopened, moved)
        found = merged_turns(pool, leaves, limit) if leaves else []
    is_whole = leaves is not None and len(found) < limit and all(leaf.is_empty for leaf in leaves)
    return found if is_whole else None


def _release(state: QueueState, pool: PoolState, reopened: Mapping[Lane, Sequence[LiveJob]]) -> None:
    """Charge these jobs no longer, and let their leaves want what they need, as far as merged turns see it."""
    root = pool.tree.root
    by_node: dict[QueueNode, Counter[RequestClass]] = {}
    for lane, jobs in reopened.items():
        by_node.setdefault(lane.leaf.node, Counter())[lane.request_class] += len(jobs)
    image_uses(state, (root, *by_node))
    for node, classes in by_node.items():
        for request_class, times in classes.items():
            for at, more in request_class.gain:
                node.usage[at] -= times * more
                root.usage[at] -= times * more
            node.wants.setdefault(request_class.mask, 1)


def merged_turns(pool: PoolState, leaves: Sequence[LeafCandidates], limit: int) -> list[OfferCandidate]:
    """Return the next turns, at most `limit`: all that are known without a look at limits above the leaves, at the placer's
    look-ahead, and at budgets. The leaves' candidates have moved on by these turns, or further.
    """
    usage, capacity = list(pool.tree.root.usage), pool.tree.capacity
    turns: list[OfferCandidate] = []
    while len(turns) < limit:
        saturated = sum(1 << at for at, amount in enumerate(capacity) if usage[at] >= amount)
        entries, is_refused = _merged(pool, leaves, saturated)
        found = [leaf.found[place] for _, _, place, leaf in entries[: limit - len(turns)]]
        charges = [candidate.job.lane.request_class.need for candidate in found]
        whole = (
            len(found) if _is_final(pool, leaves, saturated) else _until_saturated(charges, usage, capacity, saturated)
        )
        for _, _, place, leaf in entries[:whole]:
            leaf.given = place + 1  # the entries of a leaf come in their order
        turns += found[:whole]
        if not whole or (is_refused and whole == len(entries)) or all(leaf.is_empty for leaf in leaves):
            break
        usage = [sum(amounts) for amounts in zip(usage, *charges[:whole], strict=True)]
    return turns


def _is_final(pool: PoolState, leaves: Sequence[LeafCandidates], saturated: int) -> bool:
    """Return True if no key changes once more resources are saturated: no job that waits in any leaf could use something now."""
    return not pool.sequencer.by_saturation or all(mask & saturated for leaf in leaves for mask in leaf.leaf.node.wants)


def _merged(pool: PoolState, leaves: Sequence[LeafCandidates], saturated: int) -> tuple[list[_Entry], bool]:
    """Return the leaves' candidates in the order of their turns while these resources are saturated, as far as it is certain.
    The flag is True if a leaf's own limit ends it.
    """
    entries: list[_Entry] = []
    end: tuple[Any, ...] | None = None
    is_refused = False
    for leaf in leaves:
        leaf.look_ahead()
        if leaf.given == len(leaf.found):
            continue
        node, given = leaf.leaf.node, leaf.given
        keys = pool.sequencer.keys(node, leaf.orders, leaf.gains, saturated)
        largest = list(accumulate(keys[given:] if given else keys, max))
        entries.extend(zip(largest, repeat(node.path), count(given), repeat(leaf)))
        known = leaf.first_refused() if node.bounded else len(keys)
        if known == len(keys) and not leaf.has_more:
            continue
        # The turn of a refused candidate ends the merge before it; where there are more candidates, it ends after the last one found.
        last = (largest[min(known, len(keys) - 1) - given], node.path, known)
        if end is None or last < end:
            end, is_refused = last, known < len(keys)
    entries.sort()
    return (entries if end is None else entries[: bisect_left(entries, end)]), is_refused


def _until_saturated(charges: Sequence[Amounts], usage: Sequence[int], capacity: Sequence[int], saturated: int) -> int:
    """Return the number of turns, given by their charges, up to the one that saturates another resource."""
    whole = len(charges)
    for at, amount in enumerate(capacity):
        if not saturated >> at & 1:
            used = list(accumulate([charge[at] for charge in charges[:whole]], initial=usage[at]))
            whole = min(whole, bisect_left(used, amount))
    return whole
