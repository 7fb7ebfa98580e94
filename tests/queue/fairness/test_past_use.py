"""Decayed past use against its definition in exact arithmetic, and what it must not depend on."""

from decimal import Decimal, localcontext

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_queue.fairness.past_use import FACTOR_BITS, PastUse, PastUseRow, half_to_the
from fairlead_queue.fairness.tree import QueueNode, QueueTree

SECOND = 1_000_000_000
HALF_LIFE = 128 * SECOND
PATHS = ("a/x", "a/y", "b")

#: (ns since the step before, leaf, what is charged to it from then on)
type Steps = list[tuple[int, int, int]]

STEPS = st.lists(st.tuples(st.integers(0, 20 * SECOND), st.integers(0, 2), st.integers(0, 10**9)), max_size=30)


def tree_of_three() -> QueueTree:
    """Two leaves in a, and b."""
    tree = QueueTree(("gpu", "cpu"))
    for path in PATHS:
        tree.add(path)
    return tree


def set_charge(tree: QueueTree, leaf: QueueNode, amount: int) -> None:
    """As if jobs started or ended until so much is charged; twice as much of the second resource."""
    more = amount - leaf.usage[0]
    tree.charge(leaf, (more, 2 * more))


def play(steps: Steps, end_ns: int, *, every_ns: int = 0) -> PastUse:
    """Simulate a history; with `every_ns`, ticks in addition to the required ones."""
    tree = tree_of_three()
    past = PastUse(tree, HALF_LIFE)
    now = 0
    for after, at, amount in steps:
        now = _tick_to(past, now, now + after, every_ns)
        leaf = tree.nodes[PATHS[at]]
        past.settle(leaf, now)
        set_charge(tree, leaf, amount)
    _tick_to(past, now, now + end_ns, every_ns)
    return past


def _tick_to(past: PastUse, now: int, then: int, every_ns: int) -> int:
    for at in range(now, then, every_ns) if every_ns else ():
        past.tick(at)
    past.tick(then)
    return then


def oracle(steps: Steps, end_ns: int) -> dict[str, Decimal]:
    """The definition, period by period: {leaf: decayed average of the first resource}."""
    values: dict[str, Decimal] = {}
    with localcontext(prec=60):
        keep = Decimal(2) ** (Decimal(-SECOND) / Decimal(HALF_LIFE))
        last = sum(after for after, _, _ in steps) + end_ns
        for number, path in enumerate(PATHS):
            changes, now = [(0, 0)], 0
            for after, at, amount in steps:
                now += after
                if at == number:
                    changes.append((now, amount))
            value = Decimal(0)
            for begin in range(0, last - last % SECOND, SECOND):
                average = Decimal(_area(changes, begin, begin + SECOND)) / SECOND
                value = value * keep + average * (1 - keep)
            values[path] = value
    return values


def _area(changes: list[tuple[int, int]], begin: int, end: int) -> int:
    area = 0
    for (since, amount), (until, _) in zip(changes, [*changes[1:], (end, 0)], strict=True):
        area += amount * max(0, min(until, end) - max(since, begin))
    return area


@given(STEPS, st.integers(0, 300 * SECOND))
def test_it_is_the_moving_average_that_is_defined(steps: Steps, end_ns: int) -> None:
    """Within one unit, rounded down; of an inner node exactly the sum of those below."""
    past = play(steps, end_ns)
    nodes = past.tree.nodes
    for path, exact in oracle(steps, end_ns).items():
        first, second = past.value(nodes[path])
        assert exact - 1 - Decimal("0.01") <= first <= exact + Decimal("0.01")
        assert abs(second - 2 * exact) <= 1 + Decimal("0.02")
    for inner, below in (("a", ("a/x", "a/y")), ("", PATHS)):
        assert past.value(nodes[inner]) == [sum(past.value(nodes[path])[at] for path in below) for at in (0, 1)]


