"""Progress of long work: its words, and where they are shown."""

import pytest

from fairlead.render import progress as progress_module
from fairlead.render.progress import progress
from fairlead.render.terminal import Format
from fairlead_schemas.units.quantities import progress_text


@pytest.mark.parametrize(
    ("done", "of", "seconds", "expected"),
    [
        (0, 100, 20, "replay: 0 of 100 commits (0 %)"),
        (12_000, 50_000, 3, "replay: 12,000 of 50,000 commits (24 %), 4,000 a second, 10 s left"),
        (100, 100, 3, "replay: 100 of 100 commits (100 %), 33 a second"),
        (1, 100, 0.5, "replay: 1 of 100 commits (1 %)"),
        (2, 10, 60, "replay: 2 of 10 commits (20 %), 2.0 a minute, 4m 00s left"),
        (1, 1000, 100, "replay: 1 of 1,000 commits (0 %), 0.6 a minute, 27h 45m left"),
        (0, 0, 5, "replay: 0 of 0 commits"),
        (7, 5, 5, "replay: 7 of 5 commits (140 %), 1 a second"),
    ],
)
def test_the_line_has_amount_rate_and_time_left(done: int, of: int, seconds: float, expected: str) -> None:
    """The rate is that of the whole work; it is named once it means something."""
    assert progress_text("replay", "commits", done, of, seconds) == expected


class Clock:
    """A clock that moves by two seconds at each look."""

    def __init__(self) -> None:
        self.now_s = -2.0

    def __call__(self) -> float:
        self.now_s += 2
        return self.now_s


def shown(capsys: pytest.CaptureFixture[str], output: Format = Format.table, steps: int = 12) -> str:
    """Stderr of work in so many steps of two seconds."""
    with progress("replay", "commits", output, clock=Clock()) as seen:
        for done in range(1, steps + 1):
            seen(done, steps)
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_a_pipe_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """One for each ten seconds, and none for work that is done sooner."""
    lines = shown(capsys).splitlines()
    assert [line.partition(" commits")[0] for line in lines] == ["replay: 5 of 12", "replay: 10 of 12"]
    assert shown(capsys, steps=4) == ""


@pytest.mark.parametrize("output", [Format.json, Format.yaml, Format.names])
def test_programs_get_nothing(capsys: pytest.CaptureFixture[str], output: Format) -> None:
    """However long it takes."""
    assert shown(capsys, output, steps=100) == ""


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is drawn at once for slow work, and removed also after an error."""
    monkeypatch.setattr(progress_module.terminal, "is_terminal", lambda stream=None: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(ValueError, match="damaged"):
        _interrupted_work()
    drawn = capsys.readouterr().err
    assert "replay: 3 of 12 commits (25 %)" in drawn
    assert drawn.rstrip().endswith("\x1b[2K"), "the line is erased"


def _interrupted_work() -> None:
    with progress("replay", "commits", clock=Clock()) as seen:
        seen(3, 12)
        raise ValueError("damaged")


def test_a_job_name_is_no_markup(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets are printed as they are."""
    monkeypatch.setattr(progress_module.terminal, "is_terminal", lambda stream=None: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("[red]x", "pieces", clock=Clock()) as seen:
        seen(1, 2)
    assert "[red]x: 1 of 2 pieces" in capsys.readouterr().err
