"""Clocks of nodes in RunStarted and RunEnded: for people and replays, never part of a decision."""

from typing import Any

import msgspec
import pytest

from fairlead_gateway.views.fold import Views
from fairlead_replay.fold import CORES
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit, decode_commit
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.kit.placer_world import cluster, request
from tests.replay.worlds import log_of

FAR_NS = 4_102_444_800 * 10**9
SECOND = 10**9


def _shifted(commit: Commit) -> Commit:
    """Return the commit with clocks that no real node has."""
    events: list[Any] = []
    for event in commit.events:
        match event:
            case ev.RunStarted():
                events.append(msgspec.structs.replace(event, began_ns=FAR_NS))
            case ev.RunEnded():
                events.append(msgspec.structs.replace(event, ended_ns=1))
            case _:
                events.append(event)
    return msgspec.structs.replace(commit, events=events)


@pytest.mark.parametrize("writer", sorted(CORES))
def test_no_state_depends_on_clocks_of_nodes(writer: str) -> None:
    """With other clocks every core reaches the same state and decides the same at the end."""
    real, shifted = CORES[writer](), CORES[writer]()
    changed = 0
    for stored in log_of(3):
        commit = decode_commit(stored.payload)
        other = _shifted(commit)
        changed += other != commit
        real.evolve(stored.sequence, commit)
        shifted.evolve(stored.sequence, other)
    assert changed, "the log has no run"
    assert real.snapshot() == shifted.snapshot()
    now_ns = FAR_NS // 2
    assert real.decide([], now_ns) == shifted.decide([], now_ns)
    assert real.wake_at() == shifted.wake_at()


def test_no_page_depends_on_clocks_of_nodes() -> None:
    """The gateway's views are the same, too: its times are those of the log."""
    real, shifted = Views(), Views()
    for stored in log_of(3):
        commit = decode_commit(stored.payload)
        real.fold(stored.sequence, commit)
        shifted.fold(stored.sequence, _shifted(commit))
    assert real.snapshot() == shifted.snapshot()


def test_a_run_has_the_clocks_of_its_last_rank() -> None:
    """A gang starts with the last rank that starts and ends with the last that ends, each by its own node's clock."""
    world = cluster(2)
    world.offer(request(8, nodes=2))
    world.report("n1", StartSeen(n=0, job="1", attempt=1, rank=0, at_ns=5 * SECOND))
    [_, started] = world.report("n2", StartSeen(n=0, job="1", attempt=1, rank=1, at_ns=7 * SECOND))
    assert isinstance(started, ev.RunStarted) and started.began_ns == 7 * SECOND
    first = ExitSeen(n=0, job="1", attempt=1, rank=1, outcome="exited", exit_code=0, clean=True, at_ns=9 * SECOND)
    world.report("n2", first)
    last = ExitSeen(n=0, job="1", attempt=1, rank=0, outcome="exited", exit_code=0, clean=True, at_ns=8 * SECOND)
    [ended] = world.report("n1", last)
    assert isinstance(ended, ev.RunEnded) and ended.ended_ns == 8 * SECOND


@pytest.mark.parametrize("at_ns", [-1, -(10**30), 1 << 63, 10**30])
def test_a_clock_that_is_no_time_is_not_recorded(at_ns: int) -> None:
    """A node may report any number: what does not fit 64 bits stays out of the log."""
    world = cluster(1)
    world.offer(request(1))
    [started] = world.report("n1", StartSeen(n=0, job="1", attempt=1, rank=0, at_ns=at_ns))
    assert isinstance(started, ev.RunStarted) and started.began_ns == 0


def test_a_lost_node_has_no_clock() -> None:
    """A run that ends because its node is silent has no time of its end by that node."""
    world = cluster(1)
    world.offer(request(1))
    world.start("n1", "1")
    events = world.silent("n1")
    [ended] = [event for event in events if isinstance(event, ev.RunEnded)]
    assert (ended.outcome, ended.ended_ns) == ("node_lost", 0)
