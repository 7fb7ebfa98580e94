"""`python -m tests.hostile [--rounds N] [--only NAME …] [--seed N] [--write]`: attack real stacks, print what held.

Every round starts a stack of its own in a temporary directory, hurts it, lets it recover by itself, and checks that nothing
acknowledged was lost and nothing began twice. Exit 1 where anything failed; the seed and the directory are printed.
Traffic goes to loopback only, and every loop is bounded. `--short` is what CI runs: fewer tries, two rounds at once.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx

from fairlead.errors import FairleadError
from tests.hostile import abuse, clocks, containers, damage, disk, kills, node_key, receiver, upgrade
from tests.hostile.outcome import Row, row, table

type Round = Callable[[Path, int, int], list[Row]]

#: {name: (its round, tries of a full run for each of `--rounds`, tries of the short form; 0: left out)}
ROUNDS: dict[str, tuple[Round, int, int]] = {
    "damage": (damage.damage, len(damage.CASES), 2),
    "kills": (kills.kills, 5, 3),
    "abuse": (abuse.abuse, 1, 1),
    "holds": (kills.holds, len(kills.HOLDS), 1),
    "clocks": (clocks.clocks, len(clocks.PARTS), 1),
    "node_key": (node_key.node_key, 1, 1),
    "disk": (disk.disk, 1, 0),
    "containers": (containers.containers, 1, 0),
    "upgrade": (upgrade.upgrade, 1, 0),
    "receiver": (receiver.away_long, 1, 0),
    "receiver_briefly": (receiver.away_briefly, 0, 1),
}
#: Rounds of the short form that run at once: most of their time they wait.
BESIDE = 2
PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "reliability.md"
BEGIN, END = "<!-- measured: hostile -->", "<!-- end -->"


def main() -> int:
    """Run what was asked for and print the table."""
    options = _options()
    base = Path(tempfile.mkdtemp(prefix="hostile-", dir=options.directory))
    began = time.monotonic()
    names = options.only or list(ROUNDS)
    if options.short:
        with ThreadPoolExecutor(BESIDE) as pool:
            found = list(pool.map(lambda name: _play(name, base, options), names))
    else:  # in the main thread, where Ctrl-C ends a round's stacks
        found = [_play(name, base, options) for name in names]
    rows = [each for rows in found for each in rows]
    failures = sum(each.failures for each in rows)
    ending = f"{sum(each.tries for each in rows):,} tries, {failures} failures, seed {options.seed}, {time.monotonic() - began:.0f} s"
    print(f"{table(rows)}\n\n{ending}; data in {base}")
    if options.write:
        write(table(rows), ending)
    if not failures and not options.keep:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failures else 0


def _play(name: str, base: Path, options: argparse.Namespace) -> list[Row]:
    """Play one round; an exception that is the round's own is a failure with its words."""
    play, per_round, short = ROUNDS[name]
    tries = short if options.short else per_round * options.rounds
    if not tries:
        return []
    began = time.monotonic()
    print(f"== {name}: {tries} tries, seed {options.seed}", flush=True)
    try:
        found = play(base / name, tries, options.seed)
    except (AssertionError, OSError, FairleadError, subprocess.SubprocessError, httpx.HTTPError) as error:
        found = [row(name, "the round itself", 1, [f"{type(error).__name__}: {str(error)[:200]}"])]
        print(error, flush=True)
    print(f"== {name}: {time.monotonic() - began:.0f} s\n{table(found)}\n", flush=True)
    return found


def write(rows: str, ending: str) -> None:
    """Put the table into docs/concepts/reliability.md, with the day and the version that it was made with."""
    text = PAGE.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no {BEGIN}"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    made = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, commit {commit or 'unknown'}: {ending}."
    PAGE.write_text(f"{head}{BEGIN}\n{made}\n\n{rows}\n{END}{tail}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often each round's list is gone through")
    parser.add_argument("--only", nargs="+", choices=sorted(ROUNDS), help="these rounds alone")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn")
    parser.add_argument("--short", action="store_true", help="the form of CI: a few tries of the quick rounds")
    parser.add_argument("--write", action="store_true", help="put the table into docs/concepts/reliability.md")
    parser.add_argument("--keep", action="store_true", help="keep the data although nothing failed")
    parser.add_argument("--directory", default=None, help="where data directories are made")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
