"""Published examples of fair shares: the shape of their tables, and the answers of our code.

A table function raises ValueError when a case makes no sense. Other keys of a case are ignored.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import msgspec

from bench.vectors import kai_division, kueue_share
from fairlead_queue.fairness.ordering import Ranking
from fairlead_queue.fairness.tree import Limits, QueueTree, bits
from fairlead_queue.sequencers.drf import Drf

type Whole = Annotated[int, msgspec.Meta(ge=0)]
type Weight = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
#: Of a user or a queue; paths have a slash between names.
type Name = Annotated[str, msgspec.Meta(pattern="^[^/]+$")]
type Amounts = dict[str, Whole]


class Case(NamedTuple):
    """Example: what its source expects, and what our code gives."""

    name: str
    expect: Any
    got: Any


@contextmanager
def named(case: str) -> Iterator[None]:
    """An error says in which case it is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f'case "{case}": {error}') from error


# ---------------------------------------------------------------------------------------- drf, hdrf


class User(msgspec.Struct, frozen=True):
    demand: Amounts
    weight: Weight = 1
    #: How many tasks it has; None: no end of them.
    tasks: Whole | None = None


class DrfCase(msgspec.Struct, frozen=True):
    name: str
    capacity: Amounts
    users: dict[Name, User]
    expect_tasks: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    expect_usage: dict[str, dict[str, int]] | msgspec.UnsetType = msgspec.UNSET
    #: {user: [resource, "2/3"]}
    expect_dominant: dict[str, list[str]] | msgspec.UnsetType = msgspec.UNSET


class Demand(msgspec.Struct, frozen=True):
    task: Amounts
    tasks: Whole | None = None


class Branch(msgspec.Struct, frozen=True):
    weight: Weight = 1
    children: "dict[Name, Branch]" = {}


class HdrfCase(msgspec.Struct, frozen=True):
    name: str
    capacity: Amounts
    tree: dict[Name, Branch]
    #: By the path of a leaf.
    demands: dict[str, Demand]
    expect_usage: dict[str, dict[str, int]]


def fill(capacity: Mapping[str, int], weights: Mapping[str, int], demands: Mapping[str, Demand]) -> dict[str, int]:
    """Give tasks one by one to the leaf whose turn it is, until no task fits: {leaf: tasks given}.

    Raises ValueError when a leaf is none, or its demand is of something that is not there or has no end.
    """
    if not capacity:
        raise ValueError("the pool has no resources")
    tree = QueueTree(tuple(capacity))
    tree.capacity = [capacity[name] for name in tree.resources]
    for path, weight in weights.items():
        tree.add(path, Limits(weight=weight))
    for path, demand in demands.items():
        _check(tree, path, demand)
        leaf = tree.nodes[path]
        leaf.leaf = need = tuple(demand.task.get(name, 0) for name in tree.resources)
        leaf.wants = {bits(need): 1}
    given = dict.fromkeys(demands, 0)
    ranking, used = Ranking(tree, Drf(tree)), tree.root.usage
    while (leaf := ranking.first()) is not None:
        fits = all(have + more <= whole for have, more, whole in zip(used, leaf.leaf, tree.capacity, strict=True))
        most = demands[leaf.path].tasks
        if fits and (most is None or given[leaf.path] < most):
            tree.charge(leaf, leaf.leaf)
            given[leaf.path] += 1
        else:
            leaf.closed = True
        ranking.touch(leaf)
    return given


def _check(tree: QueueTree, path: str, demand: Demand) -> None:
    node = tree.nodes.get(path)
    if node is None or node.children:
        raise ValueError(f'"{path}" has a demand and is no leaf of the tree')
    unknown = sorted(demand.task.keys() - set(tree.resources))
    if unknown:
        raise ValueError(f'"{path}" needs {unknown[0]}, of which there is no capacity')
    if not any(demand.task.values()) and demand.tasks is None:
        raise ValueError(f'"{path}" needs nothing, without end: say how many "tasks" it has')


def _usage(task: Mapping[str, int], count: int) -> dict[str, int]:
    return {name: amount * count for name, amount in task.items()}


