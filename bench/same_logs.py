"""Comparison of decisions: `python -m bench.same_logs REV [--seeds A..B] [--restless] [--philly NODES …]`.

Play the same worlds with another revision's code and with this tree's, and compare the logs, byte for byte. A change that
is to save time only leaves every digest as it was; one that decides otherwise is named world by world.

    python -m bench.same_logs main --seeds 1..200                the simulator's seeds, with its faults
    python -m bench.same_logs main --seeds 1..200 --restless     people who change the queues all the time
    python -m bench.same_logs main --philly 64 48 16             Philly's four clusters, with each sequencer

A Philly world of 16 nodes always has a queue; `--jobs` plays so many of its first jobs. Exits 1 where a log differs. Seeds that inject a
fault after a number of steps within a decision differ in the message of the rejected command if the number of steps does.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Digits of a digest that are shown.
SHOWN = 16


def worlds(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield (name of a world, digest of its log), played with whatever code is imported."""
    if options.philly:
        yield from _philly(options.philly, options.jobs)
    else:
        yield from _seeds(options.seeds, restless=options.restless)


def _seeds(text: str, *, restless: bool) -> Iterator[tuple[str, str]]:
    from fairlead_replay.sim import seeds, world

    first, _, last = text.partition("..")
    parts = world.Parts(people=seeds.people_of(restless=restless))
    seeds.quiet()
    for seed in range(int(first), int(last or first) + 1):
        outcome = world.run_seed(seed, parts=parts)
        yield f"seed {seed}", f"{outcome.digest} {outcome.violation or ''}".strip()


def _philly(clusters: list[int], jobs: int) -> Iterator[tuple[str, str]]:
    from bench.fairness import philly, traces
    from fairlead_replay.virtual.play import play

    for nodes in clusters:
        load = [job for job in traces.philly() if job.request.nodes <= nodes][: jobs or None]
        for variant in philly.variants(nodes):
            digest = hashlib.sha256()
            play(load, philly.setting(variant), record=lambda stored, digest=digest: digest.update(stored.payload))
            yield f"philly, {nodes} nodes, {variant.name}", digest.hexdigest()


def _played_at(tree: Path, arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Play the worlds with the code of a tree, in a process of its own."""
    from bench.compare import python_path

    path = os.pathsep.join([str(tree), python_path(tree)])
    child = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).resolve()), "HERE", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tree,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    for line in child.stdout:
        name, _, digest = line.rstrip("\n").partition("\t")
        yield name, digest
    if child.wait():
        raise RuntimeError(f"expected the worlds to be played in {tree}, found exit code {child.returncode}")


def options_of(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.same_logs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="the other revision; HERE prints the digests of this code alone")
    parser.add_argument("--seeds", default="1..200", help="seeds of the simulator, N or A..B, both included")
    parser.add_argument("--restless", action="store_true", help="people change the queues all the time")
    parser.add_argument("--philly", type=int, nargs="*", default=[], help="clusters of so many nodes, instead of seeds")
    parser.add_argument("--jobs", type=int, default=0, help="only so many of Philly's jobs (0: all)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Play both revisions side by side and compare; 1 where a log differs."""
    options = options_of(arguments)
    if options.revision == "HERE":
        for name, digest in worlds(options):
            print(f"{name}\t{digest}", flush=True)
        return 0
    from bench.compare import ROOT, checked_out

    with checked_out(options.revision) as tree:
        return compare(options.revision, _played_at(tree, arguments[1:]), _played_at(ROOT, arguments[1:]))


def compare(revision: str, there: Iterator[tuple[str, str]], here: Iterator[tuple[str, str]]) -> int:
    """Print the worlds whose digests differ, and a summary; 1 where any does."""
    played = differ = 0
    for (name, before), (same, after) in zip(there, here, strict=True):
        assert name == same
        played += 1
        if before != after:
            differ += 1
            print(f"{name}: {before[:SHOWN]} at {revision}, {after[:SHOWN]} here", flush=True)
    print(f"{played} logs, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
