"""The core: what should be against what is. Pure, so every case is a few lines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_agent.core.ledger import Ledger, Opened
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.run_stop import KILL_AGAIN_NS, SHARE_GRACE_NS, START_NS
from fairlead_agent.core.runs import Exit, Found, RunKey
from fairlead_agent.core.steps import KillRun, StartRun, Step, TerminateRun
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.desired import Desired, RunOrder
from fairlead_schemas.wire.reports import CleanSeen, ExitSeen, InventorySeen, ReportAck, StartSeen
from fairlead_schemas.wire.resources import Inventory
from tests.agent.placer_script import order
from tests.kit.agent_core import FENCE, KEY, CoreNode


def test_a_run_is_journalled_before_it_is_started() -> None:
    """The step that starts a run carries its acceptance, so the shell makes it durable first."""
    step = CoreNode().desire(5, order("7", "true"))
    assert [StartRun(order("7", "true"))] == step.instructions
    assert [type(record).__name__ for record in step.records] == ["Took", "Accepted"]


def test_reports_follow_the_life_of_a_run() -> None:
    """Inventory, start, end, clean: numbered without a gap."""
    node = CoreNode()
    node.desire(5, order("7", "true", gpus=("GPU-a",)))
    started = node.do(node.core.started(KEY, 0, 11)).reports
    ended = node.do(node.core.exited(KEY, Exit(code=3), False, 12)).reports
    cleaned = node.do(node.core.cleaned(KEY)).reports
    assert [StartSeen(n=2, job="7", attempt=1, rank=0, at_ns=11)] == started
    assert [ExitSeen(n=3, job="7", attempt=1, rank=0, outcome="exited", exit_code=3, clean=False, at_ns=12)] == ended
    assert [CleanSeen(n=4, job="7", attempt=1, rank=0)] == cleaned
    assert node.do(node.core.exited(KEY, Exit(code=0), True, 13)).reports == []


def test_only_the_report_of_a_start_can_wait() -> None:
    """A start, alone: no acceptance, end, inventory, or start that must be stopped at once."""
    node = CoreNode()
    assert not node.desire(5, order("7", "true"), order("8", "true")).can_wait
    assert node.do(node.core.started(KEY, 0, 11)).can_wait
    assert not node.do(node.core.exited(KEY, Exit(code=3), True, 12)).can_wait
    assert not node.desire(6, order("7", "true")).can_wait
    assert not node.do(node.core.started(RunKey("8", 1, 0), 0, 13)).can_wait
    assert not node.do(node.core.changed(Inventory(gpus=(), cpu_milli=1, memory_mib=1))).can_wait
    assert not node.do(node.core.tick(0)).can_wait


def test_a_start_reports_its_image_and_a_failed_one_its_fault() -> None:
    """The image by its digest; only a start has a fault: a run that was stopped first counts as stopped."""
    node = CoreNode()
    node.desire(5, order("7", "true"), order("8", "true"), order("9", "true"))
    (start,) = node.do(node.core.started(KEY, 0, 11, "x@sha256:12")).reports
    assert StartSeen(n=2, job="7", attempt=1, rank=0, image="x@sha256:12", at_ns=11) == start
    (end,) = node.do(node.core.start_failed(RunKey("8", 1, 0), "no such image", 12, "job")).reports
    assert isinstance(end, ExitSeen)
    assert (end.outcome, end.fault, end.clean) == ("start_failed", "job", True)
    assert node.desire(6, order("7", "true")).instructions == [TerminateRun(RunKey("9", 1, 0))]
    (end,) = node.do(node.core.start_failed(RunKey("9", 1, 0), "was asked to stop", 13)).reports
    assert isinstance(end, ExitSeen)
    assert (end.outcome, end.fault) == ("stopped", "")


def test_desired_state_of_another_incarnation_or_an_older_sequence_is_ignored() -> None:
    """Another incarnation, a lower sequence, a repeated one: no record, no instruction."""
    node = CoreNode()
    node.desire(5)
    nothing = Step([], [], [])
    assert nothing == node.desire(4, order("7", "true"))
    assert nothing == node.desire(9, order("7", "true"), incarnation="other")
    assert nothing == node.desire(5, order("7", "true"))


def test_nothing_starts_without_a_lease() -> None:
    """A desired state read before the first ReportAck may be an old one: it is applied once there is a lease."""
    node = CoreNode(lease=False)
    assert node.desire(5, order("7", "true")).instructions == []
    step = node.do(node.core.confirmed(ReportAck(node="n1", incarnation="inc", beat=1), 1, 0))
    assert [StartRun(order("7", "true"))] == step.instructions


def test_stop_terminates_then_kills() -> None:
    """TERM at once, KILL when the grace is over, and the end is `stopped`."""
    node = CoreNode()
    node.desire(5, order("7", "sleep", "9", grace_s=3))
    node.core.started(KEY, 0, 0)
    assert [TerminateRun(KEY)] == node.desire(
        6, order("7", "sleep", "9", grace_s=3, stop="cancelled"), now=SECOND_NS
    ).instructions
    assert node.core.wake_at() == 4 * SECOND_NS
    assert node.core.tick(4 * SECOND_NS - 1).instructions == []
    assert [KillRun(KEY)] == node.core.tick(4 * SECOND_NS).instructions
    (report,) = node.core.exited(KEY, Exit(signal=9), True, 0).reports
    assert isinstance(report, ExitSeen) and (report.outcome, report.signal) == ("stopped", 9)


def test_a_run_missing_in_the_desired_state_is_ended_then_forgotten() -> None:
    """A run that the placer does not list must not run; the ledger keeps it until a later state leaves it out."""
    node = CoreNode()
    node.desire(5, order("7", "sleep", "9"))
    node.core.started(KEY, 0, 0)
    assert [TerminateRun(KEY)] == node.desire(6).instructions
    node.core.exited(KEY, Exit(signal=15), True, 0)
    assert KEY in node.core.ledger.runs
    node.desire(7)
    assert node.core.ledger.runs == {}


def test_a_stop_before_the_start_starts_nothing() -> None:
    """An order that arrives stopped is reported as ended and never runs."""
    step = CoreNode().desire(5, order("7", "true", stop="cancelled"))
    assert step.instructions == []
    assert [report.outcome for report in step.reports if isinstance(report, ExitSeen)] == ["stopped"]


def test_silence_fences_the_node() -> None:
    """Without the placer's word for the fence's length everything is stopped, and nothing starts until it is back."""
    node = CoreNode()
    node.desire(5, order("7", "sleep", "99", grace_s=600))
    node.core.started(KEY, 0, 0)
    assert node.core.tick(FENCE).instructions == []
    assert [TerminateRun(KEY)] == node.core.tick(FENCE + 1).instructions
    assert [KillRun(KEY)] == node.core.tick(FENCE + 1 + 30 * SECOND_NS).instructions
    (report,) = node.core.exited(KEY, Exit(signal=9), True, 0).reports
    assert isinstance(report, ExitSeen) and report.outcome == "node_lost"
    assert node.desire(6, order("8", "true"), now=FENCE + 1).instructions == []
    back = node.core.confirmed(ReportAck(node="n1", incarnation="inc", beat=FENCE + 1), FENCE + 2, 0)
    assert [StartRun(order("8", "true"))] == back.instructions


def test_a_reboot_ends_what_ran() -> None:
    """Another boot: every open run is gone, and its devices are free."""
    node = CoreNode()
    node.desire(5, order("7", "sleep", "9"))
    node.do(node.core.started(KEY, 0, 0))
    inventory, ended = node.boot("boot-2", {KEY: Found("lost")}).reports
    assert isinstance(inventory, InventorySeen) and inventory.boot_id == "boot-2"
    assert isinstance(ended, ExitSeen) and (ended.outcome, ended.clean) == ("node_rebooted", True)


def test_a_restart_reports_the_fate_of_open_runs() -> None:
    """Running ones continue without a report; ended, lost and never started ones are distinguished."""
    node = CoreNode()
    jobs = {"1": Found("running"), "2": Found("ended", Exit(code=4), True), "3": Found("lost"), "4": Found("never")}
    node.desire(5, *(order(job, "x") for job in jobs))
    for job in ("1", "2", "3"):
        node.do(node.core.started(RunKey(job, 1, 0), 0, 0))
    reports = node.boot("boot-1", {RunKey(job, 1, 0): found for job, found in jobs.items()}).reports
    ends = {report.job: report.outcome for report in reports if isinstance(report, ExitSeen)}
    assert ends == {"2": "exited", "3": "exit_unknown", "4": "start_failed"}


JOBS = st.integers(1, 4).map(str)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_run_is_ever_started_twice(data: st.DataObject) -> None:
    """Over any order of placements, ends, stops, late and doubled desired states, restarts and silence:
    one start per (job, attempt, rank), and no report number twice or left out."""
    node, now, numbers = CoreNode(), 0, [1]
    history: list[Desired] = []
    placed: dict[RunKey, RunOrder] = {}
    attempts: dict[str, int] = {}

    def note(step: Step) -> None:
        node.do(step)
        numbers.extend(report.n for report in step.reports)

    for _ in range(data.draw(st.integers(1, 25))):
        now += data.draw(st.integers(0, 20)) * SECOND_NS
        match data.draw(st.sampled_from(["place", "finish", "old", "exit", "start", "restart", "tick", "confirm"])):
            case "place":
                job = data.draw(JOBS)
                attempts[job] = attempts.get(job, 0) + 1
                placed[RunKey(job, attempts[job], 0)] = order(job, "x", attempt=attempts[job])
                history.append(
                    Desired(node="n1", incarnation="inc", sequence=len(history) + 1, runs=list(placed.values()))
                )
                note(node.core.desired(history[-1], now, 0))
            case "finish" if placed:
                del placed[data.draw(st.sampled_from(sorted(placed)))]
                history.append(
                    Desired(node="n1", incarnation="inc", sequence=len(history) + 1, runs=list(placed.values()))
                )
                note(node.core.desired(history[-1], now, 0))
            case "old" if history:
                note(node.core.desired(data.draw(st.sampled_from(history)), now, 0))
            case "start" if node.starts:
                note(node.core.started(data.draw(st.sampled_from(node.starts)), now, 0))
            case "exit" if node.starts:
                note(
                    node.core.exited(data.draw(st.sampled_from(node.starts)), Exit(code=0), data.draw(st.booleans()), 0)
                )
            case "restart":
                found = {
                    key: data.draw(st.sampled_from([Found("running"), Found("lost"), Found("never")]))
                    for key in node.core.ledger.runs
                }
                sent = node.core.ledger.reported
                numbers.extend(
                    report.n
                    for report in node.boot(data.draw(st.sampled_from(["boot-1", "boot-2"])), found, now).reports
                )
                note(node.core.confirmed(ReportAck(node="n1", incarnation="inc", through=sent), now, 0))
            case "tick":
                note(node.core.tick(now))
            case "confirm":
                note(
                    node.core.confirmed(
                        ReportAck(node="n1", incarnation="inc", through=node.core.ledger.reported, beat=now), now, 0
                    )
                )
            case _:
                pass
    assert len(set(node.starts)) == len(node.starts)
    assert list(range(1, len(numbers) + 1)) == numbers


def test_a_value_older_than_the_placer_names_starts_nothing() -> None:
    """A node that was lost comes back to an order that was ended meanwhile (simulator seed 51): the confirmation
    that renews its lease says from which desired state on it may start anything."""
    core = Reconciler(_ledger(), fence_ns=10, now=0)
    core.begin(boot_id="b1", inventory=Inventory(), found={}, now=0, at_ns=0)
    old = Desired(node="n1", incarnation="inc", sequence=9, runs=[RunOrder(job="1", attempt=1, rank=0, epoch=9)])

    core.confirmed(ReportAck(node="n1", incarnation="inc", beat=1, desired=12), 1, 0)
    assert core.desired(old, 1, 0).instructions == []

    newer = Desired(node="n1", incarnation="inc", sequence=12, runs=old.runs)
    assert [type(each).__name__ for each in core.desired(newer, 1, 0).instructions] == ["StartRun"]


def test_a_value_for_another_boot_changes_nothing() -> None:
    """A run placed before the placer knew of a reboot was ended by the reboot's report (simulator seed 6)."""
    core = Reconciler(_ledger(), fence_ns=10, now=0)
    core.begin(boot_id="b2", inventory=Inventory(), found={}, now=0, at_ns=0)
    core.confirmed(ReportAck(node="n1", incarnation="inc", beat=1), 1, 0)
    order = RunOrder(job="1", attempt=1, rank=0, epoch=9)

    stale = Desired(node="n1", incarnation="inc", sequence=9, boot_id="b1", runs=[order])
    assert core.desired(stale, 1, 0) == ([], [], [])
    assert core.wanted is None


