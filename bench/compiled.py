"""Compiled cores against plain ones: `python -m bench.compiled [--rounds N]`, after `make compiled`.

CPU time of each core's fold and decisions, without bus, disk and encoding. The two builds run in turn, each time in a process of
its own, and the medians are compared. CPU time per event is steadier than a rate; on a busy machine it still rises by a third.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench import lives
from bench.cores import Pair
from fairlead_bus.main import collect_rarely
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_replay.compiled import cores_build
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit

ROOT = Path(__file__).parent.parent
COMPILED = str(ROOT / ".compiled")
JOBS = 10_000
#: Lives of six events each, in commits of so many events.
LIVES, PER_COMMIT = 10_000, 10


class Clock:
    """CPU time of named parts, in seconds."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call, whose CPU time is added to a part."""

        def run(*args: Any) -> Any:
            began = time.process_time_ns()
            try:
                return call(*args)
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + (time.process_time_ns() - began) / 1e9

        return run


def folds() -> dict[str, float]:
    """CPU µs per event of each core's fold of plain job lives."""
    commits = [
        Commit(
            v=VERSION,
            writer=writer,
            n=1,
            basis=0,
            at_ns=1_700_000_000 * SECOND_NS + at,
            cursors={},
            prev=GENESIS,
            events=events,  # type: ignore[arg-type] -- events of these writers
        )
        for at, (writer, events) in enumerate([*lives.opening(), *lives.lives(1, LIVES, PER_COMMIT)])
    ]
    count = sum(len(commit.events) for commit in commits)
    found: dict[str, float] = {}
    for name, core in (("queue", QueueCore()), ("placer", PlacerCore())):
        began = time.process_time()
        for at, commit in enumerate(commits):
            core.evolve(at + 1, commit)
        found[f"{name}: fold, per event"] = (time.process_time() - began) / count * 1e6
    return found


def decisions() -> dict[str, float]:
    """CPU µs per job of each core's decisions and of its fold of what both decided."""
    pair, clock = Pair(), Clock()
    for name, core in (("queue", pair.queue), ("placer", pair.placer)):
        for verb in ("decide", "evolve"):
            setattr(core, verb, clock.timed(f"{name}: {verb}, per job", getattr(core, verb)))
    pair.run(JOBS)
    return {name: seconds / JOBS * 1e6 for name, seconds in clock.spent.items()}


def measured() -> dict[str, float]:
    """All parts, in this process."""
    collect_rarely()
    return folds() | decisions()


def child(compiled: str) -> dict[str, float]:
    """The parts in a process of its own. `compiled`: the folder of a compiled wheel, "" for the sources."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if compiled:
        environment["PYTHONPATH"] = compiled
    words = [sys.executable, "-m", "bench.compiled", "--child"]
    done = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    build, parts = msgspec.json.decode(done.stdout, type=tuple[str, dict[str, float]])
    assert build == ("compiled" if compiled else "plain Python"), f"found cores that are {build}: make compiled"
    return parts


def table(pairs: list[tuple[dict[str, float], dict[str, float]]]) -> str:
    """Return a Markdown table of the medians. `pairs`: (plain, compiled) of each round."""
    lines = ["| CPU µs | plain | compiled | plain / compiled |", "|---|---:|---:|---:|"]
    for name in pairs[0][0]:
        plain, compiled = (statistics.median(pair[side][name] for pair in pairs) for side in (0, 1))
        ratio = statistics.median(pair[0][name] / pair[1][name] for pair in pairs)
        lines.append(f"| {name} | {plain:.2f} | {compiled:.2f} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> int:
    """Measure in turn and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.compiled", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        sys.stdout.buffer.write(msgspec.json.encode((cores_build(), measured())))
        return 0
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(options.rounds):
        order = ("", COMPILED) if number % 2 == 0 else (COMPILED, "")
        found = {each: child(each) for each in order}
        pairs.append((found[""], found[COMPILED]))
    print(table(pairs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
