"""Sign-in over HTTP: local users, links, refreshed sign-ins, sign-out. Every refusal is the same, and nothing typed is logged."""

from typing import Any

import httpx
import pytest

from fairlead_gateway.access.accounts import SignInAt
from fairlead_gateway.access.caller import IDLE_NS
from fairlead_gateway.access.passwords import ATTEMPTS_PER_MINUTE
from fairlead_gateway.access.upkeep import AccountUpkeep
from fairlead_gateway.errors import HttpError
from fairlead_schemas.units.token_text import check
from tests.gateway.access.accounts_world import PASSWORD, AccountsWorld

ORIGIN = {"origin": "http://localhost"}
JSON = {"accept": "application/json"}


async def sign_in(world: AccountsWorld, login: str = "ann", password: str = PASSWORD, **headers: str) -> Any:
    """POST a sign-in; the answer."""
    return await world.send("POST", "/v1/sign-in/local", {"login": login, "password": password}, token="", **headers)


async def refresh(world: AccountsWorld, token: str) -> Any:
    """POST a refresh; the answer."""
    return await world.http.post("/v1/token", data={"grant_type": "refresh_token", "refresh_token": token})


async def test_a_browser_gets_a_cookie_that_no_script_reads() -> None:
    """Signed in by name and password: the cookie's value is the session, it opens what a page asks for, and it ends at sign-out."""
    async with AccountsWorld() as world:
        await world.person("ann")
        answer = await sign_in(world, **ORIGIN)
        assert answer.status_code == 200 and answer.json()["login"] == "ann"
        assert answer.headers["cache-control"] == "no-store"
        cookie = answer.headers["set-cookie"]
        name, _, rest = cookie.partition("=")
        assert name == "fairlead"
        assert rest.split("; ")[1:] == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Lax"]
        assert len(rest.split(";")[0]) == 43
        sent = {"cookie": cookie.split(";")[0]}
        assert (await world.send("GET", "/v1/whoami", token="", **sent)).json()["login"] == "ann"
        gone = await world.send("POST", "/v1/sign-out", token="", **sent, **ORIGIN)
        assert gone.status_code == 200 and "Max-Age=0" in gone.headers["set-cookie"]
        assert (await world.send("GET", "/v1/whoami", token="", **sent)).status_code == 401


async def test_each_sign_in_is_a_new_session_and_ends_the_one_before() -> None:
    """A session that a person planted in the browser is not continued."""
    async with AccountsWorld() as world:
        await world.person("ann")
        first = (await sign_in(world, **ORIGIN)).headers["set-cookie"].split(";")[0]
        second = (await sign_in(world, **ORIGIN, cookie=first)).headers["set-cookie"].split(";")[0]
        assert first != second
        statuses = [
            (await world.send("GET", "/v1/whoami", token="", cookie=each)).status_code for each in (first, second)
        ]
        assert statuses == [401, 200]


async def test_every_failed_sign_in_has_the_same_answer() -> None:
    """Wrong password, unknown name, no possible name, suspended, without a password: the bytes differ in the request's id alone."""
    async with AccountsWorld() as world:
        for login in ("ann", "eve"):
            await world.person(login)
        await world.ask("POST", "/v1/people/eve:suspend")
        await world.ask("POST", "/v1/people", {"login": "bare"}, status=201)
        tries = [
            ("ann", "wrong password"),
            ("nemo", PASSWORD),
            ("No Such\nName", PASSWORD),
            ("eve", PASSWORD),
            ("bare", ""),
        ]
        documents = []
        for login, password in tries:
            answer = await sign_in(world, login, password)
            documents.append((answer.status_code, {**answer.json(), "request_id": ""}))
        assert documents == [documents[0]] * len(tries) and documents[0][0] == 401


async def test_sign_ins_are_bounded_before_anything_is_hashed(capfd: pytest.CaptureFixture[str]) -> None:
    """The sixth try of a minute is refused with 429, also with the right password; names of 1 MiB are refused unread, and what was typed
    is in no log."""
    async with AccountsWorld() as world:
        await world.person("ann")
        answers = [await sign_in(world, "ann", "canary-password") for _ in range(ATTEMPTS_PER_MINUTE)]
        answers.append(await sign_in(world))
        assert [answer.status_code for answer in answers] == [401] * ATTEMPTS_PER_MINUTE + [429]
        assert int(answers[-1].headers["retry-after"]) > 0
        assert (await sign_in(world, "x" * 2**20)).status_code == 413
        assert (await sign_in(world, "canary\nname")).status_code == 429  # the address has no room left
    captured = capfd.readouterr()
    assert "canary" not in captured.out + captured.err
    assert "sign-in refused" in captured.out + captured.err


