"""Debian's Chromium, driven by PyPI's playwright, which has a virtual environment of its own.

`Chromium.complaints` is what the browser itself found wrong with the pages of one origin: errors on its console, refused by a
security policy or not, and exceptions of scripts. Pages of others, such as those of an identity provider, do not count.
"""

import importlib
import shutil
import sys
from typing import Any, Self

from tests.kit import parts
from tests.kit.identity_provider import IdentityProvider, Step

LOCK = parts.ROOT / "tests/data/browser/playwright.lock"
#: Of each thing that the driver waits for.
WITHIN_MS = 30_000
#: Makes every breach of a security policy an error on the console, with the directive.
_REPORT_BREACHES = """addEventListener("securitypolicyviolation",
  (breach) => console.error(`security policy: ${breach.effectiveDirective} ${breach.blockedURI}`))"""


def _driver() -> Any:
    """Return playwright's module. The test does not run where it, or the browser, is missing."""
    if shutil.which("chromium") is None:
        parts.lacks("chromium is not on PATH; Debian's chromium has it")
    venv = parts.packages("playwright", LOCK)
    [folder] = venv.glob("lib/python3.*/site-packages")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # last, so that nothing of ours is hidden
    return importlib.import_module("playwright.async_api")


class Chromium:
    """A headless browser without cookies, with one page. Use `async with Chromium(origin) as browser`."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.complaints: list[str] = []

    async def __aenter__(self) -> Self:
        self._started = await _driver().async_playwright().start()
        try:
            self._browser = await self._started.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            self.page: Any = await (await self._browser.new_context()).new_page()
        except BaseException:
            await self._started.stop()
            raise
        self.page.set_default_timeout(WITHIN_MS)
        await self.page.add_init_script(_REPORT_BREACHES)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(f"{self.page.url}: {error}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._browser.close()
        await self._started.stop()

    def _note(self, message: Any) -> None:
        about = message.location["url"] or self.page.url
        if message.type in ("error", "warning") and about.startswith(self.origin):
            self.complaints.append(f"{about}: {message.text}")

    async def open(self, path: str) -> None:
        """Go to a path of the origin, or to an address."""
        await self.page.goto(path if "://" in path else self.origin + path)

    async def press(self, text: str) -> None:
        """Press the button or link with this text, and wait for the page that it leads to."""
        async with self.page.expect_navigation():
            await self.page.get_by_text(text, exact=True).and_(self.page.locator("a, button")).click()

    async def sign_in(self, at: IdentityProvider, account: str) -> None:
        """Take the steps of a sign-in at a provider, whose first page is open."""
        for step in at.steps(account):
            if step.mark in await self.page.content():
                await self.take(step)

    async def take(self, step: Step) -> None:
        """Fill in the provider's page, and press its button."""
        for name, value in step.fields.items():
            await self.page.fill(f'input[name="{name}"]', value)
        name, value = step.button
        button = f'button[name="{name}"][value="{value}"]' if name else "button[type=submit]"
        async with self.page.expect_navigation():
            await self.page.click(button)

    async def text(self) -> str:
        """Return the text of the page, as a person sees it."""
        return await self.page.inner_text("body")

    async def fetch(self, path: str) -> tuple[int, str]:
        """Return status and text of a document that the page's own origin gives the browser."""
        answer = await self.page.request.get(self.origin + path)
        return answer.status, await answer.text()
