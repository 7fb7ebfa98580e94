"""`notify`: rules of notifications, against a stub gateway."""

from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, page

RULE: dict[str, Any] = {
    "id": "n4k2m9x0q7ab",
    "owner": "p4k2m9x0q7abz",
    "name": "chat",
    "channel": "webhook",
    "to": "https://hooks.example.org/…",
    "on": ["end", "idle"],
    "scopes": ["mine"],
    "elements": False,
    "made_at": "2026-11-24T16:00:00.000Z",
    "state": "failing",
    "error": "the receiver answered 500",
    "failing_since": "2026-11-24T16:20:00.000Z",
    "sent": 12,
    "sent_at": "2026-11-24T16:10:00.000Z",
}
URL = "https://hooks.example.org/T0/x"


def test_a_rule_is_made_and_its_key_is_no_output(gateway: GatewayStub, run: Run) -> None:
    """The id goes to scripts, the key to the person: once, on standard error."""
    gateway.on("POST", "/v1/notifications", {**RULE, "secret": "whsec_abc", "sequence": 40}, status=201)
    ran = run("notify", "add", "--webhook", URL, "--on", "end,idle", "--scope", "research/vision", "--scope", "812")
    assert (ran.code, ran.out) == (0, "n4k2m9x0q7ab\n")
    assert "whsec_abc" in ran.err and "fairlead notify test n4k2m9x0q7ab" in ran.err
    assert gateway.bodies() == [
        {"on": ["end", "idle"], "webhook": URL, "scopes": ["queue:research/vision", "job:812"], "elements": False}
    ]


@pytest.mark.parametrize(
    ("words", "body"),
    [(["--mail"], {"mail": True}), (["--to", "ada@example.org"], {"mail": "ada@example.org"})],
)
def test_mail_goes_to_oneself_or_where_there_is_no_sign_on_to_an_address(
    gateway: GatewayStub, run: Run, words: list[str], body: dict[str, Any]
) -> None:
    """With the kinds and the scope that a rule has by default."""
    made = {**RULE, "channel": "mail", "to": "", "secret": "", "sequence": 40}
    gateway.on("POST", "/v1/notifications", made, status=201)
    ran = run("notify", "add", *words)
    assert ran.code == 0 and "key" not in ran.err
    expected = {"on": ["end", "preemption", "idle"], "scopes": ["mine"], "elements": False, **body}
    assert gateway.bodies() == [expected]


@pytest.mark.parametrize(
    "words", [["--webhook", URL, "--mail"], [], ["--mail", "--on", "ends"], ["--mail", "--on", "end,budgets"]]
)
def test_rules_that_cannot_be_are_refused_here(gateway: GatewayStub, run: Run, words: list[str]) -> None:
    """Two destinations, none, and kinds that there are not."""
    ran = run("notify", "add", *words)
    assert ran.code == 2 and "expected" in ran.err and gateway.requests == []


def test_rules_are_listed_with_why_they_fail(gateway: GatewayStub, run: Run) -> None:
    """A destination that fails is marked, and its owner sees the reason."""
    gateway.on("GET", "/v1/notifications", page(RULE))
    head, line = run("notify", "list", "--of", "ann").out.splitlines()
    assert head.split() == ["ID", "NAME", "TO", "ON", "SCOPES", "STATE", "SENT", "ERROR"]
    assert "end,idle" in line and "failing" in line and line.endswith("the receiver answered 500")
    assert gateway.requests[-1].url.params["of"] == "ann"
    gateway.on("GET", "/v1/notifications", page())
    assert run("notify", "list").out == "no rules; fairlead notify add makes one\n"


def test_rules_are_removed_and_tested(gateway: GatewayStub, run: Run) -> None:
    """A test that does not arrive is exit code 1, with the reason."""
    gateway.on("DELETE", "/v1/notifications/n1", {"id": "n1", "removed": True, "sequence": 40})
    assert run("notify", "remove", "n1").out == "n1 removed\n"
    gateway.on("POST", "/v1/notifications/n1:test", {"sent": True, "error": ""})
    assert run("notify", "test", "n1").out == "n1 delivered\n"
    gateway.on("POST", "/v1/notifications/n1:test", {"sent": False, "error": "the receiver answered 404"})
    ran = run("notify", "test", "n1")
    assert (ran.code, ran.out) == (1, "") and "the receiver answered 404" in ran.err