async def test_a_page_of_others_signs_nobody_in() -> None:
    """A form of another site cannot sign a visitor in as the attacker: neither with its origin, nor without any."""
    async with AccountsWorld() as world:
        await world.person("ann")
        assert (await sign_in(world, origin="https://evil.example")).status_code == 403
        form = {"login": "ann", "password": PASSWORD}
        for sent in ({}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            assert (await world.http.post("/v1/sign-in/local", data=form, headers=sent)).status_code == 403


async def test_a_refused_form_is_answered_by_a_page() -> None:
    """It leads back to the sign-in, with the path that was wanted; a program gets the document."""
    async with AccountsWorld() as world:
        form = {"login": "owner", "password": "wrong", "to": "/v1/jobs?state=running"}
        page = await world.http.post("/v1/sign-in/local", data=form, headers=ORIGIN)
        assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
        assert "/sign-in?to=%2Fv1%2Fjobs%3Fstate%3Drunning" in page.text and "set-cookie" not in page.headers
        used = await world.http.post("/v1/sign-in/link", data={"code": "used"}, headers=ORIGIN)
        assert used.status_code == 403 and "Sign in again" in used.text
        wrong = {"login": "owner", "password": "wrong"}
        document = await world.http.post("/v1/sign-in/local", json=wrong, headers=ORIGIN)
        assert (document.status_code, document.headers["content-type"]) == (401, "application/problem+json")


async def test_a_program_gets_a_session_of_an_hour_and_refreshes_it() -> None:
    """Access and refresh token are of their kinds; a refresh gives new ones, the former access token ends, and the new session is as
    old as the sign-in, so it does not become fresh."""
    async with AccountsWorld() as world:
        await world.person("ann")
        first = (await sign_in(world, **JSON)).json()
        assert (check(first["access_token"]), check(first["refresh_token"]), first["expires_in"]) == ("p", "r", 3600)
        assert (await world.ask("GET", "/v1/whoami", token=first["access_token"]))["login"] == "ann"
        await world.ask("GET", "/v1/whoami", token=first["refresh_token"], status=401)
        second = (await refresh(world, first["refresh_token"])).json()
        await world.ask("GET", "/v1/whoami", token=first["access_token"], status=401)
        who = await world.ask("GET", "/v1/whoami", token=second["access_token"])
        signed_in_ns = await world.gateway.accounts.signed_in_ns(who["via"].partition(":")[2])
        note = await world.gateway.accounts.credentials.note("session", who["via"].partition(":")[2])
        assert note is not None and signed_in_ns < note.made_ns


async def test_a_refresh_token_that_is_used_twice_ends_the_whole_sign_in() -> None:
    """The copy of a thief and that of the owner both end, whichever came first (A13). Another sign-in of the person continues."""
    async with AccountsWorld() as world:
        await world.person("ann")
        stolen, other = (await sign_in(world, **JSON)).json(), (await sign_in(world, **JSON)).json()
        thief = (await refresh(world, stolen["refresh_token"])).json()
        again = await refresh(world, stolen["refresh_token"])
        assert (again.status_code, again.json().get("type")) == (400, "urn:fairlead:problem:invalid_grant")
        await world.ask("GET", "/v1/whoami", token=thief["access_token"], status=401)
        assert (await refresh(world, thief["refresh_token"])).status_code == 400
        assert (await refresh(world, other["refresh_token"])).status_code == 200


async def test_a_refresh_token_ends_with_sign_out_and_with_suspension() -> None:
    """Signed out or suspended, nothing opens another session."""
    async with AccountsWorld() as world:
        await world.person("ann")
        first, second = (await sign_in(world, **JSON)).json(), (await sign_in(world, **JSON)).json()
        await world.ask("POST", "/v1/sign-out", token=first["access_token"])
        assert (await refresh(world, first["refresh_token"])).status_code == 400
        await world.ask("POST", "/v1/people/ann:suspend")
        assert (await refresh(world, second["refresh_token"])).status_code == 400
        await world.ask("GET", "/v1/whoami", token=second["access_token"], status=401)


async def test_a_link_signs_in_once() -> None:
    """The page only confirms; the post signs in, once, and a second one is refused. A session's link is of its own principal."""
    async with AccountsWorld() as world:
        link = await world.ask("POST", "/v1/sign-in/links")
        page = await world.http.get(link["path"])
        assert page.status_code == 200 and "form-action 'self'" in page.headers["content-security-policy"]
        assert "set-cookie" not in page.headers
        code = link["path"].partition("code=")[2]
        form = {"content-type": "application/x-www-form-urlencoded", **ORIGIN}
        signed_in = await world.http.post("/v1/sign-in/link", content=f"code={code}", headers=form)
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/")
        cookie = signed_in.headers["set-cookie"].split(";")[0]
        assert (await world.send("GET", "/v1/whoami", token="", cookie=cookie)).json()["login"] == "owner"
        world.http.cookies.clear()  # with the cookie both would be refused for want of a page
        for used in (code, "x" * 200):
            refused = await world.ask("POST", "/v1/sign-in/link", {"code": used}, token="", status=403)
            assert refused["type"].endswith("bad_link")


async def test_the_page_of_a_link_shows_a_code_as_text() -> None:
    """Markup in the code stays text."""
    async with AccountsWorld() as world:
        page = await world.http.get("/sign-in/link", params={"code": '"><script>alert(1)</script>'})
        assert "<script" not in page.text


async def test_an_unused_session_ends_after_an_hour_unless_another_gateway_sees_it_used() -> None:
    """Idle by this gateway's memory, it is looked up again: a use that another one stored keeps it, without one it is refused and
    its end is recorded."""
    async with AccountsWorld() as world:
        person = await world.person("ann")
        session, text = await world.session(person)
        gateway, now = world.gateway, world.gateway.accounts._clock
        await world.ask("GET", "/v1/whoami", token=text)
        ahead = [IDLE_NS + 1]
        gateway.callers._clock = gateway.accounts.credentials._clock = lambda: now() + ahead[0]
        await gateway.accounts.credentials.used(session, now() + ahead[0])
        await world.ask("GET", "/v1/whoami", token=text)
        ahead[0] *= 3
        refused = await world.ask("GET", "/v1/whoami", token=text, status=401)
        assert refused["why"]["reason"] in ("session_ended", "unknown", "idle")
        upkeep = AccountUpkeep(gateway.views, gateway.callers, gateway.accounts, lambda: True)
        await world.ask("GET", "/v1/whoami", token=text, status=401)
        assert session in gateway.upkeep._idle | upkeep._idle
        upkeep._idle |= gateway.upkeep._idle
        await upkeep.end_idle()
        assert session not in gateway.views.access.sessions


async def test_a_browser_signs_in_over_https_or_on_this_machine() -> None:
    """Over plain HTTP from another machine the session would be readable on the way; over https the cookie is bound to the host."""
    async with AccountsWorld() as world:
        await world.person("ann")
        body = {"login": "ann", "password": PASSWORD}
        secure = await world.http.post(
            "https://localhost/v1/sign-in/local", json=body, headers={"origin": "https://localhost"}
        )
        assert secure.headers["set-cookie"].startswith("__Host-fairlead=")
        assert secure.headers["set-cookie"].endswith("; Secure")
        transport = httpx.ASGITransport(world.gateway.app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as far:
            answer = await far.post("/v1/sign-in/local", json=body, headers=ORIGIN)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:fairlead:problem:needs_https")


async def test_a_browser_that_signs_in_over_a_commands_session_ends_its_refresh_token() -> None:
    """The session that the request carried is replaced; nothing reopens it."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        former = await world.gateway.accounts.open_cli(ann, SignInAt("local"))
        await sign_in(world, authorization=f"Bearer {former.access}")
        await world.ask("GET", "/v1/whoami", token=former.access, status=401)
        with pytest.raises(HttpError, match="not in force"):
            await world.gateway.accounts.refresh(former.refresh)


async def test_a_crash_within_a_sign_out_leaves_no_refresh_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refresh token ends first: what is left of the sign-in ends within the hour by itself."""
    async with AccountsWorld() as world:
        ann, accounts = await world.person("ann"), world.gateway.accounts
        opened = await accounts.open_cli(ann, SignInAt("local"))

        async def crash(*_: object) -> None:
            raise RuntimeError("crash")

        monkeypatch.setattr(accounts, "end_session", crash)
        with pytest.raises(RuntimeError, match="crash"):
            await accounts.end_sign_in(ann, opened.session, "signed_out")
        assert (await refresh(world, opened.refresh)).status_code == 400
