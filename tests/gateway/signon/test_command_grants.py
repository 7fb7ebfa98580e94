"""Sign-in of commands and of CI jobs over HTTP: a typed code, a redirect to this machine, an exchanged job token."""

import base64
import hashlib
from typing import Any

import httpx
import pytest

from fairlead_gateway.access.accounts import SignInAt
from fairlead_gateway.signon import exchange
from fairlead_gateway.signon.command_grants import TRIES_MAX, USER_CODE_LETTERS
from fairlead_schemas.units.token_text import check
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.signon.exchange_rule import RULE, with_rule
from tests.kit.token_issuer import CLIENT, ISSUER, NOW_S, claims, sign

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
ORIGIN = {"origin": "http://localhost"}


async def browser(world: AccountsWorld, login: str = "ann") -> dict[str, str]:
    """Make a person with a session in a browser; the headers of its pages."""
    principal = await world.person(login)
    _, text = await world.gateway.accounts.open_session(principal, SignInAt("local"))
    return {"cookie": f"fairlead={text}", **ORIGIN}


async def begin(world: AccountsWorld, machine: str = "node-7") -> dict[str, Any]:
    """Begin a device sign-in; the answer."""
    return (await world.http.post("/v1/device/code", data={"machine": machine})).json()


async def poll(world: AccountsWorld, code: str) -> httpx.Response:
    """Poll for the tokens."""
    return await world.http.post("/v1/device/token", data={"grant_type": DEVICE_GRANT, "device_code": code})


async def type_in(world: AccountsWorld, headers: dict[str, str], code: str, answer: str = "") -> httpx.Response:
    """Type a code into the page; with an answer also send that."""
    fields = {"user_code": code, **({"answer": answer} if answer else {})}
    return await world.http.post("/device/answer" if answer else "/device", data=fields, headers=headers)


async def test_a_command_without_a_browser_signs_in_by_a_typed_code() -> None:
    """The page shows machine and address before anything is given; the tokens are given once."""
    async with AccountsWorld() as world:
        headers, begun = await browser(world), await begin(world, "node-7 <b>")
        plain = begun["user_code"].replace("-", "")
        assert len(plain) == 8 and set(plain) <= set(USER_CODE_LETTERS) and "verification_uri_complete" not in begun
        assert (await poll(world, begun["device_code"])).json() == {"error": "authorization_pending"}
        page = await type_in(world, headers, begun["user_code"].lower())
        assert "node-7 &lt;b&gt;" in page.text and "127.0.0.1" in page.text and "<b>" not in page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert (await poll(world, begun["device_code"])).json()["error"] in ("slow_down", "authorization_pending")
        await type_in(world, headers, begun["user_code"], "allow")
        tokens = (await poll(world, begun["device_code"])).json()
        assert check(tokens["refresh_token"]) == "r"
        assert (await world.ask("GET", "/v1/whoami", token=tokens["access_token"]))["login"] == "ann"
        assert (await poll(world, begun["device_code"])).json() == {"error": "expired_token"}


async def test_a_hasty_command_is_slowed_down() -> None:
    """Each poll that comes too soon adds five seconds."""
    async with AccountsWorld() as world:
        begun = await begin(world)
        errors = [(await poll(world, begun["device_code"])).json()["error"] for _ in range(3)]
        assert errors == ["authorization_pending", "slow_down", "slow_down"]


async def test_a_refused_command_and_a_stolen_code_get_nothing() -> None:
    """A device code that is made up is as good as an expired one."""
    async with AccountsWorld() as world:
        headers, begun = await browser(world), await begin(world)
        await type_in(world, headers, begun["user_code"], "deny")
        assert (await poll(world, begun["device_code"])).json() == {"error": "access_denied"}
        assert (await poll(world, "x" * 43)).json() == {"error": "expired_token"}


async def test_codes_cannot_be_guessed() -> None:
    """After five wrong ones the session types none for ten minutes, not even the right one."""
    async with AccountsWorld() as world:
        headers, begun = await browser(world), await begin(world)
        for _ in range(TRIES_MAX):
            assert (await type_in(world, headers, "BBBB-BBBB")).status_code == 404
        for answer in ("", "allow"):
            assert (await type_in(world, headers, begun["user_code"], answer)).status_code == 429
        assert (await type_in(world, await browser(world, "eve"), begun["user_code"])).status_code == 200


async def test_only_a_page_of_ours_in_a_browser_session_allows_a_command() -> None:
    """A token cannot, nor another site's form; a link that carries the code types nothing in."""
    async with AccountsWorld() as world:
        headers, begun = await browser(world), await begin(world)
        link = await world.http.get(f"/device?user_code={begun['user_code']}", headers=headers)
        assert link.status_code == 422 and begun["user_code"] not in link.text.split("detail")[0]
        for sent in ({"authorization": f"Bearer {world.owner}"}, {**headers, "origin": "https://evil.example"}, {}):
            assert (await type_in(world, sent, begun["user_code"], "allow")).status_code in (401, 403)
        assert (await poll(world, begun["device_code"])).json() == {"error": "authorization_pending"}
        page = await world.http.get("/device")
        assert page.status_code == 303 and page.headers["location"] == "/sign-in?to=%2Fdevice"


