"""The walk for a team lead, typed as it stands on its page: every command prints what the page says.

Times, durations, sequences and ids of commands differ from run to run and are not compared. After a wanted change:
`make test ARGS="tests/system/test_walk.py --update-golden"`, and read the difference.
"""

import contextlib
import io
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.main import main

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "walk-team-lead.md"
_BLOCK = re.compile(r"```(yaml|console)\n(.*?)```", re.DOTALL)
#: What changes nothing is asked again until it says what the page says.
READS = {"why", "jobs", "events", "queues"}
SETTLE_S = 20.0
#: A person types no faster; runs that began in one second would cost the same to stop.
TYPING_S = 1.2
_VARIES = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"), (r"\b\d+(?:ms|[dhms])(?: \d+[hms])?\b", "LONG"), (r"cmd:[0-9a-z-]+", "cmd"),
    (r"\[\d+\.\d+\]|<- \d+\.\d+", "EVENT"), (r"sequence \d+", "sequence N"), (r"(report:[a-z0-9-]+):\d+", r"\1"),
    (r'"gpu_s":\d+', "gpu_s"), (r" +", " "),
)  # fmt: skip


def plain(text: str) -> str:
    """Without what varies; the width of columns does with it."""
    for pattern, word in _VARIES:
        text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


class Terminal:
    """Somebody who types into the cluster in one directory."""

    def __init__(self, folder: Path, setenv: Callable[[str, str], None], *, update: bool) -> None:
        self.folder = folder
        self.update = update
        self._setenv = setenv
        #: {a sequence on the page: what it was here}
        self.sequences: dict[str, str] = {}

    def run(self, line: str) -> str:
        """What one line prints, remarks included."""
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self._setenv(name, value)
            return ""
        assert words[0] == "fairlead", line
        screen = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            main(words[1:])
        return screen.getvalue()

    def as_of_here(self, line: str) -> str:
        """A line with the sequence that it names as it was here."""
        return re.sub(r"--at (\d+)", lambda found: f"--at {self.sequences.get(found[1], found[1])}", line)

    def typed(self, line: str, expected: str) -> str:
        """What a line of the page prints once the cluster has settled."""
        words = shlex.split(line)
        reads = "--dry-run" in words or (words[1] in READS and words[2:3] not in (["apply"], ["delete"]))
        if self.update:
            time.sleep(12 if "--dry-run" in words else 3 if reads else TYPING_S)
        deadline = time.monotonic() + SETTLE_S
        found = self.run(line)
        while reads and not self.update and plain(found) != plain(expected) and time.monotonic() < deadline:
            time.sleep(0.3)
            found = self.run(line)
        for page, here in zip(
            re.findall(r"sequence (\d+)", expected), re.findall(r"sequence (\d+)", found), strict=False
        ):
            self.sequences[page] = here
        return found


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """A cluster as the page starts it, on free ports."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FAIRLEAD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FAIRLEAD_USER", "root")
    there = Terminal(tmp_path, monkeypatch.setenv, update=bool(request.config.getoption("--update-golden")))
    (up,) = re.findall(r"^    (fairlead up .*)$", PAGE.read_text(), re.MULTILINE)
    assert "url" in there.run(f"{up} --port 0")
    yield there
    there.run("fairlead down --jobs")


def commands(block: str) -> list[tuple[str, str]]:
    """(command, what stands below it) of a console block."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def test_the_page_says_what_the_commands_print(terminal: Terminal) -> None:
    """From the first command to the last, on one cluster."""
    page = PAGE.read_text()
    written = page
    for kind, block in _BLOCK.findall(page):
        if kind == "yaml":
            (terminal.folder / "queues.yaml").write_text(block)
            continue
        printed = ""
        for line, expected in commands(block):
            if line.split()[1:2] == ["submit"]:
                time.sleep(TYPING_S)
            here = terminal.as_of_here(line)
            found = terminal.typed(here, expected)
            printed += f"$ {here}\n{found}"
            if not terminal.update:
                assert plain(found) == plain(expected), line
        written = written.replace(f"```console\n{block}```", f"```console\n{printed}```", 1)
    if terminal.update:
        PAGE.write_text(written)
