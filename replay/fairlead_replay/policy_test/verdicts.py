"""Verdicts of a policy test: met, broken, or not to be judged. Pure.

A difference counts only where all pairs of plays have one sign and its median exceeds twice the spread of what is compared with
(`effects.is_changed`). A bound that is passed by a difference that does not count is not judged: the log cannot show it.
"""

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from fairlead_replay.policy_test.goldens import GoldenDifference
from fairlead_replay.policy_test.metrics import MeasuredJobs
from fairlead_replay.policy_test.plays import PlayFacts, PolicyPlays
from fairlead_replay.policy_test.policy_file import RELATIVE, Expectation, PolicyTest
from fairlead_replay.whatif.documents import value_words
from fairlead_replay.whatif.effects import is_changed
from fairlead_replay.whatif.fidelity import WAIT_FLOOR_S
from fairlead_replay.whatif.record import LogRecording

type Status = Literal["met", "broken", "unclear"]

#: Jobs that a broken expectation names.
LOSERS_MAX = 5
_GRADES = "ABC"


class Loser(NamedTuple):
    """Job that waits longer under the policy: medians over the pairs, in seconds."""

    id: str
    name: str
    user: str
    queue: str
    compared_wait_s: float
    wait_s: float


class Verdict(NamedTuple):
    """Outcome of one expectation. Values are medians over the pairs, in the metric's unit."""

    expectation: Expectation
    status: Status
    value: float
    compared: float
    #: Value minus compared, median over the pairs.
    difference: float
    #: One sentence: what was found, and by how much it is beyond the bound.
    words: str
    losers: tuple[Loser, ...] = ()


class PolicyVerdicts(NamedTuple):
    """Outcome of a test."""

    verdicts: tuple[Verdict, ...]
    #: Differences to the goldens; (): none, or there are no goldens.
    goldens: tuple[GoldenDifference, ...] = ()
    #: Why nothing that is compared can be judged; "": it can.
    unclear: str = ""

    @property
    def status(self) -> Status:
        """Broken where anything is, else unclear where anything is."""
        found = {each.status for each in self.verdicts} | ({"broken"} if self.goldens else set())
        return "broken" if "broken" in found else "unclear" if "unclear" in found else "met"


def judge(
    test: PolicyTest, recording: LogRecording, plays: PolicyPlays, goldens: Sequence[GoldenDifference] = ()
) -> PolicyVerdicts:
    """Hold what was played against what is expected."""
    grade = plays.fidelity.grade
    unclear = ""
    if _GRADES.index(grade) > _GRADES.index(test.fidelity):
        because = "; ".join(plays.fidelity.because)
        unclear = f"the control's grade is {grade}, expected {test.fidelity} or better: {because}"
    verdicts = [_verdict(index, each, recording, plays, unclear) for index, each in enumerate(test.expectations)]
    return PolicyVerdicts(tuple(verdicts), tuple(goldens), unclear)


def _verdict(
    index: int, expectation: Expectation, recording: LogRecording, plays: PolicyPlays, unclear: str
) -> Verdict:
    pairs = [(compared.values[index], tested.values[index]) for compared, tested in plays.pairs]
    value, compared = median([tested for _, tested in pairs]), median([other for other, _ in pairs])
    differences = [tested - other for other, tested in pairs]
    difference = median(differences)
    if unclear:
        return Verdict(expectation, "unclear", value, compared, difference, unclear)
    judged = _relative if expectation.bound in RELATIVE else _absolute
    status, words = judged(expectation, pairs, value, compared, differences)
    losers = _losers(expectation.jobs, recording, plays.pairs) if status == "broken" else ()
    return Verdict(expectation, status, value, compared, difference, words, losers)


def _absolute(
    expectation: Expectation,
    pairs: Sequence[tuple[float, float]],
    value: float,
    compared: float,
    differences: Sequence[float],
) -> tuple[Status, str]:
    bound = expectation.threshold.value
    over = {"at_most": value - bound, "at_least": bound - value, "equals": abs(value - bound)}[expectation.bound]
    found = _words(expectation, value)
    if over <= 0:
        return "met", found
    side = {"at_most": "too much", "at_least": "too little", "equals": "away from it"}[expectation.bound]
    part = f" ({over / bound:.0%})" if bound else ""
    return (
        "broken",
        f"{found}, {_words(expectation, over)}{part} {side}; it was {_words(expectation, compared)} in what it is compared with",
    )


def _relative(
    expectation: Expectation,
    pairs: Sequence[tuple[float, float]],
    value: float,
    compared: float,
    differences: Sequence[float],
) -> tuple[Status, str]:
    worse = expectation.metric.worse
    allowed = expectation.threshold.value
    base = abs(compared)
    if expectation.threshold.is_part:
        # Nobody notices 10 % of half a second.
        allowed *= max(base, WAIT_FLOOR_S) if expectation.metric.unit == "time" else base
    change = median(differences)
    part = f" ({abs(change) / base:.0%})" if base else ""
    way = "worse" if change * worse > 0 else "better"
    by = f"{_words(expectation, abs(change))}{part} {way}" if change else "as before"
    found = f"{_words(expectation, compared)} to {_words(expectation, value)}, {by}"
    is_shown = len(differences) == 1 or is_changed(differences, [other for other, _ in pairs])
    if expectation.bound == "worse_by_at_most":
        if change * worse <= allowed:
            return "met", found
        return ("broken", found) if is_shown else ("unclear", f"{found}: within what chance does to this log")
    if -change * worse >= allowed and is_shown:
        return "met", found
    return ("broken", found) if is_shown or not change else ("unclear", f"{found}: within what chance does to this log")


def _words(expectation: Expectation, value: float) -> str:
    return value_words(value, expectation.metric.value_unit)


def _losers(
    jobs: MeasuredJobs, recording: LogRecording, pairs: Sequence[tuple[PlayFacts, PlayFacts]]
) -> tuple[Loser, ...]:
    found: list[tuple[float, Loser]] = []
    for id_ in pairs[0][0].waits:
        job = recording.real.jobs[id_]
        if not jobs.has(job):
            continue
        before, after = (median([pair[at].waits[id_] for pair in pairs]) for at in (0, 1))
        if after > before:
            found.append((before - after, Loser(id_, job.submitted.name, job.submitted.user, job.queue, before, after)))
    return tuple([each for _, each in sorted(found)[:LOSERS_MAX]])
