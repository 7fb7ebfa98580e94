"""Replay of a page of the documentation on a real stack: every command prints what the page shows.

A yaml or bash block is the file that the text before it names ("This is `job.yaml`:"). Times, durations, sequences and ids of
commands differ from run to run and are not compared. Start at `play`.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.main import main

_BLOCK = re.compile(r"```(yaml|bash|console)\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"This is `([\w.-]+)`")
#: Verbs that change nothing: they are repeated until they print what the page shows.
READS = {"why", "jobs", "show", "events", "queues", "logs", "nodes", "squeue", "sinfo", "sacct", "sql", "usage", "--at"}
SETTLE_S = 20.0
#: Heading of the tasks of docs/how-to/from-slurm.md, whose commands before it have no output on the page.
TASKS = "## Fifteen tasks, as they are typed"
#: Patterns, and the word that is compared instead of what they match.
type Varies = tuple[tuple[str, str], ...]
_VARIES: Varies = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\b\d+(?:ms|[dhms])(?: \d+[hms])?\b", "LONG"),
    (r"cmd:[0-9a-z-]+", "cmd"),
    (r"\[\d+\.\d+\]|<- \d+\.\d+", "EVENT"),
    (r"sequence +\d+", "sequence N"),
    (r"(report:[a-z0-9-]+):\d+", r"\1"),
    (r'"gpu_s":\d+', "gpu_s"),
    (r"lost seconds \d+", "lost seconds"),
    (r" +", " "),
)
#: Lines of an estimate. Pages about other things leave them out: whether there is an interval depends on the seconds that have passed.
ESTIMATE = ("starts", "by", "displaces", "sooner")
_NO_ESTIMATE: Varies = ((rf"(?m)^(?:{'|'.join(ESTIMATE)}) .*\n(?: {{6,}}.*\n)*", ""),)


def is_question(words: list[str]) -> bool:
    """Return True if a command line changes nothing."""
    if words[1] in READS:
        return words[2:3] not in (["apply"], ["delete"], ["remove"])
    whole = (["doctor"], ["maintenance"], ["breaker"], ["packing"], ["estimates"])
    return words[1:] in whole or words[1:3] == ["rollout", "show"]


def plain(text: str, more: Varies = (), *, estimates: bool = False) -> str:
    """Return the text without the parts that vary; the width of columns varies with them. `estimates`: with the lines of estimates."""
    for pattern, word in (*more, *(() if estimates else _NO_ESTIMATE), *_VARIES):
        text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def typed(line: str) -> str:
    """Return the output of one line of the shell, refusals included; "> FILE" keeps what it prints to the screen."""
    command, _, file = line.partition(" > ")
    screen, remarks = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(remarks):
        main(shlex.split(command)[1:])
    if file:
        Path(file).write_text(screen.getvalue())
        return remarks.getvalue()
    return screen.getvalue() + remarks.getvalue()


def end(child: subprocess.Popen[str]) -> None:
    """Kill a command that was left running."""
    child.kill()
    child.wait()


class Terminal:
    """Somebody who types into the cluster in one directory."""

    def __init__(self, folder: Path, setenv: Callable[[str, str], None], *, update: bool) -> None:
        self.folder = folder
        self.update = update
        #: What varies on this page beyond the usual.
        self.varies: Varies = ()
        #: The page is about estimates: their lines are compared, too.
        self.estimates = False
        #: Between two changes that are typed.
        self.pause_s = 0.0
        #: Address of the gateway, which pages have at its usual port.
        self.url = ""
        self._setenv = setenv
        #: Commands that a line ended with "&" has left running.
        self.beside: list[subprocess.Popen[str]] = []
        #: {a sequence on the page: what it was here}
        self.sequences: dict[str, str] = {}

    def run(self, line: str) -> str:
        """Return the output of one line, remarks included. A cluster that it starts gets a free port."""
        words = shlex.split(line, comments=True)
        if words[-1] == "&":
            return self._started(words[1:-1])
        if ">" in words:
            return self._kept(words[: words.index(">")], self.folder / words[-1])
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self._setenv(name, value)
            return ""
        if words[0] != "fairlead":
            words = [word.replace("http://127.0.0.1:8080", self.url) for word in words]
            return subprocess.run(words, cwd=self.folder, check=True, capture_output=True, text=True).stdout
        if words[1] == "up":
            words += ["--port", "0"]
        printed = io.BytesIO()
        screen = io.TextIOWrapper(printed, encoding="utf-8", write_through=True)  # output of jobs is bytes
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            main(words[1:])
        return printed.getvalue().decode()

    def _kept(self, words: list[str], file: Path) -> str:
        """Write what a command prints to a file, and return its remarks."""
        screen, remarks = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(screen), contextlib.redirect_stderr(remarks):
            main(words[1:])
        file.write_text(screen.getvalue())
        return remarks.getvalue()

    def _started(self, words: list[str]) -> str:
        """Leave a command running, and return its first remark."""
        argv = [sys.executable, "-m", "fairlead", *words]
        child = subprocess.Popen(argv, cwd=self.folder, stderr=subprocess.PIPE, text=True)
        self.beside.append(child)
        assert child.stderr is not None
        return child.stderr.readline()

    def close(self) -> None:
        """End what was left running."""
        for child in self.beside:
            end(child)

    def agrees(self, found: str, expected: str) -> bool:
        """Return True if the output is the page's."""
        return self._plain(found) == self._plain(expected)

    def _plain(self, text: str) -> str:
        return plain(text, self.varies, estimates=self.estimates)

    def as_of_here(self, line: str) -> str:
        """A line with the sequence that it names as it was here."""
        return re.sub(r"--at (\d+)", lambda found: f"--at {self.sequences.get(found[1], found[1])}", line)

    def typed(self, line: str, expected: str) -> str:
        """What a line of the page prints once the cluster has settled."""
        words = shlex.split(line)
        # What a command left running needs may not be there yet (a port of a job): it is typed again until it is.
        left = words[-1] == "&"
        reads = left or "--dry-run" in words or is_question(words)
        if self.update:
            time.sleep(12 if "--dry-run" in words else 3 if reads else self.pause_s)
        deadline = time.monotonic() + SETTLE_S
        found = self.run(line)
        while reads and not self.update and not self.agrees(found, expected) and time.monotonic() < deadline:
            time.sleep(0.3)
            if left:
                end(self.beside.pop())
            found = self.run(line)
        for page, here in zip(
            re.findall(r"sequence (\d+)", expected), re.findall(r"sequence (\d+)", found), strict=False
        ):
            self.sequences[page] = here
        return found


