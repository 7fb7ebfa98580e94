"""Order in which runs would have to end so that capacity comes free by whole nodes. Pure.

A job whose units are larger than the runs that may yield gains nothing from the cheapest runs when these are scattered.
Only a node that holds enough of them together counts. The placer alone knows the other free capacity of a node and its
fitting topology; it picks among the nominated runs.

Charges of a queue for resources that it will not keep: open offers have no place yet, and runs that were asked to end
give theirs back soon.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fairlead_queue.fairness.tree import QueueNode
from fairlead_queue.fairness.waiting_line import priority_of
from fairlead_queue.waiting.pending import Lane, Leaf, LiveJob, LiveQueue, PoolState
from fairlead_schemas.units.ids import PRIORITY_MAX


class DepartingRun(NamedTuple):
    """A run that may yield: its cost, what it has on a node for each of its units, and the node of each unit."""

    cost: int
    held: int
    nodes: Sequence[str]


class _NodeClearing(NamedTuple):
    """Cost of clearing one node; runs are given by their places in the list of runs."""

    #: What is missing even so, the cost, and who goes.
    short: int
    cost: int
    runs: list[int]


def units_freed(runs: Iterable[DepartingRun], unit: int, *, shared: bool) -> int:
    """Return the number of units that would fit on the runs' nodes if the runs were gone: one per node, or (`shared`) as many
    as fit.
    """
    held: dict[str, int] = {}
    for run in runs:
        for node in run.nodes:
            held[node] = held.get(node, 0) + run.held
    return sum(amount // unit if shared else amount >= unit for amount in held.values())


def clearing_order(runs: Sequence[DepartingRun], unit: int) -> list[int]:
    """Places of runs (given the cheapest first): node by node those who make room for a unit, the cheapest node first; then
    nodes where they do not suffice, those that lack least first; then the rest in their order."""
    tenants: dict[str, list[int]] = {}
    for at, run in enumerate(runs):
        for node in run.nodes:
            tenants.setdefault(node, []).append(at)
    rooms = sorted(_room(runs, here, unit) for here in tenants.values())
    order = dict.fromkeys(at for room in rooms for at in room.runs)
    return [*order, *(at for at in range(len(runs)) if at not in order)]


def _room(runs: Sequence[DepartingRun], here: Sequence[int], unit: int) -> _NodeClearing:
    short, cost, going = unit, 0, list[int]()
    for at in here:
        if short <= 0:
            break
        short -= runs[at].held
        if not going or going[-1] != at:
            going.append(at)
            cost += runs[at].cost
    return _NodeClearing(max(0, short), cost, going)


class LaneSurvey:
    """Facts about the runs of lanes, found once for all searches of one review."""

    def __init__(self) -> None:
        self._sliced: dict[Lane, bool] = {}
        self._lowest: dict[Lane, int] = {}
        self._any_sliced: bool | None = None
        self._lowest_of_queue: dict[LiveQueue, int] = {}

    def is_sliced(self, lane: Lane) -> bool:
        """Return True if any run of the lane has a slice."""
        sliced = self._sliced.get(lane)
        if sliced is None:
            sliced = self._sliced[lane] = any(job.slice_ns for job in lane.running.values())
        return sliced

    def lowest_priority(self, lane: Lane) -> int:
        """Return the lowest submitted priority of the lane's runs; there must be one."""
        lowest = self._lowest.get(lane)
        if lowest is None:
            lowest = self._lowest[lane] = min(map(priority_as_submitted, lane.running.values()))
        return lowest

    def has_slices(self, pool: PoolState) -> bool:
        """Return True if any run of the pool has a slice; a survey is of one pool."""
        if self._any_sliced is None:
            leaves = (node.leaf for node in pool.tree.nodes.values() if node.leaf is not None)
            self._any_sliced = any(self.is_sliced(lane) for leaf in leaves for lane in leaf.lanes.values())
        return self._any_sliced

    def is_guarantee_needed(self, pool: PoolState, queue: LiveQueue, priority: int) -> bool:
        """Return True if no run yields to a job of this queue and priority (as submitted) unless a guarantee entitles the job, or
        the run is idle.
        """
        settings = queue.settings.preemption
        if settings.rebalance or self.has_slices(pool):
            return False
        return not (settings.lower_priority and self.lowest_priority_in(queue) < priority)

    def lowest_priority_in(self, queue: LiveQueue) -> int:
        """Return the lowest submitted priority of the queue's runs; the highest possible if there are none."""
        lowest = self._lowest_of_queue.get(queue)
        if lowest is None:
            lanes = [lane for leaf in queue.leaves.values() for lane in leaf.lanes.values() if lane.running]
            lowest = self._lowest_of_queue[queue] = min(map(self.lowest_priority, lanes), default=PRIORITY_MAX)
        return lowest


