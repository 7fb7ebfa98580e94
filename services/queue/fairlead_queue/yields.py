"""Who may be asked to yield to a starving job, and by which rule. Reads the state; the placer picks among them.

    lower_priority   same queue, lower priority
    over_slice       it has had its slice, and the starving job's queue is not ahead of its own by it
    over_guarantee   its queue uses more than it is guaranteed, the starving job's is within its own guarantee
    over_share       its queue keeps a larger share than the other has even with the job (asked for by `rebalance`)

Nobody is asked below a guarantee of any queue above him, nor before his run has lasted as long as its queue protects it
and its slice says. After an exchange by the last two rules the one who yielded is entitled to no exchange back: the
other is within its guarantee, or has no larger share. So two jobs cannot chase each other.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from fairlead_queue.jobs import Job
from fairlead_queue.lanes import Lane, Leaf
from fairlead_queue.limits import VICTIMS_MAX
from fairlead_queue.order import priority_of
from fairlead_queue.pools import Pool
from fairlead_queue.tree import Amounts, Node
from fairlead_schemas.events import Victim, YieldRule

SECOND_NS = 1_000_000_000


class Starving(NamedTuple):
    """A job that waits, and what it lacks."""

    job: Job
    lane: Lane
    #: The node under whose limit something must come free; the root where it lacks a place.
    under: Node
    #: By resource, what must come free there; nothing: a place.
    missing: dict[str, int]
    #: Whether it is charged to its queue already (its offer is open).
    charged: bool


class Found(NamedTuple):
    """Who may yield, cheapest first; nobody when that would not do. And when somebody's protection is over next."""

    victims: tuple[Victim, ...]
    next_ns: int | None


class _Choice(NamedTuple):
    cost: int
    order: int
    job: Job
    rule: YieldRule


