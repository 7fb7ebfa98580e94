"""Gates between a lane whose turn has come and an offer, checked in this order:

    turn     the placer has as many offers as it looks ahead over
    held     its queue, or one above it, is held
    budget   a budget above the queue is spent
    limits   of the queue, of its user and of the queues above it; capacity kept for others

A closed gate closes a lane for the rest of the decision, not the line: other lanes continue past it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead_queue.fairness.budgets import refusing_account
from fairlead_queue.fairness.quota import queue_of
from fairlead_queue.fairness.tree import Amounts, LimitRefusal, QueueNode, is_owed
from fairlead_queue.limits import AHEAD_OFFERS_MAX, PARKED_OFFERS_MAX, WINDOW_OFFERS_MAX
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Lane, PoolState, RequestClass
from fairlead_queue.waiting.settled_order import SettledOrder
from fairlead_schemas.queries.explainer import Limit
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.wire.events import DeferReason


class ClosedGate(NamedTuple):
    """Reason for which a lane's jobs cannot be offered now."""

    reason: DeferReason
    refusal: LimitRefusal | None = None
    queue: str = ""

    @property
    def resource(self) -> str:
        """Resource of the limit that refuses; "" for other gates."""
        return self.refusal.resource if self.refusal is not None else ""

    @property
    def limit(self) -> Limit:
        """The limit in the numbers of events and answers. A gate without a limit has the queue only, or nothing."""
        found = self.refusal
        if found is None:
            return Limit(queue=self.queue)
        return Limit(
            queue=self.queue,
            resource=found.resource,
            held=found.held,
            needed=found.needed,
            ceiling=found.ceiling,
            holder=found.holder,
        )


def has_room(request_class: RequestClass, open_: int, unparked: int) -> bool:
    """Return True if the placer may have one more offer of a class. `open_` counts the open offers of that class, `unparked`
    the open offers of classes that are not parked.
    """
    if open_ < PARKED_OFFERS_MAX:
        return True
    if request_class.parked:
        return False
    if unparked < AHEAD_OFFERS_MAX:
        return True
    return unparked < WINDOW_OFFERS_MAX and is_within_capacity(request_class.pool, request_class.need)


def is_within_capacity(pool: PoolState, need: Amounts) -> bool:
    """Return True if the pool as a whole has that much left. A pool without known nodes counts as having it."""
    capacity, usage = pool.tree.capacity, pool.tree.root.usage
    for at, more in enumerate(need):
        if more and usage[at] + more > capacity[at]:
            return pool.name == DEFAULT_POOL and not pool.is_known()
    return True


def is_owed_below(node: QueueNode, lane: Lane) -> bool:
    """Return True if the lane's next job is within the guarantee of its branch below the node."""
    branch = lane.leaf.node
    while branch.parent is not None and branch.parent is not node:
        branch = branch.parent
    return is_owed(branch, lane.request_class.need)


