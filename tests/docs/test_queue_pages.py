"""The page on queue files names every key, with its default, and its examples are files; no more and no less."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.jobfile import yaml_text
from fairlead_queue.sequencers.registry import OURS
from fairlead_schemas.queuefile.amounts import GPU_WORD
from fairlead_schemas.queuefile.parse import read_queue_file
from fairlead_schemas.queuefile.settings_format import (
    AgeingWords,
    BudgetWords,
    PoolWords,
    PreemptionWords,
    QueueWords,
    SharingWords,
)

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "queues.md").read_text()
#: {the heading above a table of keys: whose keys these are}
TABLES: dict[str, type[msgspec.Struct]] = {
    "## A queue": QueueWords,
    "### `budget`": BudgetWords,
    "### `preemption`": PreemptionWords,
    "## A pool": PoolWords,
    "### `ageing`": AgeingWords,
    "### `sharing`": SharingWords,
}
#: How the page says defaults that are not a value.
IN_WORDS: dict[str, Any] = {
    "none": (None, {}),
    "no limit": ({},),
    "all": ({},),
    "everybody": ([],),
    "`1` each": ({},),
    "see below": (PreemptionWords(),),
    "`default`": ("",),
    "must be named": (msgspec.NODEFAULT,),
}


def rows(heading: str) -> dict[str, str]:
    """{key: its default} of the first table below a heading."""
    below = PAGE.split(f"{heading}\n", 1)[1]
    table = below[below.index("| key") :].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {key.strip("`"): default for key, _, default, _ in cells}


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Return a field's default, calling its factory if it has one."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_is_on_the_page_with_its_default(heading: str) -> None:
    """Its order may differ from the code; no key is missing, invented or wrong."""
    told = rows(heading)
    fields = {field.name: default_of(field) for field in msgspec.structs.fields(TABLES[heading])}
    assert told.keys() == fields.keys()
    for key, default in fields.items():
        value = told[key].strip("`")
        expected = str(default).lower() if isinstance(default, bool) else str(default)
        assert value == expected or default in IN_WORDS[told[key]], (key, told[key], default)


@pytest.mark.parametrize("page", ["reference/queues.md", "tutorials/team-lead.md"])
def test_examples_are_queue_files(page: str) -> None:
    """Each is read without a mistake."""
    examples = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert examples
    for example in examples:
        (document,) = yaml_text.read_yaml(example, page)
        assert read_queue_file(document).queues


def test_resources_are_on_the_page() -> None:
    """Every name of one."""
    assert all(f"`{word}`" in PAGE for word in (GPU_WORD, f"{GPU_WORD}:<model>", "cpu", "memory"))


def test_every_sequencer_of_ours_is_on_the_page() -> None:
    """In the table, and among the reserved names; settings have the names of a queue file."""
    page = (DOCS / "concepts" / "sequencers.md").read_text()
    table = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    (taken,) = re.findall(r"^Names (.*) cannot be taken", page, re.MULTILINE)
    assert table == set(re.findall(r"`(\w+)`", taken)) == set(OURS)
    assert not re.search("half_life|past_percent", page.split("## Your own")[0])
