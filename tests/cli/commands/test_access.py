"""`access`, `people`, `service-accounts`, `tokens` and refusals for want of a right, against a stub gateway."""

from io import StringIO
from typing import Any

import msgspec
import pytest

from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, page, problem

PERSON: dict[str, Any] = {
    "id": "p4k2m9x0q7abz",
    "login": "ann",
    "name": "Ann Lee",
    "email": "",
    "kind": "person",
    "state": "active",
    "source": "local",
    "tokens": 1,
    "sessions": 0,
    "sequence": 40,
}
GRANT: dict[str, Any] = {
    "subject": "p4k2m9x0q7abz",
    "subject_name": "ann",
    "role": "member",
    "scope": "queue:research/vision",
    "sources": ["person"],
}
TOKEN: dict[str, Any] = {
    "id": "t1",
    "name": "ci",
    "kind": "person",
    "principal": "p4k2m9x0q7abz",
    "verbs": ["job:read"],
    "scopes": [],
    "expires_at": "2026-12-01T00:00:00.000Z",
    "made_at": None,
    "used_at": None,
}


@pytest.mark.parametrize(("group", "path"), [("access", "/v1/access"), ("notify", "/v1/notifications")])
def test_a_group_without_a_verb_lists(gateway: GatewayStub, run: Run, group: str, path: str) -> None:
    """As `fairlead queues` and `fairlead prices` do."""
    gateway.on("GET", path, page())
    bare, listed = run(group), run(group, "list")
    assert (bare.code, bare.out) == (listed.code, listed.out) == (0, listed.out) and listed.out
    assert "grant" in run("access", "--help").out


@pytest.mark.parametrize(
    ("word", "scope"),
    [
        ("queue:research/vision", "queue:research/vision"),
        ("research/vision", "queue:research/vision"),
        ("812", "job:812"),
        ("cluster", "cluster"),
        ("pool:a100", "pool:a100"),
    ],
)
def test_a_grant_is_a_sentence(gateway: GatewayStub, run: Run, word: str, scope: str) -> None:
    """Subject, role, scope, in this order; a bare path is a queue, a bare number a job."""
    gateway.on("POST", "/v1/access:grant", {**GRANT, "scope": scope})
    ran = run("access", "grant", "ann", "member", word)
    assert (ran.code, ran.out) == (0, f"ann is member in {scope}\n")
    assert gateway.bodies() == [{"subject": "ann", "role": "member", "scope": scope}]


@pytest.mark.parametrize(
    ("sources", "words"),
    [([], "ann is no longer member in"), (["people.toml"], "ann still is, by people.toml, member in")],
)
def test_a_revocation_reports_what_still_states_the_role(
    gateway: GatewayStub, run: Run, sources: list[str], words: str
) -> None:
    """A file may state the same grant."""
    gateway.on("POST", "/v1/access:revoke", {**GRANT, "sources": sources})
    assert run("access", "revoke", "ann", "member", "research/vision").out == f"{words} queue:research/vision\n"


def test_grants_are_listed(gateway: GatewayStub, run: Run) -> None:
    """As a table, with filters sent; JSON is the API's shape."""
    gateway.on("GET", "/v1/access", page(GRANT))
    ran = run("access", "list", "--scope", "research/vision")
    assert ran.out == "SUBJECT  ROLE    SCOPE\nann      member  queue:research/vision\n"
    assert gateway.requests[-1].url.params["scope"] == "queue:research/vision"
    assert msgspec.json.decode(run("access", "list", "-o", "json").out) == page(GRANT)


def test_why_names_what_is_missing_and_who_could_grant_it(gateway: GatewayStub, run: Run) -> None:
    """At a sequence of the past, too."""
    answer = {
        "allowed": False,
        "sentence": "ann may not job:cancel on queue:research/vision",
        "grants": [],
        "missing": "job:cancel",
        "givers": ["bob"],
        "sequence": 81234,
    }
    gateway.on("GET", "/v1/access/why", answer)
    ran = run("access", "why", "ann", "job:cancel", "research/vision", "--at", "81234")
    assert ran.out == (
        "answer       ann may not job:cancel on queue:research/vision\n"
        "missing      job:cancel\n"
        "could grant  bob\n"
        "as of        sequence 81234\n"
    )
    assert dict(gateway.requests[-1].url.params) == {
        "subject": "ann",
        "verb": "job:cancel",
        "on": "queue:research/vision",
        "at": "81234",
    }


def test_a_refusal_names_the_missing_right(gateway: GatewayStub, run: Run) -> None:
    """What is missing, what one holds, who could grant it, which the hint does not repeat; JSON has the problem itself."""
    why = {"verb": "job:cancel", "on": "job:812", "roles": ["ann is viewer in cluster"], "givers": ["bob", "group:ops"]}
    answer = problem(403, "you may not job:cancel on job:812", hint="bob could grant it", why=why)
    gateway.answers[("POST", "/v1/jobs/812:cancel")] = answer
    ran = run("cancel", "812")
    assert ran.code == 4
    assert ran.err == (
        "error: you may not job:cancel on job:812\n"
        "  missing: job:cancel on job:812\n"
        "  you hold: ann is viewer in cluster\n"
        "  could grant it: bob, group:ops\n"
    )
    assert msgspec.json.decode(run("cancel", "812", "-o", "json").err)["why"] == why


