"""The judgement of `make hostile`: what counts as a failure, and the requests that it sends."""

import random
from pathlib import Path

import pytest

from tests.hostile import __main__ as program
from tests.hostile import abusive_requests, damaged_files
from tests.hostile.ha import Fault, Line, longest_gap, summary
from tests.hostile.load import read_marks
from tests.hostile.outcome import Row, joined, row, table
from tests.hostile.receiver import Post, broken


def test_marks_show_double_starts_and_overlaps(tmp_path: Path) -> None:
    """One attempt that began twice is a double; another attempt of the same job is none."""
    (tmp_path / "marks").write_text("start 7 1 0\nstart 7 2 0\nstart 8 1 0\nstart 8 1 0\noverlap 9 2 0\n")
    marks = read_marks(tmp_path)
    assert (marks.doubles, marks.overlaps, marks.starts.total()) == ([("8", "1", "0")], ["overlap 9 2 0"], 4)


def test_rows_of_the_same_try_add_up() -> None:
    """Tries and failures are summed, and the notes of each stay."""
    rows = [row("a", "x", 2, ["broken"], "slow"), row("a", "x", 3, [], "slow"), row("a", "y", 1, [])]
    assert joined(rows) == [Row("a", "x", 5, 1, "broken; slow; slow"), Row("a", "y", 1, 0, "")]


def test_a_cell_is_one_line_of_a_table() -> None:
    """Words of logs may hold line breaks and bars."""
    assert table([row("a", "x|y", 1, ["one\ntwo"])]).splitlines()[2:] == ["| a | x\\|y | 1 | 1 | one two |"]


def test_the_table_replaces_the_one_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text around the markers stays."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{program.BEGIN}\nold\n{program.END}\nafter\n")
    monkeypatch.setattr(program, "PAGE", page)
    program.write("| new |", "3 tries, 0 failures")
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert "| new |" in text and "3 tries" in text and "old" not in text


def test_every_route_is_abused() -> None:
    """A new route of the API document is in the lists by itself, with no place of its path left open."""
    reads, changes = abusive_requests.reads(), abusive_requests.changes()
    assert not [target for target in [*reads, *(each[1] for each in changes)] if "{" in target.replace("{}", "")]
    assert any(target.startswith("/v1/jobs/no-such-thing/logs?tail=") for target in reads)
    assert ("POST", "/v1/nodes/no-such-thing:drain", b"{") in changes


@pytest.mark.parametrize("seed", range(20))
def test_damage_changes_the_file(tmp_path: Path, seed: int) -> None:
    """A try that leaves the file as it was would prove nothing."""
    path, rng = tmp_path / "file", random.Random(seed)
    whole = b"".join(b"line %d of the file\n" % number for number in range(50))
    for hurt in (damaged_files.flip, damaged_files.cut, damaged_files.garble, damaged_files.lines, damaged_files.book):
        path.write_bytes(whole)
        hurt(path, rng)
        assert path.read_bytes() != whole


@pytest.mark.parametrize(
    ("came", "kills", "words"),
    [
        (["1.0", "2.0", "2.1", "3.0"], 0, []),
        (["1.0", "2.0", "2.0", "2.1", "3.0"], 1, []),
        (["1.0", "2.0", "2.0", "2.1", "3.0"], 0, ["1 messages came twice after 0 kills"]),
        (["1.0", "2.0", "3.0"], 0, ["2.1: never came"]),
        (["1.0", "2.1", "2.0", "3.0"], 0, ["the messages came in another order than in the log, or twice apart"]),
        (
            ["1.0", "2.0", "2.1", "1.0", "3.0"],
            2,
            ["the messages came in another order than in the log, or twice apart"],
        ),
        (["1.0", "2.0", "2.1", "3.0", "4.0"], 0, ["4.0: not in the log"]),
    ],
)
def test_messages_are_held_against_the_log(came: list[str], kills: int, words: list[str]) -> None:
    """A message may come twice after a kill, directly after itself; anything else is named."""
    posts = [Post(each, True) for each in came]
    assert broken(posts, ["1.0", "2.0", "2.1", "3.0"], kills) == words


def test_a_message_with_a_wrong_signature_is_named() -> None:
    """A receiver would refuse it."""
    assert broken([Post("1.0", False)], ["1.0"], 0) == ["1.0: its signature is wrong"]


def _fault(kind: str, at: float, until: float) -> Fault:
    return Fault(kind, "LOG", at, 1.0, until, ("queue",))


def test_the_cost_of_a_fault_is_the_longest_gap_behind_it() -> None:
    """Also the one that is not over when the look ends, and nothing of what came before the fault."""
    fault = _fault("writer killed", 10.0, 20.0)
    assert longest_gap([1.0, 9.9, 10.5, 14.5, 15.0, 30.0], fault) == 4.0
    assert longest_gap([9.0, 18.0, 18.1], fault) == 8.0
    assert longest_gap([1.0, 30.0], fault) == 10.0


def test_a_bar_is_reached_by_the_median_and_by_the_worst() -> None:
    """For a killed writer the commits count, for a server the answers."""
    fault = _fault("writer killed", 0.0, 1.0)
    assert "4 s: reached" in summary([Line(fault, 2.0, 9.0), Line(fault, 3.9, 9.0)])[1]
    assert "4 s: not reached" in summary([Line(fault, 2.0, 0.0), Line(fault, 4.1, 0.0)])[1]
    retired = _fault("server retired", 0.0, 1.0)
    assert "4 s: not reached" in summary([Line(retired, 0.0, 3.5)])[1]
