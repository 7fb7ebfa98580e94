"""Sign-in, sign-out and grants to commands in a real browser, at two real providers on another site than the gateway.

The browser enforces what no other test can: cookies between sites, security policies of pages, and where forms may lead.
"""

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fairlead.client import browser_sign_in
from fairlead.client.sign_in import renew
from tests.gateway.signon.signed_on_world import SignedOnWorld
from tests.kit.chromium import Chromium
from tests.kit.eventually import eventually_async
from tests.kit.identity_provider import OIDC_PROVIDER, PROVIDERS, IdentityProvider

pytestmark = [pytest.mark.connected, pytest.mark.slow]
at_both = pytest.mark.parametrize("at", PROVIDERS, ids=lambda at: at.name)


async def _who(browser: Chromium) -> dict[str, Any] | None:
    status, text = await browser.fetch("/v1/whoami")
    return json.loads(text) if status == 200 else None


async def _sign_in(browser: Chromium, at: IdentityProvider) -> None:
    await browser.open("/sign-in")
    await browser.press("Sign in with corp")
    await browser.sign_in(at, "ann")


@at_both
async def test_a_person_signs_in_and_out(tmp_path: Path, at: IdentityProvider) -> None:
    """The sign-in ends at the first page, and the sign-out at the page of sign-in, by way of the provider."""
    async with SignedOnWorld(tmp_path, at) as world, Chromium(world.url) as browser:
        await _sign_in(browser, at)
        assert browser.page.url == f"{world.url}/"
        found = await _who(browser)
        assert found is not None and (found["login"], found["groups"]) == ("ann", ["staff", "vision"])
        [cookie] = await browser.page.context.cookies(world.url)
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("fairlead", True, "Lax")
        await browser.open("/sign-out")
        await browser.press("Sign out")
        assert browser.page.url.startswith(world.issuer + at.end_session)
        assert await _who(browser) is None
        await browser.take(at.sign_out)
        assert browser.page.url == f"{world.url}/sign-in"
        assert browser.complaints == [], browser.complaints


async def test_a_logout_at_the_provider_ends_the_session(tmp_path: Path) -> None:
    """Within five seconds; the browser, which still has the cookie, gets the page of sign-in. Canaille does not notify of a logout."""
    at = OIDC_PROVIDER
    async with SignedOnWorld(tmp_path, at) as world, Chromium(world.url) as browser:
        await _sign_in(browser, at)
        await browser.open(world.issuer + at.end_session)
        await browser.take(at.sign_out)

        async def is_out() -> bool:
            return await _who(browser) is None

        await eventually_async(is_out, within_s=5)
        await _sign_in(browser, at)
        assert await _who(browser)
        assert browser.complaints == [], browser.complaints


@at_both
async def test_a_command_without_a_browser_signs_in_by_a_typed_code(tmp_path: Path, at: IdentityProvider) -> None:
    """The command itself begins and polls; the page sends the person to the provider first, shows the command's machine, and asks. A wrong code
    is refused on the page.
    """
    notes: list[str] = []
    async with SignedOnWorld(tmp_path, at) as world, world.browser() as plain, Chromium(world.url) as browser:
        command = asyncio.create_task(asyncio.to_thread(browser_sign_in.by_device, world.url, notes.append))
        await eventually_async(lambda: bool(notes))
        found = re.fullmatch(r"open (\S+) and type the code (\S+)", notes[0])
        assert found is not None, notes
        await browser.open(found[1])
        await browser.press("Sign in with corp")
        await browser.sign_in(at, "ann")
        assert browser.page.url == found[1]
        await browser.page.fill("input[name=user_code]", "BBBB-BBBB")
        await browser.press("Continue")
        assert "no command waits" in await browser.text()
        await browser.open(found[1])
        await browser.page.fill("input[name=user_code]", found[2].lower())
        await browser.press("Continue")
        shown = await browser.text()
        assert socket.gethostname() in shown and "ann" in shown
        assert not command.done()
        await browser.press("Allow")
        assert "The command is signed in." in await browser.text()
        tokens = await asyncio.wait_for(command, 30)
        me = await plain.get("/v1/whoami", headers={"authorization": f"Bearer {tokens.access_token}"})
        assert me.json()["login"] == "ann" and tokens.refresh_token
        renewed = await asyncio.to_thread(renew, world.url, tokens.refresh_token)
        assert renewed is not None and renewed.access_token != tokens.access_token
        assert [each for each in browser.complaints if "404" not in each] == [], browser.complaints


async def test_a_sign_out_may_continue_at_another_host_than_the_issuer(tmp_path: Path) -> None:
    """Some providers have it so; the policy of our page allows the address that the provider publishes."""
    async with SignedOnWorld(tmp_path) as world, Chromium(world.url) as browser:
        await _sign_in(browser, OIDC_PROVIDER)
        issuer = world.gateway.sign_on.providers["corp"].issuer
        address = world.issuer.replace("localhost", "127.0.0.1") + OIDC_PROVIDER.end_session
        issuer._metadata = structs.replace(await issuer.metadata(), end_session_endpoint=address)
        await browser.open("/sign-out")
        visited: list[str] = []
        browser.page.on("request", lambda request: visited.append(request.url))
        await browser.press("Sign out")
        assert any(each.startswith(f"{address}?client_id=fairlead") for each in visited), visited
        assert browser.page.url == f"{world.url}/sign-in"  # under this name the provider has no session
        assert browser.complaints == [], browser.complaints