def drf(cases: list[DrfCase]) -> Iterator[Case]:
    """Tasks, usage and dominant resource of each user."""
    for case in cases:
        users, capacity = case.users, case.capacity
        demands = {name: Demand(user.demand, user.tasks) for name, user in users.items()}
        with named(case.name):
            given = fill(capacity, {name: user.weight for name, user in users.items()}, demands)
        usage = {name: _usage(user.demand, given[name]) for name, user in users.items()}
        got: dict[str, Any] = {
            "expect_tasks": given,
            "expect_usage": usage,
            "expect_dominant": {name: _dominant(usage[name], capacity) for name in users},
        }
        expect = {key: getattr(case, key) for key in got if getattr(case, key) is not msgspec.UNSET}
        yield Case(case.name, expect, {key: got[key] for key in expect})


def _dominant(usage: Mapping[str, int], capacity: Mapping[str, int]) -> list[str]:
    share, name = max((Fraction(used, capacity[name] or 1), name) for name, used in usage.items())
    return [name, str(share)]


def hdrf(cases: list[HdrfCase]) -> Iterator[Case]:
    """Usage of each leaf of a tree."""
    for case in cases:
        with named(case.name):
            given = fill(case.capacity, dict(_weights(case.tree)), case.demands)
        got = {path: _usage(demand.task, given[path]) for path, demand in case.demands.items()}
        yield Case(case.name, case.expect_usage, {path: got.get(path) for path in case.expect_usage})


def _weights(tree: Mapping[str, Branch], above: str = "") -> Iterator[tuple[str, int]]:
    for name, branch in tree.items():
        yield above + name, branch.weight
        yield from _weights(branch.children, f"{above}{name}/")


# ---------------------------------------------------------------------------------------- like for like

#: {resource: amount}, {flavor: {resource: amount}} or {"flavor/resource": amount}
type Quota = dict[str, Whole | Amounts]


class Lender(msgspec.Struct, frozen=True):
    nominal: Quota = {}


class Cq(Lender, frozen=True):
    weight: Whole = 1


class KueueCase(msgspec.Struct, frozen=True):
    name: str
    cq: Cq
    #: Any of resource, value, borrowing.
    expect: dict[str, str | int | bool | None]
    lender: Lender = Lender()
    usage: Quota = {}
    pending: Quota = {}


class Kueue(msgspec.Struct, frozen=True):
    cases: list[KueueCase]


def kueue_dominant_share(table: Kueue) -> Iterator[Case]:
    """Value and resource of Kueue's share."""
    for case in table.cases:
        nominal = _by_flavor(case.cq.nominal)
        lendable: dict[str, int] = {}
        for quota in (*nominal.values(), *_by_flavor(case.lender.nominal).values()):
            for resource, amount in quota.items():
                lendable[resource] = lendable.get(resource, 0) + amount
        usage, pending = _by_flavor(case.usage), _by_flavor(case.pending)
        got = kueue_share.dominant_share(nominal, usage, lendable, case.cq.weight, pending)._asdict()
        yield Case(case.name, case.expect, {key: got.get(key) for key in case.expect})


def _by_flavor(quota: Quota) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, value in quota.items():
        if isinstance(value, dict):
            found.setdefault(name, {}).update(value)
        else:
            flavor, _, resource = name.rpartition("/")
            found.setdefault(flavor, {})[resource] = value
    return found


class KaiQueue(msgspec.Struct, frozen=True):
    deserved: Whole
    request: Whole
    weight: Whole = 1
    priority: int = 0


class Department(KaiQueue, frozen=True, kw_only=True):
    queues: dict[str, KaiQueue] = {}


class KaiCase(msgspec.Struct, frozen=True):
    name: str
    total_gpu: Whole
    departments: dict[str, Department]
    expect: dict[str, int]


class Kai(msgspec.Struct, frozen=True):
    cases: list[KaiCase]


def kai_over_quota(table: Kai) -> Iterator[Case]:
    """Fair shares of departments and their queues."""
    for case in table.cases:
        departments = {
            _claim(name, one): [_claim(queue, each) for queue, each in one.queues.items()]
            for name, one in case.departments.items()
        }
        got = kai_division.divide_tree(case.total_gpu, departments)
        yield Case(case.name, case.expect, {name: got.get(name) for name in case.expect})


def _claim(name: str, one: KaiQueue) -> kai_division.Claim:
    return kai_division.Claim(name, one.deserved, one.request, one.weight, one.priority)
