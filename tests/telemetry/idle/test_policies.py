"""Each rule, action and mode in virtual time, against nodes that are played: given how a run is, when time goes by, then these events."""

import pytest

from fairlead_schemas.wire import events as ev
from tests.kit.idle_world import MINUTE, SECOND, START, Scene, names, policy


def test_a_run_below_its_threshold_becomes_idle_and_is_reclaimed() -> None:
    """JobIdle once the whole time is over, ReclaimRequested once the notice is, each once, with the evidence."""
    scene = Scene(policy())
    scene.run("1")
    assert scene.go(9.9) == []
    [idle] = scene.go(0.5)
    assert isinstance(idle, ev.JobIdle)
    assert (idle.job, idle.attempt, idle.scope, idle.rule, idle.action, idle.mode) == (
        "1",
        1,
        "global",
        "utilization",
        "stop",
        "always",
    )
    assert START < idle.since_ns <= START + 10 * SECOND
    said_ns = scene.cell.published[-1][0]
    assert idle.reclaim_at_ns == said_ns + 5 * MINUTE
    [evidence] = idle.evidence
    assert (evidence.signal, evidence.highest, evidence.mean, evidence.threshold) == ("gpu", 0, 0, 50)
    assert evidence.samples >= 118
    assert scene.go(4) == []
    [asked] = scene.go(1)
    assert isinstance(asked, ev.ReclaimRequested)
    assert (asked.since_ns, asked.on_demand, asked.action) == (idle.since_ns, False, "stop")
    assert asked.evidence[0].samples > evidence.samples
    assert scene.go(60) == []


