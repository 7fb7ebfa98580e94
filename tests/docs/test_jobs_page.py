"""The page on job files names every field, and its examples are job files."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.jobfile import reader, yaml_text
from fairlead_schemas.jobfile.job_spec import GpuWanted, GroupWords, JobSpec, TimeWords
from fairlead_schemas.jobfile.request import RESOURCE_WORDS
from fairlead_schemas.units.hardware import TOPOLOGY_LEVELS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "jobs.md").read_text()


def keys(heading: str) -> list[str]:
    """The first column of the table below a heading."""
    below = PAGE.split(f"{heading}\n", 1)[1]
    table = below[below.index("|") :].split("\n\n", 1)[0]
    return [line.split("|")[1].strip().strip("`") for line in table.splitlines()[2:]]


def fields(kind: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind)]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [("## Fields", fields(JobSpec)), ("## `gpu`", fields(GpuWanted)), ("## `resources`", list(RESOURCE_WORDS))],
)
def test_every_field_is_on_the_page(heading: str, expected: list[str]) -> None:
    """None is missing, and none is invented."""
    assert sorted(keys(heading)) == sorted(expected)


def test_levels_and_nested_fields_are_on_the_page() -> None:
    """Of topology, times and groups."""
    words = [*TOPOLOGY_LEVELS, *fields(TimeWords), *fields(GroupWords)]
    assert [word for word in words if f"`{word}`" not in PAGE and f"`{word}:" not in PAGE] == []


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_an_example_is_a_job_file(example: str) -> None:
    """It is accepted unchanged."""
    documents: list[Any] = yaml_text.read_yaml(example, "jobs.md")
    for document in documents:
        reader.check(document)


HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.parametrize("page", ["from-kubernetes.md", "from-dstack.md"])
def test_files_of_other_systems_are_taken_as_the_pages_print_them(page: str) -> None:
    """Each is a valid job without an --ignore."""
    examples = re.findall(r"```yaml\n(.*?)```", (HOW_TO / page).read_text(), re.DOTALL)
    assert len(examples) >= 2
    for example in examples:
        loaded = reader.load(example, name=page)
        assert loaded.unkept == {}
        reader.check_all(loaded.jobs)
