"""`python -m bench.openb [--seeds 42..51] [--policy NAME …] [--list FILE]`: packing on a real trace, as published.

The pods of the list, and more of them drawn uniformly until the request reaches 130 % of the GPUs; shuffled by seed; placed
one by one on an empty cluster; nothing leaves; a pod that does not fit is dropped. Beside it what the FGD paper's
simulator got (bench/data/openb/README.md), and what must hold: no pod that fits is refused, by a scan of its own.
"""

import argparse
import random
import sys
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from bench import openb_trace as trace
from fairlead_placer.packing.packer import Packer
from fairlead_placer.packing.policies import DEFAULT, POLICIES
from fairlead_placer.packing.pool import Machine, Pool
from fairlead_placer.packing.shapes import Shape

#: Points of the published curve that are printed, in percent of all GPUs requested by the pods so far.
POINTS_PCT = (95, 100, 130)
PUBLISHED = ("FGD", "BestFit", "GpuPacking")


class Played(NamedTuple):
    """One run: GPU allocation in percent at each of `POINTS_PCT`; 8-GPU pods that arrived and were dropped up to 100 %
    and in all; pods that were refused though they fit; CPU seconds of the placing, the check left out."""

    allocated: tuple[float, ...]
    eights_100: tuple[int, int]
    eights_130: tuple[int, int]
    refused: int
    seconds: float


def arrivals(pods: list[Shape], capacity_milli: int, seed: int) -> list[Shape]:
    """The pods of one run, in order."""
    rng = random.Random(seed)
    arriving, asked = list(pods), sum(pod.total_milli for pod in pods)
    while asked < capacity_milli * 13 // 10:
        arriving.append(rng.choice(pods))
        asked += arriving[-1].total_milli
    rng.shuffle(arriving)
    return arriving


def play(machines: list[Machine], pods: list[Shape], policy: str, seed: int) -> Played:
    """One run."""
    pool = Pool(max(machine.gpus for machine in machines))
    for machine in machines:
        pool.add(machine)
    capacity = pool.free_milli
    packer, check = Packer(POLICIES[policy](), pool), trace.Scan(machines)
    arrived = allocated = refused = 0
    spent = 0.0
    at, eights = dict.fromkeys(POINTS_PCT, 0), {100: [0, 0], 130: [0, 0]}
    for pod in arrivals(pods, capacity, seed):
        arrived += pod.total_milli
        began = time.process_time()
        found = packer.place(pod)
        spent += time.process_time() - began
        if found is None:
            refused += check.fits(pod)
        else:
            check.take(found.node, pod, found.gpus)
            allocated += pod.total_milli
        for pct in POINTS_PCT:
            if arrived * 100 <= capacity * pct or pct == POINTS_PCT[-1]:
                at[pct] = allocated
        for pct, tally in eights.items():
            if pod.gpu_count == 8 and (arrived * 100 <= capacity * pct or pct == 130):
                tally[0] += 1
                tally[1] += found is None
    shares = tuple(100 * each / capacity for each in at.values())
    return Played(shares, (eights[100][0], eights[100][1]), (eights[130][0], eights[130][1]), refused, spent)


def show(policy: str, runs: list[Played]) -> None:
    """One line per policy: mean and standard deviation over the runs, then what must hold."""
    cells = [_mean_sd([run.allocated[at] for run in runs]) for at in range(len(POINTS_PCT))]
    dropped = [_share([run.eights_100 for run in runs]), _share([run.eights_130 for run in runs])]
    print(
        f"{policy:<16}" + "".join(f"{cell:>15}" for cell in cells)
        + f"{dropped[0]:>12}{dropped[1]:>12}{sum(run.refused for run in runs):>10}"
        + f"{max(run.seconds for run in runs):>9.1f}", flush=True,
    )  # fmt: skip


def _mean_sd(values: list[float]) -> str:
    return f"{fmean(values):.2f} ±{stdev(values) if len(values) > 1 else 0:.2f}"


def _share(counts: list[tuple[int, int]]) -> str:
    arrived, dropped = sum(each for each, _ in counts), sum(each for _, each in counts)
    return f"{100 * dropped / arrived:.1f} %" if arrived else "-"


def main() -> int:
    """Play and print; 1 when a pod that fits was refused."""
    parser = argparse.ArgumentParser(prog="python -m bench.openb", description=__doc__)
    parser.add_argument("--seeds", default="42..51", help="FIRST..LAST (default: 42..51, as published)")
    parser.add_argument(
        "--policy", action="append", choices=list(POLICIES), help=f"more than once (default: {DEFAULT})"
    )
    parser.add_argument("--list", type=Path, default=trace.PODS, help="another list of pods")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("..")
    machines, pods = trace.machines(), trace.pods(arguments.list)
    head = "".join(f"{f'at {pct} %':>15}" for pct in POINTS_PCT)
    print(f"{'GPUs allocated, %':<16}{head}{'8s lost@100':>12}{'8s lost@130':>12}{'refused':>10}{'CPU s':>9}")
    refused = 0
    for policy in arguments.policy or [DEFAULT]:
        runs = [play(machines, pods, policy, seed) for seed in range(int(first), int(last or first) + 1)]
        show(policy, runs)
        refused += sum(run.refused for run in runs)
    if arguments.list == trace.PODS:
        for policy in PUBLISHED:
            cells = [f"{mean:.2f} ±{sd:.2f}" for mean, sd in trace.published(policy, POINTS_PCT)]
            print(f"{policy + ', published':<16}" + "".join(f"{cell:>15}" for cell in cells))
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
