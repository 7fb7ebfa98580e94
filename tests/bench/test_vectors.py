"""`python -m bench.vectors`: published examples hold, a difference is found, and a bad file is one line and exit 2."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.vectors import checking as vectors

DATA = Path(__file__).parents[1] / "data" / "fairshare"
ALLOCATION = DATA.parent / "topology" / "allocation_vectors.json"
FILES = [*sorted(DATA.glob("*.json")), ALLOCATION]


def play(monkeypatch: pytest.MonkeyPatch, *files: Path) -> int:
    """The exit code."""
    monkeypatch.setattr(sys, "argv", ["vectors", *map(str, files)])
    return vectors.main()


def test_published_examples_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every case of every file, one line each."""
    assert play(monkeypatch, *FILES) == 0

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 29
    assert {row["name"].partition(":")[0] for row in rows} == set(vectors.TABLES) - {"mig"}
    assert [row["name"] for row in rows if not row["ok"] or row["got"] != row["expect"]] == []


@pytest.mark.parametrize("table", ["drf", "hdrf", "kueue_dominant_share", "kai_over_quota"])
def test_a_difference_is_found(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One wrong expectation: exit 1, that case not ok, all others ok."""
    document = json.loads((DATA / "vectors.json").read_text())
    case = (document[table] if isinstance(document[table], list) else document[table]["cases"])[0]
    _spoil(next(value for key, value in case.items() if key.startswith("expect")))
    path = tmp_path / "spoiled.json"
    path.write_text(json.dumps(document))

    assert play(monkeypatch, path) == 1

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows if not row["ok"]] == [f"{table}: {case['name']}"]


@pytest.mark.parametrize("table", ["policy_cases", "sequences"])
def test_another_choice_of_gpus_is_found(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As above; a set is expected in any order."""
    document = json.loads(ALLOCATION.read_text())
    for case in document["policy_cases"]:
        case["expect"].reverse()
    case = document[table][0]
    (case if table == "policy_cases" else case["steps"][0])["expect"] = [0, 1]
    path = tmp_path / "spoiled.json"
    path.write_text(json.dumps(document))

    assert play(monkeypatch, path) == 1

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["ok"] for row in rows].count(False) == 1
    assert [row["name"].partition(":")[0] for row in rows if not row["ok"]] == [table]


def _spoil(expect: dict[str, Any]) -> None:
    for key, value in expect.items():
        if isinstance(value, dict):
            _spoil(value)  # pyright: ignore[reportUnknownArgumentType] -- JSON
        elif type(value) is int:
            expect[key] = value + 1
        else:
            continue
        return


ONE = {"name": "c", "capacity": {"cpu": 1}, "users": {"a": {"demand": {"cpu": 1}}}}
TREE = {"name": "c", "capacity": {"cpu": 1}, "tree": {"a": {"children": {"b": {}}}}, "expect_usage": {}}
CHOICE = {"node": "dgx1-v100", "policy": "simple", "name": "c", "available": [0], "size": 1, "expect": [0]}
BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "no JSON: Input data was truncated"),
    "no text": ("\ud800", "no JSON: "),
    "too deep": ('{"hdrf":[{"tree":' + '{"a":{"children":' * 5000, "recursion"),
    "a name that is a path": ({"drf": [ONE | {"users": {"a/b": {"demand": {}}}}]}, "Expected `str` matching regex"),
    "no object": ([], "Expected `object`, got `array`"),
    "unknown table": ({"dfr": []}, "unknown field `dfr`"),
    "missing field": ({"drf": [{"name": "c", "capacity": {}}]}, "missing required field `users` - at `$.drf[0]`"),
    "wrong type": (
        {"drf": [ONE | {"capacity": {"cpu": "9"}}]},
        "Expected `int`, got `str` - at `$.drf[0].capacity[...]`",
    ),
    "a float": ({"drf": [ONE | {"capacity": {"cpu": 1.5}}]}, "Expected `int`, got `float`"),
    "negative": ({"drf": [ONE | {"capacity": {"cpu": -1}}]}, "Expected `int` >= 0"),
    "weight 0": ({"drf": [ONE | {"users": {"a": {"demand": {"cpu": 1}, "weight": 0}}}]}, "Expected `int` >= 1"),
    "no resources": ({"drf": [ONE | {"capacity": {}}]}, 'case "c": the pool has no resources'),
    "unknown resource": (
        {"drf": [ONE | {"users": {"a": {"demand": {"gpu": 1}}}}]},
        'case "c": "a" needs gpu, of which there is no capacity',
    ),
    "endless nothing": ({"drf": [ONE | {"users": {"a": {"demand": {"cpu": 0}}}}]}, 'case "c": "a" needs nothing'),
    "demand of no leaf": ({"hdrf": [TREE | {"demands": {"a": {"task": {"cpu": 1}}}}]}, 'case "c": "a" has a demand'),
    "demand of nobody": ({"hdrf": [TREE | {"demands": {"x": {"task": {"cpu": 1}}}}]}, 'case "c": "x" has a demand'),
    "no cases": ({"kai_over_quota": {}}, "missing required field `cases` - at `$.kai_over_quota`"),
    "no such node": ({"policy_cases": [CHOICE | {"node": "dgx-9"}]}, 'case "c": no kind of node is called "dgx-9"'),
    "no such node in a row": (
        {"sequences": [{"node": "dgx-9", "policy": "simple", "steps": [{"size": 1, "expect": []}]}]},
        'case "dgx-9 simple 1": no kind of node is called "dgx-9"',
    ),
    "no such GPU": ({"policy_cases": [CHOICE | {"available": [0, 8]}]}, 'case "c": dgx1-v100 has no GPU 8'),
    "no such policy": ({"policy_cases": [CHOICE | {"policy": "best"}]}, "Invalid enum value 'best'"),
    "a quota that is none": (
        {"kueue_dominant_share": {"cases": [{"name": "c", "cq": {"nominal": {"cpu": "2"}}, "expect": {}}]}},
        "Expected `int | object`, got `str`",
    ),
}


@pytest.mark.parametrize(("document", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_line_and_exit_2(
    document: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the file and what is wrong; no case of the file is printed."""
    path = tmp_path / "bad.json"
    path.write_bytes(
        document.encode(errors="surrogatepass") if isinstance(document, str) else json.dumps(document).encode()
    )

    assert play(monkeypatch, path) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{path}: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_missing_file_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Like any other error."""
    assert play(monkeypatch, DATA / "none.json") == 2
    assert "No such file" in capsys.readouterr().err