class Gates:
    """The gates of one pool within one decision, and what they go by: open offers as of now, and needs that may still be
    met."""

    def __init__(self, state: QueueState, pool: PoolState, *, unbounded: bool = False) -> None:
        self.state, self.pool = state, pool
        #: Whether the placer could look ahead over anything: to see who comes before whom.
        self._unbounded = unbounded
        #: Open offers by class as of now, where they differ from the state's; and of classes that are not parked.
        self._open: dict[RequestClass, int] = {}
        self._unparked = len(pool.offers) - pool.parked_open
        #: Classes that some lane waits with, those that are shut, and the needs of the others.
        self._wanted = {request_class for request_class in pool.classes.values() if request_class.waiting}
        self.shut: set[RequestClass] = set()
        self.needs: set[Amounts] = set()  # until `begin`
        #: {node whose limit refused: the first lane that it refused, and why}, in the order of their turns.
        self.refused: dict[QueueNode, tuple[Lane, ClosedGate]] = {}
        #: The same of the first lane that is within a guarantee below the node, where the first of all is not: in pools
        #: whose jobs go by their places, whatever their queues are guaranteed.
        self.owed: dict[QueueNode, tuple[Lane, ClosedGate]] = {}
        #: {leaf: whether no limit stands above it}: limits and claims are those of the state for the whole decision.
        self._unlimited: dict[QueueNode, bool] = {}

    def begin(self) -> None:
        """Classes of which the placer has enough are shut from the first, wherever their lanes are."""
        self.needs = set()
        for request_class in self._wanted:
            if self._has_room(request_class):
                self.needs.add(request_class.need)
            else:
                self.shut.add(request_class)

    def resume(self, settled: SettledOrder) -> None:
        """Take up what a review of the same order has found closed."""
        self.refused, self.owed, self.shut = dict(settled.refused), dict(settled.owed), set(settled.shut)

    def count(self, request_class: RequestClass, more: int) -> None:
        """The placer has so many offers of the class more."""
        self._open[request_class] = self._open.get(request_class, request_class.open) + more
        if not request_class.parked:
            self._unparked += more

    def certain(self, classes: Sequence[RequestClass]) -> int:
        """Return how many of the next offers, given by their classes, the placer may have whatever else it has then."""
        if self._unbounded:
            return len(classes)
        open_: dict[RequestClass, int] = {}
        unparked = self._unparked
        for at, request_class in enumerate(classes):
            count = open_.get(request_class)
            if count is None:
                count = self._open.get(request_class, request_class.open)
            if count >= PARKED_OFFERS_MAX and (request_class.parked or unparked >= AHEAD_OFFERS_MAX):
                return at
            open_[request_class] = count + 1
            unparked += not request_class.parked
        return len(classes)

    def is_short_of_turns(self) -> bool:
        """Return True if the placer may not have all waiting jobs and all open offers at once, for their number alone."""
        return len(self.pool.offers) + self.state.in_line > AHEAD_OFFERS_MAX

    def are_certain(self, waiting: Mapping[Lane, int]) -> bool:
        """Return True if the placer may have all open offers, and so many more of each lane, whatever their order: there are
        few in all, and of no parked class too many."""
        unparked = len(self.pool.offers) - self.pool.parked_open
        open_ = Counter({each: each.open for each in self.pool.classes.values() if each.open})
        for lane, times in waiting.items():
            open_[lane.request_class] += times
            unparked += times
        if unparked > AHEAD_OFFERS_MAX:
            return False
        return not any(each.parked and count > PARKED_OFFERS_MAX for each, count in open_.items())

    def want(self, request_class: RequestClass) -> None:
        """Count the class as wanted again, because a job of it waits."""
        self._wanted.add(request_class)
        self.needs.add(request_class.need)

    def closed(self, lane: Lane) -> ClosedGate | None:
        """Return the reason for which the lane's next job cannot be offered; None when it can be."""
        request_class = lane.request_class
        few = self._open.get(request_class, request_class.open) < PARKED_OFFERS_MAX
        if request_class in self.shut or not (few or self._has_room(request_class)):
            self.shut.add(request_class)
            self.needs = {each.need for each in self._wanted if each not in self.shut}
            return ClosedGate("turn")
        if self.state.closures.held:
            held = self.state.closures.holding(lane.leaf.queue.path)
            if held:
                return ClosedGate("queue_held", queue=held)
        if self.state.accounts:
            spent = refusing_account(self.state.accounts, lane.leaf.queue.path)
            if spent is not None:
                return ClosedGate("budget", queue=spent.path)
        refusal = self.refusal(lane)
        if refusal is None:
            return None
        if refusal.kind != "claimed":
            refusal.node.waiters.add(request_class.need)
        closed = ClosedGate(refusal.kind, refusal, queue_of(refusal.node))
        first = self.refused.get(refusal.node)
        if first is None or (first[1].reason == "claimed" and refusal.kind != "claimed"):
            self.refused[refusal.node] = (lane, closed)
        elif self.pool.sequencer.by_order and refusal.kind != "claimed":
            self._note_owed(refusal.node, lane, closed)
        return closed

    def _note_owed(self, node: QueueNode, lane: Lane, closed: ClosedGate) -> None:
        if is_owed_below(node, lane) and not is_owed_below(node, self.refused[node][0]):
            self.owed.setdefault(node, (lane, closed))

    def refusal(self, lane: Lane) -> LimitRefusal | None:
        """The limit that the lane's next job would break, if any."""
        leaf = lane.leaf.node
        unlimited = self._unlimited.get(leaf)
        if unlimited is None:
            unlimited = self._unlimited[leaf] = self.pool.tree.is_unlimited(leaf)
        if unlimited:
            return None
        since = self.state.jobs[lane.claim].since_ns if lane.claim else 0
        request_class = lane.request_class
        return self.pool.tree.refusal(leaf, request_class.need, request_class.gain, holder=lane.claim, since=since)

    def _has_room(self, request_class: RequestClass) -> bool:
        return self._unbounded or has_room(
            request_class, self._open.get(request_class, request_class.open), self._unparked
        )
