"""Open offers hold quota, but no place: what of a queue's charges is theirs."""

from collections.abc import Mapping

from fairlead_queue.fairness.tree import Node
from fairlead_queue.waiting.lanes import Lane
from fairlead_queue.waiting.pools import Pool


class Unplaced:
    """What is charged by node, and has no place yet: the open offers, and those of the decision in the making."""

    def __init__(self, pool: Pool, changed: Mapping[Lane, int] | None = None) -> None:
        self.nothing = [0] * pool.tree.width
        self.offers = pool.offers
        self._by_node: dict[Node, list[int]] = {}
        for job in pool.offers.values():
            self._count(job.lane, 1)
        for lane, times in (changed or {}).items():
            self._count(lane, times)

    def _count(self, lane: Lane, times: int) -> None:
        for node in lane.leaf.node.up():
            amounts = self._by_node.setdefault(node, self.nothing.copy())
            for at, more in enumerate(lane.klass.need):
                amounts[at] += more * times

    def under(self, node: Node) -> list[int]:
        """By resource (do not change the list)."""
        return self._by_node.get(node, self.nothing)

    def until(self, node: Node, rank: int) -> list[int]:
        """Of the open offers below a node: those up to a rank."""
        amounts = self.nothing.copy()
        for job in self.offers.values():
            if job.rank <= rank and node in job.lane.leaf.node.up():
                for at, more in enumerate(job.lane.klass.need):
                    amounts[at] += more
        return amounts

    def within(self, node: Node, rank: int, used: list[int]) -> list[int]:
        """What the node uses with those of its open offers before a rank that its guarantee has room for, by rank, where
        `used` has its place. One that is too large takes no room from those behind it."""
        used, owed = list(used), [at for at, amount in enumerate(node.guaranteed) if amount]
        before = [job for job in self.offers.values() if job.rank < rank and node in job.lane.leaf.node.up()]
        for job in sorted(before, key=lambda job: job.rank):
            need = job.lane.klass.need
            if all(not need[at] or used[at] + need[at] <= node.guaranteed[at] for at in owed):
                for at, more in enumerate(need):
                    used[at] += more
        return used
