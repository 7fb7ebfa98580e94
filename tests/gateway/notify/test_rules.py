"""Rules and events: which concern which, places in the log, pauses, words."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_gateway.notify.rules import (
    Facts,
    Notice,
    Rule,
    concerns,
    notices_of,
    pause_s,
    place_of,
    read_after,
    summary,
)
from fairlead_rights.access_list import Target
from fairlead_schemas.policies.event_visibility import EVENTS_SHOWN
from fairlead_schemas.policies.notifications import EVENT_KINDS, KINDS, NotificationKind
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import decode_envelope, encode_commit
from tests.gateway.logbook import submitted
from tests.kit.commits import commit_of
from tests.schemas.examples import EVENTS

ADAS = Facts(Target(queue="research/vision", pool="a100", project="llm", job="7", owner="ada"), "train")


def rule(*kinds: NotificationKind, scopes: tuple[str, ...] = ("mine",), elements: bool = False) -> Rule:
    """A rule of ada's."""
    return Rule(id="n1", owner="ada", channel="webhook", to="https://x", kinds=kinds, scopes=scopes, elements=elements)


def notice(type_: str = "JobFailed", job: str = "7", **about: Any) -> Notice:
    """An event about a job, or something else."""
    return Notice(place_of(12, 3), type_, EVENT_KINDS[type_], 1, "queue", b"{}", job=job, **about)


@pytest.mark.parametrize(
    ("scopes", "yes"),
    [
        (("mine",), True),
        (("queue:research",), True),
        (("queue:research/vision",), True),
        (("queue:research/vis",), False),
        (("project:llm",), True),
        (("project:lln",), False),
        (("pool:a100",), True),
        (("job:7",), True),
        (("job:8",), False),
        (("cluster",), True),
        (("queue:other", "project:llm"), True),
    ],
)
def test_a_rule_is_concerned_by_jobs_in_its_scopes(scopes: tuple[str, ...], yes: bool) -> None:
    """Queues are compared by whole path segments."""
    assert concerns(rule("failure", scopes=scopes), notice(), ADAS) is yes


def test_a_rule_about_mine_is_not_concerned_by_jobs_of_others() -> None:
    """Nor is it by kinds that it does not name."""
    bobs = Facts(ADAS.target._replace(owner="bob"))
    assert not concerns(rule("end"), notice(), bobs)
    assert not concerns(rule("idle", "start"), notice(), ADAS)
    assert concerns(rule("end"), notice(), ADAS) and concerns(rule("failure"), notice(), ADAS)


def test_mine_has_every_queue_and_node() -> None:
    """What the owner may see of them is judged when it is sent."""
    node, budget = notice("NodeLost", "", node="n1"), notice("BudgetReached", "", queue="research")
    assert concerns(rule("node"), node, Facts(Target(pool="a100")))
    assert concerns(rule("budget"), budget, Facts(Target(queue="research", pool="a100")))
    assert not concerns(rule("node", scopes=("pool:h100",)), node, Facts(Target(pool="a100")))
    assert not concerns(rule("budget", scopes=("queue:other",)), budget, Facts(Target(queue="research")))


def test_an_array_is_one_job_unless_a_rule_asks_for_its_elements() -> None:
    """But an idle or preempted element is always somebody's concern."""
    facts = Facts(ADAS.target._replace(job="7_3"))
    assert not concerns(rule("end"), notice(job="7_3"), facts)
    assert concerns(rule("end", elements=True), notice(job="7_3"), facts)
    assert concerns(rule("idle"), notice("JobIdle", "7_3"), facts)


def test_every_event_that_rules_name_exists_and_has_words() -> None:
    """Each kind has an event; of events about jobs a person has stated what readers see; a sentence of each names no placeholder."""
    assert {kind for kinds in EVENT_KINDS.values() for kind in kinds} == set(KINDS)
    for example in EVENTS:
        name = type(example).__name__
        if name not in EVENT_KINDS:
            continue
        data = msgspec.to_builtins(example)
        job, node, queue = (data.get(field, "") for field in ("job", "node", "queue"))
        assert not job or name in EVENTS_SHOWN
        text = summary(notice(name, job, node=node, queue=queue), Facts(Target(), "train"), data)
        assert (job or node or queue) in text and "{" not in text and "  " not in text, text
        empty = summary(notice(name, job, node=node, queue=queue), Facts(Target()), {})
        assert "{" not in empty, empty


def test_people_s_text_stays_one_line() -> None:
    """A name or a message with line breaks can be no header of a mail."""
    text = summary(notice(), ADAS._replace(name="a\r\nBcc: eve"), {"message": "x\ny\x1b[31m" + "z" * 999})
    assert text.isprintable() and "\n" not in text and len(text) <= 300
    assert text.startswith("job 7 (a Bcc: eve) failed: x y [31m")


def test_notices_are_the_events_of_a_commit_that_rules_can_name() -> None:
    """A budget's new period is none."""
    budgets = [
        ev.BudgetReached(cause="clock", queue="q", percent=percent, spent=1, budget=2, period_ns=3)
        for percent in (0, 80)
    ]
    cancelled = ev.JobCancelled(cause="cmd:c", job="7", by="ada")
    commit = commit_of([submitted("7"), *budgets, cancelled], at_ns=5)
    found = list(notices_of(12, decode_envelope(encode_commit(commit))))
    assert [(each.id, each.type, each.job, each.queue) for each in found] == [
        ("12.2", "BudgetReached", "", "q"),
        ("12.3", "JobCancelled", "7", ""),
    ]


@given(st.integers(1, 10**12), st.integers(0, 1000))
def test_places_are_in_the_order_of_the_log(sequence: int, index: int) -> None:
    """A reader starts before the commit whose events it has not all handled, and behind one that it has."""
    place = place_of(sequence, index)
    assert (
        place_of(sequence - 1) < place < place_of(sequence, index + 1) < place_of(sequence) < place_of(sequence + 1, 0)
    )
    assert read_after(place) == sequence - 1 and read_after(place_of(sequence)) == sequence


def test_pauses_double_up_to_a_bound() -> None:
    """Also after more failures than a float has exponents."""
    assert [pause_s(n, 1, 300) for n in (1, 2, 3, 9, 10, 5000)] == [1, 2, 4, 256, 300, 300]


def test_a_rule_shows_no_secret() -> None:
    """In logs and tracebacks."""
    assert "whsec" not in repr(msgspec.structs.replace(rule("end"), secret="whsec_x"))
