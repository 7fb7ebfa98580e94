"""Packing on a real trace: `python -m bench.openb [--nodes FILE] [--pods FILE] [--seeds A..B] [--arrived PCT] [--policy NAME]`.

The pods of the list, and more of them drawn uniformly until the request reaches `--arrived` percent of the GPUs; shuffled by
seed; placed one by one on an empty cluster; nothing leaves; a pod that does not fit is dropped. One JSON line per seed,
and last a summary: means over the seeds. What the FGD paper's simulator got is in bench/data/openb/README.md.
"""

import argparse
import json
import random
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from bench.openb import trace
from bench.openb.cluster import Cluster
from fairlead_placer.packing.policies import DEFAULT, POLICIES
from fairlead_placer.packing.policy import EmptyNode, RequestShape

#: In percent of all GPUs requested by the pods so far: where figures are taken; "until 100 %" is the guard's.
POINTS_PCT = (95, 100, 110, 120, 130)
GUARD_PCT = 100


class Played(NamedTuple):
    """Result of a run. The first two by point: GPUs allocated, and GPUs that the list's pods cannot use, in percent of all."""

    allocated: dict[int, float]
    fragmented: dict[int, float]
    #: Pods of 8 GPUs that arrived until `GUARD_PCT`, and how many of them were dropped.
    eights: int
    eights_dropped: int
    #: Pods that were dropped though they fit, by a scan of its own.
    refused: int
    decisions: int
    #: CPU seconds of the placing, the checks left out.
    seconds: float


def arrivals(pods: list[RequestShape], capacity_milli: int, arrived_pct: int, seed: int) -> list[RequestShape]:
    """The pods of one run, in order."""
    rng = random.Random(seed)
    arriving, asked = list(pods), sum(pod.total_milli for pod in pods)
    while asked * 100 < capacity_milli * arrived_pct:
        arriving.append(rng.choice(pods))
        asked += arriving[-1].total_milli
    rng.shuffle(arriving)
    return arriving


def play(
    machines: list[EmptyNode],
    pods: list[RequestShape],
    policy: str,
    seed: int,
    arrived_pct: int = 130,
    given: bool = False,
) -> Played:
    """Play one run; `given`: the list's mix is known from the start."""
    cluster, typical = Cluster(machines, policy, pods if given else []), trace.typical(pods)
    check, capacity = trace.Scan(machines), cluster.pool.free_milli
    points = [pct for pct in POINTS_PCT if pct < arrived_pct] + [arrived_pct]
    allocated, fragmented = dict[int, float](), dict[int, float]()
    arrived = taken = refused = eights = dropped = 0
    seconds = 0.0
    stream = arrivals(pods, capacity, arrived_pct, seed)

    def note(pct: int) -> None:
        allocated[pct] = 100 * taken / capacity
        fragmented[pct] = 100 * trace.unusable_milli(cluster.pool, typical) / capacity

    for pod in stream:
        arrived += pod.total_milli
        while len(points) > 1 and arrived * 100 > capacity * points[0]:
            note(points.pop(0))
        began = time.process_time()
        found = cluster.place(pod)
        seconds += time.process_time() - began
        taken += _checked(check, pod, found)
        refused += found is None and check.fits(pod)
        if pod.gpu_count == 8 and arrived * 100 <= capacity * GUARD_PCT:
            eights += 1
            dropped += found is None
    for pct in points:
        note(pct)
    return Played(allocated, fragmented, eights, dropped, refused, len(stream), seconds)


def _checked(check: trace.Scan, pod: RequestShape, found: tuple[int, tuple[int, ...]] | None) -> int:
    """Thousandths of a GPU taken."""
    if found is None:
        return 0
    check.take(found[0], pod, found[1])
    return pod.total_milli


def summary(policy: str, runs: dict[int, Played]) -> dict[str, object]:
    """Summarize runs by seed: means, and what must hold."""
    each = list(runs.values())
    points = list(each[0].allocated)
    at = min(points, key=lambda pct: abs(pct - GUARD_PCT))
    return {
        "policy": policy,
        "seeds": list(runs),
        "gpu_alloc_pct": {str(pct): round(fmean(run.allocated[pct] for run in each), 2) for pct in points},
        "gpu_alloc_sd": {
            str(pct): round(stdev(run.allocated[pct] for run in each), 2) if len(each) > 1 else 0.0 for pct in points
        },
        "frag_gpu_pct": round(fmean(run.fragmented[at] for run in each), 2),
        "frag_gpu_pct_at": {str(pct): round(fmean(run.fragmented[pct] for run in each), 2) for pct in points},
        "drop_8gpu_pct": _share(sum(run.eights_dropped for run in each), sum(run.eights for run in each)),
        "refused_that_fit": sum(run.refused for run in each),
        "decisions_per_s": round(sum(run.decisions for run in each) / max(1e-9, sum(run.seconds for run in each))),
        "seconds_max": round(max(run.seconds for run in each), 2),
    }


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def line(policy: str, seed: int, run: Played) -> dict[str, object]:
    """Return a seed's line: the summary of that run alone."""
    alone = summary(policy, {seed: run})
    return {"seed": seed, **{name: value for name, value in alone.items() if name not in ("seeds", "gpu_alloc_sd")}}


def main() -> int:
    """Play and print; 1 when a pod that fits was refused."""
    parser = argparse.ArgumentParser(prog="python -m bench.openb", description=__doc__)
    parser.add_argument("--nodes", type=Path, default=trace.NODES, help="a list of nodes (default: the trace's)")
    parser.add_argument("--pods", type=Path, default=trace.PODS, help="a list of pods (default: the trace's own)")
    parser.add_argument("--seeds", default="42..51", help="FIRST..LAST (default: 42..51, as published)")
    parser.add_argument("--arrived", type=int, default=130, help="percent of all GPUs requested (default: 130)")
    parser.add_argument("--policy", choices=list(POLICIES), default=DEFAULT, help=f"default: {DEFAULT}")
    parser.add_argument(
        "--given", action="store_true", help="the list's mix is known from the start, as to the published FGD"
    )
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("..")
    machines, pods = trace.machines(arguments.nodes), trace.pods(arguments.pods)
    runs: dict[int, Played] = {}
    for seed in range(int(first), int(last or first) + 1):
        runs[seed] = play(machines, pods, arguments.policy, seed, arguments.arrived, arguments.given)
        print(json.dumps(line(arguments.policy, seed, runs[seed])), flush=True)
    found = summary(arguments.policy, runs)
    print(json.dumps(found))
    return 1 if found["refused_that_fit"] else 0
