"""Turns per second of the order of queues, compared with a plain heap over the same queues.

One turn is what the queue does for every offer: whose turn is it, does its job fit under every limit above it, charge
it, and note the change. The heap knows no tree, no limits and no hierarchy: it is what the arithmetic of shares
alone costs.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heapreplace
from time import perf_counter
from typing import NamedTuple

from bench.table import Row
from fairlead_bus.main import collect_rarely
from fairlead_queue.fairness.ordering import Ranking
from fairlead_queue.fairness.tree import Amounts, Limits, QueueNode, QueueTree
from fairlead_queue.sequencers.drf import Drf

RESOURCES = ("gpu", "cpu", "memory")
#: 14,000 GPUs in nodes of 8 with 64 cores and a TiB.
CAPACITY = (14_000_000, 112_000_000, 14_680_064)
#: 1,000 leaves at depth 4.
FANOUT = (5, 5, 5, 8)
#: What jobs need: some GPUs with their cores and memory, or cores alone.
NEEDS: tuple[Amounts, ...] = ((1000, 8000, 1024), (2000, 8000, 2048), (500, 4000, 512), (0, 16_000, 1024))
TURNS = 10_000
#: A second.
GOAL = 20_000


class Rates(NamedTuple):
    """Per second."""

    turns: float
    #: Charges taken back, each with the order asked after it.
    releases: float
    heap: float


def tree_of_queues(fanout: tuple[int, ...] = FANOUT) -> QueueTree:
    """Limits at every level; a kind of job waits in every leaf."""
    tree = QueueTree(RESOURCES)
    tree.capacity = list(CAPACITY)
    for number, path in enumerate(_paths(fanout)):
        top = path.partition("/")[0]
        if top not in tree.nodes:
            tree.add(top, Limits(guaranteed={"gpu": 1_000_000}, maximum={"gpu": 12_000_000, "cpu": 100_000_000}))
        leaf = tree.add(path, Limits(maximum={"gpu": 8_000_000}, weight=1 + number % 3))
        leaf.leaf = need = NEEDS[number % len(NEEDS)]
        leaf.wants = {sum(1 << at for at, amount in enumerate(need) if amount): 100}
    return tree


def _paths(fanout: tuple[int, ...], above: str = "") -> Iterator[str]:
    for number in range(fanout[0]):
        path = f"{above}q{number:03}"
        if len(fanout) == 1:
            yield path
        else:
            yield from _paths(fanout[1:], path + "/")


def measure(turns: int = TURNS, fanout: tuple[int, ...] = FANOUT) -> Rates:
    """All three, in this process."""
    tree = tree_of_queues(fanout)
    ranking = Ranking(tree, Drf(tree))
    ranking.first()  # builds the order
    given: list[QueueNode] = []
    taken = _timed(lambda: given.extend(_turn(tree, ranking) for _ in range(turns)))
    freed = _timed(lambda: [_release(tree, ranking, leaf) for leaf in given])
    assert not any(tree.root.usage)
    return Rates(turns / taken, turns / freed, turns / _timed(lambda: _by_heap(tree, turns)))


def row() -> Row:
    """Return the row for the table of `python -m bench`."""
    rates = measure()
    return Row(
        "turns in the order of 1,000 queues, depth 4 (first, fits, charge, note)",
        f"{rates.turns:,.0f}/s; taken back {rates.releases:,.0f}/s",
        f"{GOAL:,}/s",
        min(rates.turns, rates.releases) >= GOAL,
        f"a heap of shares without tree or limits: {rates.heap:,.0f}/s",
    )


def _turn(tree: QueueTree, ranking: Ranking) -> QueueNode:
    leaf = ranking.first()
    assert leaf is not None
    assert tree.refusal(leaf, leaf.leaf) is None
    tree.charge(leaf, leaf.leaf)
    ranking.touch(leaf)
    return leaf


def _release(tree: QueueTree, ranking: Ranking, leaf: QueueNode) -> None:
    tree.charge(leaf, leaf.leaf, -1)
    ranking.touch(leaf)
    ranking.first()


def _by_heap(tree: QueueTree, turns: int) -> None:
    """The leaf of the smallest weighted dominant share, by the same integers."""
    drf = Drf(tree)
    leaves = [node for node in tree.nodes.values() if node.is_leaf]
    usage = {node.path: [0] * tree.width for node in leaves}
    heap = [(0, node.path, node) for node in leaves]
    heapify(heap)
    drf.state()
    units = [drf.whole // amount for amount in tree.capacity]
    for _ in range(turns):
        _, path, node = heap[0]
        used = usage[path]
        for at, more in enumerate(node.leaf):
            used[at] += more
        share = max([amount * unit for amount, unit in zip(used, units, strict=False)])
        heapreplace(heap, (share // node.weight, path, node))


def _timed(run: Callable[[], object]) -> float:
    begun = perf_counter()
    run()
    return perf_counter() - begun


if __name__ == "__main__":
    collect_rarely()  # as the services do
    for shape in (FANOUT, (10, 10, 10, 10)):
        rates = measure(fanout=shape)._asdict().items()
        print(shape, " · ".join(f"{name} {rate:,.0f}/s" for name, rate in rates))
