"""What the core asks of the watch, and what it hears: the only words between the two."""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead_schemas.idle import IdleRule, IdleSignal
from fairlead_telemetry.idle.scopes import PRESENCE
from fairlead_telemetry.idle.state import Part

#: Where the core's inputs of this kind come from.
SOURCE = "activity"


class Question(NamedTuple):
    """Does this run lie idle by this rule? One for each run and rule that samples decide."""

    job: str
    attempt: int
    rule: IdleRule
    parts: tuple[Part, ...]
    started_ns: int
    #: {signal: threshold}; of "interaction" the terminal alone.
    below: Mapping[IdleSignal, int]
    after_ns: int
    #: It counts as idle: the answer is wanted in any case. Of others, only if they could.
    is_idle: bool


class Reading(NamedTuple):
    """One signal since it is where it is, over all nodes and GPUs of a run, in the units of IdleEvidence."""

    #: Below its threshold on all of them without a break from here on; 0: it is not now.
    since_ns: int
    highest: int
    mean: int
    samples: int
    #: The newest value that was not below, and when; 0: none was seen.
    rose: int = 0
    rose_ns: int = 0


class Answer(NamedTuple):
    """What was seen of one run by one rule. A signal that is missing or stale on any part of it is not in `readings`."""

    job: str
    attempt: int
    rule: IdleRule
    readings: Mapping[IdleSignal, Reading]


def is_quiet(signal: IdleSignal, reading: Reading, threshold: int, after_ns: int, now_ns: int) -> bool:
    """Whether a signal says idle: below its threshold for so long; a person's, away for the threshold and for so long."""
    if signal in PRESENCE and reading.highest < threshold:
        return False
    return 0 < reading.since_ns <= now_ns - after_ns
