"""A real OpenID provider for tests: npm's `oidc-provider`, set up once into tests/kit/oidc_provider/node_modules."""

import contextlib
import fcntl
import hashlib
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urljoin

import httpx
import pytest

from tests.kit.eventually import eventually_async

HOME = Path(__file__).parent / "oidc_provider"
SECRET = "a secret of the tests"
INSTALL_S = 180
_STAMP = HOME / "node_modules/.set-up"


def set_up() -> str:
    """Install the provider unless it is there. Return the program that runs it; skip the test, with the reason, where it cannot be."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("the identity provider of the tests needs node and npm on PATH")
    wanted = hashlib.sha256((HOME / "package-lock.json").read_bytes()).hexdigest()
    with (HOME / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _STAMP.is_file() or _STAMP.read_text() != wanted:
            command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            if done.returncode:
                pytest.skip(f"npm cannot set up the identity provider: {done.stderr.strip()[-200:]}")
            _STAMP.write_text(wanted)
    return node


@contextlib.asynccontextmanager
async def running(port: int, gateway: str) -> AsyncIterator[str]:
    """Run the provider for a gateway at an address, where it is the provider "corp". Yield its issuer."""
    arguments = [
        f"{gateway}/sign-in/corp/callback",
        f"{gateway}/sign-in/corp/back-channel-logout",
        f"{gateway}/sign-in",
    ]
    node = set_up()
    process = subprocess.Popen(  # noqa: ASYNC220 - started once, and ended below
        [node, "provider.mjs", str(port), *arguments], cwd=HOME, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    issuer = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(trust_env=False) as http:

            async def answers() -> bool:
                with contextlib.suppress(httpx.HTTPError):
                    return (await http.get(f"{issuer}/.well-known/openid-configuration")).status_code == 200
                return False

            await eventually_async(answers)
        yield issuer
    finally:
        process.kill()
        process.wait()


async def submit(browser: httpx.AsyncClient, page: httpx.Response, **fields: str) -> httpx.Response:
    """Send the first form of a page with these fields added, as a browser does, and follow to the next page."""
    form = re.search(r'<form[^>]*?action="([^"]*)"', page.text)
    assert form is not None, (page.status_code, page.text[:500])
    hidden = {
        name: unescape(found["value"])
        for tag in re.findall(r"<input[^>]*>", page.text)
        if 'type="hidden"' in tag
        and (found := dict(re.findall(r'(name|value)="([^"]*)"', tag)))
        and (name := found.get("name", ""))
    }
    address = urljoin(str(page.url), unescape(form[1]))
    headers = {
        "origin": f"{page.url.scheme}://{page.url.netloc.decode()}",
        "content-type": "application/x-www-form-urlencoded",
    }
    body = urlencode({**hidden, **fields})
    return await browser.post(address, content=body, headers=headers, follow_redirects=True)


async def sign_in(browser: httpx.AsyncClient, address: str, account: str) -> httpx.Response:
    """Go to an address that begins a sign-in, sign in and consent at the provider. Return the page that it ends at."""
    page = await browser.get(address, follow_redirects=True)
    if 'name="login"' in page.text:
        page = await submit(browser, page, login=account, password="any")
    if "consent" in page.text and "/interaction/" in str(page.url):
        page = await submit(browser, page)
    return page
