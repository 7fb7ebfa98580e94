"""Dominant resource fairness: the four properties on a flat pool, and their form in a tree. The model is static: users
with an unlimited number of equal tasks, and a pool that is filled task by task until none fits. Tasks are whole, so
every property holds up to one task of the user concerned, and of another; the oracle is exact."""

from fractions import Fraction
from itertools import permutations
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.vectors.fairshare import Demand, fill
from fairlead_queue.fairness.ordering import Key, NodeView, Ranking
from fairlead_queue.fairness.past_use import PastUse
from fairlead_queue.fairness.tree import Amounts, Limits, QueueNode, QueueTree, bits, parts
from fairlead_queue.sequencers.drf import Drf
from fairlead_schemas.units.timestamps import SECOND_NS

RESOURCES: tuple[str, ...] = ("cpu", "gpu", "mem")

type Users = dict[str, tuple[int, dict[str, int]]]
"""{user: (weight, task)}"""


@st.composite
def pools(draw: st.DrawFn, demand_min: int = 0) -> tuple[dict[str, int], Users]:
    """A capacity and users; every task fits at least twenty times."""
    capacity = {name: draw(st.integers(100, 400)) for name in RESOURCES}
    task = st.fixed_dictionaries({name: st.integers(demand_min, 5) for name in RESOURCES}).filter(
        lambda task: any(task.values())
    )
    users = draw(st.lists(st.tuples(st.integers(1, 3), task), min_size=2, max_size=5))
    return capacity, {f"u{number}": user for number, user in enumerate(users)}


def filled(capacity: dict[str, int], users: Users) -> dict[str, int]:
    """{user: tasks} by our own code."""
    return fill(
        capacity,
        {name: weight for name, (weight, _) in users.items()},
        {name: Demand(task) for name, (_, task) in users.items()},
    )


def dominant(capacity: dict[str, int], task: dict[str, int]) -> Fraction:
    """The dominant share of one task."""
    return max(Fraction(amount, capacity[name]) for name, amount in task.items())


def oracle(capacity: dict[str, int], users: Users) -> dict[str, int]:
    """Progressive filling with exact fractions: the smallest dominant share per weight, ties by name."""
    tasks, used = dict.fromkeys(users, 0), dict.fromkeys(capacity, 0)
    growing = set(users)
    while growing:
        name = min(growing, key=lambda one: (tasks[one] * dominant(capacity, users[one][1]) / users[one][0], one))
        task = users[name][1]
        if all(used[each] + amount <= capacity[each] for each, amount in task.items()):
            tasks[name] += 1
            for each, amount in task.items():
                used[each] += amount
        else:
            growing.remove(name)
    return tasks


@given(pools())
@settings(deadline=None)
def test_filling_agrees_with_exact_fractions(pool: tuple[dict[str, int], Users]) -> None:
    """Integers over one denominator order users exactly as fractions do, ties included."""
    assert filled(*pool) == oracle(*pool)


@given(pools())
@settings(deadline=None)
def test_pareto_efficiency(pool: tuple[dict[str, int], Users]) -> None:
    """No user's next task fits into the remaining capacity."""
    capacity, users = pool
    tasks = filled(capacity, users)
    left = {
        name: whole - sum(tasks[u] * task[name] for u, (_, task) in users.items()) for name, whole in capacity.items()
    }
    assert [name for name, (_, task) in users.items() if all(task[each] <= left[each] for each in task)] == []


def runs_with(bundle: dict[str, Fraction], task: dict[str, int]) -> Fraction:
    """Return the number of tasks that another user's resources would run."""
    return min(bundle[name] / amount for name, amount in task.items() if amount)


