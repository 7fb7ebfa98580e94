"""The glossary: every term once, with its columns, and every name in it is one that the source has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "glossary.md"
SOURCES = ("schemas", "bus", "rights", "services", "replay", "cli")


class Entry(NamedTuple):
    """A row of a table: the term, the name that carries it ("" for none), and the other columns."""

    term: str
    name: str
    columns: tuple[str, ...]


def entries(text: str) -> Iterator[Entry]:
    for line in text.splitlines():
        if not line.startswith("| ") or line.startswith("| term "):
            continue
        first, *others = (cell.strip() for cell in line.strip("|").split("|"))
        term, _, name = first.partition(", `")
        yield Entry(term, name.rstrip("`"), tuple(others))


def names_of_the_source() -> set[str]:
    words: set[str] = set()
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            words.update(re.findall(r"\w+", path.read_text()))
            words.update(path.parts)
    return words


def test_every_term_occurs_once_with_its_columns() -> None:
    """Meaning, equivalents, and the term that it must not be confused with."""
    found = list(entries(PAGE.read_text()))
    assert len(found) >= 60
    terms = [entry.term for entry in found]
    assert sorted(terms) == sorted(set(terms))
    assert [entry for entry in found if len(entry.columns) != 3 or not all(entry.columns)] == []


def test_names_in_the_glossary_are_names_in_the_source() -> None:
    """A rename changes both; a name that only the page has would send its reader nowhere."""
    known = names_of_the_source()
    named = [entry for entry in entries(PAGE.read_text()) if entry.name]
    assert len(named) >= 50
    assert [entry.name for entry in named if entry.name not in known] == []
    assert "JobRecalled" not in known, "the check can fail: a name of before is none of today"
