"""The gateway's own ways to sign in, in a real browser: name and password, a link, and a command that listens on this machine."""

import asyncio
import base64
import hashlib
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.gateway.access.accounts_world import PASSWORD
from tests.gateway.signon.signed_on_world import SignedOnWorld, free_port
from tests.kit.chromium import Chromium

pytestmark = [pytest.mark.connected, pytest.mark.slow]


async def _sign_in(browser: Chromium, password: str = PASSWORD) -> None:
    await browser.page.fill("input[name=login]", "lea")
    await browser.page.fill("input[name=password]", password)
    await browser.press("Sign in")


async def test_a_local_user_signs_in_by_the_form_and_goes_on_where_they_wanted(tmp_path: Path) -> None:
    """A wrong password is answered by a page with the way back."""
    async with SignedOnWorld(tmp_path) as world, Chromium(world.url) as browser:
        await world.person("lea")
        await browser.open("/sign-in?to=/v1/whoami")
        await _sign_in(browser, "wrong")
        assert "The name or the password is wrong." in await browser.text()
        assert [each for each in browser.complaints if "401" not in each] == []
        browser.complaints.clear()
        await browser.press("Sign in again")
        await _sign_in(browser)
        assert browser.page.url == f"{world.url}/v1/whoami" and '"lea"' in await browser.text()
        assert browser.complaints == [], browser.complaints


async def test_a_link_signs_in_by_its_button(tmp_path: Path) -> None:
    """Its page has a stricter policy than the others."""
    async with SignedOnWorld(tmp_path) as world, Chromium(world.url) as browser:
        lea = await world.person("lea")
        session, _ = await world.session(lea)
        code = await world.gateway.accounts.make_link(lea, session)
        await browser.open(f"/sign-in/link?code={code}")
        await browser.press("Sign in")
        assert browser.page.url == f"{world.url}/" and "lea" in await browser.text()
        assert browser.complaints == [], browser.complaints


async def test_a_command_on_this_machine_gets_its_code(tmp_path: Path) -> None:
    """The form's answer leads to the command's own address, which the page's policy allows."""
    port, asked = free_port(), asyncio.Queue[bytes]()

    async def command(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone"
        )
        await writer.drain()
        writer.close()

    async with (
        SignedOnWorld(tmp_path) as world,
        Chromium(world.url) as browser,
        await asyncio.start_server(command, "127.0.0.1", port),
    ):
        await world.person("lea")
        verifier = "v" * 43
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        address = f"http://127.0.0.1:{port}/callback"
        query = {"redirect_uri": address, "code_challenge": challenge, "state": "s1"}
        await browser.open(f"/sign-in-command?{urlencode(query)}")
        await _sign_in(browser)
        await browser.press("Allow")
        assert await browser.text() == "done"
        first = (await asked.get()).decode().split()[1]
        code = first.partition("code=")[2].partition("&")[0]
        assert first == f"/callback?code={code}&state=s1"
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": address,
        }
        async with world.browser() as http:
            tokens = (await http.post("/v1/token", data=form)).json()
            me = await http.get("/v1/whoami", headers={"authorization": f"Bearer {tokens['access_token']}"})
        assert me.json()["login"] == "lea"
        assert browser.complaints == [], browser.complaints
