"""Durations of runs by the clock of the node's boot: in reports, and for the decision to postpone a stop for a time
limit."""

import pytest

from fairlead_agent.core.ledger import Ledger
from fairlead_agent.core.runs import Exit, Found
from fairlead_agent.core.steps import NoticeRun, TerminateRun
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.agent.placer_script import order
from tests.kit.agent_core import KEY, CoreNode

#: The boot's clock when the run begins; all of it stays within one lease.
BEGAN = 7 * SECOND_NS
LIMIT = 20 * SECOND_NS


def running(checkpoint: Checkpoint | None = None) -> CoreNode:
    """A node whose run began at BEGAN."""
    node = CoreNode()
    node.desire(5, order("7", "train", checkpoint=checkpoint))
    node.do(node.core.started(KEY, BEGAN, 0))
    return node


def limited(stop: str = "time_limit", notice_ns: int = 0) -> RunOrder:
    """The order that ends it once it has run for LIMIT."""
    return order("7", "train", stop=stop, notice_ns=notice_ns, ran_ns=LIMIT)


def ran(node: CoreNode, now: int) -> int:
    """End the run; return what its report bears."""
    (report,) = node.do(node.core.exited(KEY, Exit(code=0), True, 12, now=now)).reports
    assert isinstance(report, ExitSeen)
    return report.ran_ns


def test_an_end_bears_the_time_that_the_run_has_run() -> None:
    """By the boot's clock alone: the wall clock, which says the same moment at both, is not read."""
    node = running()
    assert ran(node, BEGAN + 9 * SECOND_NS) == 9 * SECOND_NS


def test_a_restarted_agent_knows_since_when_a_run_runs() -> None:
    """The journal has it, also after compaction."""
    node = running()
    node.boot("boot-1", {KEY: Found("running")}, now=BEGAN + SECOND_NS)
    compacted = Ledger()
    for record in node.core.ledger.records():
        compacted.apply(record)
    assert compacted.runs[KEY].began_ns == BEGAN
    assert ran(node, BEGAN + 9 * SECOND_NS) == 9 * SECOND_NS


def test_an_unobserved_end_has_no_duration() -> None:
    """It ended while no agent ran, or never began."""
    node = running()
    (_, end) = node.boot("boot-1", {KEY: Found("ended", Exit(code=0), clean=True)}, now=BEGAN + SECOND_NS).reports
    assert isinstance(end, ExitSeen) and end.ran_ns == 0
    other = CoreNode()
    other.desire(5, order("7", "train"))
    (end,) = other.do(other.core.start_failed(KEY, "no such program", 0)).reports
    assert isinstance(end, ExitSeen) and end.ran_ns == 0


def test_a_start_that_was_found_later_has_no_beginning() -> None:
    """An agent that died between start and report cannot say since when the run runs; its limit is the queue's alone."""
    node = CoreNode()
    node.desire(5, order("7", "train"))
    (_, start) = node.boot("boot-1", {KEY: Found("running")}, now=BEGAN).reports
    assert isinstance(start, StartSeen) and start.boot_ns == 0
    assert node.desire(6, limited(), now=BEGAN).instructions == [TerminateRun(KEY)]


def test_a_time_limit_that_is_not_reached_stops_nothing_yet() -> None:
    """A queue whose clock jumped requests the stop too early: the run continues to its limit, and is then stopped
    without another request."""
    node = running()
    assert node.desire(6, limited(), now=BEGAN + SECOND_NS).instructions == []
    assert node.core.wake_at() == BEGAN + LIMIT
    assert node.core.tick(BEGAN + LIMIT - 1).instructions == []
    assert node.core.tick(BEGAN + LIMIT).instructions == [TerminateRun(KEY)]


def test_a_run_that_ends_before_its_limit_ends_as_itself() -> None:
    """It was not stopped, whatever was asked for."""
    node = running()
    node.desire(6, limited(), now=BEGAN + SECOND_NS)
    (report,) = node.do(node.core.exited(KEY, Exit(code=0), True, 12, now=BEGAN + 2 * SECOND_NS)).reports
    assert isinstance(report, ExitSeen) and report.outcome == "exited"
    assert node.core.wake_at() != BEGAN + LIMIT


def test_a_time_limit_that_is_reached_stops_at_once() -> None:
    """With the notice that the run is to have."""
    told = Checkpoint(signal="SIGUSR1", notice_ns=5 * SECOND_NS)
    node = running(told)
    step = node.desire(6, limited(notice_ns=5 * SECOND_NS), now=BEGAN + LIMIT)
    assert step.instructions == [NoticeRun(KEY, told, "time_limit")]


@pytest.mark.parametrize("why", ["cancelled", "rank_failed"])
def test_another_stop_does_not_wait_for_the_limit(why: str) -> None:
    """A person who cancels, or a rank that fails, ends the run now."""
    node = running()
    node.desire(6, limited(), now=BEGAN + SECOND_NS)
    assert node.desire(7, order("7", "train", stop=why), now=BEGAN + 2 * SECOND_NS).instructions == [TerminateRun(KEY)]


@pytest.mark.parametrize("why", ["cancelled", "drained", "preempted", "gpu_fault"])
def test_a_stop_that_replaces_a_postponed_limit_has_its_notice(why: str) -> None:
    """The run has not got its notice yet: it begins with the stop that does not wait, and names that as the reason."""
    told = Checkpoint(signal="SIGUSR1", notice_ns=5 * SECOND_NS)
    node = running(told)
    node.desire(6, limited(notice_ns=5 * SECOND_NS), now=BEGAN + SECOND_NS)
    step = node.desire(7, order("7", "train", stop=why, notice_ns=5 * SECOND_NS), now=BEGAN + 2 * SECOND_NS)
    assert step.instructions == [NoticeRun(KEY, told, why)]


def test_a_fence_does_not_wait_for_a_held_back_limit() -> None:
    """A node that has lost its lease ends the run at its fence, whatever was asked for before."""
    node = running()
    far = order("7", "train", stop="time_limit", ran_ns=1000 * SECOND_NS)
    assert node.desire(6, far, now=BEGAN + SECOND_NS).instructions == []
    fence = node.core.wake_at()
    assert fence is not None and fence < BEGAN + 1000 * SECOND_NS
    assert node.core.tick(fence).instructions == [TerminateRun(KEY)]
