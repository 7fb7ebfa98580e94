"""Logs of simulated worlds, by their digests: `python -m tests.compiled.seeds FIRST LAST`.

Without exceptions in mid-decision: they strike at a step of plain Python, and a compiled core has none (sim/faults.py).
"""

import sys

from fairlead_replay.compiled import cores_build
from fairlead_replay.sim.people import Restless
from fairlead_replay.sim.seeds import quiet
from fairlead_replay.sim.world import Parts, run_seed

PARTS = Parts(people=Restless, decision_faults=lambda _seed, _until_s: [])


def digests(first: int, last: int) -> dict[int, str]:
    """Return {seed: SHA-256 of its log, or the invariant that it violates}."""
    quiet()
    outcomes = [run_seed(seed, parts=PARTS) for seed in range(first, last + 1)]
    return {outcome.seed: outcome.violation or outcome.digest for outcome in outcomes}


def lines(first: int, last: int) -> list[str]:
    """Return the build of the cores, then one line per seed."""
    return [cores_build(), *(f"{seed} {digest}" for seed, digest in digests(first, last).items())]


if __name__ == "__main__":
    print("\n".join(lines(int(sys.argv[1]), int(sys.argv[2]))))
