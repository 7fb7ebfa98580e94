"""Reports: one document in three forms, with every name made harmless."""

from xml.etree import ElementTree

from fairlead_replay.policy_test import reports
from tests.replay.policy_test.worlds import HURTS_A, policy_test, report


def hurt() -> reports.PolicyReport:
    """Return the report of a policy that hurts queue a."""
    test = policy_test(
        {"metric": "wait_p95", "queue": "a", "worse_by_at_most": "10%"}, {"metric": "started", "at_least": 1}
    )
    return report(test, HURTS_A)


def test_the_text_names_queue_and_amount_first() -> None:
    """Then who lost most, and a line that sums up."""
    lines = reports.text(hurt()).splitlines()
    assert lines[0] == "policy.yaml: 40 jobs, one pair, exact"
    assert lines[1].startswith("grade A")
    broken = next(line for line in lines if line.startswith("BROKEN"))
    assert "wait_p95 of queue a, worse by at most 10%: " in broken
    assert lines[-1] == "1 broken"


def test_names_cannot_move_the_terminal() -> None:
    """An escape sequence in a job's name is shown as a question mark."""
    text = reports.text(hurt())
    assert "\x1b" not in text
    assert "?[2J" in text


def test_junit_has_a_case_for_each_expectation() -> None:
    """With failures counted, and the reason as text. Markup in names is escaped."""
    xml = reports.junit(hurt())
    root = ElementTree.fromstring(xml)
    suite = root[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    failure = suite[0].find("failure")
    assert failure is not None
    assert "wait_p95 of queue a" in failure.get("message", "")
    assert "<i>" in (failure.text or "")
    assert "<i>" not in xml
    assert "&lt;i&gt;" in xml


def test_what_cannot_be_judged_is_an_error_in_junit() -> None:
    """A failure would say that the policy is to blame."""
    found = hurt()
    plays = found.plays._replace(fidelity=found.plays.fidelity._replace(grade="C", because=("<b>",)))
    from fairlead_replay.policy_test.verdicts import judge

    unclear = found._replace(plays=plays, verdicts=judge(found.test, found.recording, plays))
    suite = ElementTree.fromstring(reports.junit(unclear))[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "2")
    assert reports.text(unclear).splitlines()[-1] == "2 not to be judged"


def test_the_document_has_every_value() -> None:
    """For programs: values, differences, grade, digests."""
    words = reports.document(hurt())
    assert words["status"] == "broken"
    assert words["grade"] == "A"
    assert len(words["play"]) == 64
    assert [each["status"] for each in words["expectations"]] == ["broken", "met"]
    assert words["expectations"][0]["value"] > words["expectations"][0]["compared"]
    assert set(words["queues"]) == {"a", "b"}