def priority_as_submitted(job: LiveJob) -> int:
    """Return the priority as submitted. No run yields to a job because that job has waited (the run would return by waiting
    itself).
    """
    return priority_of(job.order) - job.aged


class UnplacedCharges:
    """Amounts by node that are charged and have no place yet: the open offers, and those of the decision in the making."""

    def __init__(self, pool: PoolState, changed: Mapping[Lane, int] | None = None) -> None:
        self.nothing = [0] * pool.tree.width
        self.offers = pool.offers
        self._by_node: dict[QueueNode, list[int]] = {}
        self._leaving: dict[QueueNode, list[int]] = {}
        for lane, times in (changed or {}).items():
            self._count_times(lane, times)
        for node in pool.tree.nodes.values():
            if node.leaf is not None and node.leaf.lanes:
                self._count_leaf(node.leaf)

    def _count_leaf(self, leaf: Leaf) -> None:
        open_ = self.nothing.copy()
        for lane in leaf.lanes.values():
            times = len(lane.offers)
            if times:
                for at, more in lane.request_class.gain:
                    open_[at] += times * more
            for job in lane.running.values():
                if job.yields_to or job.stop:
                    self.leaves(job)
        self._count(self._by_node, leaf.node, open_)

    def leaves(self, job: LiveJob) -> None:
        """A run gives back soon what it holds."""
        self._count(self._leaving, job.lane.leaf.node, job.lane.request_class.pool.holds(job))

    def _count_times(self, lane: Lane, times: int) -> None:
        if times:
            self._count(self._by_node, lane.leaf.node, [more * times for more in lane.request_class.need])

    def _count(self, by_node: dict[QueueNode, list[int]], leaf: QueueNode, need: Sequence[int]) -> None:
        for node in leaf.up():
            amounts = by_node.setdefault(node, self.nothing.copy())
            for at, more in enumerate(need):
                amounts[at] += more

    def under(self, node: QueueNode) -> list[int]:
        """By resource (do not change the list)."""
        return self._by_node.get(node, self.nothing)

    def leaving(self, node: QueueNode) -> list[int]:
        """By resource, what runs below the node give back soon (do not change the list)."""
        return self._leaving.get(node, self.nothing)

    def until(self, node: QueueNode, rank: int) -> list[int]:
        """Return the amounts of the open offers below a node up to a rank."""
        amounts = self.nothing.copy()
        for job in self.offers.values():
            if job.rank <= rank and job.lane.leaf.node.is_within(node):
                for at, more in enumerate(job.lane.request_class.need):
                    amounts[at] += more
        return amounts

    def within(self, node: QueueNode, rank: int, used: list[int]) -> list[int]:
        """Return the node's use including those of its open offers before a rank that fit its guarantee, taken by rank. `used` is
        the placed amounts. An offer that is too large takes no room from those behind it.
        """
        used, owed = list(used), [at for at, amount in enumerate(node.guaranteed) if amount]
        before = [job for job in self.offers.values() if job.rank < rank and job.lane.leaf.node.is_within(node)]
        for job in sorted(before, key=lambda job: job.rank):
            need = job.lane.request_class.need
            if all(not need[at] or used[at] + need[at] <= node.guaranteed[at] for at in owed):
                for at, more in enumerate(need):
                    used[at] += more
        return used