@given(STEPS, st.integers(0, 300 * SECOND), st.integers(SECOND // 3, 40 * SECOND))
def test_past_use_does_not_depend_on_the_number_of_reads(steps: Steps, end_ns: int, every_ns: int) -> None:
    """Additional ticks do not change values or the snapshot."""
    once, often = play(steps, end_ns), play(steps, end_ns, every_ns=every_ns)
    assert once.dump() == often.dump()
    for path in ("", "a", *PATHS):
        assert once.value(once.tree.nodes[path]) == often.value(often.tree.nodes[path])


@given(STEPS, STEPS, st.integers(0, 30 * SECOND))
def test_a_snapshot_goes_on_where_it_was_taken(before: Steps, after: Steps, gap_ns: int) -> None:
    """Through bytes, with all numbers in 64 bits: values are equal then and ever after."""
    past = play(before, gap_ns)
    again = PastUse(tree_of_three(), HALF_LIFE)
    for path in PATHS:
        set_charge(again.tree, again.tree.nodes[path], past.tree.nodes[path].usage[0])
    data = msgspec.json.encode(past.dump())
    again.load(msgspec.json.decode(data, type=tuple[int, list[PastUseRow]]))
    now = sum(step for step, _, _ in before) + gap_ns
    for step, at, amount in [(0, 0, again.tree.nodes[PATHS[0]].usage[0]), *after]:
        now += step
        for one in (past, again):
            one.tick(now)
            leaf = one.tree.nodes[PATHS[at]]
            one.settle(leaf, now)
            set_charge(one.tree, leaf, amount)
        for path in ("", "a", *PATHS):
            assert past.value(past.tree.nodes[path]) == again.value(again.tree.nodes[path])
        assert msgspec.json.encode(past.dump()) == msgspec.json.encode(again.dump())


def test_half_is_left_after_a_half_life_and_a_constant_use_is_never_left() -> None:
    """Of what was used until then; and years cost no more than minutes."""
    tree = tree_of_three()
    past = PastUse(tree, HALF_LIFE)
    busy, idle = tree.nodes["a/x"], tree.nodes["b"]
    for leaf in (busy, idle):
        past.settle(leaf, 0)
        set_charge(tree, leaf, 1_000_000)
    years = 50 * 365 * 24 * 3600 * SECOND
    assert past.tick(years)
    assert past.value(busy) == past.value(idle) == [1_000_000, 2_000_000]

    past.settle(idle, years)
    set_charge(tree, idle, 0)
    past.tick(years + HALF_LIFE)
    assert past.value(idle)[0] in (499_999, 500_000)
    past.tick(years + 3 * HALF_LIFE)
    assert past.value(idle)[0] in (124_999, 125_000)
    assert past.value(busy) == [1_000_000, 2_000_000]
    past.tick(2 * years)
    assert past.value(idle) == [0, 0]


def test_tick_says_whether_anything_has_changed() -> None:
    """Within a period nothing does; an idle pool's periods change nothing either."""
    tree = tree_of_three()
    past = PastUse(tree, HALF_LIFE)
    assert not past.tick(10 * SECOND)
    leaf = tree.nodes["b"]
    past.settle(leaf, 10 * SECOND)
    set_charge(tree, leaf, 1_000_000)
    assert not past.tick(11 * SECOND - 1)
    assert past.value(leaf) == [0, 0]
    assert past.tick(11 * SECOND)
    assert past.value(leaf)[0] > 0
    assert not past.tick(11 * SECOND)


def test_a_clock_that_steps_back_takes_nothing_away() -> None:
    """Commits never do; neither does this rely on it."""
    tree = tree_of_three()
    past = PastUse(tree, HALF_LIFE)
    leaf = tree.nodes["b"]
    past.tick(20 * SECOND)
    past.settle(leaf, 20 * SECOND)
    set_charge(tree, leaf, 1_000_000)
    past.tick(30 * SECOND)
    before = past.value(leaf).copy()
    assert not past.tick(5 * SECOND)
    past.settle(leaf, 5 * SECOND)
    assert past.value(leaf) == before


def test_charges_wait_for_the_tick_of_their_commit() -> None:
    """Else what is known of the past would be of another time than the charges."""
    tree = tree_of_three()
    past = PastUse(tree, HALF_LIFE)
    past.settle(tree.nodes["b"], 0)
    with pytest.raises(AssertionError, match="comes before its charges change"):
        past.settle(tree.nodes["b"], 5 * SECOND)


def test_a_queue_that_leaves_takes_its_past_along() -> None:
    """Its parent no longer counts it."""
    past = play([(0, 0, 1000), (10 * SECOND, 0, 0)], 10 * SECOND)
    leaf, parent = past.tree.nodes["a/x"], past.tree.nodes["a"]
    assert past.value(parent) == past.value(leaf) != [0, 0]
    past.forget(leaf)
    past.tree.remove(leaf)
    past.tick(60 * SECOND)
    assert past.value(parent) == [0, 0]
    assert past.dump()[1] == []


@given(st.integers(1, 10**18), st.integers(1, 10**18))
def test_half_to_the_power_of_a_fraction(part: int, whole: int) -> None:
    """To the last binary place but one, rounded down."""
    with localcontext(prec=80):
        exact = Decimal(2) ** (-Decimal(part) / Decimal(whole)) * (1 << FACTOR_BITS)
        assert 0 <= exact - half_to_the(part, whole) < 2


@pytest.mark.parametrize("half_life", [1, SECOND, 7 * 24 * 3600 * SECOND, 10**18])
def test_any_half_life_has_a_period(half_life: int) -> None:
    """At least a second; what is older than many half-lives is gone at once."""
    past = PastUse(tree_of_three(), half_life)
    assert past.period_ns >= SECOND
    leaf = past.tree.nodes["b"]
    past.settle(leaf, 0)
    set_charge(past.tree, leaf, 1_000_000)
    past.tick(100 * past.period_ns)
    assert 0 < past.value(leaf)[0] <= 1_000_000