async def test_a_command_on_this_machine_signs_in_by_a_redirect() -> None:
    """The page asks first; the code is bound to the verifier and to the address, and works once."""
    async with AccountsWorld() as world:
        headers = await browser(world)
        verifier = "v" * 43
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {"redirect_uri": "http://127.0.0.1:5/done", "code_challenge": challenge, "state": "s t"}
        page = await world.http.get("/sign-in-command", params=asked, headers=headers)
        assert "form-action 'self' http://127.0.0.1:5;" in page.headers["content-security-policy"]

        async def redeem(**more: str) -> httpx.Response:
            allowed = await world.http.post("/sign-in-command", data=asked, headers=headers)
            code, _, state = (
                allowed.headers["location"].removeprefix("http://127.0.0.1:5/done?code=").partition("&state=")
            )
            assert state == "s%20t"
            form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier, **asked, **more}
            return await world.http.post("/v1/token", data=form)

        assert (await redeem(code_verifier="w" * 43)).json() == {"error": "invalid_grant"}
        assert (await redeem(redirect_uri="http://127.0.0.1:6/done")).json() == {"error": "invalid_grant"}
        tokens = (await redeem()).json()
        assert (await world.ask("GET", "/v1/whoami", token=tokens["access_token"]))["login"] == "ann"
        for bad in (
            "https://evil.example/",
            "http://127.0.0.1:5@evil.example/",
            "http://localhost:5/",
            "http://127.0.0.1/",
        ):
            sent = {**asked, "redirect_uri": bad}
            assert (await world.http.get("/sign-in-command", params=sent, headers=headers)).status_code == 403
            assert (await world.http.post("/sign-in-command", data=sent, headers=headers)).status_code == 400


async def test_what_a_session_allowed_ends_with_it_at_the_provider() -> None:
    """The command's session and its refresh token, of this sign-in alone."""
    async with AccountsWorld() as world:
        principal = await world.person("ann")
        accounts = world.gateway.accounts
        ended, kept = [await accounts.open_cli(principal, SignInAt("corp", sid)) for sid in ("s1", "s2")]
        assert await accounts.end_sessions_of("corp", "s1") == 2
        for tokens, status in ((ended, 401), (kept, 200)):
            assert (await world.send("GET", "/v1/whoami", token=tokens.access)).status_code == status
        forms = [{"grant_type": "refresh_token", "refresh_token": each.refresh} for each in (ended, kept)]
        assert [(await world.http.post("/v1/token", data=form)).status_code for form in forms] == [400, 200]


async def test_a_job_token_becomes_one_of_a_service_account() -> None:
    """By issuer, audience and subject as they are; every other token has one and the same answer."""
    async with AccountsWorld() as world:
        played, exchanged = await with_rule(world)
        job = {"aud": RULE.audience, "sub": RULE.subject, "nonce": ...}
        good = sign(played.key, "ES256", claims(**job))
        assert await exchanged(good) == {"error": "invalid_grant"}, "there is no such service account yet"
        await world.ask("POST", "/v1/service-accounts", {"login": "ci"}, status=201)
        answer = await exchanged(good)
        assert check(answer["access_token"]) == "s" and answer["expires_in"] == exchange.LIFE_S
        for wrong in (
            {"sub": RULE.subject + "x"},
            {"sub": "repo:lab/train:ref:refs/heads/*"},
            {"aud": CLIENT},
            {"iss": ISSUER + "/"},
            {"exp": NOW_S - 90},
            {"iat": NOW_S + 120},
            {"events": {}},
        ):
            token = sign(played.key, "ES256", claims(**{**job, **wrong}))
            assert await exchanged(token) == {"error": "invalid_grant"}, wrong
        for wrong in ("", "A" * 17_000, sign(played.key, "ES256", claims(**job), typ="at+jwt")):
            assert (await exchanged(wrong)) == {"error": "invalid_grant"}


async def test_one_job_token_does_not_fill_the_account() -> None:
    """Each step of a job may exchange it; the next job has its own count."""
    async with AccountsWorld() as world:
        played, exchanged = await with_rule(world)
        made = await world.ask("POST", "/v1/service-accounts", {"login": "ci"}, status=201)
        job = {"aud": RULE.audience, "sub": RULE.subject, "nonce": ...}
        token = sign(played.key, "ES256", claims(**job))
        answers = [await exchanged(token) for _ in range(exchange.EXCHANGES_MAX + 2)]
        assert [each.get("error", "") for each in answers[-3:]] == ["", "invalid_grant", "invalid_grant"]
        assert len(world.gateway.views.access.tokens_of[made["id"]]) == exchange.EXCHANGES_MAX
        assert "access_token" in await exchanged(sign(played.key, "ES256", claims(**job, jti="another")))


async def test_a_rule_names_a_service_account_alone() -> None:
    """A person's login in a rule gives nothing."""
    async with AccountsWorld() as world:
        played, exchanged = await with_rule(world)
        await world.person("ci")
        token = sign(played.key, "ES256", claims(aud=RULE.audience, sub=RULE.subject, nonce=...))
        assert await exchanged(token) == {"error": "invalid_grant"}


@pytest.mark.parametrize("to", ["//evil.example", "/\\evil.example", "https://evil.example", "/%2f%2fevil"])
async def test_a_local_sign_in_continues_at_a_path_of_ours(to: str) -> None:
    """The form of the page does, too."""
    async with AccountsWorld() as world:
        await world.person("ann")
        form = {"login": "ann", "password": "correct horse battery", "to": to}
        answer = await world.http.post("/v1/sign-in/local", data=form, headers=ORIGIN)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        page = await world.http.get("/sign-in", params={"to": to})
        assert "evil" not in page.text
