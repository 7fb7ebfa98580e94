"""Comparison: `python -m bench compare REV [ROW …] [--pairs N]`: rows of the table, here and at another revision, in turn.

Machines are noisy and drift, so single figures of two days cannot be compared. Here each pair of runs is made one after the other,
the order changing from pair to pair, and the median of the pairs' ratios is printed with the smallest and largest. The other
revision is checked out next to the tree and runs with this tree's interpreter and packages. Start at `main`.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
#: Rows that need neither Docker nor minutes.
USUAL = ("live", "queue", "placing", "replay")
_LINE = re.compile(r"^  (?:ok  |MISS) (?P<what>.+?): (?P<measured>[^(]+) \(goal ")
#: A rate as a multiple of what ran in turn with it, which a busy machine slows down alike.
_MULTIPLE = re.compile(r"(?P<number>[0-9.]+) naive scans \(goal ")
_CPU = re.compile(r" \[CPU (?P<us>[0-9,.]+) µs (?P<of>a job|a rank|an event)(?:: [^\]]*)?\]$")
_FIGURE = re.compile(r"(?<![\w.,])(?P<number>[0-9][0-9,]*(?:\.[0-9]+)?)")


class Figure(NamedTuple):
    """The first figure of a row: a rate (more is better) or an amount of time or memory (less is better)."""

    value: float
    is_rate: bool

    def gain(self, before: "Figure") -> float:
        """Return how much better than `before` this is: 1.03 is 3 % better, whichever way the row counts."""
        ratio = self.value / before.value if before.value else 1.0
        return ratio if self.is_rate else 1 / ratio if ratio else 1.0


def figures(output: str) -> dict[str, Figure]:
    """Read the rows that a run has printed: {what: its figure}."""
    found: dict[str, Figure] = {}
    for line in output.splitlines():
        row = _LINE.match(line)
        figure = _FIGURE.search(row["measured"]) if row else None
        multiple = _MULTIPLE.search(line) if row else None
        if row and multiple:
            found[row["what"]] = Figure(float(multiple["number"]), True)
        elif row and figure:
            found[row["what"]] = Figure(float(figure["number"].replace(",", "")), "/s" in row["measured"])
        cpu = _CPU.search(line) if row else None
        if row and cpu:
            found[f"{row['what']}: CPU µs {cpu['of']}"] = Figure(float(cpu["us"].replace(",", "")), False)
    return found


def table(pairs: list[tuple[dict[str, Figure], dict[str, Figure]]], revision: str) -> str:
    """Return a Markdown table of all rows that both trees have measured. `pairs`: (before, after) of each pair."""
    lines = [
        f"| what | {revision} | here | better by, median of {len(pairs)} pairs | least, most |",
        "|---|---:|---:|---:|---|",
    ]
    for what in pairs[0][1]:
        both = [(before[what], after[what]) for before, after in pairs if what in before and what in after]
        if not both:
            lines.append(f"| {what} | – | {pairs[0][1][what].value:,g} | not measured there | |")
            continue
        gains = sorted(after.gain(before) for before, after in both)
        befores, afters = (statistics.median(pair[side].value for pair in both) for side in (0, 1))
        least, middle, most = ((gain - 1) * 100 for gain in (gains[0], statistics.median(gains), gains[-1]))
        lines.append(f"| {what} | {befores:,g} | {afters:,g} | {middle:+.1f} % | {least:+.1f}, {most:+.1f} % |")
    return "\n".join(lines)


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Check out a revision into a directory of its own, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        tree = Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def python_path(tree: Path) -> str:
    """Return the folders of a tree's import packages, as its wheel takes them."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    packages: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return os.pathsep.join(str((tree / package).parent) for package in packages)


def run(tree: Path, rows: list[str]) -> dict[str, Figure]:
    """Run rows of one tree. Raises RuntimeError with its words where it ends without a figure."""
    path = os.pathsep.join([str(tree), python_path(tree)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-m", "bench", *rows], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    found = figures(done.stdout)
    if not found:  # exit code 1 only says that a goal was missed
        raise RuntimeError(f"no figure of {' '.join(rows)} in {tree}:\n{(done.stdout + done.stderr)[-2000:]}")
    return found


def main(arguments: list[str]) -> int:
    """Measure in turn and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench compare", description=__doc__)
    parser.add_argument("revision")
    parser.add_argument(
        "rows", nargs="*", default=list(USUAL), help=f"rows of `python -m bench` (default: {' '.join(USUAL)})"
    )
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args(arguments)
    pairs: list[tuple[dict[str, Figure], dict[str, Figure]]] = []
    with checked_out(options.revision) as tree:
        for number in range(options.pairs):
            order = (tree, ROOT) if number % 2 == 0 else (ROOT, tree)
            found = {each: run(each, options.rows) for each in order}
            pairs.append((found[tree], found[ROOT]))
            print(f"pair {number + 1} of {options.pairs} measured", flush=True)
    print(table(pairs, options.revision))
    return 0
