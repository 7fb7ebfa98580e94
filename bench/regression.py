"""Regression check: `python -m bench regression [REV]` fails if a fixed load takes over 10 % more CPU here than at REV.

Without REV: the newest release tag that HEAD contains, or else the revision that the file `bench/baseline` names. The loads are those
of this tree (fixed_loads.py), for both revisions. Processes of the two run in pairs, one after the other, the order changing from pair
to pair; the median of the pairs' ratios counts. A ratio beyond the limit is measured again with as many pairs, and all of them count,
before the check fails. If the repository does not hold REV (a shallow clone), nothing is compared, and a line states why.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.compare import ROOT, checked_out, python_path
from bench.fixed_loads import Done

BASELINE = Path(__file__).with_name("baseline")
PAIRS, LIMIT_PERCENT = 5, 10.0
#: CPU seconds of each load, by tree.
Pair = tuple[dict[str, float], dict[str, float]]


class NoBaseline(Exception):
    """There is no revision to compare with in this repository."""


class LoadsFailed(Exception):
    """A product does not run the loads of this tree."""


class Change(NamedTuple):
    """Change of a load's CPU from the other revision to this tree: the ratio of each pair, sorted."""

    load: str
    before_s: float
    here_s: float
    ratios: list[float]

    @property
    def percent(self) -> float:
        """Median of the pairs, in percent more than before."""
        return (statistics.median(self.ratios) - 1) * 100


def changes(pairs: list[Pair]) -> list[Change]:
    """Return the change of each load over these pairs: (before, here) of each."""
    return [
        Change(
            load,
            statistics.median(before[load] for before, _ in pairs),
            statistics.median(here[load] for _, here in pairs),
            sorted(here[load] / before[load] for before, here in pairs),
        )
        for load in pairs[0][1]
    ]


def table(found: list[Change], revision: str, limit_percent: float) -> str:
    """Return the changes as lines of text, those beyond the limit marked."""
    lines = [
        f"CPU of fixed loads, {revision} → here, median of {len(found[0].ratios)} pairs (limit +{limit_percent:g} %)"
    ]
    for each in found:
        least, most = ((ratio - 1) * 100 for ratio in (each.ratios[0], each.ratios[-1]))
        mark = "MISS" if each.percent > limit_percent else "ok  "
        lines.append(
            f"  {mark} {each.load}: {each.before_s:.3f} → {each.here_s:.3f} s, {each.percent:+.1f} % ({least:+.1f} to {most:+.1f} %)"
        )
    return "\n".join(lines)


def baseline() -> str:
    """Return the newest release tag that HEAD contains, or the revision that the file names. Raises NoBaseline."""
    named = tag() or (BASELINE.read_text().strip() if BASELINE.exists() else "")
    if not named:
        raise NoBaseline(f"HEAD contains no release tag v*, and bench/{BASELINE.name} names no revision")
    return named


def tag() -> str:
    """Return the newest release tag that HEAD contains, "" without one."""
    return _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")


def check_present(revision: str) -> None:
    """Raise NoBaseline if the repository does not hold the revision."""
    if not _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"):
        raise NoBaseline(
            f"revision {revision} is not in this repository (a shallow clone? git fetch --unshallow --tags)"
        )


def _git(*words: str) -> str:
    """Output of git, "" where it fails or is not installed."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def run(tree: Path) -> dict[str, float]:
    """CPU seconds of the loads of this tree on the product of another. Raises LoadsFailed."""
    environment = {**os.environ, "PYTHONPATH": python_path(tree), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-m", "bench.fixed_loads"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LoadsFailed(done.stderr[-2000:])
    found = msgspec.json.decode(done.stdout, type=Done)
    assert Path(found.product) == tree, f"expected the product of {tree}, found {found.product}"
    return found.seconds


def measure(tree: Path, count: int) -> list[Pair]:
    """Run so many pairs of processes, one after the other."""
    pairs: list[Pair] = []
    for number in range(count):
        order = (tree, ROOT) if number % 2 == 0 else (ROOT, tree)
        found = {each: run(each) for each in order}
        pairs.append((found[tree], found[ROOT]))
    return pairs


def main(arguments: list[str]) -> int:
    """Measure, print, and return 1 if a load takes more CPU than allowed; 0 if nothing can be compared."""
    parser = argparse.ArgumentParser(prog="python -m bench regression", description=__doc__)
    parser.add_argument(
        "revision", nargs="?", default="", help=f"default: newest release tag, or bench/{BASELINE.name}"
    )
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--limit", type=float, default=LIMIT_PERCENT, help="percent (default %(default)g)")
    options = parser.parse_args(arguments)
    revision: str = options.revision
    try:
        revision = revision or baseline()
        check_present(revision)
        with checked_out(revision) as tree:
            pairs = measure(tree, options.pairs)
            if any(each.percent > options.limit for each in changes(pairs)):
                print(table(changes(pairs), revision, options.limit) + "\nbeyond the limit: measured again", flush=True)
                pairs += measure(tree, options.pairs)
    except NoBaseline as error:
        print(f"CPU of fixed loads: not compared: {error}")
        return 0
    except LoadsFailed as error:
        print(
            f"{error}\nthe fixed loads fail here or at {revision}: mend them, or name a newer revision in bench/{BASELINE.name}"
        )
        return 1
    found = changes(pairs)
    print(table(found, revision, options.limit))
    return 1 if any(each.percent > options.limit for each in found) else 0
