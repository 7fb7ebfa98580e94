"""Written documents name what exists."""

import json
import re
import shlex
from pathlib import Path

import pytest

from fairlead.verbs import VERBS
from fairlead_schemas.jobfile.job_spec import decode_job
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.wire.events import Event

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "services").glob("*/README.md")]
EVENTS = {kind.__name__ for kind in Event.__args__}
#: Types of the HTTP API, which the page of its routes names.
TYPES = set(json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"])
#: Written by `make bench`.
PRODUCED = {"docs/reference/performance.md"}
#: Files on the reader's machine.
ELSEWHERE = {"bus/accounts.conf"}
#: Example names in tick lists, and classes that are no events.
EXAMPLES = {"JobPaused", "QueueOrder", "QueueView"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link is a file of the repository."""
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_the_text_exist(page: Path) -> None:
    """A path that starts with one of our folders is there."""
    paths = re.findall(
        r"(?<![\w/])(?:schemas|bus|services|replay|cli|tests|docs|deploy|bench)/[\w/.-]*\w", page.read_text()
    )
    assert sorted({path for path in paths if not (ROOT / path).exists()} - PRODUCED - ELSEWHERE) == []


def own_classes(page: Path) -> set[str]:
    """Classes of the service that a README describes; none for another page."""
    if page.parent.parent.name != "services":
        return set()
    return {
        name
        for path in page.parent.rglob("*.py")
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_events_in_the_text_exist(page: Path) -> None:
    """`JobSomething` in code marks is an event (or a command) of the contracts, a type of the HTTP API, or a service's own class."""
    named = set(re.findall(r"`((?:Job|Mig|Node|Run|Rank|Queue|Offer|Allocation)[A-Z]\w+)`", page.read_text()))
    assert named - EVENTS - TYPES - EXAMPLES - own_classes(page) == set()


def test_make_targets_in_the_text_exist() -> None:
    """Each target that the README names is in the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        assert (
            set(re.findall(r"\bmake ([a-z][a-z-]+)\b(?=[ `\n]*(?:[`#\n]|$))", page.read_text())) - targets == set()
        ), page


def test_every_decision_is_in_the_index() -> None:
    """An ADR without an entry is not found."""
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    found = [path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md") if path.name not in index]
    assert found == []


def test_pages_that_the_code_cites_exist() -> None:
    """A docstring or comment sends its reader to a page of this repository, or to none."""
    sources = [
        p
        for folder in ("schemas", "bus", "rights", "services", "replay", "cli", "bench")
        for p in (ROOT / folder).rglob("*.py")
    ]
    wrong = [
        f"{path.relative_to(ROOT)}: {cited}"
        for path in sources
        for cited in re.findall(r"(?<![\w/])docs/[\w/.-]*\w|\b\w+ §\S+", path.read_text())
        if not (ROOT / cited).exists() and cited not in PRODUCED
    ]
    assert sorted(wrong) == []


def readme_commands() -> list[list[str]]:
    """Every command line of the README's indented blocks, in words; remarks and continued lines put right."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"^    ((?:\.venv/bin/fairlead|curl) .*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def test_the_readmes_verbs_exist() -> None:
    """A newcomer types them as they stand."""
    verbs = {verb.name for verb in VERBS} | {"queues", "audit"}
    used = {words[1] for words in readme_commands() if words[0] != "curl"}
    assert used and used <= verbs


def test_the_readmes_curl_is_accepted() -> None:
    """It says what it sends (the gateway takes nothing else for JSON), and sends a valid job."""
    (words,) = [words for words in readme_commands() if words[0] == "curl"]
    assert words[words.index("-H") + 1] == "Content-Type: application/json"
    spec = decode_job(words[words.index("-d") + 1].encode())
    assert (spec.command, resolve(spec, command_id="x", user="ada").request.gpu_milli) == (["hostname"], 1000)


def test_every_page_is_in_the_index() -> None:
    """A page of the four kinds that the index does not name is found by chance only."""
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([^)#]+)", (docs / "index.md").read_text()))
    pages = [
        str(page.relative_to(docs))
        for kind in ("tutorials", "how-to", "concepts", "reference")
        for page in (docs / kind).rglob("*.md")
    ]
    assert pages
    assert sorted(set(pages) - linked) == []
