"""Questions of the core to the watch, and their answers: the only interface between the two."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead_schemas.policies.idle import IdleRule, IdleSignal
from fairlead_telemetry.idle.scopes import PRESENCE
from fairlead_telemetry.idle.state import RunDevices

#: Where the core's inputs of this kind come from.
SOURCE = "activity"


class ActivityQuestion(NamedTuple):
    """Does this run lie idle by this rule? One for each run and rule that samples decide."""

    job: str
    attempt: int
    rule: IdleRule
    parts: tuple[RunDevices, ...]
    started_ns: int
    #: {signal: threshold}; of "interaction" the terminal alone.
    below: Mapping[IdleSignal, int]
    after_ns: int
    #: It counts as idle: the answer is wanted in any case. Of others, only if they could.
    is_idle: bool


class SignalReading(NamedTuple):
    """Reading of one signal in its present state, over all nodes and GPUs of a run, in the units of IdleEvidence."""

    #: Below its threshold on all of them without a break from here on; 0: it is not now.
    since_ns: int
    highest: int
    mean: int
    samples: int
    #: The newest value that was not below, and when; 0: none was seen.
    rose: int = 0
    rose_ns: int = 0


class ActivityAnswer(NamedTuple):
    """Readings of one run under one rule. A signal that is missing or stale on any part of the run is not in `readings`."""

    job: str
    attempt: int
    rule: IdleRule
    readings: Mapping[IdleSignal, SignalReading]


def is_quiet(signal: IdleSignal, reading: SignalReading, threshold: int, after_ns: int, now_ns: int) -> bool:
    """Return True if a signal counts as idle: below its threshold for `after_ns`. A presence signal must also have been absent
    for the threshold.
    """
    if signal in PRESENCE and reading.highest < threshold:
        return False
    return 0 < reading.since_ns <= now_ns - after_ns