class Search:
    """The search for one starving job."""

    def __init__(self, pool: Pool, starving: Starving, now_ns: int) -> None:
        self.pool, self.starving, self.now_ns = pool, starving, now_ns
        self.tree = pool.tree
        self.need = starving.lane.klass.need
        self.priority = priority_of(starving.job.order)
        self.settings = starving.lane.leaf.queue.settings.preemption
        self._own = dict.fromkeys(starving.lane.leaf.node.up())
        #: {node: what those chosen so far give back below it}
        self._given: dict[Node, list[int]] = {}
        self._next_ns: int | None = None

    def find(self) -> Found:
        """Those who may yield, as many as could be needed."""
        choices = sorted(self._choices(), key=lambda choice: (choice.cost, -choice.order, choice.job.id))
        victims: list[Victim] = []
        missing = dict(self.starving.missing)
        for choice in choices:
            if len(victims) >= VICTIMS_MAX or (self.starving.missing and not missing):
                break
            need = choice.job.lane.klass.need
            if not self._may(choice.job.lane.leaf, need, choice.rule):
                continue
            self._give(choice.job.lane.leaf.node, need)
            missing = self._less(missing, need)
            victims.append(Victim(job=choice.job.id, attempt=choice.job.attempt, rule=choice.rule, gpu_s=choice.cost))
        enough = victims and not missing and (self.starving.missing or self._could_fit())
        return Found(tuple(victims) if enough else (), self._next_ns)

    def _less(self, missing: dict[str, int], need: Amounts) -> dict[str, int]:
        by_name = dict(zip(self.tree.resources, need, strict=True))
        left = {name: amount - by_name[name] for name, amount in missing.items()}
        return {name: amount for name, amount in left.items() if amount > 0}

    def _could_fit(self) -> bool:
        """Whether what they hold, with what nobody holds, comes to what is needed; the placer looks at places."""
        given = self._given.get(self.tree.root, [0] * self.tree.width)
        offered = [0] * self.tree.width
        for job in self.pool.offers.values():
            for at, amount in enumerate(job.lane.klass.need):
                offered[at] += amount
        usage, capacity = self.tree.root.usage, self.tree.capacity
        return all(
            not more or capacity[at] - (usage[at] - offered[at]) + given[at] >= more
            for at, more in enumerate(self.need)
        )

    # ------------------------------------------------------------------ candidates

    def _choices(self) -> Iterator[_Choice]:
        for leaf in self._leaves(self.starving.under):
            for lane in leaf.lanes.values():
                need = lane.klass.need
                if not lane.running or not any(a and b for a, b in zip(need, self.need, strict=True)):
                    continue
                rules = self._rules(leaf, need)
                for job in lane.running.values() if rules else ():
                    rule = self._rule(leaf, job, rules)
                    if rule is not None:
                        yield _Choice(self._lost(job), job.order, job, rule)

    def _rules(self, leaf: Leaf, need: Amounts) -> list[YieldRule]:
        """The rules that hold between the two queues for jobs of this size. Looked at once for a lane: it may have
        thousands of runs."""
        rules: list[YieldRule] = ["over_slice"]
        if self.settings.reclaim != "never":
            rules.append("over_guarantee")
        if self.settings.rebalance:
            rules.append("over_share")
        return [rule for rule in rules if self._may(leaf, need, rule)]

    def _leaves(self, node: Node) -> Iterator[Leaf]:
        if node.leaf is not None:
            yield node.leaf
        for child in node.children.values():
            if any(child.usage):
                yield from self._leaves(child)

    def _rule(self, leaf: Leaf, job: Job, rules: list[YieldRule]) -> YieldRule | None:
        """The rule by which a run may be asked at all, its protection being over."""
        if job.state != "running" or job.yields_to or job.stop or job is self.starving.job:
            return None
        rule = self._entitled(leaf, job, rules)
        if rule is None:
            return None
        until_ns = job.started_ns + max(leaf.queue.settings.preemption.protect_ns, job.slice_ns)
        if until_ns > self.now_ns:
            self._next_ns = until_ns if self._next_ns is None else min(self._next_ns, until_ns)
            return None
        return rule

    def _entitled(self, leaf: Leaf, job: Job, rules: list[YieldRule]) -> YieldRule | None:
        has_had_it = job.slice_ns > 0 and "over_slice" in rules
        if has_had_it and self.pool.sequencer.by_order:
            if self.starving.job.order < job.order:
                return "over_slice"
            has_had_it = False  # whose place is before the starving job's goes on
        if leaf.queue is self.starving.lane.leaf.queue:
            priority = priority_of(job.order)
            if self.settings.lower_priority and priority < self.priority:
                return "lower_priority"
            return "over_slice" if has_had_it and priority <= self.priority else None
        if "over_guarantee" in rules and (self.settings.reclaim == "any" or priority_of(job.order) < self.priority):
            return "over_guarantee"
        if has_had_it:
            return "over_slice"
        return "over_share" if "over_share" in rules else None

    def _lost(self, job: Job) -> int:
        """GPU-seconds since it started: what it loses if it has saved nothing."""
        ran_s = (self.now_ns - job.started_ns) // SECOND_NS
        return job.lane.klass.request.gpu_milli_total * ran_s // 1000

    # ------------------------------------------------------------------ shares and guarantees

    def _may(self, leaf: Leaf, need: Amounts, rule: YieldRule) -> bool:
        """Whether the rule still holds with what those chosen before give back."""
        if leaf.queue is self.starving.lane.leaf.queue:
            return True
        mine, theirs, path = self._apart(leaf.node)
        if not all(self._keeps_guarantee(node, need) for node in path):
            return False
        match rule:
            case "over_guarantee":
                return self._is_owed(mine, need)
            case "over_slice" if self.pool.sequencer.by_order:
                return True
            case "over_slice":
                return self._share(mine, self._with_job(mine)) <= self._share(theirs, self._left(theirs))
            case _:
                after = [used - more for used, more in zip(self._left(theirs), need, strict=True)]
                return self._share(mine, self._with_job(mine)) <= self._share(theirs, after)

    def _apart(self, node: Node) -> tuple[Node, Node, list[Node]]:
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

    def _left(self, node: Node) -> list[int]:
        given = self._given.get(node)
        return node.usage if given is None else [used - back for used, back in zip(node.usage, given, strict=True)]

    def _with_job(self, node: Node) -> list[int]:
        if self.starving.charged:
            return node.usage
        return [used + more for used, more in zip(node.usage, self.need, strict=True)]

    def _keeps_guarantee(self, node: Node, need: Amounts) -> bool:
        left = self._left(node)
        return all(
            not more or left[at] - more >= node.guaranteed[at]
            for at, more in enumerate(need)
            if node.guaranteed[at] and self.need[at]
        )

    def _is_owed(self, mine: Node, need: Amounts) -> bool:
        """The starving job stays within its side's guarantee of something that the other would give back."""
        owed = False
        used = self._with_job(mine)
        for at, more in enumerate(self.need):
            if more and mine.guaranteed[at]:
                if used[at] > mine.guaranteed[at]:
                    return False
                owed = owed or need[at] > 0
        return owed

    def _share(self, node: Node, used: list[int]) -> Fraction:
        """The dominant share per weight."""
        shares = (
            Fraction(amount, capacity) for amount, capacity in zip(used, self.tree.capacity, strict=True) if capacity
        )
        return max(shares, default=Fraction(0)) / node.weight

    def _give(self, node: Node, need: Amounts) -> None:
        for above in node.up():
            given = self._given.setdefault(above, [0] * self.tree.width)
            for at, more in enumerate(need):
                given[at] += more
