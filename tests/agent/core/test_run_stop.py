"""The end of runs: notice, the run's own mark, TERM, grace, KILL. The core alone, so no clock."""

import pytest

from fairlead_agent.core.checkpoint_reports import MARK_EVERY_NS
from fairlead_agent.core.ledger import Ledger
from fairlead_agent.core.run_stop import FENCE_GRACE_NS
from fairlead_agent.core.runs import CheckpointMark, Exit, Found, RunKey
from fairlead_agent.core.steps import KillRun, NoticeRun, StartRun, TerminateRun
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.reports import AppSeen, CheckpointSeen, ExitSeen
from tests.agent.placer_script import order
from tests.kit.agent_core import FENCE, KEY, CoreNode

MINUTE = 60 * SECOND_NS
#: Shorter than the fence, which would come in between.
NOTICE = 40 * SECOND_NS
TOLD = Checkpoint(signal="SIGUSR1", notice_ns=NOTICE)
#: By how much later things happen here than at the lease.
AT = SECOND_NS


def running(checkpoint: Checkpoint | None = TOLD, rank: int = 0) -> CoreNode:
    """Return a node with a started run."""
    node = CoreNode()
    node.desire(5, order("7", "train", rank=rank, checkpoint=checkpoint))
    node.do(node.core.started(KEY._replace(rank=rank), 0, 0))
    return node


def stopped(why: str = "preempted", *, notice_ns: int = NOTICE, rank: int = 0) -> RunOrder:
    """The order that ends it; its grace is 5 s."""
    return order("7", "train", rank=rank, stop=why, notice_ns=notice_ns)


@pytest.mark.parametrize("why", ["preempted", "drained", "reclaimed", "time_limit", "cancelled"])
def test_every_stop_is_notice_then_term_then_kill(why: str) -> None:
    """For any reason, and the placer sets the length of the notice."""
    node = running()
    assert [NoticeRun(KEY, TOLD, why)] == node.desire(6, stopped(why), now=AT).instructions
    assert node.core.wake_at() == AT + NOTICE
    assert node.core.tick(AT + NOTICE - 1).instructions == []
    assert [TerminateRun(KEY)] == node.core.tick(AT + NOTICE).instructions
    assert [KillRun(KEY)] == node.core.tick(AT + NOTICE + 5 * SECOND_NS).instructions


def test_a_stop_without_a_notice_is_term_at_once() -> None:
    """A cancel ends a run that could get a notice, and a second stop ends a running notice."""
    node = running()
    assert [TerminateRun(KEY)] == node.desire(6, stopped("cancelled", notice_ns=0), now=AT).instructions
    other = running()
    other.desire(6, stopped(), now=AT)
    assert [TerminateRun(KEY)] == other.desire(7, stopped("cancelled", notice_ns=0), now=AT + SECOND_NS).instructions
    assert other.core.wake_at() == AT + SECOND_NS + 5 * SECOND_NS


@pytest.mark.parametrize("checkpoint", [None, Checkpoint(every_ns=MINUTE)])
def test_a_run_without_signal_or_command_gets_no_notice(checkpoint: Checkpoint | None) -> None:
    """The time would be of no use."""
    assert [TerminateRun(KEY)] == running(checkpoint).desire(6, stopped(), now=AT).instructions


def test_a_run_that_has_not_started_has_nothing_to_save() -> None:
    """It starts, and is ended."""
    node = CoreNode()
    assert isinstance(node.desire(5, order("7", "train", checkpoint=TOLD)).instructions[0], StartRun)
    node.desire(6, stopped(), now=AT)
    assert TerminateRun(KEY) in node.do(node.core.started(KEY, AT, 0)).instructions


def test_an_application_is_reported_to_serve_once() -> None:
    """Also by an agent that has read the journal of the one before it; not of another rank, nor of a run that has not started."""
    node = running()
    [seen] = node.do(node.core.app_serves(KEY, 100)).reports
    assert isinstance(seen, AppSeen) and (seen.job, seen.rank, seen.at_ns) == (KEY.job, 0, 100)
    assert node.do(node.core.app_serves(KEY, 200)).reports == []
    compacted = Ledger()
    for record in node.core.ledger.records():
        compacted.apply(record)
    assert compacted.runs[KEY].app_ready
    other = running(rank=1)
    assert other.do(other.core.app_serves(KEY._replace(rank=1), 100)).reports == []


def test_a_mark_after_the_notice_ends_the_notice() -> None:
    """The run may be ended: TERM at once, and the placer gets a report that it has saved, after its notice."""
    node = running()
    node.desire(6, stopped(), now=AT)
    node.do(node.core.noticed(KEY, None, AT))
    step = node.do(node.core.checkpoint_marked(KEY, CheckpointMark(100, "step=1200"), AT + SECOND_NS))
    assert [TerminateRun(KEY)] == step.instructions
    assert [(r.at_ns, r.note, r.noticed) for r in step.reports if isinstance(r, CheckpointSeen)] == [
        (100, "step=1200", True)
    ]
    assert [KillRun(KEY)] == node.core.tick(AT + 6 * SECOND_NS).instructions


