"""`python -m tests.hostile [--rounds N] [--only NAME …] [--seed N] [--write]`: attack real stacks, print what held.

Every round starts a stack of its own in a temporary directory, hurts it, lets it recover by itself, and checks that nothing
acknowledged was lost and nothing began twice. Exit 1 where anything failed; the seed and the directory are printed.
Traffic goes to loopback only, and every loop is bounded. `--short` is what CI runs.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.hostile import abuse, clocks, damage, disk, kills, node_key
from tests.hostile.outcome import Row, row, table

type Round = Callable[[Path, int, int], list[Row]]

#: {name: (its round, tries of a full run for each of `--rounds`, tries of the short form; 0: left out)}
ROUNDS: dict[str, tuple[Round, int, int]] = {
    "kills": (kills.kills, 5, 6),
    "holds": (kills.holds, 4, 0),
    "damage": (damage.damage, 8, 2),
    "abuse": (abuse.abuse, 1, 1),
    "clocks": (clocks.clocks, 5, 1),
    "disk": (disk.disk, 1, 0),
    "node_key": (node_key.node_key, 2, 1),
}


def main() -> int:
    """Run what was asked for and print the table."""
    options = _options()
    rows: list[Row] = []
    base = Path(tempfile.mkdtemp(prefix="hostile-", dir=options.directory))
    for name in options.only or ROUNDS:
        play, per_round, short = ROUNDS[name]
        tries = short if options.short else per_round * options.rounds
        if not tries:
            continue
        began = time.monotonic()
        print(f"== {name}: {tries} tries, seed {options.seed}", flush=True)
        try:
            found = play(base / name, tries, options.seed)
        except (AssertionError, OSError) as error:
            found = [row(name, "the round itself", 1, [str(error).splitlines()[0][:200]])]
            print(error, flush=True)
        rows += found
        print(table(found), f"\n{time.monotonic() - began:.0f} s\n", flush=True)
    failures = sum(each.failures for each in rows)
    print(table(rows))
    print(f"\n{sum(each.tries for each in rows)} tries, {failures} failures, seed {options.seed}; data in {base}")
    if not failures and not options.keep:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="how often each round's list is gone through")
    parser.add_argument("--only", nargs="+", choices=sorted(ROUNDS), help="these rounds alone")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn")
    parser.add_argument("--short", action="store_true", help="the form of CI: a few tries of the quick rounds")
    parser.add_argument("--keep", action="store_true", help="keep the data although nothing failed")
    parser.add_argument("--directory", default=None, help="where data directories are made")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
