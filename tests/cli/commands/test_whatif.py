"""`fairlead whatif`: formats, exit codes, and what is wrong with a change or a window, in words."""

import json
import re
from pathlib import Path

import pytest

from fairlead.main import main
from fairlead_replay.export import write_export
from tests.replay.whatif.scenes import Scene, queues


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export of twelve jobs on one node."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(12):
        scene.submit(n * 10, 4, 30, queue="ab"[n % 2], user=f"u{n % 2}")
    write_export(tmp_path / "export", scene.play(400)[0])
    (tmp_path / "change.yaml").write_text("queues: {a: {maximum: {nvidia.com/gpu: 4}}}\n")
    return tmp_path / "export"


def run(export: Path, *words: str) -> int:
    """Run the verb on the export, without shaken plays."""
    change = str(export.parent / "change.yaml")
    return main(["whatif", "-f", change, "--data", str(export), "--seeds", "0", *words])


def test_the_grade_comes_first(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line says how far the rest can be believed."""
    assert run(export) == 0
    assert capsys.readouterr().out.startswith("grade A: the control matches the record")


def test_json_has_every_measure_of_every_group(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pools, queues, users and sizes."""
    assert run(export, "-o", "json") == 0
    words = json.loads(capsys.readouterr().out)
    assert {each["kind"] for each in words["effects"]} == {"pool", "queue", "user", "size"}
    assert (words["grade"], words["withheld"]) == ("A", False)


def test_the_page_is_one_file(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a script, and without an address."""
    assert run(export, "-o", "html") == 0
    text = capsys.readouterr().out
    assert text.startswith("<!doctype html>")
    assert "src=" not in text
    assert set(re.findall(r"href=.(.)", text)) == {"#"}
    assert "<script" not in text


def test_both_plays_are_kept_as_logs(export: Path) -> None:
    """They can be verified, from the log's start and from a window."""
    for name, words in (("whole", ()), ("part", ("--from", "2023-11-14T22:14:10Z"))):
        keep = export.parent / name
        assert run(export, "--keep", str(keep), *words) == 0
        for play in ("control", "variant"):
            assert main(["audit", "verify", "--data", str(keep / play)]) == 0


def test_an_answer_that_cannot_be_believed_is_withheld(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A window in which nothing starts: exit code 7, and no table; --even-so shows one."""
    window = ("--from", "2023-11-14T22:16:15Z")
    assert run(export, *window) == 7
    assert "the effects are withheld" in capsys.readouterr().out
    assert run(export, *window, "--even-so") == 0
    assert "GROUP" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("queues: {c: {weight: 2}}", "queues.c: expected a queue of the window (a, b)"),
        ("queue: {a: {weight: 2}}", "queue: "),
        ("queues: {a: {weight: 2}, a: {weight: 3}}", "twice"),
        ("a: [", "expected YAML or JSON"),
        ("queues: {a: {weight: 2}}\n---\nqueues: {}", "expected one document, found 2"),
        ("", "nothing would be different"),
    ],
)
def test_a_wrong_change_is_refused(export: Path, capsys: pytest.CaptureFixture[str], text: str, told: str) -> None:
    """Exit code 2, and the field."""
    (export.parent / "change.yaml").write_text(text)
    assert run(export) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "2020-01-01"), "--from: expected a time from the log's first commit on"),
        (("--to", "2030-01-01"), "--to: expected a time up to the log's last commit"),
        (("--from", "2023-11-14T22:15:00Z", "--to", "2023-11-14T22:14:00Z"), "--to: expected a time after from"),
        (("--from", "garbage"), "expected a time such as"),
        (("--grid", "soon"), "--grid: "),
        (("--grid", "0"), '--grid: expected more than 0, such as "1s", found "0"'),
    ],
)
def test_a_wrong_window_is_refused(
    export: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    """Exit code 2, and the bound that the log has."""
    assert run(export, *words) == 2
    assert told in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And so is a log."""
    (export.parent / "change.yaml").unlink()
    assert run(export) == 2
    assert "No such file" in capsys.readouterr().err