@given(pools())
@settings(deadline=None)
def test_freedom_from_envy_between_users(pool: tuple[dict[str, int], Users]) -> None:
    """No user could run more, per weight, with the allocation of another. Tolerances: the other's last task, which was
    its turn; and use of the remainder of a resource that was too small for one's own next task."""
    capacity, users = pool
    tasks = filled(capacity, users)
    for name, (weight, task) in users.items():
        for other, (theirs, other_task) in users.items():
            bundle = {
                each: Fraction(weight * (tasks[other] - 1) * amount, theirs) for each, amount in other_task.items()
            }
            assert runs_with(bundle, task) <= tasks[name] + Fraction(weight, theirs), (name, other)


@given(pools())
@settings(deadline=None)
def test_sharing_incentive(pool: tuple[dict[str, int], Users]) -> None:
    """Every user runs at least as much as in a part of the pool by weight. The reference is the pool less one task of
    each user, which the last round may leave unused or allocate to another user."""
    capacity, users = pool
    tasks = filled(capacity, users)
    weights = sum(weight for weight, _ in users.values())
    rest = 1 - max(Fraction(sum(task[each] for _, task in users.values()), whole) for each, whole in capacity.items())
    for name, (weight, task) in users.items():
        part = {each: whole * rest * weight / weights for each, whole in capacity.items()}
        assert tasks[name] >= runs_with(part, task), name


@given(pools(), st.integers(0, 4), st.fixed_dictionaries({name: st.integers(0, 3) for name in RESOURCES}))
@settings(deadline=None)
def test_strategy_proofness(pool: tuple[dict[str, int], Users], who: int, more: dict[str, int]) -> None:
    """Asking for more than a task needs does not run more of them, up to one that rounding may turn."""
    capacity, users = pool
    name = sorted(users)[who % len(users)]
    weight, task = users[name]
    lie = {each: amount + more[each] for each, amount in task.items()}
    honest = filled(capacity, users)
    lying = filled(capacity, users | {name: (weight, lie)})
    assert lying[name] <= honest[name] + 1, (task, lie)


# ---------------------------------------------------------------------------------------- trees

type Leaves = dict[str, dict[str, int]]
"""{path of a leaf: task}"""


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, int], Leaves]:
    """(capacity, {path: weight}, tasks): two or three teams of one to three users."""
    capacity = {name: draw(st.integers(100, 300)) for name in RESOURCES}
    task = st.fixed_dictionaries({name: st.integers(0, 3) for name in RESOURCES}).filter(
        lambda task: any(task.values())
    )
    weights: dict[str, int] = {}
    tasks: Leaves = {}
    for team in range(draw(st.integers(2, 3))):
        weights[f"t{team}"] = draw(st.integers(1, 2))
        for user in range(draw(st.integers(1, 3))):
            weights[f"t{team}/u{user}"] = draw(st.integers(1, 2))
            tasks[f"t{team}/u{user}"] = draw(task)
    return capacity, weights, tasks


def fill_tree(capacity: dict[str, int], weights: dict[str, int], tasks: Leaves) -> dict[str, int]:
    """{leaf: tasks}"""
    return fill(capacity, weights, {path: Demand(task) for path, task in tasks.items()})


@given(trees())
@settings(deadline=None)
def test_a_tree_is_pareto_efficient(tree: tuple[dict[str, int], dict[str, int], Leaves]) -> None:
    """No leaf's next task fits into the remaining capacity."""
    capacity, weights, tasks = tree
    given = fill_tree(capacity, weights, tasks)
    left = {name: whole - sum(given[p] * task[name] for p, task in tasks.items()) for name, whole in capacity.items()}
    assert [path for path, task in tasks.items() if all(task[each] <= left[each] for each in task)] == []


@given(trees())
@settings(deadline=None)
def test_freedom_from_envy_between_siblings(tree: tuple[dict[str, int], dict[str, int], Leaves]) -> None:
    """The tolerance is two tasks, like on a flat pool."""
    capacity, weights, tasks = tree
    given = fill_tree(capacity, weights, tasks)
    siblings = [(a, b) for a, b in permutations(tasks, 2) if a.partition("/")[0] == b.partition("/")[0]]
    for path, other in siblings:
        ratio = Fraction(weights[path], weights[other])
        bundle = {each: ratio * (given[other] - 1) * amount for each, amount in tasks[other].items()}
        assert runs_with(bundle, tasks[path]) <= given[path] + ratio, (path, other)
    assume(siblings)


