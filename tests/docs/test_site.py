"""The pages can become a site: each is in its navigation, and links out of docs/ become text. `make site` checks the rest."""

import re
from pathlib import Path

import pytest

from docs import site_hooks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Copied for a new decision, and not a page to read.
UNLISTED = {"adr/0000-template.md"}


def test_every_page_is_in_the_navigation() -> None:
    """The strict build fails on a page without a place; here it shows without the packages of the site."""
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    listed = re.findall(r"([\w/-]+\.md)$", nav, re.MULTILINE)
    assert sorted(listed) == sorted({str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - UNLISTED)


def test_decisions_have_their_titles_in_the_navigation() -> None:
    """A decision whose title changes is listed by the new one."""
    nav = (ROOT / "mkdocs.yml").read_text()
    titles = {page: page.read_text().splitlines()[0].removeprefix("# ") for page in (DOCS / "adr").glob("0*.md")}
    missing = [page.name for page, title in titles.items() if f'"{title}": adr/{page.name}\n' not in nav]
    assert missing == ["0000-template.md"]


def test_a_reader_fetches_nothing_from_elsewhere() -> None:
    """A cluster may have no way to the internet: no fonts, scripts, styles or pictures of other hosts, and no drawing that needs a script."""
    config = (ROOT / "mkdocs.yml").read_text()
    assert "  font: false" in config
    assert re.findall(r"https?://\S+|extra_javascript|mermaid", config) == []
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        assert re.findall(r"```mermaid|!\[[^\]]*\]\(https?:|<(?:script|img|link|iframe)\b", text) == [], page


@pytest.mark.parametrize(
    ("text", "on_the_site"),
    [
        ("[ARCHITECTURE.md](../../ARCHITECTURE.md)", "`ARCHITECTURE.md`"),
        ("[the map](../../ARCHITECTURE.md#services)", "the map (`ARCHITECTURE.md`)"),
        ("[`nats.conf`](../../deploy/nats.conf)", "`deploy/nats.conf`"),
        ("[events](events.md), [MIG](../concepts/mig.md#a)", "[events](events.md), [MIG](../concepts/mig.md#a)"),
        ("[gone](../../no/such/file.md)", "[gone](../../no/such/file.md)"),
    ],
)
def test_links_out_of_docs_become_text(text: str, on_the_site: str) -> None:
    """The path of the file is what a reader of the site needs; a broken link stays one, so that the build fails."""
    assert site_hooks.without_outside_links(text, DOCS / "reference" / "page.md") == on_the_site
