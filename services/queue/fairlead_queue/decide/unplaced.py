"""Charges of a queue for resources that it will not keep: open offers have no place yet, and runs that were asked to end
give theirs back soon.
"""

from collections.abc import Mapping

from fairlead_queue.fairness.tree import Amounts, Node
from fairlead_queue.waiting.jobs import Job
from fairlead_queue.waiting.lanes import Lane
from fairlead_queue.waiting.pools import Pool


class Unplaced:
    """Amounts by node that are charged and have no place yet: the open offers, and those of the decision in the making."""

    def __init__(self, pool: Pool, changed: Mapping[Lane, int] | None = None) -> None:
        self.nothing = [0] * pool.tree.width
        self.offers = pool.offers
        self._by_node: dict[Node, list[int]] = {}
        self._leaving: dict[Node, list[int]] = {}
        for job in pool.offers.values():
            self._count(self._by_node, job.lane, job.lane.klass.need)
        for lane, times in (changed or {}).items():
            self._count(self._by_node, lane, tuple(more * times for more in lane.klass.need))
        for node in pool.tree.nodes.values():
            for lane in node.leaf.lanes.values() if node.leaf is not None else ():
                for job in lane.running.values():
                    if job.yields_to or job.stop:
                        self.leaves(job)

    def leaves(self, job: Job) -> None:
        """A run gives back soon what it holds."""
        self._count(self._leaving, job.lane, job.lane.klass.pool.holds(job))

    def _count(self, by_node: dict[Node, list[int]], lane: Lane, need: Amounts) -> None:
        for node in lane.leaf.node.up():
            amounts = by_node.setdefault(node, self.nothing.copy())
            for at, more in enumerate(need):
                amounts[at] += more

    def under(self, node: Node) -> list[int]:
        """By resource (do not change the list)."""
        return self._by_node.get(node, self.nothing)

    def leaving(self, node: Node) -> list[int]:
        """By resource, what runs below the node give back soon (do not change the list)."""
        return self._leaving.get(node, self.nothing)

    def until(self, node: Node, rank: int) -> list[int]:
        """Return the amounts of the open offers below a node up to a rank."""
        amounts = self.nothing.copy()
        for job in self.offers.values():
            if job.rank <= rank and node in job.lane.leaf.node.up():
                for at, more in enumerate(job.lane.klass.need):
                    amounts[at] += more
        return amounts

    def within(self, node: Node, rank: int, used: list[int]) -> list[int]:
        """Return the node's use including those of its open offers before a rank that fit its guarantee, taken by rank. `used` is
        the placed amounts. An offer that is too large takes no room from those behind it.
        """
        used, owed = list(used), [at for at, amount in enumerate(node.guaranteed) if amount]
        before = [job for job in self.offers.values() if job.rank < rank and node in job.lane.leaf.node.up()]
        for job in sorted(before, key=lambda job: job.rank):
            need = job.lane.klass.need
            if all(not need[at] or used[at] + need[at] <= node.guaranteed[at] for at in owed):
                for at, more in enumerate(need):
                    used[at] += more
        return used
