"""Recordings and policy tests that several tests of this folder use."""

from functools import cache
from typing import Any

from fairlead_bus.port import Stored
from fairlead_replay.policy_test import plays
from fairlead_replay.policy_test.plays import PolicyPlays
from fairlead_replay.policy_test.policy_file import PolicyTest, read_policy_test
from fairlead_replay.policy_test.reports import PolicyReport
from fairlead_replay.policy_test.verdicts import judge
from fairlead_replay.whatif.overlay import PlannedChange, read_overlay
from fairlead_replay.whatif.record import LogRecording, record_of
from tests.replay.whatif.scenes import Scene, queues

#: Queue a may hold a quarter, and so waits.
HURTS_A = {"queues": {"a": {"maximum": {"nvidia.com/gpu": 2}}}}


@cache
def two_queues_log() -> tuple[Stored, ...]:
    """Return the log of forty jobs of two queues on eight GPUs."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(40):
        scene.submit(
            n * 8, (1, 2, 4)[n % 3], 20 + n % 7, queue="ab"[n % 2], user=f"u{n % 3}", name=f"<i>{n % 5}</i>\x1b[2J"
        )
    return tuple(scene.play(900)[0])


def two_queues() -> LogRecording:
    """Return that log as a recording."""
    return record_of(two_queues_log())


def policy_test(*expect: dict[str, Any], **more: Any) -> PolicyTest:
    """Return a test of these expectations, of an exact play unless seeds are given."""
    words: dict[str, Any] = {"log": {"load": "day.load.jsonl.gz"}, "expect": list(expect)}
    return read_policy_test(words | ({"exact": True} if "seeds" not in more else {}) | more)


def played(test: PolicyTest, change: dict[str, Any] | None, recording: LogRecording | None = None) -> PolicyPlays:
    """Play a test with a change as the policy (None: as recorded)."""
    found = recording or two_queues()
    if change is None:
        return plays.run(test, found, lambda: None, lambda: None)
    overlay = read_overlay(change)
    return plays.run(test, found, lambda: PlannedChange(overlay, found), lambda: None)


def report(test: PolicyTest, change: dict[str, Any] | None) -> PolicyReport:
    """Return the report of a test."""
    recording = two_queues()
    found = played(test, change, recording)
    return PolicyReport("policy.yaml", test, recording, found, judge(test, recording, found), "0" * 64)
