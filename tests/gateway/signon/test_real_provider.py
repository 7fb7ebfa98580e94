"""Sign-in, refresh and logout against a certified provider, over real HTTP: `oidc-provider` of npm."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from fairlead_gateway.signon import provider_sessions
from tests.gateway.signon.signed_on_world import SignedOnWorld
from tests.kit.eventually import eventually_async
from tests.kit.identity_provider import submit

pytestmark = [pytest.mark.connected, pytest.mark.slow]


async def test_a_person_signs_in_without_any_right_and_the_provider_signs_them_out(tmp_path: Path) -> None:
    """Groups come from the provider; the session ends within five seconds of the logout there, and the callback works once."""
    async with SignedOnWorld(tmp_path) as world, world.browser() as browser:
        callbacks: list[str] = []

        async def note(answer: httpx.Response) -> None:
            if answer.url.path.endswith("/callback"):
                callbacks.append(str(answer.url))

        browser.event_hooks["response"].append(note)
        page = await world.sign_in(browser)
        assert page.status_code == 200, page.text
        found = page.json()
        assert (found["login"], found["groups"], found["roles"]) == ("ann", ["staff", "vision"], [])
        assert (await browser.get("/v1/people")).status_code == 403
        [callback] = callbacks
        assert parse_qs(urlsplit(callback).query)["iss"] == [world.issuer]
        assert (await browser.get(callback)).status_code == 403
        confirm = await browser.get(f"{world.issuer}/session/end", follow_redirects=True)
        await submit(browser, confirm, logout="yes")

        async def is_out() -> bool:
            return await world.who(browser) is None

        await eventually_async(is_out, within_s=5)


async def test_a_session_with_a_refresh_token_ends_when_the_provider_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It survives a refresh with a rotated token, and a provider that is down."""
    monkeypatch.setattr(provider_sessions, "REFRESH_NS", 0)
    scopes = '["openid", "profile", "offline_access"]'
    async with SignedOnWorld(tmp_path, scopes=scopes) as world, world.browser() as browser:
        await world.sign_in(browser)
        sessions = world.gateway.sign_on.sessions
        [session] = world.gateway.views.access.sessions
        credentials = world.gateway.accounts.credentials

        async def sealed() -> str:
            note = await credentials.note("session", session)
            assert note is not None
            return note.refresh

        monkeypatch.setattr(provider_sessions, "REFRESH_NS", 10**12)
        first = await sealed()
        assert first
        monkeypatch.setattr(sessions, "_next_look", {})
        note = await credentials.note("session", session)
        assert note is not None
        await sessions._try(session, note)
        second = await sealed()
        assert second != first and await world.who(browser)
        # The first refresh token again: a provider that rotates takes both hands' tokens away.
        await sessions._try(session, note)
        assert await world.who(browser) is None


async def test_a_sign_out_here_continues_at_the_provider(tmp_path: Path) -> None:
    """Our session has ended before, so nothing depends on the provider."""
    async with SignedOnWorld(tmp_path) as world, world.browser() as browser:
        await world.sign_in(browser)
        page = await submit(browser, await browser.get("/sign-out"))
        assert str(page.url).startswith(f"{world.issuer}/session/end?client_id=fairlead")
        assert await world.who(browser) is None


async def test_a_person_outside_the_admitted_groups_gets_no_account(tmp_path: Path) -> None:
    """Nothing is left of the try."""
    async with SignedOnWorld(tmp_path, admit='["staff"]') as world, world.browser() as browser:
        before = set(world.gateway.views.access.kinds)
        page = await world.sign_in(browser, "eve")
        assert page.status_code == 403 and "not admitted" in page.text
        assert set(world.gateway.views.access.kinds) == before


async def test_a_callback_of_another_browser_is_refused(tmp_path: Path) -> None:
    """A link that signs its reader in as somebody else does nothing (login CSRF)."""
    async with SignedOnWorld(tmp_path) as world, world.browser() as thief, world.browser() as victim:
        sent: list[str] = []

        async def stop(answer: httpx.Response) -> None:
            target = answer.headers.get("location", "")
            if "/callback?" in target:
                sent.append(target)
                answer.headers["location"] = "/sign-in"

        thief.event_hooks["response"].append(stop)
        await world.sign_in(thief)
        assert (await victim.get(sent[0])).status_code == 403
        assert await world.who(victim) is None