def test_a_mark_from_before_the_notice_does_not_end_it() -> None:
    """It is reported on its own, and the run has its time."""
    node = running()
    node.do(node.core.checkpoint_marked(KEY, CheckpointMark(90), AT))
    node.desire(6, stopped(), now=AT + SECOND_NS)
    told = node.do(node.core.noticed(KEY, CheckpointMark(95), AT + SECOND_NS))
    assert [(r.at_ns, r.noticed) for r in told.reports if isinstance(r, CheckpointSeen)] == [(95, False)]
    again = node.core.checkpoint_marked(KEY, CheckpointMark(95), AT + 2 * SECOND_NS)
    assert (again.reports, again.instructions) == ([], [])


def test_the_newest_of_many_marks_is_reported_at_intervals() -> None:
    """A run that writes one every second costs a report every ten, which has the newest mark."""
    node = running()
    told: list[str] = []
    for second in range(25):
        step = node.do(
            node.core.checkpoint_marked(KEY, CheckpointMark(1000 + second, f"step={second}"), AT + second * SECOND_NS)
        )
        told += [report.note for report in step.reports if isinstance(report, CheckpointSeen)]
    assert MARK_EVERY_NS == 10 * SECOND_NS
    assert told == ["step=0", "step=10", "step=20"]


def test_the_last_mark_comes_before_the_end() -> None:
    """A run that saves, writes a mark and exits at once loses nothing; its exit code 0 is no success: it was stopped."""
    node = running()
    node.desire(6, stopped(), now=AT)
    node.do(node.core.noticed(KEY, None, AT))
    reports = node.do(node.core.exited(KEY, Exit(code=0), True, 5, CheckpointMark(100, "step=9"))).reports
    assert isinstance(reports[0], CheckpointSeen)
    assert (reports[0].note, reports[0].noticed) == ("step=9", True)
    assert isinstance(reports[1], ExitSeen)
    assert (reports[1].outcome, reports[1].exit_code) == ("stopped", 0)


def test_a_command_that_ends_ends_the_notice() -> None:
    """Its success counts as the run's mark; without it the rest of the notice would be of no use."""
    for saved in (True, False):
        node = running(Checkpoint(command=("save",), notice_ns=NOTICE))
        node.desire(6, stopped(), now=AT)
        node.do(node.core.noticed(KEY, None, AT))
        step = node.do(node.core.notice_command_ended(KEY, saved, AT + SECOND_NS))
        assert [TerminateRun(KEY)] == step.instructions
        assert [True] * saved == [report.noticed for report in step.reports if isinstance(report, CheckpointSeen)]


def test_only_the_first_rank_of_a_gang_reports_checkpoints() -> None:
    """Another rank's command does not count for the others: it continues until the placer ends the notice."""
    node, key = running(rank=3), KEY._replace(rank=3)
    node.desire(6, stopped(rank=3), now=AT)
    assert node.core.notice_command_ended(key, True, AT).instructions == []
    assert [TerminateRun(key)] == node.desire(7, stopped(rank=3, notice_ns=0), now=AT).instructions


def test_a_fence_keeps_its_time_notice_and_all() -> None:
    """The placer gives the work to another node after it: half of it is the notice, and KILL is in time."""
    node = running()
    assert [NoticeRun(KEY, TOLD, "node_lost")] == node.core.tick(FENCE + 1).instructions
    assert [TerminateRun(KEY)] == node.core.tick(FENCE + 1 + FENCE_GRACE_NS // 2).instructions
    node.core.tick(FENCE + 1 + FENCE_GRACE_NS)
    assert node.core.wake_at() is not None
    assert not node.core.stopping[KEY].in_notice
    assert isinstance(node.do(node.core.exited(KEY, Exit(signal=9), True, 0)).reports[0], ExitSeen)


def test_a_fence_shortens_a_running_stop() -> None:
    """A long notice or grace was given by a placer that is no longer reachable."""
    node = running()
    node.desire(6, order("7", "train", stop="preempted", notice_ns=60 * MINUTE, grace_s=3600), now=FENCE)
    assert [TerminateRun(KEY)] == node.core.tick(FENCE + 1).instructions
    assert [KillRun(KEY)] == node.core.tick(FENCE + 1 + FENCE_GRACE_NS).instructions


def test_checkpoint_state_survives_a_restart_of_the_agent() -> None:
    """The job's way to save and its newest mark are in the journal; a mark written meanwhile is reported before the
    end."""
    node = running()
    node.do(node.core.checkpoint_marked(KEY, CheckpointMark(100), AT))
    node.boot("boot-1", {KEY: Found("running")})
    assert node.core.checkpoint_marked(KEY, CheckpointMark(100), 0).reports == []
    step = node.boot("boot-1", {KEY: Found("ended", Exit(code=0), True, mark=CheckpointMark(200, "late"))})
    assert [type(report).__name__ for report in step.reports] == ["InventorySeen", "CheckpointSeen", "ExitSeen"]


def test_marks_of_runs_without_checkpoints_are_ignored() -> None:
    """Of a run that the ledger does not hold, or of one that declares none."""
    node = running(None)
    assert node.core.exited(KEY, Exit(code=0), True, 0, CheckpointMark(5)).reports[0].n == 3
    assert node.core.checkpoint_marked(RunKey("9", 1, 0), CheckpointMark(1), 0).reports == []
