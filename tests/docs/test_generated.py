"""Generated documents are those of the code, and are what they say they are."""

import json
from pathlib import Path
from typing import Any

import jsonschema as validator
import pytest

from docs import generate
from fairlead.verbs import ALIASES, VERBS
from fairlead_bus.streams import bucket_specs, stream_specs
from fairlead_schemas.http import asyncapi, json_schema
from fairlead_schemas.wire import lifecycle
from fairlead_schemas.wire.events import Event
from fairlead_schemas.wire.subjects import WRITERS
from tests.schemas.families import GOLDEN

DOCS = Path(__file__).parents[2] / "docs"


def test_documents_are_up_to_date() -> None:
    """Run `make docs` after changing a contract."""
    assert [str(path.relative_to(DOCS)) for path in generate.out_of_date()] == []


def test_a_stale_document_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail."""
    monkeypatch.setattr(lifecycle, "MOVES", lifecycle.MOVES[:-1])
    assert generate.out_of_date() == [DOCS / "reference" / "lifecycle.md"]


def test_every_event_is_described() -> None:
    """Each event has words of its own, and a comment's words reach its field."""
    page = generate.events_page()
    assert [kind.__name__ for kind in Event.__args__ if f"### {kind.__name__}\n" not in page] == []
    assert "Offers are taken in rising rank." in page


def test_every_field_is_described() -> None:
    """A field without words leaves its reader to guess; write them above it or into `events.FIELDS`."""
    assert [line for line in generate.events_page().splitlines() if line.endswith("|  |")] == []


def test_every_verb_is_described() -> None:
    """Verbs, their aliases and the verbs below them have a section each."""
    page = generate.cli_page()
    names = [*(verb.name for verb in (*VERBS, *ALIASES)), "queues apply", "audit verify"]
    assert [name for name in names if page.count(f"### fairlead {name}\n") != 1] == []


def test_the_verbs_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow terminal wraps help texts, but not the page."""
    page = generate.cli_page()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FAIRLEAD_NATS", "nats://elsewhere:4222")
    assert generate.cli_page() == page


def test_every_route_is_described() -> None:
    """Each method of each path has a section, and its errors are named."""
    document = generate.openapi_document()
    routes = [f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods]
    page = generate.http_page(document)
    assert [route for route in routes if page.count(f"### `{route}`\n") != 1] == []
    assert page.count("| error | `Problem` as `application/problem+json` |") == len(routes)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("events", "events"),
        ("commands", "commands"),
        ("commit", "commit"),
        ("desired", "desired"),
        ("samples", "samples"),
    ],
)
def test_golden_bytes_are_valid_by_the_published_schema(name: str, family: str) -> None:
    """An independent validator accepts our bytes."""
    check = validator.Draft202012Validator(json_schema.document(name))
    for example in json.loads((GOLDEN / f"{family}.json").read_text()):
        check.validate(example)


def test_the_job_schema_refuses_an_unknown_field() -> None:
    """Editors that read the schema see the same mistakes as the gateway."""
    check = validator.Draft202012Validator(json_schema.document("job"))
    check.validate({"command": ["true"], "resources": {"nvidia.com/gpu": 8}})
    assert not check.is_valid({"command": ["true"], "nodse": 2})


def references(value: Any) -> set[str]:
    """Every `$ref` in a document."""
    if isinstance(value, dict):
        return {v for k, v in value.items() if k == "$ref"}.union(*(references(v) for v in value.values()))
    return set().union(*(references(v) for v in value)) if isinstance(value, list) else set()


def test_asyncapi_points_nowhere_else() -> None:
    """Every reference of the document leads to something in it."""
    document = asyncapi.document()
    found = list(references(document))
    assert len(found) > 50
    for reference in found:
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
        assert place


def _covers(subject: str, address: str) -> bool:
    """Return True if a stream's subject is, or has wildcards for, the parts of an address."""
    wanted, given = address.split("."), subject.split(".")
    if given[-1] == ">":
        return len(wanted) >= len(given) and wanted[: len(given) - 1] == given[:-1]
    return len(wanted) == len(given) and all(
        have in ("*", part) or part.startswith("{") for part, have in zip(wanted, given, strict=True)
    )


def test_asyncapi_says_how_the_bus_stores() -> None:
    """`x-jetstream` agrees with the streams and buckets that the bus creates."""
    streams = {spec.name: spec for spec in stream_specs(1)}
    durable = {bucket.name: bucket.durable for bucket in bucket_specs()}
    for channel in asyncapi.channels():
        facts = channel.jetstream or {}
        if "stream" in facts:
            spec = streams[facts["stream"]]
            assert (facts["discard"] == "new", facts["durable"]) == (spec.refuse_when_full, spec.durable)
            assert channel.address is not None
            assert any(_covers(subject, channel.address) for subject in spec.subjects)
        elif "bucket" in facts:
            assert facts["durable"] == durable[facts["bucket"]]
    assert {f"log.{writer}" for writer in WRITERS} <= asyncapi.document()["channels"].keys()
