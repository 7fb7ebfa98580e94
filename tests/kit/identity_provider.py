"""Real OpenID providers for tests: npm's `oidc-provider`, which is certified, and PyPI's `canaille`, which has nothing in common with it.

Each runs under the name `localhost`, so that it is another site than a gateway at 127.0.0.1, as providers are to browsers. Its pages are
described by the steps that a person takes through them; `sign_in` takes them without a browser, and `tests.kit.chromium` in one.
"""

import contextlib
import re
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urljoin

import httpx

from tests.kit import parts
from tests.kit.eventually import eventually_async

HOME = Path(__file__).parent
SECRET = "a secret of the tests"
#: Of the accounts at canaille; `oidc-provider` takes any.
PASSWORD = "horse battery staple"


@dataclass(frozen=True)
class Step:
    """One page of a provider, which may not come. `mark`: text that this page has. `button`: name and value; ("", "") for the only one."""

    mark: str
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    button: tuple[str, str] = ("", "")


@dataclass(frozen=True, kw_only=True)
class IdentityProvider:
    """One kind of provider, with a client for a gateway where it is the provider "corp"."""

    name: str
    #: Settings of the sign-on file that differ from those of others, as TOML.
    settings: Mapping[str, str]
    #: Scopes with which the gateway gets a refresh token, as TOML.
    refresh_scopes: str
    #: Returns the command that runs it, for a port and a gateway's address.
    command: Callable[[int, str], list[str]]
    #: Returns the steps of a sign-in, for an account.
    steps: Callable[[str], tuple[Step, ...]]
    end_session: str
    sign_out: Step
    #: True if it notifies the gateway of a logout (OpenID Connect Back-Channel Logout 1.0).
    has_back_channel: bool

    @contextlib.asynccontextmanager
    async def running(self, port: int, gateway: str) -> AsyncIterator[str]:
        """Run it for a gateway at an address. Yield its issuer."""
        command = self.command(port, gateway)
        process = subprocess.Popen(  # noqa: ASYNC220 - started once, and ended below
            command, cwd=HOME, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        issuer = f"http://localhost:{port}"
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

    async def sign_in(self, browser: httpx.AsyncClient, address: str, account: str) -> httpx.Response:
        """Go to an address that begins a sign-in, sign in and consent at the provider. Return the page that it ends at."""
        page = await browser.get(address, follow_redirects=True)
        for step in self.steps(account):
            if step.mark in page.text:
                page = await take(browser, page, step)
        return page


def _oidc_provider(port: int, gateway: str) -> list[str]:
    folder = HOME / "oidc_provider"
    node, npm = parts.program("node", "Debian's nodejs"), parts.program("npm", "Debian's npm")
    install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    parts.set_up("npm's oidc-provider", folder / "package-lock.json", folder / "node_modules", [install])
    corp = f"{gateway}/sign-in/corp"
    addresses = [f"{corp}/callback", f"{corp}/back-channel-logout", f"{gateway}/sign-in"]
    return [node, str(folder / "provider.mjs"), str(port), *addresses]


def _canaille(port: int, gateway: str) -> list[str]:
    venv = parts.packages("canaille", HOME / "canaille_provider/requirements.lock")
    addresses = [f"{gateway}/sign-in/corp/callback", f"{gateway}/sign-in"]
    return [
        str(venv / "bin/python"),
        str(HOME / "canaille_provider/provider.py"),
        str(port),
        *addresses,
        SECRET,
        PASSWORD,
    ]


OIDC_PROVIDER = IdentityProvider(
    name="oidc-provider",
    settings={},
    refresh_scopes='["openid", "profile", "offline_access"]',
    command=_oidc_provider,
    steps=lambda account: (
        Step('name="login"', {"login": account, "password": "any"}),
        Step('name="prompt" value="consent"'),
    ),
    end_session="/session/end",
    sign_out=Step("op.logoutForm", button=("logout", "yes")),
    has_back_channel=True,
)
CANAILLE = IdentityProvider(
    name="canaille",
    settings={"scopes": '["openid", "profile", "email", "groups"]'},
    refresh_scopes='["openid", "profile", "groups"]',
    command=_canaille,
    steps=lambda account: (
        Step('name="login"', {"login": account}),
        Step('name="password"', {"password": PASSWORD}),
        Step('value="accept"', button=("answer", "accept")),
    ),
    end_session="/oauth/end_session",
    sign_out=Step('id="logoutform"', button=("answer", "logout")),
    has_back_channel=False,
)
PROVIDERS = (OIDC_PROVIDER, CANAILLE)


async def take(browser: httpx.AsyncClient, page: httpx.Response, step: Step) -> httpx.Response:
    """Fill in a page's form and press the button. Return the next page."""
    name, value = step.button
    return await submit(browser, page, **step.fields, **({name: value} if name else {}))


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