@contextlib.contextmanager
def started(
    page: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    update: bool,
    user: str = "root",
    simulation: Path | None = None,
) -> Iterator[Terminal]:
    """Start the cluster of the page on free ports, for a user who types; end it afterwards. `simulation`: a file of faults that its nodes
    read.
    """
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FAIRLEAD_DATA", str(folder / "data"))
    monkeypatch.setenv("FAIRLEAD_USER", user)
    if simulation is not None:
        monkeypatch.setenv("FAIRLEAD_SIMULATION", str(simulation))
    there = Terminal(folder, monkeypatch.setenv, update=update)
    (up,) = re.findall(r"^    (fairlead up .*)$", page.read_text(), re.MULTILINE)
    (there.url,) = re.findall(r"^url +(\S+)", there.run(up), re.MULTILINE)
    try:
        yield there
    finally:
        there.close()
        there.run("fairlead down --jobs")


def answers(page: Path) -> list[tuple[str, str]]:
    """(command, what stands below it) of every console block of the page."""
    return [each for kind, block in _BLOCK.findall(page.read_text()) if kind == "console" for each in _commands(block)]


def _commands(block: str) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def play(terminal: Terminal, page: Path, since: str = "") -> None:
    """Type the page from the first command to the last, or from the heading `since` on. With `update`, write the page with what was
    printed.
    """
    written = text = page.read_text()
    read_to = text.index(since)
    for part in _BLOCK.finditer(text, read_to):
        kind, block = part.groups()
        before, read_to = text[read_to : part.start()], part.end()
        if kind != "console":
            (terminal.folder / _FILE.findall(before)[-1]).write_text(block)
            continue
        printed = ""
        for line, expected in _commands(block):
            if line.split()[1:2] == ["submit"]:
                time.sleep(terminal.pause_s)
            here = terminal.as_of_here(line)
            found = terminal.typed(here, expected)
            printed += f"$ {here}\n{found}"
            if not terminal.update:
                assert terminal.agrees(found, expected), f"{line}\n{found}"
        written = written.replace(f"```console\n{block}```", f"```console\n{printed}```", 1)
    if terminal.update:
        page.write_text(written)
