"""What tests of the pages need: their third-party modules, and axe-core, which finds what keeps people out."""

import subprocess
from pathlib import Path
from typing import Any

from tests.kit import parts
from tests.kit.chromium import Chromium

_AXE = parts.ROOT / "tests/kit/axe_core"
#: Impacts of findings that a page may not have.
SERIOUS = ("serious", "critical")


def set_up_modules() -> None:
    """Fetch the modules of the pages, as `make web` does."""
    parts.program("npm", "Debian's npm")
    done = subprocess.run(["make", "web"], cwd=parts.ROOT, capture_output=True, text=True, timeout=parts.INSTALL_S)
    if done.returncode:
        parts.lacks(f"the modules of the pages cannot be set up: {done.stderr.strip()[-200:]}")


def axe_source() -> str:
    """Return axe-core's one file."""
    npm = parts.program("npm", "Debian's npm")
    install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    parts.set_up("npm's axe-core", _AXE / "package-lock.json", _AXE / "node_modules", [install])
    return Path(_AXE / "node_modules/axe-core/axe.min.js").read_text()


async def findings(browser: Chromium, axe: str) -> list[str]:
    """Return the serious findings on the open page, each with the first element that it is about."""
    await browser.page.evaluate(axe)
    found: list[dict[str, Any]] = await browser.page.evaluate("axe.run().then((answer) => answer.violations)")
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:160]} {each['nodes'][0].get('failureSummary', '')[:200]}"
        for each in found
        if each["impact"] in SERIOUS
    ]