@given(trees())
@settings(deadline=None)
def test_a_tree_guarantees_each_node_its_part(tree: tuple[dict[str, int], dict[str, int], Leaves]) -> None:
    """Sharing incentive: a leaf's dominant share is its part by weight at every level, of the pool less a task of each."""
    capacity, weights, tasks = tree
    given = fill_tree(capacity, weights, tasks)
    rest = 1 - max(Fraction(sum(task[each] for task in tasks.values()), whole) for each, whole in capacity.items())
    teams = sum(weight for path, weight in weights.items() if "/" not in path)
    for path, task in tasks.items():
        team = path.partition("/")[0]
        users = sum(weight for other, weight in weights.items() if other.startswith(f"{team}/"))
        part = rest * Fraction(weights[team], teams) * Fraction(weights[path], users)
        assert (given[path] + 1) * dominant(capacity, task) >= part, path


@st.composite
def promised(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, Limits], Leaves]:
    """(capacity, {path: limits}, tasks): guarantees of whole tasks that fit together, at both levels; any priorities."""
    tasks: Leaves = {}
    limits: dict[str, Limits] = {}
    needed = dict.fromkeys(RESOURCES, 0)
    for team in ("t0", "t1"):
        own = dict.fromkeys(RESOURCES, 0)
        for user in range(draw(st.integers(1, 3))):
            path = f"{team}/u{user}"
            tasks[path] = task = draw(st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 3), min_size=1))
            guaranteed = _usage_of(task, draw(st.integers(0, 8)))
            limits[path] = Limits(guaranteed, weight=draw(st.integers(1, 3)), priority=draw(st.integers(0, 2)))
            own = {name: amount + guaranteed.get(name, 0) for name, amount in own.items()}
        limits[team] = Limits(own, weight=draw(st.integers(1, 3)), priority=draw(st.integers(0, 2)))
        needed = {name: amount + own[name] for name, amount in needed.items()}
    return {name: amount + draw(st.integers(1, 20)) for name, amount in needed.items()}, limits, tasks


def _usage_of(task: dict[str, int], count: int) -> dict[str, int]:
    return {name: amount * count for name, amount in task.items() if count}


@given(promised())
@settings(deadline=None)
def test_guarantees_come_before_priorities(pool: tuple[dict[str, int], dict[str, Limits], Leaves]) -> None:
    """A queue with enough to do gets what it was promised, whatever priority others borrow with."""
    capacity, limits, tasks = pool
    playing = Pool(capacity, tasks)
    for path, one in limits.items():
        playing.tree.limit(playing.tree.nodes[path], one)
    playing.want(*tasks)
    playing.give_out()
    for path, one in limits.items():
        holds = dict(zip(capacity, playing.holds(path), strict=True))
        assert [name for name, amount in one.guaranteed.items() if holds[name] < amount] == [], path


def test_an_untrue_request_can_pay_in_a_tree() -> None:
    """Strategy-proofness ends at inner nodes; docs/concepts/sequencers.md explains this example. b/x needs memory
    alone. If it also requests CPU, which no other queue wants, CPU becomes its dominant resource, so less of its memory
    counts in b's share after rescaling: b gets more, at the expense of a."""
    capacity, weights = {"cpu": 300, "gpu": 100, "mem": 300}, {"a": 1, "b": 1, "b/x": 1, "b/y": 1}
    tasks = {"a": {"gpu": 1, "mem": 2}, "b/x": {"mem": 1}, "b/y": {"gpu": 1, "mem": 1}}
    assert fill_tree(capacity, weights, tasks) == {"a": 57, "b/x": 143, "b/y": 43}
    assert fill_tree(capacity, weights, tasks | {"b/x": {"cpu": 2, "mem": 1}}) == {"a": 50, "b/x": 150, "b/y": 50}


