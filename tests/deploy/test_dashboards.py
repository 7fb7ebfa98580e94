"""The Grafana dashboards: as their list says, and of the shape that Grafana's own SDK has for its dashboards.

No Grafana runs here. The SDK (grafana-foundation-sdk, made by Grafana Labs from Grafana's schema) reads each file; what it has no
word for, or another type for, is found.
"""

import importlib.util
import json
import types
import typing
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

FOLDER = Path("deploy/grafana")
FILES = sorted(FOLDER.glob("*.json"))


def boards() -> types.ModuleType:
    """The script that writes them."""
    spec = importlib.util.spec_from_file_location("boards", FOLDER / "boards.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dropped(ours: Any, theirs: Any, at: str = "$") -> list[str]:
    """Places of ours that are not in theirs, or otherwise there."""
    if isinstance(ours, dict):
        if not isinstance(theirs, dict):
            return [at]
        return [
            place
            for word, value in ours.items()
            for place in (
                dropped(value, theirs[word], f"{at}.{word}") if word in theirs else _empty(value, f"{at}.{word}")
            )
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            place
            for n, (one, other) in enumerate(zip(ours, theirs, strict=True))
            for place in dropped(one, other, f"{at}[{n}]")
        ]
    return [] if ours == theirs else [at]


def _empty(value: Any, at: str) -> list[str]:
    return [] if value in ({}, [], "") else [at]


def misfits(found: Any, hint: Any, at: str = "$") -> list[str]:
    """Places whose value is not of the type that the SDK states."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object) or isinstance(hint, str):
        return []
    if origin in (typing.Union, types.UnionType):
        tried = [misfits(found, each, at) for each in arguments]
        return [] if not all(tried) else [f"{at}: {found!r} is none of {hint}"]
    if origin is typing.Literal:
        return [] if found in arguments else [f"{at}: {found!r} is none of {arguments}"]
    if origin is list:
        if not isinstance(found, list):
            return [f"{at}: expected a list"]
        return [place for n, each in enumerate(found) for place in misfits(each, arguments[0], f"{at}[{n}]")]
    if origin is dict or not isinstance(hint, type):
        return []
    if hint is float:
        return [] if isinstance(found, int | float) else [f"{at}: expected a number, found {found!r}"]
    if issubclass(hint, Enum):
        return [] if found in [each.value for each in hint] else [f"{at}: {found!r} is no {hint.__name__}"]
    if not isinstance(found, hint) or (hint is int and isinstance(found, bool)):
        return [f"{at}: expected {hint.__name__}, found {found!r}"]
    if hint.__module__ != models.__name__:
        return []
    return [
        place
        for name, each in _hints(hint).items()
        if hasattr(found, name)
        for place in misfits(getattr(found, name), each, f"{at}.{name}")
    ]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, dict(vars(models)))


def problems(document: dict[str, Any]) -> list[str]:
    """All that the SDK minds."""
    plugins.register_default_plugins()
    read = models.Dashboard.from_json(document)
    written = json.loads(JSONEncoder().encode(read))
    return [*dropped(document, written), *misfits(read, models.Dashboard)]


def test_there_are_three_and_they_are_up_to_date() -> None:
    """`python deploy/grafana/boards.py` writes what is here."""
    written = boards()
    assert {file.stem for file in FILES} == set(written.BOARDS)
    assert {file.stem: file.read_text() for file in FILES} == {n: written.text(b) for n, b in written.BOARDS.items()}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_grafana_has_a_type_for_every_field(file: Path) -> None:
    """Nothing is lost when its SDK reads and writes the file, and nothing is of another type."""
    assert problems(json.loads(file.read_text())) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"titel": "Misspelt"}, "$.titel"),
        ({"schemaVersion": "38"}, "schema_version"),
        ({"graphTooltip": 7}, "graph_tooltip"),
        ({"tags": [1]}, "$.tags"),
        ({"panels": [{"type": "stat", "gridPos": {"x": "left", "y": 0, "w": 8, "h": 8}}]}, "$.panels"),
    ],
)
def test_a_board_that_grafana_would_not_understand_is_found(change: dict[str, Any], place: str) -> None:
    """The check can fail."""
    document = {**json.loads(FILES[0].read_text()), **change}
    assert any(place in each for each in problems(document))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_have_a_place_a_unit_and_a_source(file: Path) -> None:
    """No two overlap, none is without a query, all read from the Prometheus that was chosen."""
    panels = json.loads(file.read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) == len({panel["id"] for panel in panels})
    for panel in panels:
        assert panel["targets"] and panel["fieldConfig"]["defaults"]["unit"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
