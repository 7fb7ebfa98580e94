"""Sign-in, refresh and logout against two real providers that have nothing in common, over real HTTP."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from fairlead_gateway.access.credentials import CredentialNote
from fairlead_gateway.signon import provider_sessions
from tests.gateway.signon.signed_on_world import SignedOnWorld
from tests.kit.eventually import eventually_async
from tests.kit.identity_provider import CANAILLE, PROVIDERS, IdentityProvider, submit, take

pytestmark = [pytest.mark.connected, pytest.mark.slow]
at_both = pytest.mark.parametrize("at", PROVIDERS, ids=lambda at: at.name)


@at_both
async def test_a_person_signs_in_without_any_right(tmp_path: Path, at: IdentityProvider) -> None:
    """Groups come from the provider, and the callback works once."""
    async with SignedOnWorld(tmp_path, at) as world, world.browser() as browser:
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


@at_both
async def test_a_logout_at_the_provider_ends_the_session(tmp_path: Path, at: IdentityProvider) -> None:
    """Within five seconds where the provider notifies the gateway; elsewhere the session continues, as the document says."""
    async with SignedOnWorld(tmp_path, at) as world, world.browser() as browser:
        await world.sign_in(browser)
        confirm = await browser.get(world.issuer + at.end_session, follow_redirects=True)
        await take(browser, confirm, at.sign_out)

        async def is_out() -> bool:
            return await world.who(browser) is None

        if at.has_back_channel:
            await eventually_async(is_out, within_s=5)
        else:
            assert not await is_out()


async def _note(world: SignedOnWorld) -> tuple[str, CredentialNote]:
    [session] = world.gateway.views.access.sessions
    note = await world.gateway.accounts.credentials.note("session", session)
    assert note is not None
    return session, note


@at_both
async def test_a_session_with_a_refresh_token_ends_when_the_provider_refuses_it(
    tmp_path: Path, at: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It survives a refresh with a rotated token."""
    monkeypatch.setattr(provider_sessions, "LOOK_S", 10**6)
    async with SignedOnWorld(tmp_path, at, scopes=at.refresh_scopes) as world, world.browser() as browser:
        await world.sign_in(browser)
        sessions = world.gateway.sign_on.sessions
        (session, note), credentials = await _note(world), world.gateway.accounts.credentials
        first = await credentials.sign_in(note.sign_in)
        assert first is not None
        await sessions._try(session, note, first)
        second = await credentials.sign_in(note.sign_in)
        assert second is not None and second.refresh != first.refresh and await world.who(browser)
        # The first refresh token again: a provider that rotates refuses it.
        await sessions._try(session, note, first)
        assert await world.who(browser) is None


async def test_a_session_ends_when_the_person_withdraws_consent(tmp_path: Path) -> None:
    """Canaille then refuses the refresh token."""
    async with SignedOnWorld(tmp_path, CANAILLE) as world, world.browser() as browser:
        await world.sign_in(browser)
        session, note = await _note(world)
        consents = await browser.get(f"{world.issuer}/consent/")
        withdraw = re.search(r"/consent/revoke/[^\"]+", consents.text)
        assert withdraw is not None, consents.text
        await browser.get(world.issuer + withdraw[0])
        row = await world.gateway.accounts.credentials.sign_in(note.sign_in)
        assert row is not None
        await world.gateway.sign_on.sessions._try(session, note, row)
        assert await world.who(browser) is None


@at_both
async def test_a_sign_out_here_continues_at_the_provider(tmp_path: Path, at: IdentityProvider) -> None:
    """Our session has ended before, so nothing depends on the provider."""
    async with SignedOnWorld(tmp_path, at) as world, world.browser() as browser:
        await world.sign_in(browser)
        page = await submit(browser, await browser.get("/sign-out"))
        assert str(page.url).startswith(f"{world.issuer}{at.end_session}?client_id=fairlead")
        assert await world.who(browser) is None
        page = await take(browser, page, at.sign_out)
        assert str(page.url) == f"{world.url}/sign-in"


@at_both
async def test_a_person_outside_the_admitted_groups_gets_no_account(tmp_path: Path, at: IdentityProvider) -> None:
    """Nothing is left of the try."""
    async with SignedOnWorld(tmp_path, at, admit='["staff"]') as world, world.browser() as browser:
        before = set(world.gateway.views.access.kinds)
        page = await world.sign_in(browser, "eve")
        assert page.status_code == 403 and "not admitted" in page.text
        assert set(world.gateway.views.access.kinds) == before


@at_both
async def test_a_callback_of_another_browser_is_refused(tmp_path: Path, at: IdentityProvider) -> None:
    """A link that signs its reader in as a person else does nothing (login CSRF)."""
    async with SignedOnWorld(tmp_path, at) as world, world.browser() as thief, world.browser() as victim:
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
