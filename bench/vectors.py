"""`python -m bench.vectors FILE…`: hold the pure parts against published examples.

Files in the shape of tests/data/fairshare/vectors.json. Prints one JSON line per case (name, expect, got, ok); exits 1
if any differs, 2 if a file cannot be read.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from fairlead_queue.ordering import Ranking
from fairlead_queue.sequencers import kai, kueue
from fairlead_queue.sequencers.drf import Drf
from fairlead_queue.tree import Limits, Tree


class Case(NamedTuple):
    """One example: what its source expects, and what our code gives."""

    name: str
    expect: Any
    got: Any


# ---------------------------------------------------------------------------------------- drf, hdrf


def fill(capacity: Mapping[str, int], weights: Mapping[str, int], tasks: Mapping[str, Mapping[str, int]],
         counts: Mapping[str, int]) -> dict[str, int]:  # fmt: skip
    """Give tasks one by one to the leaf whose turn it is, until nobody's fits: {leaf: tasks given}."""
    tree = Tree(tuple(capacity))
    tree.capacity = [capacity[name] for name in tree.resources]
    for path, weight in weights.items():
        tree.add(path, Limits(weight=weight))
    needs = {path: tuple(task.get(name, 0) for name in tree.resources) for path, task in tasks.items()}
    given = dict.fromkeys(tasks, 0)
    for path, need in needs.items():
        tree.add(path).wants = {sum(1 << at for at, amount in enumerate(need) if amount): 1}
    ranking = Ranking(tree, Drf(tree))
    while (leaf := ranking.first()) is not None:
        need, used = needs[leaf.path], tree.root.usage
        fits = all(have + more <= whole for have, more, whole in zip(used, need, tree.capacity, strict=True))
        if fits and given[leaf.path] < counts.get(leaf.path, sys.maxsize):
            tree.charge(leaf, need)
            given[leaf.path] += 1
        else:
            leaf.closed = True
        ranking.touch(leaf)
    return given


def _usage(task: Mapping[str, int], count: int) -> dict[str, int]:
    return {name: amount * count for name, amount in task.items()}


def drf(cases: list[dict[str, Any]]) -> Iterator[Case]:
    """Tasks, usage and dominant resource of each user."""
    for case in cases:
        users, capacity = case["users"], case["capacity"]
        tasks = {name: user["demand"] for name, user in users.items()}
        counts = {name: user["tasks"] for name, user in users.items() if "tasks" in user}
        given = fill(capacity, {name: user.get("weight", 1) for name, user in users.items()}, tasks, counts)
        usage = {name: _usage(tasks[name], given[name]) for name in users}
        got: dict[str, Any] = {
            "expect_tasks": given, "expect_usage": usage,
            "expect_dominant": {name: _dominant(usage[name], capacity) for name in users},
        }  # fmt: skip
        expect = {key: case[key] for key in got if key in case}
        yield Case(case["name"], expect, {key: got[key] for key in expect})


def _dominant(usage: Mapping[str, int], capacity: Mapping[str, int]) -> list[str]:
    share, name = max((Fraction(used, capacity[name]), name) for name, used in usage.items())
    return [name, str(share)]


def hdrf(cases: list[dict[str, Any]]) -> Iterator[Case]:
    """Usage of each leaf of a tree."""
    for case in cases:
        demands = case["demands"]
        tasks = {path: demand["task"] for path, demand in demands.items()}
        counts = {path: demand["tasks"] for path, demand in demands.items()}
        given = fill(case["capacity"], dict(_weights(case["tree"])), tasks, counts)
        got = {path: _usage(tasks[path], given[path]) for path in case["expect_usage"]}
        yield Case(case["name"], case["expect_usage"], got)


def _weights(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, int]]:
    for name, node in tree.items():
        yield above + name, node.get("weight", 1)
        yield from _weights(node.get("children", {}), f"{above}{name}/")


# ---------------------------------------------------------------------------------------- like for like


def kueue_dominant_share(table: Mapping[str, Any]) -> Iterator[Case]:
    """Value and resource of Kueue's share."""
    for case in table["cases"]:
        own, lender = case["cq"], case.get("lender", {})
        nominal = _by_flavor(own.get("nominal", {}))
        lendable: dict[str, int] = {}
        for quota in (*nominal.values(), *_by_flavor(lender.get("nominal", {})).values()):
            for resource, amount in quota.items():
                lendable[resource] = lendable.get(resource, 0) + amount
        usage, pending = _by_flavor(case.get("usage", {})), _by_flavor(case.get("pending", {}))
        got = kueue.dominant_share(nominal, usage, lendable, own.get("weight", 1), pending)._asdict()
        yield Case(case["name"], case["expect"], {key: got[key] for key in case["expect"]})


def _by_flavor(quota: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """{resource: amount}, {flavor: {resource: amount}} or {"flavor/resource": amount}, as {flavor: …}."""
    found: dict[str, dict[str, int]] = {}
    for name, value in quota.items():
        if isinstance(value, Mapping):
            found.setdefault(name, {}).update(value)
        else:
            flavor, _, resource = name.rpartition("/")
            found.setdefault(flavor, {})[resource] = value
    return found


def kai_over_quota(table: Mapping[str, Any]) -> Iterator[Case]:
    """Fair shares of departments and their queues."""
    for case in table["cases"]:
        departments = {
            _claim(name, one): [_claim(queue, each) for queue, each in one.get("queues", {}).items()]
            for name, one in case["departments"].items()
        }
        got = kai.divide_tree(case["total_gpu"], departments)
        yield Case(case["name"], case["expect"], {name: got.get(name) for name in case["expect"]})


def _claim(name: str, one: Mapping[str, Any]) -> kai.Claim:
    return kai.Claim(name, one["deserved"], one["request"], one.get("weight", 1), one.get("priority", 0))


TABLES: dict[str, Callable[[Any], Iterator[Case]]] = {
    "drf": drf, "hdrf": hdrf, "kueue_dominant_share": kueue_dominant_share, "kai_over_quota": kai_over_quota,
}  # fmt: skip


def main() -> int:
    """Run every case of every file."""
    parser = argparse.ArgumentParser(prog="python -m bench.vectors", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    worst = 0
    for path in parser.parse_args().files:
        try:
            document = json.loads(path.read_text())
            unknown = sorted(document.keys() - TABLES.keys())
            if unknown:
                raise ValueError(f'unknown table "{unknown[0]}"; known are {", ".join(TABLES)}')
        except (OSError, ValueError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        for table, examples in document.items():
            for case in TABLES[table](examples):
                ok = case.got == case.expect
                worst |= not ok
                print(json.dumps({"name": f"{table}: {case.name}", "expect": case.expect, "got": case.got, "ok": ok}))
    return worst


if __name__ == "__main__":
    sys.exit(main())