@pytest.mark.parametrize("busy", [50, 51, 1000])
def test_a_run_at_or_above_its_threshold_is_never_idle(busy: int) -> None:
    """The threshold itself is activity."""
    scene = Scene(policy())
    scene.run("1")
    scene.now["1"] = {"gpu": busy // 10 * 10}
    assert scene.go(120) == []


def test_one_busy_moment_restarts_the_time() -> None:
    """The highest value counts, not the mean: a spike of five seconds in ten minutes is activity."""
    scene = Scene(policy())
    scene.run("1")
    for _ in range(6):
        assert scene.go(9) == []
        scene.now["1"] = {"gpu": 60}
        assert scene.go(1 / 12) == []
        scene.now["1"] = {}
    assert names(scene.go(11)) == ["JobIdle"]


def test_all_signals_must_be_low_at_once() -> None:
    """Training with low GPU but high CPU and network is active; when the rest falls too, it is idle."""
    scene = Scene(policy(below={"gpu": 50, "cpu": 500, "network": 100_000}))
    scene.run("1")
    scene.now["1"] = {"gpu": 20, "cpu": 6000, "network": 30_000_000}
    assert scene.go(60) == []
    scene.now["1"] = {"gpu": 20, "cpu": 100, "network": 30_000_000}
    assert scene.go(60) == []
    scene.now["1"] = {"gpu": 20, "cpu": 100, "network": 2000}
    [idle] = scene.go(11)
    assert isinstance(idle, ev.JobIdle)
    assert [(each.signal, each.highest) for each in idle.evidence] == [("gpu", 20), ("cpu", 100), ("network", 2000)]


def test_activity_withdraws_a_reclaim_and_names_its_signal() -> None:
    """Within the notice one value at the threshold is enough; afterwards the whole time counts again."""
    scene = Scene(policy())
    scene.run("1")
    assert names(scene.go(11)) == ["JobIdle"]
    scene.now["1"] = {"gpu": 70}
    scene.go(1 / 12)
    scene.now["1"] = {}
    [active] = scene.go(1)
    assert isinstance(active, ev.JobActive)
    assert (active.rule, active.reason) == ("utilization", "active")
    assert [(each.signal, each.highest, each.samples) for each in active.evidence] == [("gpu", 70, 1)]
    assert scene.go(8) == []
    assert names(scene.go(8)) == ["JobIdle", "ReclaimRequested"]


def test_a_missing_signal_counts_as_activity() -> None:
    """A node that does not say how much network there was says nothing; and one that falls silent withdraws."""
    scene = Scene(policy(below={"gpu": 50, "network": 1000}))
    scene.run("1")
    scene.now["1"] = {"network": None}
    assert scene.go(60) == []
    scene.now["1"] = {}
    assert names(scene.go(11)) == ["JobIdle"]
    scene.silent.add("n1")
    [active] = scene.go(1)
    assert isinstance(active, ev.JobActive)
    assert (active.reason, active.evidence) == ("unseen", ())
    assert scene.go(60) == []


def test_a_gang_is_idle_when_all_of_it_is() -> None:
    """One busy GPU of one node keeps all; one silent node too."""
    scene = Scene(policy())
    scene.run("1", n1=4, n2=4, n3=4)
    scene.now["1"] = {"gpu.n2": 80}
    assert scene.go(30) == []
    scene.now["1"] = {}
    scene.silent.add("n3")
    assert scene.go(30) == []
    scene.silent.clear()
    [idle] = scene.go(11)
    assert isinstance(idle, ev.JobIdle)
    assert idle.evidence[0].samples >= 12 * 118


def test_after_a_restart_a_run_is_idle_only_after_the_whole_time() -> None:
    """The watch begins empty: an idle run becomes unseen, and is idle again after the whole time."""
    scene = Scene(policy())
    scene.run("1")
    scene.go(9)
    scene.cell.restart()
    assert scene.go(9) == []
    assert names(scene.go(2)) == ["JobIdle"]
    scene.cell.restart()
    [active] = scene.go(1)
    assert isinstance(active, ev.JobActive)
    assert active.reason == "unseen"


@pytest.mark.parametrize(("action", "follows"), [("note", []), ("warn", []), ("requeue", ["ReclaimRequested"])])
def test_actions(action: str, follows: list[str]) -> None:
    """Noted and warned is all that becomes of it; what is requeued is asked back as such."""
    scene = Scene(policy(action=action))
    scene.run("1")
    first, *rest = scene.go(60)
    assert isinstance(first, ev.JobIdle)
    assert (first.action, bool(first.reclaim_at_ns), names(rest)) == (action, bool(follows), follows)
    assert all(event.action == action for event in rest if isinstance(event, ev.ReclaimRequested))


def test_a_dry_run_records_what_it_would_do_and_does_nothing() -> None:
    """ReclaimSimulated once when the notice would be over; no deadline is set."""
    scene = Scene(policy(mode="dry_run", action="requeue"))
    scene.run("1")
    idle, foreseen = scene.go(60)
    assert isinstance(idle, ev.JobIdle)
    assert isinstance(foreseen, ev.ReclaimSimulated)
    assert (idle.mode, idle.reclaim_at_ns, foreseen.action) == ("dry_run", 0, "requeue")
    assert 5 * MINUTE <= scene.cell.published[-1][0] - scene.cell.published[-2][0] <= 5 * MINUTE + 10 * SECOND
    scene.now["1"] = {"gpu": 500}
    assert names(scene.go(1)) == ["JobActive"]


def test_a_reclaim_on_demand_lasts_until_the_run_is_active_again() -> None:
    """Its GPUs are available to waiting jobs; activity withdraws that, and so does an extension."""
    scene = Scene(policy(mode="on_demand", extend_ns=30 * MINUTE, extensions_max=1))
    scene.run("1")
    _, asked = scene.go(20)
    assert isinstance(asked, ev.ReclaimRequested)
    assert asked.on_demand
    assert scene.go(60) == []
    scene.now["1"] = {"gpu": 500}
    assert names(scene.go(1)) == ["JobActive"]
    scene.now["1"] = {}
    assert names(scene.go(20)) == ["JobIdle", "ReclaimRequested"]
    assert names([scene.extend("1")]) == ["JobExtended"]
    _, active = scene.cell.published[-1]
    assert isinstance(active, ev.JobActive)
    assert active.reason == "extended"


def test_a_shortened_lease_ends_whatever_the_run_does() -> None:
    """Shrink: once the lease is shortened, activity does not withdraw it; an extension does."""
    shrink = policy(action="shrink", shrink_ns=15 * MINUTE, extend_ns=60 * MINUTE, extensions_max=1)
    scene = Scene(shrink)
    scene.run("1")
    idle, cut = scene.go(16)
    assert isinstance(cut, ev.LeaseShrunk)
    assert cut.until_ns == scene.cell.published[-1][0] + 15 * MINUTE
    scene.now["1"] = {"gpu": 900}
    assert scene.go(14) == []
    [asked] = scene.go(2)
    assert isinstance(asked, ev.ReclaimRequested)
    assert isinstance(idle, ev.JobIdle)
    assert (asked.action, asked.evidence) == ("shrink", idle.evidence)

    scene = Scene(shrink)
    scene.run("1")
    scene.go(16)
    scene.now["1"] = {"gpu": 900}
    scene.extend("1")
    assert names([event for _, event in scene.cell.published[-2:]]) == ["JobExtended", "JobActive"]
    assert scene.go(120) == []


def test_a_session_without_a_user_is_idle() -> None:
    """Interaction: a session with typing is active; one without for the whole time is idle, however busy it is."""
    scene = Scene(policy(rule="interaction", after_ns=60 * MINUTE))
    scene.run("1")
    scene.run("2")
    scene.now["2"] = {"gpu": 900}
    for _ in range(10):
        scene.types("1")
        scene.go(30)
    assert {event.job for _, event in scene.cell.published if isinstance(event, ev.JobIdle)} == {"2"}
    scene.end("2")
    idle, asked = scene.go(60)
    assert isinstance(idle, ev.JobIdle)
    assert isinstance(asked, ev.ReclaimRequested)
    assert (idle.job, idle.rule) == ("1", "interaction")
    [evidence] = idle.evidence
    assert (evidence.signal, evidence.threshold) == ("terminal", 60 * MINUTE)
    assert evidence.highest >= 60 * MINUTE


def test_typing_within_the_notice_withdraws_the_reclaim() -> None:
    """The event has the time since the last typing."""
    scene = Scene(policy(rule="interaction", after_ns=60 * MINUTE))
    scene.run("1")
    assert names(scene.go(61)) == ["JobIdle"]
    scene.types("1")
    [active] = scene.go(1)
    assert isinstance(active, ev.JobActive)
    assert active.reason == "active"
    assert active.evidence[0].highest < MINUTE


def test_a_terminal_of_which_nothing_is_known_counts_as_used() -> None:
    """No word of the terminal is no word of absence."""
    scene = Scene(policy(rule="interaction", after_ns=60 * MINUTE))
    scene.run("1")
    scene.now["1"] = {"terminal": None}
    assert scene.go(600) == []


def test_a_terminal_is_a_signal_of_utilization_too() -> None:
    """`terminal` among the signals: no typing for at least that long, in addition to the rest."""
    scene = Scene(policy(below={"gpu": 50, "terminal": 30 * MINUTE}))
    scene.run("1")
    scene.go(5)
    scene.types("1")
    assert scene.go(29) == []
    [idle] = scene.go(2)
    assert isinstance(idle, ev.JobIdle)
    assert [each.signal for each in idle.evidence] == ["gpu", "terminal"]


def test_a_notebook_left_open_is_given_back_on_demand_after_the_last_input() -> None:
    """Two minutes after it, and not before; inputs each minute keep it for as long as they come. The proxy is the evidence of both."""
    scene = Scene(policy(below={"gpu": 50, "proxy": 2 * MINUTE}, after_ns=MINUTE, notice_ns=0, mode="on_demand"))
    scene.run("1")
    for _ in range(30):
        scene.acts("1")
        assert scene.go(1) == []
    acted_ns = scene.cell.now_ns - MINUTE
    assert scene.go(0.9) == []
    idle, asked = scene.go(0.3)
    assert isinstance(idle, ev.JobIdle)
    assert isinstance(asked, ev.ReclaimRequested)
    assert asked.on_demand
    assert scene.cell.published[-2][0] - acted_ns <= 2 * MINUTE + 10 * SECOND
    [evidence] = [each for each in idle.evidence if each.signal == "proxy"]
    assert evidence.threshold == 2 * MINUTE <= evidence.highest
    scene.acts("1")
    [active] = scene.go(1)
    assert isinstance(active, ev.JobActive)
    assert [(each.signal, each.highest < MINUTE) for each in active.evidence if each.signal == "proxy"] == [
        ("proxy", True)
    ]


def test_a_lifetime_needs_no_samples() -> None:
    """By the clock alone, whatever the run does and whether its node says anything."""
    scene = Scene(policy(rule="lifetime", after_ns=720 * MINUTE))
    scene.run("1")
    scene.silent.add("n1")
    assert scene.go(719) == []
    idle, asked = scene.go(10)
    assert isinstance(idle, ev.JobIdle)
    assert isinstance(asked, ev.ReclaimRequested)
    assert (idle.since_ns, idle.evidence, idle.reclaim_at_ns) == (START, (), START + 725 * MINUTE)
    assert [at_ns for at_ns, _ in scene.cell.published[-2:]] == [START + 720 * MINUTE, START + 725 * MINUTE]


def test_an_earlier_attempt_says_nothing_of_a_later_one() -> None:
    """Its time, its extensions and its samples are its own."""
    scene = Scene(policy(extend_ns=30 * MINUTE, extensions_max=1))
    scene.run("1")
    assert names(scene.go(11)) == ["JobIdle"]
    assert names([scene.extend("1")]) == ["JobExtended"]
    scene.go(1)
    scene.end("1")
    scene.run("1", attempt=2)
    assert scene.go(9.9) == []
    [idle] = scene.go(1)
    assert isinstance(idle, ev.JobIdle)
    assert idle.attempt == 2
    extended = scene.extend("1")
    assert isinstance(extended, ev.JobExtended)
    assert (extended.attempt, extended.count) == (2, 1)


def test_a_run_stopped_for_another_reason_is_left_alone() -> None:
    """A stopping run gets no idle decision."""
    scene = Scene(policy())
    scene.run("1")
    assert names(scene.go(11)) == ["JobIdle"]
    scene.cell.fold("queue", ev.JobStopRequested(cause="clock", job="1", attempt=1, reason="cancelled"))
    assert scene.go(60) == []


@pytest.mark.slow
def test_decisions_that_exceed_one_commit_take_several() -> None:
    """A thousand runs of one policy: each becomes idle once."""
    scene = Scene(policy())
    for number in range(1, 1001):
        scene.run(str(number))
    scene.go(11, every_s=10)
    said = [event.job for _, event in scene.cell.published if isinstance(event, ev.JobIdle)]
    assert len(said) == len(set(said)) == 1000