# ---------------------------------------------------------------------------------------- over time


class Pool:
    """A pool in which tasks end, and what is free is given out again at once."""

    def __init__(self, capacity: dict[str, int], needs: Leaves) -> None:
        self.tree = QueueTree(tuple(capacity))
        self.tree.capacity = list(capacity.values())
        for path, need in needs.items():
            leaf = self.tree.add(path, Limits())
            leaf.leaf = tuple(need.get(name, 0) for name in capacity)
        self.ranking = Ranking(self.tree, Drf(self.tree))

    def want(self, *paths: str) -> None:
        """From now on, tasks without end wait there."""
        for path in paths:
            leaf = self.tree.nodes[path]
            leaf.wants = {bits(leaf.leaf): 1}
            self.ranking.touch(leaf)

    def start(self, path: str, times: int = 1) -> None:
        """Start tasks in any order (negative: end them)."""
        leaf = self.tree.nodes[path]
        self.tree.charge(leaf, leaf.leaf, times)
        self.ranking.touch(leaf)

    def give_out(self) -> None:
        """Offer the free capacity, in order."""
        closed: list[str] = []
        while (leaf := self.ranking.first()) is not None:
            used = self.tree.root.usage
            if all(u + more <= whole for u, more, whole in zip(used, leaf.leaf, self.tree.capacity, strict=True)):
                self.start(leaf.path)
            else:
                leaf.closed = True
                closed.append(leaf.path)
                self.ranking.touch(leaf)
        for path in closed:
            self.tree.nodes[path].closed = False
            self.ranking.touch(self.tree.nodes[path])

    def holds(self, path: str) -> list[int]:
        """Return the charge of a node."""
        return self.tree.nodes[path].usage


def test_a_complementary_sibling_is_not_starved_while_tasks_arrive_and_end() -> None:
    """eng/prod has all the memory, which no other queue wants; eng/dev keeps its half of the CPUs against sci
    permanently."""
    pool = Pool({"cpu": 12, "mem": 12}, {"eng/dev": {"cpu": 1}, "eng/prod": {"mem": 1}, "sci": {"cpu": 1}})
    pool.want("eng/dev", "eng/prod", "sci")
    pool.give_out()
    for _ in range(20):
        for path in ("eng/dev", "eng/prod", "sci", "eng/dev"):
            pool.start(path, -1)
            pool.give_out()
            assert (pool.holds("eng/prod"), pool.holds("eng")) == ([0, 12], [6, 12])


def test_early_allocations_do_not_starve_a_complementary_sibling() -> None:
    """eng/prod took most of the memory while it was alone, and wants more; eng/dev still gets its half."""
    pool = Pool({"cpu": 12, "mem": 24}, {"eng/dev": {"cpu": 1}, "eng/prod": {"mem": 5}, "sci": {"cpu": 1}})
    pool.want("eng/prod")
    pool.give_out()
    assert pool.holds("eng/prod") == [0, 20]
    pool.want("eng/dev", "sci")
    pool.give_out()
    assert (pool.holds("eng/dev"), pool.holds("sci")) == ([6, 0], [6, 0])


def test_a_newcomer_does_not_hide_what_its_siblings_hold() -> None:
    """b joins a team whose other member holds the team's half: other teams' tasks that end are not given to the team.

    By rescaling alone the team would count for twice what b has, and take from sci until b had caught up.
    """
    pool = Pool({"gpu": 24}, {"eng/a": {"gpu": 1}, "eng/b": {"gpu": 1}, "sci": {"gpu": 1}})
    pool.want("eng/a", "sci")
    pool.give_out()
    pool.want("eng/b")
    pool.start("eng/a", -1)
    pool.give_out()
    assert pool.holds("eng/b") == [1]
    for _ in range(30):
        pool.start("sci", -1)
        pool.give_out()
        assert pool.holds("sci") == [12]
    for _ in range(11):
        pool.start("eng/a", -1)
        pool.give_out()
    assert (pool.holds("eng/a"), pool.holds("eng/b"), pool.holds("sci")) == ([6], [6], [12])


