"""The first choice of each sequencer, by example."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_queue.fairness.ordering import Ranking, Sequencer
from fairlead_queue.fairness.tree import Limits, QueueTree
from fairlead_queue.sequencers import registry as named_module
from fairlead_queue.sequencers.custom import QueueView
from fairlead_queue.sequencers.registry import known_sequencers, sequencer_named
from fairlead_schemas.queuefile.settings import PoolSettings
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SPEC, QueueWorld, request


def tree_of(*paths: str, capacity: int = 12) -> QueueTree:
    """A tree of one resource in which one job waits in every leaf, numbered in the order given."""
    tree = QueueTree(("gpu",))
    tree.capacity = [capacity]
    for front, path in enumerate(paths, 1):
        leaf = tree.add(path)
        leaf.wants, leaf.front = {1: 1}, front
    return tree


def order(ranking: Ranking, picks: int) -> list[str]:
    """Give one unit to the leaf whose turn it is, again and again; its next job comes last in the pool's line."""
    tree, found, last = ranking.tree, list[str](), max(node.front for node in ranking.tree.nodes.values())
    for _ in range(picks):
        leaf = ranking.first()
        assert leaf is not None
        found.append(leaf.path)
        tree.charge(leaf, (1,))
        last += 1
        leaf.front = last
        ranking.touch(leaf)
    return found


def named(name: str, tree: QueueTree, **settings: int) -> Sequencer:
    """A sequencer of a pool with these settings."""
    return sequencer_named(name, tree, PoolSettings(sequencer=name, **settings))  # type: ignore[arg-type] -- all are integers


def test_first_come_first_served_over_the_whole_pool() -> None:
    """The tree and current use do not matter."""
    tree = tree_of("b/y", "a", "b/x")
    assert order(Ranking(tree, named("fifo", tree)), 5) == ["b/y", "a", "b/x", "b/y", "a"]


def test_the_newest_first_is_the_same_order_of_other_numbers() -> None:
    """The owner numbers the newest lowest."""
    tree = tree_of("a", "b")
    assert named("lifo", tree).newest_first
    assert not named("fifo", tree).newest_first
    assert order(Ranking(tree, named("lifo", tree)), 2) == ["a", "b"]


def test_shares_per_weight_are_equal() -> None:
    """Weight 2 gets twice as much; ties go by path."""
    tree = tree_of("a", "b")
    tree.limit(tree.nodes["b"], Limits(weight=2))
    assert order(Ranking(tree, named("drf", tree)), 6) == ["a", "b", "b", "a", "b", "b"]


def test_guarantees_come_before_priority_and_priority_before_shares() -> None:
    """A queue within its guarantee goes before a queue of higher priority that has none left."""
    tree = tree_of("a", "b", "c")
    tree.limit(tree.nodes["a"], Limits(priority=10))
    tree.limit(tree.nodes["c"], Limits(guaranteed={"gpu": 2}))
    assert order(Ranking(tree, named("drf", tree)), 4) == ["c", "c", "a", "a"]


def test_without_waiting_jobs_there_is_no_next_leaf() -> None:
    """Closed and empty leaves are skipped."""
    tree = tree_of("a", "b")
    ranking = Ranking(tree, named("drf", tree))
    tree.nodes["a"].closed = True
    tree.nodes["b"].wants = {}
    assert ranking.first() is None
    tree.nodes["a"].closed = False
    ranking.touch(tree.nodes["a"])
    assert ranking.first() is tree.nodes["a"]


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    """The message can be shown to a person."""
    with pytest.raises(ValueError, match='unknown sequencer "best"; known are drf, fairshare, fifo, lifo'):
        named("best", QueueTree(("gpu",)))
    assert {"drf", "fairshare", "fifo", "lifo"} <= set(known_sequencers())


# ---------------------------------------------------------------------------------------- past use


def with_past(name: str, tree: QueueTree, past: dict[str, int], **settings: int) -> Ranking:
    """Build an order in which leaves have this past use, constant until a moment ago."""
    sequencer = named(name, tree, **settings)
    assert sequencer.past is not None
    moment = 10**18
    for path, amount in past.items():
        leaf = tree.nodes[path]
        sequencer.past.settle(leaf, 0)
        tree.charge(leaf, (amount,))
    sequencer.past.tick(moment)
    for path, amount in past.items():
        leaf = tree.nodes[path]
        sequencer.past.settle(leaf, moment)
        tree.charge(leaf, (amount,), -1)
    return Ranking(tree, sequencer)


def test_the_least_past_use_goes_first() -> None:
    """Current use does not matter; past use counts per weight."""
    tree = tree_of("a", "b")
    ranking = with_past("fairshare", tree, {"a": 5, "b": 4})
    assert order(ranking, 3) == ["b", "b", "b"]

    tree = tree_of("a", "b")
    tree.limit(tree.nodes["a"], Limits(weight=2))
    assert order(with_past("fairshare", tree, {"a": 7, "b": 4}), 3) == ["a", "a", "a"]


def test_with_equal_past_use_the_smaller_current_use_goes_first() -> None:
    """So that a pool without history is shared."""
    tree = tree_of("t/a", "t/b", "u")
    assert order(with_past("fairshare", tree, {"t/a": 2, "t/b": 2, "u": 4}), 4) == ["t/a", "u", "t/b", "u"]


def test_past_and_present_are_mixed_by_percent() -> None:
    """Half and half: 8 used of late weigh as much as 8 held now."""
    tree = tree_of("a", "b", capacity=100)
    ranking = with_past("drf", tree, {"a": 8}, past_percent=50)
    assert order(ranking, 10) == ["b"] * 8 + ["a", "b"]