def test_a_refusal_of_a_limited_token_says_so(gateway: GatewayStub, run: Run) -> None:
    """A grant would not help."""
    why = {"verb": "job:cancel", "on": "job:812", "token": True}
    gateway.answers[("POST", "/v1/jobs/812:cancel")] = problem(403, "you may not", why=why)
    assert "you have it, but this token is limited to less" in run("cancel", "812").err


def test_a_caller_without_a_credential_reads_how_to_sign_in(gateway: GatewayStub, run: Run) -> None:
    """401 has no missing verb."""
    gateway.answers[("GET", "/v1/jobs")] = problem(401, "sign in first", why={"reason": "no_credential"})
    ran = run("jobs")
    assert (ran.code, ran.err) == (4, "error: sign in first\nhint: fairlead login\n")


def test_people_are_added_listed_suspended_and_forgotten(
    gateway: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password is never a word of the command line."""
    gateway.on("POST", "/v1/people", PERSON)
    gateway.on("GET", "/v1/people", page(PERSON))
    gateway.on("POST", "/v1/people/ann:suspend", {**PERSON, "state": "suspended"})
    gateway.on("POST", "/v1/people/ann:forget", {"id": PERSON["id"], "forgotten": True, "sequence": 41})
    monkeypatch.setattr("sys.stdin", StringIO("correct horse battery\n"))
    added = run("people", "add", "ann", "--name", "Ann Lee", "--password")
    assert added.out == "ann added as p4k2m9x0q7abz; no role yet: fairlead access grant ann …\n"
    assert gateway.bodies()[-1] == {"login": "ann", "name": "Ann Lee", "password": "correct horse battery"}
    assert run("people", "list").out == (
        "LOGIN  NAME     STATE   TOKENS  SIGN-INS  ID\nann    Ann Lee  active       1         0  p4k2m9x0q7abz\n"
    )
    assert run("people", "suspend", "ann").out == "ann suspended\n"
    assert run("people", "forget", "ann", "--yes").out == "ann forgotten\n"


def test_forgetting_is_confirmed(gateway: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --yes and without an answer, nothing is sent."""
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    ran = run("people", "forget", "ann")
    assert (ran.code, gateway.requests) == (1, [])


def test_a_service_account_gets_a_token(gateway: GatewayStub, run: Run) -> None:
    """Only the token's text is on stdout, so that a script can take it."""
    gateway.on("POST", "/v1/service-accounts", {**PERSON, "login": "ci", "kind": "service"})
    made = {"id": "t1", "token": "fls_secret", "expires_at": "2026-12-01T00:00:00.000Z", "sequence": 41}
    gateway.on("POST", "/v1/tokens", made)
    assert run("service-accounts", "add", "ci", "-o", "name").out == "service-account/ci\n"
    ran = run(
        "tokens", "create", "nightly", "--for", "ci", "--verb", "job:submit", "--scope", "ci", "--expires-in", "7d"
    )
    assert (ran.out, ran.err) == (
        "fls_secret\n",
        "token t1, which expires at 2026-12-01T00:00:00.000Z; its text is not shown again\n",
    )
    assert gateway.bodies()[-1] == {
        "name": "nightly",
        "for": "ci",
        "verbs": ["job:submit"],
        "scopes": ["queue:ci"],
        "expires_in": "7d",
    }


def test_tokens_are_listed_and_revoked(gateway: GatewayStub, run: Run) -> None:
    """One that cannot be revoked keeps none of the others; the exit code says so."""
    gateway.on("GET", "/v1/tokens", page(TOKEN))
    gateway.on("DELETE", "/v1/tokens/t1", {"id": "t1", "revoked": True, "sequence": 41})
    assert run("tokens", "list").out == (
        "ID  NAME  VERBS     SCOPES            EXPIRES                   USED\n"
        "t1  ci    job:read  all of its owner  2026-12-01T00:00:00.000Z  never\n"
    )
    ran = run("tokens", "revoke", "t2", "t1")
    assert (ran.code, ran.out) == (3, "t1 revoked\n")


def test_the_record_of_access_names_who_looked(gateway: GatewayStub, run: Run) -> None:
    """The newest first; a chain that was changed is noted on stderr."""
    gateway.foreign = True  # OpenAPI has this path where the gateway serves the record
    item = {
        "at": "2026-11-24T10:00:00.000Z",
        "kind": "read",
        "principal": "p1",
        "login": "bob",
        "via": "session:i1",
        "verb": "job:read",
        "target": "job:812",
        "owner": "p2",
        "count": 3,
    }
    gateway.on("GET", "/v1/audit/access", {"items": [item], "sequence": 40, "broken": "record 2", "next": "7.0"})
    ran = run("audit", "access", "--from", "2026-11-01T00:00:00Z")
    assert ran.out == (
        "TIME                      WHAT  WHO  VERB      TARGET   TIMES\n"
        "2026-11-24T10:00:00.000Z  read  bob  job:read  job:812      3\n"
    )
    assert (
        ran.err
        == "there are earlier ones: --next 7.0\nthe record was changed and is shown as far as it is whole: record 2\n"
    )
    assert dict(gateway.requests[-1].url.params) == {"about": "me", "from": "2026-11-01T00:00:00Z"}
    run("audit", "access", "--next", "7.0", "-n", "5")
    assert dict(gateway.requests[-1].url.params) == {"about": "me", "limit": "5", "continue": "7.0"}
