"""`login`, `logout`, `whoami`, `context`, and the credential that a command sends."""

import os
import stat
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import msgspec
import pytest

from fairlead.client import browser_sign_in, contexts, sign_in
from fairlead.client.contexts import StoredTokens
from fairlead.client.sign_in import StoredSignIn
from fairlead.stack import state
from tests.cli.conftest import Run
from tests.cli.gateway_stub import Answer, GatewayStub, page, problem

TOKENS: dict[str, Any] = {"access_token": "flp_a", "refresh_token": "flr_a", "expires_in": 3600, "token_type": "Bearer"}
ME: dict[str, Any] = {
    "principal": "p4k2m9x0q7abz",
    "login": "ann",
    "name": "Ann Lee",
    "kind": "person",
    "via": "session:i1",
    "expires_at": "2026-12-01T00:00:00.000Z",
    "groups": ["vision"],
    "roles": [
        {"subject": "p4k2m9x0q7abz", "role": "viewer", "scope": "cluster"},
        {"subject": "group:vision", "role": "member", "scope": "queue:research"},
    ],
    "sequence": 40,
}
STORED = "http://127.0.0.1:7000"


@pytest.fixture
def away(gateway: GatewayStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> GatewayStub:
    """A gateway without FAIRLEAD_URL, and a person in a folder without a stack."""
    monkeypatch.delenv("FAIRLEAD_URL")
    monkeypatch.delenv("FAIRLEAD_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    gateway.on("GET", "/v1/jobs", page())
    return gateway


def sent_by(gateway: GatewayStub) -> tuple[str, str | None, str | None]:
    """Address, credential and user of the last request."""
    last = gateway.requests[-1]
    address = f"{last.url.scheme}://{last.url.host}:{last.url.port}"
    return address, last.headers.get("Authorization"), last.headers.get("X-Fairlead-User")


def signed_in(name: str = "prod", url: str = STORED, tokens: StoredTokens | None = None) -> Path:
    """Store a context with a sign-in, as the current one; the path of the sign-in."""
    contexts.save(contexts.load().adding(name, url))
    path = contexts.sign_in_path(name)
    sign_in.store(path, tokens or StoredTokens("flp_a", "flr_a", int(time.time()) + 3600))
    return path


def test_a_local_user_signs_in_and_out(away: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens are readable by their owner only; from then on they are sent, and no user's name; after `logout` they are gone."""
    away.on("POST", "/v1/sign-in/local", TOKENS)
    away.on("POST", "/v1/sign-out", {"signed_out": True, "sequence": 41})
    monkeypatch.setattr("getpass.getpass", lambda prompt: "correct horse battery")
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    ran = run("login", "--local", "ann", STORED)
    assert (ran.code, ran.err) == (0, f"signed in at {STORED}; this is the context 127-0-0-1\n")
    assert away.bodies() == [{"login": "ann", "password": "correct horse battery"}]
    path = contexts.sign_in_path("127-0-0-1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run("jobs").code == 0
    assert sent_by(away) == (STORED, "Bearer flp_a", None)
    assert run("logout").err == "signed out of the context 127-0-0-1\n"
    assert not path.exists()
    assert run("logout").code == 3


def test_a_password_never_crosses_a_network_in_the_clear(away: GatewayStub, run: Run) -> None:
    """Plain HTTP is for this machine only."""
    ran = run("login", "--local", "ann", "http://gateway.test")
    assert (ran.code, away.requests) == (2, [])
    assert "is not encrypted" in ran.err


def test_whoami_names_roles_and_groups(gateway: GatewayStub, run: Run) -> None:
    """With the group by which one holds a role."""
    gateway.on("GET", "/v1/whoami", ME)
    assert run("whoami").out == (
        "login   ann\n"
        "name    Ann Lee\n"
        "id      p4k2m9x0q7abz\n"
        "kind    person\n"
        "via     session:i1\n"
        "until   2026-12-01T00:00:00.000Z\n"
        "groups  vision\n"
        "roles   viewer in cluster\n"
        "        member in queue:research by group:vision\n"
    )
    assert run("whoami", "-o", "name").out == "ann\n"


def test_me_is_the_principal_where_a_token_is_sent(
    gateway: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-u me` is whom the gateway takes the token for, not the login name here."""
    monkeypatch.setenv("FAIRLEAD_TOKEN", "flp_x")
    gateway.on("GET", "/v1/whoami", ME)
    gateway.on("GET", "/v1/jobs", page())
    assert run("jobs", "-u", "me").code == 0
    assert gateway.requests[-1].url.params["user"] == "ann"


def test_contexts_are_added_chosen_listed_and_removed(away: GatewayStub, run: Run) -> None:
    """The first is the current one; --context names another for one command."""
    assert run("context", "add", "prod", STORED).code == 0
    assert run("context", "add", "lab", "http://127.0.0.1:7001").code == 0
    assert run("context", "list").out == (
        "CURRENT  NAME  URL                    SIGNED-IN\n"
        "*        prod  http://127.0.0.1:7000  no\n"
        "-        lab   http://127.0.0.1:7001  no\n"
    )
    run("jobs")
    assert sent_by(away)[0] == STORED
    run("--context", "lab", "jobs")
    assert sent_by(away)[0] == "http://127.0.0.1:7001"
    os.environ.pop("FAIRLEAD_CONTEXT", None)
    assert run("context", "use", "lab").code == 0
    run("jobs")
    assert sent_by(away)[0] == "http://127.0.0.1:7001"
    assert run("context", "remove", "lab").code == 0
    assert run("context", "use", "lab").code == 3
    assert run("context", "add", "Not A Name", STORED).code == 2


def test_the_environment_takes_precedence(away: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAIRLEAD_URL over the current context, FAIRLEAD_TOKEN over its sign-in; a sign-in is only sent to its own address."""
    signed_in()
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:7002")
    run("jobs")
    assert sent_by(away) == ("http://127.0.0.1:7002", None, "ada")
    monkeypatch.setenv("FAIRLEAD_URL", STORED)
    run("jobs")
    assert sent_by(away) == (STORED, "Bearer flp_a", None)
    monkeypatch.setenv("FAIRLEAD_TOKEN", "flp_b")
    run("jobs")
    assert sent_by(away) == (STORED, "Bearer flp_b", None)
    assert run("--url", STORED, "--context", "prod", "jobs").code == 2


def test_the_owner_of_a_local_stack_needs_no_sign_in(
    away: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The token goes to the address in stack.json only, and only on the loopback interface."""
    data = tmp_path / ".fairlead"
    data.mkdir()
    (data / "owner.token").write_text("flp_owner\n")
    (data / "owner.token").chmod(0o600)
    there = state.StackState(
        url=STORED,
        nats_url="",
        supervisor=state.identify("up", os.getpid()),
        processes=[],
        ready=True,
        runtime="process",
        nodes=[],
    )
    state.save(data, there)
    run("jobs")
    assert sent_by(away) == (STORED, "Bearer flp_owner", None)
    (data / "owner.token").chmod(0o644)
    refused = run("jobs")
    assert refused.code == 2 and "expected mode 0600" in refused.err
    (data / "owner.token").chmod(0o600)
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:7009")
    run("jobs")
    assert sent_by(away)[1] is None
    state.save(data, msgspec.structs.replace(there, url="http://192.0.2.1:7000"))
    monkeypatch.setenv("FAIRLEAD_URL", "http://192.0.2.1:7000")
    run("jobs")
    assert sent_by(away)[1] is None


def test_a_sign_in_that_others_can_read_is_refused(away: GatewayStub, run: Run) -> None:
    """With what to do."""
    path = signed_in()
    path.chmod(0o644)
    ran = run("jobs")
    assert (ran.code, away.requests) == (2, [])
    assert "expected mode 0600" in ran.err


class Renewals:
    """Route that renews sign-ins, where a refresh token counts once."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def __call__(self, request: httpx.Request) -> Answer:
        form = dict(parse_qsl(request.content.decode()))
        assert form["grant_type"] == "refresh_token"
        self.taken.append(form["refresh_token"])
        if self.taken.count(form["refresh_token"]) > 1:
            return problem(400, "this refresh token is not in force")
        number = len(self.taken)
        return 200, {**TOKENS, "access_token": f"flp_{number}", "refresh_token": f"flr_{number}"}


@pytest.fixture
def renewals(away: GatewayStub) -> Renewals:
    """The route, at the stub. OpenAPI documents no form, so the stub is not held to it."""
    found = Renewals()
    away.foreign = True
    away.answers[("POST", "/v1/token")] = found
    return found


def test_a_token_that_expires_soon_is_renewed_first(away: GatewayStub, run: Run, renewals: Renewals) -> None:
    """And kept for the next command."""
    path = signed_in(tokens=StoredTokens("flp_a", "flr_a", int(time.time()) + 5))
    assert run("jobs").code == 0
    assert sent_by(away) == (STORED, "Bearer flp_1", None)
    kept = contexts.read_sign_in(path)
    assert kept is not None
    assert (kept.access_token, kept.refresh_token) == ("flp_1", "flr_1")
    run("jobs")
    assert (renewals.taken, sent_by(away)[1]) == (["flr_a"], "Bearer flp_1")


def test_a_refused_token_is_renewed_once(away: GatewayStub, run: Run, renewals: Renewals) -> None:
    """The request is sent again with the new one; where that is refused, too, the error is the gateway's."""
    signed_in()
    good = "flp_1"

    def jobs(request: httpx.Request) -> Answer:
        fits = request.headers["Authorization"] == f"Bearer {good}"
        return (200, page()) if fits else problem(401, "expired", why={"reason": "expired"})

    away.answers[("GET", "/v1/jobs")] = jobs
    assert run("jobs").code == 0
    good = "another"
    ran = run("jobs")
    assert (ran.code, renewals.taken) == (4, ["flr_a", "flr_1"])
    assert ran.err == "error: expired\nhint: fairlead login\n"


def test_two_commands_at_once_use_a_refresh_token_once(away: GatewayStub, renewals: Renewals) -> None:
    """The second takes what the first has stored: a refresh token that is sent twice ends the sign-in."""
    expired = StoredTokens("flp_a", "flr_a", 1)
    path = signed_in(tokens=expired)
    both = [StoredSignIn(path, STORED, expired) for _ in range(4)]
    threads = [threading.Thread(target=each.refresh) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert renewals.taken == ["flr_a"]
    assert [each.token for each in both] == ["flp_1"] * 4


def test_a_sign_in_that_has_ended_is_an_error(away: GatewayStub, run: Run, renewals: Renewals) -> None:
    """The old token is sent once, and the gateway says why it does not count."""
    renewals.taken.append("flr_a")
    signed_in(tokens=StoredTokens("flp_a", "flr_a", 1))
    away.answers[("GET", "/v1/jobs")] = problem(401, "your session has ended", why={"reason": "session_ended"})
    ran = run("jobs")
    assert (ran.code, ran.err) == (4, "error: your session has ended\nhint: fairlead login\n")
    assert renewals.taken == ["flr_a", "flr_a"]


def test_a_device_sign_in_waits_for_the_person(away: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code and the page are printed; `slow_down` makes the interval longer (RFC 8628)."""
    away.foreign = True
    code = {"device_code": "d", "user_code": "BCDF-GHJK", "verification_uri": "http://g/device", "expires_in": 600}
    answers = iter([(400, {"error": "authorization_pending"}), problem(400, "", type="urn:x:slow_down"), (200, TOKENS)])
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    away.on("POST", "/v1/device/code", code)
    away.answers[("POST", "/v1/device/token")] = lambda _: next(answers)
    ran = run("login", "--device", STORED)
    assert ran.code == 0
    assert "open http://g/device and type the code BCDF-GHJK\n" in ran.err
    assert pauses == [5, 5, 10]


def test_a_refused_device_sign_in_is_an_error(away: GatewayStub, run: Run) -> None:
    """Nothing is stored."""
    away.foreign = True
    code = {"device_code": "d", "user_code": "B", "verification_uri": "http://g/device", "expires_in": 600}
    away.on("POST", "/v1/device/code", code)
    away.answers[("POST", "/v1/device/token")] = (403, {"error": "access_denied"})
    assert run("login", "--device", STORED).code == 4
    assert contexts.load().contexts == {}


@pytest.mark.parametrize("refusal", ["", "access_denied"])
def test_a_browser_sign_in_takes_the_redirect_with_its_own_state(
    away: GatewayStub, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    """A request with another state is answered with 404 and changes nothing; the code is exchanged with the verifier."""
    away.foreign = True
    away.on("POST", "/v1/token", TOKENS)
    opened: list[int] = []

    def visit(target: str) -> None:
        query = httpx.URL(target).params
        back = query["redirect_uri"]
        assert (httpx.URL(target).path, query["code_challenge_method"]) == ("/sign-in-command", "S256")
        opened.append(httpx.get(back, params={"state": "forged", "code": "x"}).status_code)
        answer = {"error": refusal} if refusal else {"code": "c1"}
        opened.append(httpx.get(back, params={"state": query["state"], **answer}).status_code)

    visitors: list[threading.Thread] = []

    def browser(target: str) -> bool:
        visitors.append(threading.Thread(target=visit, args=(target,)))
        visitors[-1].start()
        return True

    monkeypatch.setattr("webbrowser.open", browser)
    if refusal:
        with pytest.raises(browser_sign_in.Denied, match="access_denied"):
            browser_sign_in.by_browser(STORED, lambda text: None)
    else:
        assert browser_sign_in.by_browser(STORED, lambda text: None).access_token == "flp_a"  # of the stub
        form = dict(parse_qsl(away.requests[-1].content.decode()))
        assert (form["code"], form["grant_type"]) == ("c1", "authorization_code")
        assert len(form["code_verifier"]) >= 43
    visitors[0].join()
    assert opened == [404, 200]
