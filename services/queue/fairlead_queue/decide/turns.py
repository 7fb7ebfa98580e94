"""Order of turns, job by job: leaves in the order of the pool's sequencer, each leaf's lanes in their order, through
gates; and jobs that could be offered: a lane's jobs in order, an array as the elements that it represents.

A turn is charged at once, so that the next one goes to the leaf that deserves it then. Use it within
`State.speculating`, which takes all of that back.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from fairlead_queue.decide.candidates import OfferCandidate, is_offered, job_order, lane_candidates
from fairlead_queue.decide.gates import Gates
from fairlead_queue.decide.merged_turns import all_turns, mergeable_leaves, merged_turns
from fairlead_queue.fairness.tree import QueueNode
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.before_images import image_charges, image_leaf, image_turn
from fairlead_queue.waiting.pending import Lane, Leaf, LiveJob, PoolState

_place = itemgetter(0)

#: A lane by the order of its next candidate: (order, lane, that candidate, those after it). The last two are None
#: before the lane's first turn, when the order may be that of a job which this decision has moved. Orders never tie.
type _Front = tuple[int, Lane, OfferCandidate | None, Iterator[OfferCandidate] | None]


class Turns:
    """Order in which the jobs of one pool get their turns to be offered, within one decision."""

    def __init__(
        self, state: QueueState, pool: PoolState, moved: "dict[str, str] | None" = None, *, unbounded: bool = False
    ) -> None:
        assert state.journal is not None, "turns are taken within State.speculating"
        self.state, self.pool = state, pool
        self.gates = Gates(state, pool, unbounded=unbounded)
        #: Jobs that this decision has moved already.
        self._moved = moved or {}
        #: Open offers that have been taken back for this decision, by lane.
        self._reopened: dict[Lane, list[LiveJob]] = {}
        self._fronts: dict[Leaf, list[_Front]] = {}
        self._begun = False
        #: Everything has been given a turn.
        self._is_over = False
        self._only: QueueNode | None = None
        #: {lane: jobs charged more (or less) than in the state}
        self._charged: dict[Lane, int] = {}
        #: Queues whose charges have a before-image.
        self._imaged: set[QueueNode] = set()
        #: Leaves that were met once with nothing left.
        self._seen: set[QueueNode] = set()
        #: Lanes of which everything has been given a turn.
        self.exhausted: set[Lane] = set()
        #: Of lanes that have been given a turn: the candidate after the last.
        self._next: dict[Lane, OfferCandidate] = {}
        #: Open offers that are on their way back and count no longer.
        self.aside: set[str] = set()

    # ------------------------------------------------------------------ the next

    def take(self, limit: int) -> list[tuple[Lane, OfferCandidate]]:
        """Give the next turns, at most `limit`; fewer if no lane can be given one after them."""
        turns: list[tuple[Lane, OfferCandidate]] = []
        if not self._begun:
            self.gates.begin()
            turns = self._take_merged(limit)
        while len(turns) < limit:
            turn = self.next()
            if turn is None:
                break
            turns.append(turn)
        return turns

    def take_all(self, stuck: list[LiveJob], limit: int) -> list[tuple[Lane, OfferCandidate]] | None:
        """Give every job in line and every stuck offer its turn, as `reopen` and `take` do. Return None, with nothing given, unless
        all of these turns are known at once, are fewer than `limit`, and no gate closes.

        In a crowded pool nearly every review is such a one. What the stuck offers were charged, they are charged again, so only
        the jobs in line change a charge.
        """
        if self.gates.is_short_of_turns() or len(stuck) + self.state.in_line >= limit:
            return None
        found = all_turns(self.state, self.pool, stuck, self._moved, limit)
        if found is None:
            return None
        waiting = Counter(candidate.job.lane for candidate in found if not is_offered(candidate))
        if not self.gates.are_certain(waiting):
            return None
        self._begun = self._is_over = True
        for lane, times in waiting.items():
            self.gates.count(lane.request_class, times)
            self._charge(lane, times)
        self.exhausted.update(waiting)
        return [(candidate.job.lane, candidate) for candidate in found]

    def next(self) -> tuple[Lane, OfferCandidate] | None:
        """Give the next turn; return None when no lane can be given one."""
        if not self._begun:
            self._begun = True
            self.gates.begin()
            if self.gates.needs:
                self._only = self._only_leaf()
        while self.gates.needs:
            found = self._find()
            if found is None:
                return None
            lane, candidate = found
            self._give(lane)
            return lane, candidate
        return None

    def _only_leaf(self) -> QueueNode | None:
        """Return the node of the leaf in which all jobs of the pool wait; None where there are several. The order of the
        leaves need not be asked before each turn of a single one.
        """
        first = self.pool.ranking.first()
        if first is None or self.pool.waiting > len(first.leaf.fronts):
            return None
        return first if all(lane.leaf is first.leaf for lane in self._reopened) else None

    # ------------------------------------------------------------------ turns at once

    def _take_merged(self, limit: int) -> list[tuple[Lane, OfferCandidate]]:
        """Give those of the next turns that are known without a look at each of them."""
        leaves = None if self.gates.shut else mergeable_leaves(self.state, self.pool, self._reopened, self._moved)
        if not leaves:
            return []
        found = merged_turns(self.pool, leaves, limit)
        certain = self.gates.certain([candidate.job.lane.request_class for candidate in found])
        turns = [(candidate.job.lane, candidate) for candidate in found[:certain]]
        self._begun = True
        if certain == len(found):
            self._is_over = all(leaf.is_empty for leaf in leaves)
            self._give_merged(turns, {leaf.leaf for leaf in leaves if leaf.is_empty})
        else:
            self._give_merged(turns, set())
        return turns

    def _give_merged(self, turns: list[tuple[Lane, OfferCandidate]], empty: set[Leaf]) -> None:
        """Charge turns that were found at once, and put every leaf where it is after them; `empty` leaves have no more."""
        given: dict[Leaf, dict[Lane, int]] = {}
        for lane, _ in turns:
            lanes = given.setdefault(lane.leaf, {})
            lanes[lane] = lanes.get(lane, 0) + 1
        for leaf, lanes in given.items():
            if leaf in empty:
                image_turn(self.state, self.pool, leaf.node)
                self._fronts[leaf] = []
                self.exhausted.update(lanes)
            else:
                self._fronts[leaf] = self._fronts_after(leaf, lanes)
            fronts = self._fronts[leaf]
            leaf.node.front = fronts[0][0] if fronts else 0
            for lane, times in lanes.items():
                self.gates.count(lane.request_class, times)
                self._charge(lane, times)

    def _fronts_after(self, leaf: Leaf, given: dict[Lane, int]) -> list[_Front]:
        """Return a leaf's fronts after these lanes were given so many turns."""
        fronts = [front for front in self._open_fronts(leaf) if front[1] not in given]
        for lane, times in given.items():
            rest = islice(self._candidates(lane), times, None)
            following = next(rest, None)
            if following is None:
                self.exhausted.add(lane)
            else:
                self._next[lane] = following
                fronts.append((following.order, lane, following, rest))
        fronts.sort(key=_place)
        return fronts

    # ------------------------------------------------------------------ turn by turn

    def _find(self) -> tuple[Lane, OfferCandidate] | None:
        if self._is_over:
            return None
        first = self._only or self.pool.ranking.first()
        while first is not None:
            found = self._first(first.leaf)  # most often it is the first one's
            if found is not None:
                return found
            if self._only is not None:
                if not self._fronts[first.leaf]:
                    return None
                continue
            if not self._fronts[first.leaf]:
                found, again = self._look_past()
                if not again:
                    return found
            first = self.pool.ranking.first()
        return None

    def _look_past(self) -> tuple[tuple[Lane, OfferCandidate] | None, bool]:
        """Return the first turn of another leaf, if any. The flag is True when there is no turn yet because a leaf has taken
        another place.
        """
        seen, closed = self._seen, list[QueueNode]()
        found, again = None, False
        for node in self.pool.ranking.leaves(self._is_pruned):
            leaf: Leaf = node.leaf
            fronts = self._fronts.get(leaf)
            if fronts is None or fronts:
                found = self._first(leaf)
                again = found is None and bool(self._fronts[leaf])
                if found is not None or again or not self.gates.needs:
                    break
            # One that has nothing is passed by; when it is met again, taking it out of the order is cheaper.
            if not self._fronts[leaf]:
                if node in seen:
                    closed.append(node)
                seen.add(node)
        for node in closed:
            self._close(node)
        return found, again

    def _is_pruned(self, node: QueueNode) -> bool:
        """Return True if this node's limit has refused every request that could be offered, from any queue below it. Where capacity
        is reserved below the node, its owner still comes in.
        """
        return bool(node.waiters) and node.held is node.usage and self.gates.needs <= node.waiters

    def _first(self, leaf: Leaf) -> tuple[Lane, OfferCandidate] | None:
        """The leaf's first candidate whose gates are open; it is taken from the leaf."""
        fronts = self._fronts.get(leaf)
        if fronts is None:
            fronts = self._fronts[leaf] = self._open_fronts(leaf)
        gates, by_order = self.gates, self.pool.sequencer.by_order
        while fronts:
            order, lane, candidate, rest = fronts[0]
            if by_order and self._falls_back(leaf.node, order):
                return None
            if lane.request_class in gates.shut or gates.closed(lane) is not None:
                del fronts[0]
                continue
            if candidate is None or rest is None:
                rest = self._candidates(lane)
                candidate = next(rest, None)
                if candidate is None:
                    del fronts[0]
                    self.exhausted.add(lane)
                    continue
                if candidate.order != order:  # those before it are moved by this decision
                    del fronts[0]
                    insort(fronts, (candidate.order, lane, candidate, rest), key=_place)
                    continue
            self._follow(leaf, fronts, lane, rest)
            return lane, candidate
        return None

    def _falls_back(self, node: QueueNode, order: int) -> bool:
        """Move a leaf whose first jobs are passed by to the place of its next job; only where places decide the turn.
        Return True if the leaf moved.
        """
        if order == node.front:
            return False
        node.front = order
        self.pool.ranking.touch(node)
        return True

    def _follow(self, leaf: Leaf, fronts: list[_Front], lane: Lane, rest: Iterator[OfferCandidate]) -> None:
        """Put the candidate after that of the first front, which has its turn, in its place among the fronts."""
        following = next(rest, None)
        if following is None:
            del fronts[0]
            self.exhausted.add(lane)
        else:
            self._next[lane] = following
            front = (following.order, lane, following, rest)
            if len(fronts) == 1 or following.order < fronts[1][0]:  # most often it is the leaf's first again
                fronts[0] = front
            else:
                del fronts[0]
                insort(fronts, front, key=_place)
        leaf.node.front = fronts[0][0] if fronts else 0

    def _open_fronts(self, leaf: Leaf) -> list[_Front]:
        image_turn(self.state, self.pool, leaf.node)
        fronts: list[_Front] = [(order, job.lane, None, None) for order, job in leaf.fronts]
        if self._reopened:
            lanes = [lane for lane in leaf.lanes.values() if lane in self._reopened]
            for lane in lanes:
                order = min(self._reopened[lane][0].order, lane.front or self._reopened[lane][0].order)
                fronts = [front for front in fronts if front[1] is not lane]
                fronts.append((order, lane, None, None))
            fronts.sort(key=_place)
        return fronts

    def _candidates(self, lane: Lane) -> Iterator[OfferCandidate]:
        return lane_candidates(lane, self._reopened.get(lane), self._moved)

    def first_of(self, lane: Lane) -> LiveJob | None:
        """The job of a lane whose turn has not come."""
        first = self._next.get(lane) or next(self._candidates(lane), None)
        return first.job if first is not None else None

    # ------------------------------------------------------------------ trying on, taking back

    def _give(self, lane: Lane) -> None:
        self.gates.count(lane.request_class, 1)
        self._charge(lane, 1)

    def _charge(self, lane: Lane, times: int) -> None:
        charged = self._charged.get(lane)
        if charged is None:
            charged = 0
            image_charges(self.state, lane, self._imaged)
        self.pool.charge(lane, times)
        self._charged[lane] = charged + times

    def reopen(self, jobs: list[LiveJob]) -> None:
        """Take open offers back: their jobs wait again, in their places."""
        for job in jobs:
            self._reopened.setdefault(job.lane, []).append(job)
        for lane, reopened in self._reopened.items():
            self.gates.count(lane.request_class, -len(reopened))
            self._charge(lane, -len(reopened))
            self.gates.want(lane.request_class)
            reopened.sort(key=job_order)
            image_leaf(self.state, self.pool, lane.leaf)
            node, first = lane.leaf.node, reopened[0].order
            node.front = min(node.front or first, first)
            if not lane.front:
                node.wants[lane.request_class.mask] = node.wants.get(lane.request_class.mask, 0) + 1
            self.pool.ranking.touch(node)

    def set_aside(self, jobs: list[LiveJob]) -> None:
        """Open offers that are on their way back count no longer, until `recharge`."""
        for job in jobs:
            self.aside.add(job.id)
            self.gates.count(job.lane.request_class, -1)
            self._charge(job.lane, -1)

    def changed(self) -> dict[Lane, int]:
        """Jobs by which the charges of lanes differ from the state's."""
        return dict(self._charged)

    def recharge(self, lanes: list[Lane], given: list[Lane]) -> None:
        """Charge one job each of `lanes` again, and release the charge of one job each of `given`."""
        for lane in lanes:
            self._charge(lane, 1)
        for lane in given:
            self._charge(lane, -1)

    def regive(self, lane: Lane) -> bool:
        """Charge a job that was given a turn, if the limits still allow it."""
        if self.gates.refusal(lane) is not None:
            return False
        self._charge(lane, 1)
        return True

    def _close(self, node: QueueNode) -> None:
        node.closed = True
        self.pool.ranking.touch(node)
