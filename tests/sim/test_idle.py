"""Worlds with idle policies: bugs of that kind, planted one at a time, which the simulator must find."""

from collections.abc import Iterator

import pytest

import fairlead_telemetry.idle.decide.decision
import fairlead_telemetry.idle.decide.policy_evaluation
from fairlead_replay.sim import idleness
from fairlead_replay.sim.faults import Disaster, Faults
from fairlead_replay.sim.world import run_seed
from fairlead_schemas.wire.commands import TelemetryCommand
from fairlead_telemetry.idle.core import IdleCore
from fairlead_telemetry.idle.decide.commands import IdleDraft
from fairlead_telemetry.idle.idle_windows import IdleWindow
from fairlead_telemetry.idle.state import TrackedRun

#: Seeds within which every planted bug must be found.
SEEDS = 60


def watched_seeds() -> Iterator[int]:
    return (seed for seed in range(1, SEEDS + 1) if idleness.plan(seed, 60.0) is not None)


def first_violation() -> str:
    for seed in watched_seeds():
        violation = run_seed(seed).violation
        if violation is not None:
            return violation
    return ""


def test_acting_before_the_notice_is_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user was promised that time."""
    monkeypatch.setattr(fairlead_telemetry.idle.decide.policy_evaluation, "due_ns", lambda idle: idle.notified_ns)
    assert "the notice is over at" in first_violation()


def test_acting_on_an_extended_run_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension promised no action."""
    judge = fairlead_telemetry.idle.decide.policy_evaluation.evaluate

    def forgetful(run: TrackedRun, *more: object) -> object:
        kept, run.extended_ns = run.extended_ns, 0
        try:
            return [*judge(run, *more)]  # type: ignore[arg-type]
        finally:
            run.extended_ns = kept

    monkeypatch.setattr(fairlead_telemetry.idle.decide.decision, "evaluate", forgetful)
    assert "extended" in first_violation()


def test_setting_a_part_of_what_was_asked_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several scopes' policies are set together or not at all."""
    carry_out = fairlead_telemetry.idle.decide.decision.decide_command

    def partly(draft: IdleDraft, command: TelemetryCommand) -> None:
        before = len(draft.events)
        carry_out(draft, command)
        del draft.events[before + 1 :]

    monkeypatch.setattr(fairlead_telemetry.idle.decide.decision, "decide_command", partly)
    assert "and was carried out for" in first_violation()


def test_taking_the_mean_for_the_highest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that works in turns is idle half of the time, and alive."""

    def mild(self: IdleWindow, at_ns: int, highest: int, total: int, count: int) -> None:
        add(self, at_ns, min(highest, self.threshold - 1), total, count)

    add = IdleWindow.add
    monkeypatch.setattr(IdleWindow, "add", mild)
    assert "and was busy at" in first_violation()


def test_decisions_before_a_crash_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that does not keep them repeats them."""
    restore = IdleCore.restore

    def forgetful(data: bytes) -> IdleCore:
        core = restore(data)
        for run in core.state.runs.values():
            run.idle.clear()
        return core

    monkeypatch.setattr(IdleCore, "restore", forgetful)
    _crash_often(monkeypatch)
    assert first_violation().startswith(("I7", "sequence"))


def _crash_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart the telemetry service every 4 s, from snapshots that are stored every 20 events: else it seldom starts from
    one while a run is idle."""
    plan = Faults.plan

    def often(faults: Faults, until_s: float) -> list[Disaster]:
        faults.snapshot_events = 20
        # The last replica, of three, four, six or eight, is telemetry's.
        crashes = [Disaster(at_s, "crash_service", 23, 2.0) for at_s in range(4, int(until_s), 4)]
        return sorted([*plan(faults, until_s), *crashes])

    monkeypatch.setattr(Faults, "plan", often)