def test_a_blocked_child_is_not_given_twice_when_its_resource_comes_free() -> None:
    """While CPUs are saturated pg31 counts as it is; one that comes free goes to who has the fewest."""
    pool = Pool(
        {"cpu": 12, "mem": 30}, {"pg1": {"cpu": 1}, "pg3/pg31": {"cpu": 1}, "pg3/pg32": {"mem": 1}, "pg4": {"mem": 1}}
    )
    pool.want("pg1", "pg3/pg31", "pg3/pg32", "pg4")
    pool.give_out()
    assert (pool.holds("pg1"), pool.holds("pg3"), pool.holds("pg4")) == ([6, 0], [6, 15], [0, 15])
    for path in ("pg1", "pg3/pg31", "pg4", "pg3/pg32") * 5:
        pool.start(path, -1)
        pool.give_out()
        assert (pool.holds("pg1"), pool.holds("pg3"), pool.holds("pg4")) == ([6, 0], [6, 15], [0, 15])


# ---------------------------------------------------------------------------------------- keys of the next turns

amounts = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
changes = st.one_of(
    st.tuples(st.just("charge"), amounts),
    st.tuples(st.just("limits"), st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(0, 2))),
    st.tuples(st.just("capacity"), st.tuples(*[st.integers(1, 30)] * 3)),
    st.tuples(st.just("turns"), st.lists(st.tuples(st.integers(1, 9), amounts), max_size=6)),
    st.tuples(st.just("past"), st.integers(1, 300)),
    st.tuples(st.just("saturated"), st.integers(0, 7)),
)


@given(st.sampled_from([0, 40, 100]), st.lists(changes, min_size=1, max_size=12))
@settings(deadline=None)
def test_keys_of_the_next_turns_are_those_of_each_turn(percent: int, history: list[tuple[str, Any]]) -> None:
    """After any changes, the keys that a sequencer keeps are those that a new one measures turn by turn."""
    tree = QueueTree(RESOURCES)
    tree.capacity = [20, 10, 30]
    leaf, past, saturated, turns, now_ns = tree.add("a"), PastUse(tree, SECOND_NS), 0, list[tuple[int, Amounts]](), 0
    kept = Drf(tree, past, percent)
    for kind, change in history:
        match kind:
            case "charge":
                past.settle(leaf, now_ns)
                tree.charge(leaf, change)
            case "limits":
                tree.limit(leaf, Limits(guaranteed={"gpu": change[0]}, weight=change[1], priority=change[2]))
            case "capacity":
                tree.capacity = list(change)
            case "turns":
                turns = change
                leaf.wants = dict.fromkeys((bits(need) for _, need in turns), 1)
            case "past":
                now_ns += change * SECOND_NS
                past.tick(now_ns)
            case _:
                saturated = change
        orders, gains = [order for order, _ in turns], [parts(need, 1) for _, need in turns]
        for _ in range(2):
            assert kept.keys(leaf, orders, gains, saturated) == one_by_one(
                Drf(tree, past, percent), leaf, turns, saturated
            )


def one_by_one(drf: Drf, leaf: QueueNode, turns: list[tuple[int, Amounts]], saturated: int) -> list[Key | None]:
    """Return the keys of a leaf before each of its turns."""
    before, keys = list(leaf.usage), list[Key | None]()
    for order, need in turns:
        face = NodeView(leaf, None, drf.state())
        face.turn, leaf.front = leaf, order
        keys.append(drf.place(face, saturated))
        for at, more in enumerate(need):
            leaf.usage[at] += more
    leaf.usage[:] = before
    return keys
