"""Reports of a policy test: a document of plain values, text, and JUnit XML. Pure.

Names of jobs, users and queues come from strangers: XML is built by a library that escapes them, and what XML or a terminal cannot
show is replaced.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree

from fairlead_replay.policy_test.plays import PolicyPlays
from fairlead_replay.policy_test.policy_file import PolicySource, PolicyTest
from fairlead_replay.policy_test.verdicts import Loser, PolicyVerdicts, Verdict
from fairlead_replay.whatif.documents import GRADES, fidelity_document, value_words
from fairlead_replay.whatif.record import LogRecording
from fairlead_schemas.units.timestamps import rfc3339

#: What XML 1.0 has no place for, and what moves a terminal's cursor.
_UNPRINTABLE = re.compile("[^\t\n -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STATUS = {"met": "ok", "broken": "BROKEN", "unclear": "UNCLEAR"}


class PolicyReport(NamedTuple):
    """All that a report is made of. `name`: of the file; `load_sha256`: of what was played."""

    name: str
    test: PolicyTest
    recording: LogRecording
    plays: PolicyPlays
    verdicts: PolicyVerdicts
    load_sha256: str


def document(report: PolicyReport) -> dict[str, Any]:
    """Return the report as plain values."""
    recording, plays = report.recording, report.plays
    return {
        "test": report.name,
        "status": report.verdicts.status,
        "unclear": report.verdicts.unclear,
        "load": report.load_sha256,
        "from": rfc3339(recording.start.at_ns) if recording.start.at_ns else "the log's start",
        "to": rfc3339(recording.end_ns),
        "policy": _policy_words(report.test.policy),
        "against": _policy_words(report.test.against),
        "seeds": report.test.seeds,
        "grade": plays.fidelity.grade,
        "fidelity": fidelity_document(plays.fidelity),
        "play": plays.play_sha256,
        "left_out": plays.left_out,
        "queues": {each.queue: each.figures for each in plays.queues},
        "expectations": [_verdict_words(each) for each in report.verdicts.verdicts],
        "goldens": [{**each._asdict(), "words": each.words} for each in report.verdicts.goldens],
    }


def _policy_words(policy: PolicySource) -> str | dict[str, Any]:
    return "recorded" if policy.is_recorded else {name: value for name, value in policy._asdict().items() if value}


def _verdict_words(verdict: Verdict) -> dict[str, Any]:
    expectation = verdict.expectation
    return {
        "metric": expectation.metric.name,
        "of": str(expectation.jobs),
        "expected": expectation.demand,
        "status": verdict.status,
        "unit": expectation.metric.value_unit,
        "value": verdict.value,
        "compared": verdict.compared,
        "difference": verdict.difference,
        "words": verdict.words,
        "losers": [each._asdict() for each in verdict.losers],
    }


def text(report: PolicyReport) -> str:
    """Return the report for a terminal."""
    return printable("".join(f"{line}\n" for line in _lines(report)))


def _lines(report: PolicyReport) -> Iterator[str]:
    plays, verdicts = report.plays, report.verdicts
    jobs = len(plays.pairs[0][0].waits)
    pairs = f"{report.test.seeds} shaken pairs" if report.test.seeds else "one pair, exact"
    yield f"{report.name}: {jobs} jobs, {pairs}"
    yield f"grade {plays.fidelity.grade}: {GRADES[plays.fidelity.grade]}"
    yield from (f"  {each}" for each in plays.fidelity.because)
    for reason, count in plays.left_out.items():
        yield f"  not given: {count} {reason}"
    for each in verdicts.verdicts:
        yield f"{_STATUS[each.status]:8}{each.expectation.subject}, {each.expectation.demand}: {each.words}"
        yield from (f"          {_loser_words(loser)}" for loser in each.losers)
    for difference in verdicts.goldens:
        yield f"{_STATUS['broken']:8}goldens: {difference.words}"
    if report.test.goldens and not verdicts.goldens:
        yield f"{_STATUS['met']:8}goldens: the same play, commit by commit"
    broken, unclear = (sum(each.status == status for each in verdicts.verdicts) for status in ("broken", "unclear"))
    found = [f"{broken + len(verdicts.goldens)} broken"] if broken or verdicts.goldens else []
    found += [f"{unclear} not to be judged"] if unclear else []
    yield ", ".join(found) if found else f"all {len(verdicts.verdicts) + bool(report.test.goldens)} met"


def _loser_words(loser: Loser) -> str:
    waits = f"{value_words(loser.compared_wait_s, 's')} to {value_words(loser.wait_s, 's')}"
    return f"job {loser.id} {loser.name} of {loser.user} in {loser.queue}: {waits}"


def junit(report: PolicyReport) -> str:
    """Return the report as JUnit XML, one case for each expectation."""
    verdicts = report.verdicts
    cases = [*(_case(report.name, each) for each in verdicts.verdicts), *_golden_cases(report)]
    suite = ElementTree.Element(
        "testsuite",
        name=printable(report.name),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
    )
    suite.extend(cases)
    found = ElementTree.SubElement(suite, "system-out")
    found.text = text(report)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(name: str, verdict: Verdict) -> ElementTree.Element:
    expectation = verdict.expectation
    case = ElementTree.Element(
        "testcase", classname=printable(name), name=printable(f"{expectation.subject} {expectation.demand}")
    )
    if verdict.status != "met":
        kind = "failure" if verdict.status == "broken" else "error"
        found = ElementTree.SubElement(
            case, kind, type=verdict.status, message=printable(f"{expectation.subject}: {verdict.words}")
        )
        found.text = printable("\n".join([verdict.words, *map(_loser_words, verdict.losers)]))
    return case


def _golden_cases(report: PolicyReport) -> Iterator[ElementTree.Element]:
    if not report.test.goldens:
        return
    case = ElementTree.Element("testcase", classname=printable(report.name), name="goldens")
    if report.verdicts.goldens:
        words = [each.words for each in report.verdicts.goldens]
        found = ElementTree.SubElement(case, "failure", type="broken", message=printable(words[0]))
        found.text = printable("\n".join(words))
    yield case


def printable(value: str) -> str:
    """Return a text with characters that XML or a terminal would stumble over replaced."""
    return _UNPRINTABLE.sub("?", value)