def test_an_answer_that_lay_in_a_buffer_renews_no_lease() -> None:
    """A process stood still longer than the fence: the confirmation that it then reads was true long ago, and the
    placer may have given the work to another node since."""
    node = CoreNode()
    node.desire(5, order("7", "true"))
    late = FENCE + 5
    node.do(node.core.confirmed(ReportAck(node="n1", incarnation="inc", beat=2), late, 0))
    assert not node.core.has_lease(late)
    assert node.desire(6, order("7", "true"), order("8", "true"), now=late).instructions == []
    assert [TerminateRun(KEY)] == node.core.tick(late).instructions


def test_the_lease_runs_from_the_beat_and_not_from_its_answer() -> None:
    """Half the fence on the way leaves half of it."""
    node = CoreNode(lease=False)
    node.do(node.core.confirmed(ReportAck(node="n1", incarnation="inc", beat=10), FENCE // 2, 0))
    assert node.core.has_lease(FENCE + 9) and not node.core.has_lease(FENCE + 10)
    node.do(node.core.confirmed(ReportAck(node="n1", incarnation="inc"), FENCE + 10, 0))
    assert not node.core.has_lease(FENCE + 10), "one that answers no beat renews nothing"


def test_an_acceptance_that_became_durable_too_late_starts_nothing() -> None:
    """The disk took longer than the lease, or the order to stop came meanwhile: the run is over before it began."""
    node = CoreNode()
    node.desire(5, order("7", "true"), order("8", "true"))
    assert node.core.may_start(KEY, FENCE)
    assert not node.core.may_start(KEY, FENCE + 1)
    node.desire(6, order("7", "true", stop="cancelled"), order("8", "true"))
    assert not node.core.may_start(KEY, 5)
    (stopped,) = node.do(node.core.not_started(KEY, 0)).reports
    (lost,) = node.do(node.core.not_started(RunKey("8", 1, 0), 0)).reports
    assert [(e.job, e.outcome, e.clean) for e in (stopped, lost) if isinstance(e, ExitSeen)] == [
        ("7", "stopped", True),
        ("8", "node_lost", True),
    ]


def test_desired_state_applied_by_an_earlier_process_does_not_count() -> None:
    """Beats have 0 until a value was read: the bucket may hold an older one, and only the placer can write it again."""
    node = CoreNode()
    node.desire(5, order("7", "true"))
    assert node.core.taken == 5
    node.boot("boot-1", {KEY: Found("running")})
    node.desire(4, order("7", "true"))
    assert node.core.taken == 0
    node.desire(5, order("7", "true"))
    assert node.core.taken == 5


def _ledger() -> Ledger:
    ledger = Ledger()
    ledger.apply(Opened(incarnation="inc", node="n1"))
    return ledger


def test_a_run_above_its_share_ends_alone_with_the_reason() -> None:
    """As its own failure, with the guard's message; its grace is short; another stop request changes nothing."""
    node = CoreNode()
    node.desire(5, order("7", "sleep", "9", grace_s=600), order("8", "sleep", "9"))
    for job in ("7", "8"):
        node.core.started(RunKey(job, 1, 0), 0, 0)
    assert [TerminateRun(KEY)] == node.core.over_share(KEY, "used too much", SECOND_NS).instructions
    assert node.core.wake_at() == SECOND_NS + SHARE_GRACE_NS
    assert node.desire(6, order("8", "sleep", "9"), now=SECOND_NS).instructions == []
    (report,) = node.core.exited(KEY, Exit(signal=15), True, 0).reports
    assert isinstance(report, ExitSeen)
    assert (report.outcome, report.signal, report.message) == ("gpu_memory", 15, "used too much")
    assert node.core.over_share(KEY, "again", SECOND_NS).instructions == []


def test_a_run_that_does_not_begin_is_given_up() -> None:
    """Stopped when its time is over, killed again and again, and reported with the reason; a run that has begun is left
    alone."""
    node = CoreNode()
    node.desire(5, order("7", "true"), order("8", "sleep", "9"))
    node.core.started(RunKey("8", 1, 0), 0, 0)
    node.core.confirmed(ReportAck(node="n1", incarnation="inc", beat=START_NS - 1), START_NS - 1, 0)
    assert node.core.tick(START_NS - 1).instructions == []
    assert node.core.wake_at() == START_NS
    assert node.core.tick(START_NS).instructions == [TerminateRun(KEY), KillRun(KEY)]
    assert node.core.tick(START_NS + KILL_AGAIN_NS).instructions == [KillRun(KEY)]
    (report,) = node.core.start_failed(KEY, "was asked to stop before it was started", 0).reports
    assert isinstance(report, ExitSeen)
    assert (report.outcome, report.clean) == ("start_failed", True)
    assert report.message == "it had not begun 3600 s after its order (FAIRLEAD_START_S)"
    assert node.core.tick(START_NS + 2 * KILL_AGAIN_NS).instructions == []


@pytest.mark.parametrize("exit", [Exit(signal=9, over_memory=True), Exit(code=1, over_memory=True)])
def test_a_run_killed_at_its_memory_limit_is_reported_as_oom(exit: Exit) -> None:
    """Its code and signal are kept; one that was being stopped has ended as it was stopped for."""
    for stopped, outcome in ((False, "oom"), (True, "gpu_memory")):
        node = CoreNode()
        node.desire(5, order("7", "sleep", "9"))
        node.core.started(KEY, 0, 0)
        if stopped:
            node.core.over_share(KEY, "used too much", SECOND_NS)
        (report,) = node.core.exited(KEY, exit, True, 0).reports
        assert isinstance(report, ExitSeen)
        assert (report.outcome, report.exit_code, report.signal) == (outcome, exit.code, exit.signal)


def test_an_agent_that_slept_gives_no_more_time() -> None:
    """Its fence is over when it wakes: what is left of the grace is less, or nothing."""
    for woke_s, killed_s in ((62, 65), (64, 65), (65, 65), (500, 500)):
        node = CoreNode()
        node.desire(5, order("7", "sleep", "9", grace_s=5))
        node.core.started(KEY, 0, 0)
        step = node.core.tick(woke_s * SECOND_NS + 1)
        kills = [KillRun(KEY)] if killed_s == woke_s else []
        assert step.instructions == [TerminateRun(KEY), *kills]
        if not kills:
            assert node.core.wake_at() == killed_s * SECOND_NS + 1


def test_a_job_sets_how_long_it_may_run_without_a_lease() -> None:
    """Shorter or longer than the node's time, or indefinitely; nothing is started meanwhile, and a restart keeps it."""
    node = CoreNode()
    short, usual, later = (
        order(name, "x", stop_after_ns=s * SECOND_NS) for name, s in (("1", 10), ("2", 0), ("3", 300))
    )
    node.desire(5, short, usual, later, order("4", "x", stop_after_ns=-1))
    for name in "1234":
        node.core.started(RunKey(name, 1, 0), 0, 0)
    found = {RunKey(name, 1, 0): Found("running") for name in "1234"}
    node.boot("boot-1", found)
    ends: list[tuple[int, str]] = []
    for second in range(0, 1000, 10):
        for instruction in node.core.tick(second * SECOND_NS + 1).instructions:
            if isinstance(instruction, TerminateRun):
                ends.append((second, instruction.key.job))
    assert ends == [(10, "1"), (60, "2"), (300, "3")]
    assert not node.core.has_lease(60 * SECOND_NS + 1)


def test_silence_continues_over_a_restart() -> None:
    """An agent that restarts under a silent placer has the remaining time, and a lease from the future counts from now."""
    for renewed, fenced_s in ((-20, 40), (-1000, 0), (5000, 60)):
        core = Reconciler(Ledger(), fence_ns=FENCE, now=0, renewed=renewed * SECOND_NS)
        core.tick(fenced_s * SECOND_NS - 1)
        assert not core.fenced or fenced_s == 0
        core.tick(fenced_s * SECOND_NS)
        assert core.fenced


def test_a_run_that_the_guard_ended_is_lost_with_its_node() -> None:
    """Not the program's own end, whatever its exit code was; found at a restart, too."""
    node = CoreNode()
    node.desire(5, order("7", "true"), order("8", "true"))
    for name in "78":
        node.core.started(RunKey(name, 1, 0), 0, 0)
    words = Exit(code=0, message="the guard ended it", fenced=True)
    (report,) = node.core.exited(KEY, words, True, 0).reports
    assert isinstance(report, ExitSeen) and (report.outcome, report.message) == ("node_lost", "the guard ended it")
    other = RunKey("8", 1, 0)
    reports = node.boot("boot-1", {other: Found("lost", words)}).reports
    (ended,) = [each for each in reports if isinstance(each, ExitSeen) and each.job == "8"]
    assert (ended.outcome, ended.message) == ("node_lost", "the guard ended it")
