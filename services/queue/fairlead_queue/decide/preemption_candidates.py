"""Nomination of the runs that may end for a starving job, each with its rule and its loss. The placer selects among them.

PROBLEM. A job starves (`starvation.py`) if it has its turn and no place, or if it is the first that a limit refuses. Runs
of others may have to end for it. Which of them is a question of fairness, and of what each would lose. Which of them
make room on a node is the placer's question (scheduling/preempt.py there, ADR 0012). The answer here is a list, in the
order of preference: any part of it may be selected.

RULES. A run is nominated by one of these:

    idle             the run is idle under a policy that gives it to any job that waits for its resources
    lower_priority   same queue, lower priority
    over_slice       the run has had its slice, and the starving job's queue is not ahead of its own by it
    over_guarantee   the run's queue uses more than it is guaranteed, the starving job's is within its own guarantee
    over_share       the run's queue keeps a larger share than the other has even with the job (enabled by `rebalance`)

Rules between two queues compare the two branches below the node where their ways up meet. They are checked run by run,
with the runs that were chosen before counted as gone: the tenth run of a queue is judged by what nine have left it.

     starving job ──> what it lacks: a place, or an amount under a node of the tree
                        │
     running jobs ──> a rule applies? protection and slice over? guarantees kept? ──> choices
                        │
                        │  sorted: idle first, then the fewest GPU-seconds lost, then the latest in the order
                        │  requested before, and declined: largest parts on a node first
                        v
                      an amount: the first that hold it
                      a place:   twice its need, at least 64 of them (VICTIMS_MAX), at most 256 (VICTIMS_LARGE_MAX)
                        │  too scattered to free a place: node by node, the cheapest node first
                        │  too small to suffice: the largest first
                        v
                      PreemptionRequested(victims)

LIMITS OF WHAT MAY BE TAKEN. No run is nominated when that would take any queue above it below a guarantee. No run is
nominated before it has lasted as long as its queue's protection and its slice require. An idle run is exempt from both,
and costs nothing. After an exchange by the last two rules the job that yielded is entitled to no exchange back: the other
is within its guarantee, or has no larger share. So two jobs cannot chase each other.

OFFERS AND DEPARTURES. Open offers hold quota, but no place. They never make a queue count as holding more than its
guarantee. Offers of the starving job's own queue that come after the job are not counted. Runs that were asked to end
count as gone: otherwise two jobs that request one after the other would together take more than each of them may.

HEURISTIC. For a place, more runs are named than are needed, because the placer knows which of them make room. The list
is still bounded, so a set that would make room may be missing from it: a declined job requests again, with the largest
runs first. The order by nodes looks at the named runs alone, without what else is free there.

The module reads the state. Start at `CandidateFinder.find`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from fairlead_queue.decide.preemption_estimates import (
    DepartingRun,
    LaneSurvey,
    UnplacedCharges,
    clearing_order,
    priority_as_submitted,
    units_freed,
)
from fairlead_queue.fairness.tree import Amounts, QueueNode
from fairlead_queue.limits import REVIEW_NS, VICTIMS_LARGE_MAX, VICTIMS_MAX
from fairlead_queue.waiting.pending import Lane, Leaf, LiveJob, PoolState
from fairlead_schemas.queuefile.settings import RESOURCES
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.events import Victim, YieldRule

GPU = RESOURCES.index("gpu")


class StarvingJob(NamedTuple):
    """A job that waits, and what it lacks."""

    job: LiveJob
    lane: Lane
    #: The node under whose limit something must come free; the root where it lacks a place.
    under: QueueNode
    #: By resource, what must come free there; nothing: a place.
    missing: dict[str, int]
    #: Whether it is charged to its queue already (its offer is open).
    charged: bool


class PreemptionCandidates(NamedTuple):
    """Runs that may yield, cheapest first, and the next time at which a protection ends. The victims are empty when they would
    not suffice. `found_any` is False when no run at all may yield now: then none may yield either to a job like this one
    that comes after it in rank, order and priority.
    """

    victims: tuple[Victim, ...]
    next_ns: int | None
    found_any: bool = True


class _Choice(NamedTuple):
    cost: int
    order: int
    job: LiveJob
    rule: YieldRule

    @property
    def price(self) -> int:
        """Price of choosing the run: 0 where the run does not use the resources that it would lose."""
        return 0 if self.rule == "idle" else self.cost


class CandidateFinder:
    """The search for one starving job; `named` may not be asked, and `idle` have been asked back on demand."""

    def __init__(
        self,
        pool: PoolState,
        starving: StarvingJob,
        now_ns: int,
        unplaced: UnplacedCharges | None = None,
        named: Collection[str] = (),
        idle: Iterable[LiveJob] = (),
        survey: LaneSurvey | None = None,
    ) -> None:
        self.pool, self.starving, self.now_ns = pool, starving, now_ns
        self.tree = pool.tree
        self.need = starving.lane.request_class.need
        self._needs_gpus = bool(self.need[GPU])
        self.priority = priority_as_submitted(starving.job)
        self.settings = starving.lane.leaf.queue.settings.preemption
        self._unplaced = unplaced or UnplacedCharges(pool)
        self._survey = survey or LaneSurvey()
        self._mask = starving.lane.request_class.mask
        self._named = named
        self._idle = {job.id: job for job in idle if self._holds_some(job)}
        self._own = dict.fromkeys(starving.lane.leaf.node.up())
        #: {node on the starving job's way up: what is used there with the job}
        self._with: dict[QueueNode, list[int]] = {}
        #: {node there: what is used by those that it is owed to before the job}
        self._within: dict[QueueNode, list[int]] = {}
        #: {node there: the guaranteed resources that the job is still owed on its side; none where it is owed nothing}
        self._owed: dict[QueueNode, tuple[int, ...]] = {}
        #: {node: what those chosen so far give back below it}
        self._given: dict[QueueNode, list[int]] = {}
        self._next_ns: int | None = None

    def find(self) -> PreemptionCandidates:
        """Return the runs that may yield, as many as could be needed. Idle runs come first, then the cheapest. When the runs made
        no room the last time, runs that free a whole part of the job on a node come first. Scattered runs are chosen node by
        node. When the runs are too few or too small, the largest are chosen.
        """
        if self._is_vain():
            return PreemptionCandidates((), None, found_any=False)
        choices = sorted([*self._lying_idle(), *self._choices()], key=_cheapness)
        if not choices:
            return PreemptionCandidates((), self._next_ns, found_any=False)
        if self.starving.job.asked == "declined":
            whole = self._on_a_node(self.starving.lane)
            choices.sort(key=lambda choice: -min(whole, self._on_a_node(choice.job.lane)))
        chosen = self._enough(choices)
        if self._are_scattered(chosen):
            chosen = self._enough(self._by_node(choices))
            if self._named and self._are_scattered(chosen):
                # The placer takes some of those named for others only; a refusal would keep this one waiting for longer.
                return PreemptionCandidates((), self.now_ns + REVIEW_NS)
        if not chosen and len(choices) > VICTIMS_MAX:
            most = max(range(self.tree.width), key=self._scarcity)
            chosen = self._enough(sorted(choices, key=lambda choice: -self.pool.holds(choice.job)[most]))
        return PreemptionCandidates(tuple(map(_victim, chosen)), self._next_ns)

    def _is_vain(self) -> bool:
        """Return True if no rule holds for any run, whatever the run is: most jobs of a crowded pool starve because their
        queues have their guarantees. False proves nothing.
        """
        queue = self.starving.lane.leaf.queue
        if self._idle or not self._survey.is_guarantee_needed(self.pool, queue, self.priority):
            return False
        # Between two queues the side of the job is a node of its own way up, below the root.
        return self.settings.reclaim == "never" or not any(
            self._owed_on(node) for node in self._own if node.parent is not None
        )

    def _are_scattered(self, chosen: Sequence[_Choice]) -> bool:
        """Return True if the chosen runs free no place because too few nodes hold enough of them together."""
        request = self.starving.lane.request_class.request
        unit = self._on_a_node(self.starving.lane)
        if not chosen or self.starving.missing or request.also or not unit:
            return False
        freed = units_freed(map(self._going, chosen), unit, shared=request.tasks)
        return freed < (request.nodes_min or request.nodes)

    def _by_node(self, choices: Sequence[_Choice]) -> list[_Choice]:
        order = clearing_order([self._going(choice) for choice in choices], self._on_a_node(self.starving.lane))
        return [choices[at] for at in order]

    def _going(self, choice: _Choice) -> DepartingRun:
        return DepartingRun(choice.price, self._on_a_node(choice.job.lane), choice.job.nodes)

    def _on_a_node(self, lane: Lane) -> int:
        """Return the amount that a job has on each of its nodes: milli-GPU, or milli-CPU where the starving job needs no GPU."""
        request = lane.request_class.request
        return request.gpu_milli if self._needs_gpus else request.cpu_milli

    def _scarcity(self, at: int) -> Fraction:
        """Return the fraction of the pool's whole capacity that the job needs."""
        return Fraction(self.need[at], self.tree.capacity[at] or 1)

    def _enough(self, choices: Sequence[_Choice]) -> list[_Choice]:
        """Return the first of the choices that together suffice; an empty list when they do not."""
        self._given = {}
        chosen: list[_Choice] = []
        missing = dict(self.starving.missing)
        for choice in choices:
            if (self.starving.missing and not missing) or self._has_many(len(chosen)):
                break
            need = self.pool.holds(choice.job)
            if choice.rule != "idle" and not self._may(choice.job.lane.leaf, need, choice.rule):
                continue
            self._give(choice.job.lane.leaf.node, need)
            missing = self._less(missing, need)
            chosen.append(choice)
        return chosen if not missing and (self.starving.missing or self._could_fit()) else []

    def _has_many(self, victims: int) -> bool:
        """Return True if that many victims are as many as could be needed: they hold the needed amounts twice over."""
        if victims < VICTIMS_MAX:
            return False
        given = self._given[self.tree.root]
        return victims >= VICTIMS_LARGE_MAX or all(
            held >= 2 * more for held, more in zip(given, self.need, strict=True) if more
        )

    def _less(self, missing: dict[str, int], need: Amounts) -> dict[str, int]:
        by_name = dict(zip(self.tree.resources, need, strict=True))
        left = {name: amount - by_name[name] for name, amount in missing.items()}
        return {name: amount for name, amount in left.items() if amount > 0}

    def _could_fit(self) -> bool:
        """Return True if the chosen runs' resources together with free ones cover the need; the placer checks the places."""
        held, capacity = self._held(self.tree.root), self.tree.capacity
        return all(not more or capacity[at] - held[at] >= more for at, more in enumerate(self.need))

    # ------------------------------------------------------------------ candidates

    def _lying_idle(self) -> Iterator[_Choice]:
        for job in self._idle.values():
            if self._goes_on(job) and job.lane.leaf.node.is_within(self.starving.under):
                yield _Choice(lost_gpu_s(job, self.now_ns), job.order, job, "idle")

    def _holds_some(self, job: LiveJob) -> bool:
        """Return True if the job holds any of the resources that the starving job needs."""
        request_class = job.lane.request_class
        return request_class.pool is self.pool and bool(request_class.mask & self._mask)

    def _goes_on(self, job: LiveJob) -> bool:
        """Return True if the job runs and no stop has been requested."""
        return job.state == "running" and job.end is None and not (job.yields_to or job.stop or job.id in self._named)

    def _choices(self) -> Iterator[_Choice]:
        for leaf in self._leaves(self.starving.under):
            for lane in leaf.lanes.values():
                if not lane.running or not lane.request_class.mask & self._mask:
                    continue
                rules = self._rules(lane)
                for job in lane.running.values() if rules else ():
                    rule = self._rule(leaf, job, rules)
                    if rule is not None:
                        yield _Choice(lost_gpu_s(job, self.now_ns), job.order, job, rule)

    def _rules(self, lane: Lane) -> list[YieldRule]:
        """The rules that hold between its queue and the starving job's. Asked once for a lane: it may have thousands of
        runs."""
        rules: list[YieldRule] = []
        sliced = self._survey.is_sliced(lane)
        if lane.leaf.queue is self.starving.lane.leaf.queue:
            # A run of its own queue without a slice yields to a higher priority only.
            if not sliced and not (self.settings.lower_priority and self._survey.lowest_priority(lane) < self.priority):
                return []
            rules.append("over_slice")
        elif sliced:
            rules.append("over_slice")
        if self.settings.reclaim != "never":
            rules.append("over_guarantee")
        if self.settings.rebalance:
            rules.append("over_share")
        return [rule for rule in rules if self._may(lane.leaf, self._least(lane), rule)]

    def _least(self, lane: Lane) -> Amounts:
        """Return the least that each run of the lane holds. All runs hold the same, except where they take any number of nodes: then
        the smallest run counts.
        """
        if not lane.request_class.request.nodes_min:
            return lane.request_class.need
        return tuple(map(min, zip(*map(self.pool.holds, lane.running.values()), strict=True)))

    def _leaves(self, node: QueueNode) -> Iterator[Leaf]:
        if node.leaf is not None:
            yield node.leaf
        for child in node.children.values():
            if any(child.usage):
                yield from self._leaves(child)

    def _rule(self, leaf: Leaf, job: LiveJob, rules: list[YieldRule]) -> YieldRule | None:
        """The rule by which a run may be asked at all, its protection being over."""
        if job.id in self._idle or not self._goes_on(job):
            return None
        rule = self._entitled(leaf, job, rules)
        if rule is None:
            return None
        until_ns = job.started_ns + max(leaf.queue.settings.preemption.protect_ns, job.slice_ns)
        if until_ns > self.now_ns:
            self._next_ns = until_ns if self._next_ns is None else min(self._next_ns, until_ns)
            return None
        return rule

    def _entitled(self, leaf: Leaf, job: LiveJob, rules: list[YieldRule]) -> YieldRule | None:
        has_had_it = job.slice_ns > 0 and "over_slice" in rules
        if has_had_it and self.pool.sequencer.by_order:
            if self.starving.job.order < job.order:
                return "over_slice"
            has_had_it = False  # a job whose place is before the starving job's keeps running
        if leaf.queue is self.starving.lane.leaf.queue:
            priority = priority_as_submitted(job)
            if self.settings.lower_priority and priority < self.priority:
                return "lower_priority"
            return "over_slice" if has_had_it and priority <= self.priority else None
        if "over_guarantee" in rules and (self.settings.reclaim == "any" or priority_as_submitted(job) < self.priority):
            return "over_guarantee"
        if has_had_it:
            return "over_slice"
        return "over_share" if "over_share" in rules else None

    # ------------------------------------------------------------------ shares and guarantees

    def _may(self, leaf: Leaf, need: Amounts, rule: YieldRule) -> bool:
        """Return True if the rule still holds after the runs chosen before have given back their resources."""
        if leaf.queue is self.starving.lane.leaf.queue:
            return True
        mine, theirs, path = self._apart(leaf.node)
        if rule == "over_guarantee" and not self._is_owed(mine, need):  # cheaper than the guarantees of others
            return False
        if not all(self._keeps_guarantee(node, need) for node in path):
            return False
        match rule:
            case "over_guarantee":
                return True
            case "over_slice" if self.pool.sequencer.by_order:
                return True
            case "over_slice":
                return self._share(mine, self._with_job(mine)) <= self._share(theirs, self._left(theirs))
            case _:
                after = [used - more for used, more in zip(self._left(theirs), need, strict=True)]
                return self._share(mine, self._with_job(mine)) <= self._share(theirs, after)

    def _apart(self, node: QueueNode) -> tuple[QueueNode, QueueNode, list[QueueNode]]:
        """(the starving job's side, the other's side, from the other's leaf up to there) below where they meet."""
        path = [node]
        above = node.parent
        while above is not None and above not in self._own:
            path.append(above)
            above = above.parent
        mine = self.starving.lane.leaf.node
        while mine.parent is not above and mine.parent is not None:
            mine = mine.parent
        return mine, path[-1], path

    def _left(self, node: QueueNode) -> list[int]:
        """Return the placed amounts that remain below the node without the chosen runs and the runs on their way out. Otherwise two
        jobs that ask one after the other would together take more than each of them may.
        """
        return [held - gone for held, gone in zip(self._held(node), self._unplaced.leaving(node), strict=True)]

    def _held(self, node: QueueNode) -> list[int]:
        """Return the placed amounts below the node without the runs chosen so far."""
        unplaced, given = self._unplaced.under(node), self._given.get(node, self._unplaced.nothing)
        return [used - open_ - back for used, open_, back in zip(node.usage, unplaced, given, strict=True)]

    def _with_job(self, node: QueueNode) -> list[int]:
        """Return the amounts used on the starving job's side, including the job and those of its side's offers that rank before it."""
        used = self._with.get(node)
        if used is None:
            if self.starving.charged:
                unplaced = self._unplaced.under(node)
                more = self._unplaced.until(node, self.starving.job.rank)
                used = [all_ - open_ + own for all_, open_, own in zip(node.usage, unplaced, more, strict=True)]
            else:
                used = [all_ + own for all_, own in zip(node.usage, self.need, strict=True)]
            self._with[node] = used
        return used

    def _keeps_guarantee(self, node: QueueNode, need: Amounts) -> bool:
        left = self._left(node)
        return all(
            not more or left[at] - more >= node.guaranteed[at]
            for at, more in enumerate(need)
            if node.guaranteed[at] and self.need[at]
        )

    def _is_owed(self, mine: QueueNode, need: Amounts) -> bool:
        """The starving job stays within its side's guarantee of something that the other would give back."""
        return any(need[at] > 0 for at in self._owed_on(mine))

    def _owed_on(self, mine: QueueNode) -> tuple[int, ...]:
        """Return the indexes of the guaranteed resources that the job needs, if its side stays within all of them with it;
        else none.
        """
        owed = self._owed.get(mine)
        if owed is None:
            owed = self._owed[mine] = self._within_all(mine)
        return owed

    def _within_all(self, mine: QueueNode) -> tuple[int, ...]:
        shared = tuple(at for at, _, _ in mine.promises if self.need[at])
        # The work before it only adds to what is placed: where the job does not fit beside that, nothing else is asked.
        for used in (self._placed, self._within_guarantee):
            if shared and self._is_over(mine, used(mine), shared):
                return ()
        return shared

    def _is_over(self, mine: QueueNode, used: Sequence[int], among: Sequence[int]) -> bool:
        return any(used[at] + self.need[at] > mine.guaranteed[at] for at in among)

    def _placed(self, node: QueueNode) -> list[int]:
        """Return the amounts used below the node; without the open offers, if the starving job is one of these."""
        if not self.starving.charged:
            return node.usage
        return [all_ - open_ for all_, open_ in zip(node.usage, self._unplaced.under(node), strict=True)]

    def _within_guarantee(self, mine: QueueNode) -> list[int]:
        """Return the amounts used on the starving job's side by the work that ranks before it and is owed a place within the
        guarantee.
        """
        used = self._within.get(mine)
        if used is None:
            used = self._placed(mine)
            if self.starving.charged:
                used = self._unplaced.within(mine, self.starving.job.rank, used)
            self._within[mine] = used
        return used

    def _share(self, node: QueueNode, used: list[int]) -> Fraction:
        """The dominant share per weight."""
        shares = (
            Fraction(amount, capacity) for amount, capacity in zip(used, self.tree.capacity, strict=True) if capacity
        )
        return max(shares, default=Fraction(0)) / node.weight

    def _give(self, node: QueueNode, need: Amounts) -> None:
        for above in node.up():
            given = self._given.setdefault(above, [0] * self.tree.width)
            for at, more in enumerate(need):
                given[at] += more


def _cheapness(choice: _Choice) -> tuple[bool, int, int, str]:
    """Return the sort key of a choice: idle runs before all others; among equals the latest first."""
    return choice.rule != "idle", choice.cost, -choice.order, choice.job.id


def _victim(choice: _Choice) -> Victim:
    return Victim(job=choice.job.id, attempt=choice.job.attempt, rule=choice.rule, gpu_s=choice.cost)


def lost_gpu_s(job: LiveJob, now_ns: int) -> int:
    """Return the GPU-seconds since the run's last reported checkpoint, or since its start; at most those between two
    checkpoints.
    """
    lost_ns = now_ns - max(job.started_ns, job.saved_ns) if job.started_ns else 0
    if job.every_ns:
        lost_ns = min(lost_ns, job.every_ns)
    return job.lane.request_class.pool.holds(job)[GPU] * (lost_ns // SECOND_NS) // 1000