def test_without_a_percentage_the_past_is_not_kept() -> None:
    """The owner need not keep it up to date."""
    tree = tree_of("a")
    assert [named(name, tree).past is None for name in ("drf", "fifo", "lifo", "fairshare")] == [
        True,
        True,
        True,
        False,
    ]
    past = named("fairshare", tree, half_life_ns=128 * 10**9).past
    assert past is not None
    assert past.period_ns == 10**9


# ---------------------------------------------------------------------------------------- somebody's own


DOCUMENT = Path(__file__).parents[3] / "docs" / "concepts" / "sequencers.md"


class Installed:
    """A package that is installed as far as Python can tell: a folder on sys.path with its metadata."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def package(self, name: str, entry_points: str, source: str = "") -> None:
        """One module, offered under what `entry_points` says in the group of sequencers."""
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[fairlead.sequencers]\n{entry_points}\n")
        (self.folder / f"{name}.py").write_text(source)
        named_module._installed.cache_clear()
        named_module._order.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """Nothing yet; gone afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield Installed(tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    named_module._installed.cache_clear()
    named_module._order.cache_clear()


def documented(language: str) -> str:
    """The only block of this language on the page."""
    [block] = re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return block


def test_the_documented_example_runs_from_an_entry_point(installed: Installed) -> None:
    """The code and the entry point on the page, word for word."""
    [line] = [line for line in documented("toml").splitlines() if "=" in line]
    installed.package("my_sequencers", line.replace('"', ""), documented("python"))
    tree = tree_of("t/old", "t/new", "own")
    tree.limit(tree.nodes["own"], Limits(guaranteed={"gpu": 2}))

    assert "guaranteed-first" in known_sequencers()
    assert order(Ranking(tree, named("guaranteed-first", tree)), 5) == ["own", "own", "t/old", "t/new", "own"]


def test_custom_sequencers_get_all_promised_fields(installed: Installed) -> None:
    """Of leaves and inner nodes; past use if the class requests it."""
    source = """
from fairlead_queue.sequencers.custom import QueueOrder

class Spy(QueueOrder):
    uses_past = newest_first = True
    seen = []
    def key(self, queue):
        self.seen.append(queue)
        return (queue.front,)
"""
    installed.package("spies", "spy = spies:Spy", source)
    tree = tree_of("t/a", "t/b")
    tree.limit(tree.nodes["t"], Limits(weight=3, priority=2, guaranteed={"gpu": 4}))
    ranking = with_past("spy", tree, {"t/a": 5, "t/b": 2})
    tree.charge(tree.nodes["t/a"], (7,))
    ranking.touch(tree.nodes["t/a"])
    assert ranking.first() is tree.nodes["t/a"]
    assert ranking.sequencer.newest_first

    seen = {view.path: view for view in sys.modules["spies"].Spy.seen}
    assert seen["t"] == QueueView("t", ("gpu",), (12,), (7,), (4,), (7,), 3, 2, 1)
    assert seen["t/b"] == QueueView("t/b", ("gpu",), (12,), (0,), (0,), (2,), 1, 0, 2)


BROKEN = {
    "import fails": (
        "broken:Order",
        "raise OSError('disk')",
        r'sequencer "mine" \(broken:Order\) cannot be loaded: OSError',
    ),
    "no such class": ("broken:Order", "", "cannot be loaded: AttributeError"),
    "no such module": ("nowhere:Order", "", "cannot be loaded: ModuleNotFoundError"),
    "no class": ("broken:Order", "Order = 3", "is no class derived from QueueOrder"),
    "another class": ("broken:Order", "class Order: pass", "is no class derived from QueueOrder"),
}


@pytest.mark.parametrize(("value", "source", "message"), BROKEN.values(), ids=BROKEN)
def test_one_that_cannot_be_used_is_refused(value: str, source: str, message: str, installed: Installed) -> None:
    """By a ValueError that names it."""
    installed.package("broken", f"mine = {value}", source)
    with pytest.raises(ValueError, match=message):
        named("mine", QueueTree(("gpu",)))


def test_a_name_has_one_owner(installed: Installed) -> None:
    """Ours are ours; of two packages neither is taken."""
    installed.package("one", "drf = one:Order\nmine = one:Order")
    installed.package("two", "mine = two:Order")
    assert type(named("drf", QueueTree(("gpu",)))).__name__ == "Drf"
    with pytest.raises(ValueError, match='"mine" is offered by more than one package: one:Order, two:Order'):
        named("mine", QueueTree(("gpu",)))


def test_a_key_that_does_not_compare_exactly_is_an_error(installed: Installed) -> None:
    """With the queue in the message."""
    source = (
        "from fairlead_queue.sequencers.custom import *\nclass Order(QueueOrder):\n def key(self, queue): return (0.5,)"
    )
    installed.package("floats", "mine = floats:Order", source)
    tree = tree_of("a")
    with pytest.raises(TypeError, match=r"Order.key gave \(0.5,\) for queue 'a', not a tuple of integers"):
        Ranking(tree, named("mine", tree)).first()


def test_a_log_folds_where_a_sequencer_is_not_installed_and_nothing_is_decided() -> None:
    """Audits need no plugin; a queue service without it stops with its name."""
    world = QueueWorld(careful=False)
    world.fold("queue", [ev.PoolConfigured(cause="clock", pool="default", settings=PoolSettings(sequencer="gone"))])
    submitted = ev.JobSubmitted(
        cause="cmd:c", job="1", name="job", queue="default", user="ada", request=request(1), spec=SPEC
    )
    world.fold("queue", [submitted])
    assert world.of("1") == "queued"
    with pytest.raises(ValueError, match='pool default: unknown sequencer "gone"'):
        world.core.decide([], world.now)
