"""Placement alone: the placer's core on a large cluster kept 80 to 95 % full, without bus, disk, agents or encoding.

A decision is one unit that got its place, or one offer that was refused; its event is drawn up with all that is
recorded (GPUs, score, reasons), and tried on the state, as a live placer does. What ends, and what the log folds, is outside
the measure. Each rate is the median of several processes. CPU time of one thread, with garbage collected as rarely as a service does.

The goals were set against a naive scan of 17,000/s on one machine. Here a scan runs in turn with the decisions: a goal is met by its
absolute figure, or by the same multiple of the scans of the same run, and the row says by which.
"""

import gc
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import NamedTuple

from bench import table
from bench.placing.baselines import Baselines, Measuring
from bench.placing.cluster import PER_GPU, SIZES_PER_GPU, Cluster
from fairlead_bus.main import collect_rarely

#: Offers of one commit of the queue.
BATCH = 400
WARM, MEASURED = 4_000, 12_000
SIZES = (175, 1_750, 17_500)
#: Naive scans per second of the machine for which the goals were set, on as many nodes as `SIZES[1]`.
SCANS_OF_GOALS = 17_000
#: Processes of each rate, an odd number.
RUNS = 5
#: No more than so many times slower on ten times as many nodes.
GROWTH_MAX = 2


class Rate(NamedTuple):
    """Decisions, how long they took, and what ran in turn with them."""

    nodes: int
    placed: int  # units
    refused: int
    took_s: float
    baselines: Baselines

    @property
    def per_s(self) -> float:
        """Decisions per second of CPU."""
        return (self.placed + self.refused) / self.took_s

    @property
    def scans(self) -> float:
        """The same as a multiple of the naive scans of the same run."""
        return self.per_s / self.baselines.scan


class Goal(NamedTuple):
    """Decisions per second, on the machine for which it was set."""

    per_s: int

    @property
    def scans(self) -> float:
        """Return the rate as a multiple of that machine's naive scans."""
        return self.per_s / SCANS_OF_GOALS

    @property
    def text(self) -> str:
        """Text of the goal in a row."""
        return f"≥ {self.per_s:,}/s, or {self.scans:.2f} naive scans of the same run"

    def met_by(self, rate: Rate) -> list[str]:
        """Return which of the two goals is met."""
        absolute, multiple = rate.per_s >= self.per_s, rate.scans >= self.scans
        return ["the absolute figure"] * absolute + ["the multiple of naive scans"] * multiple


def measure(
    nodes: int, *, mixed: bool, per_gpu: tuple[tuple[int, int], ...] = PER_GPU, warm: int = WARM, count: int = MEASURED
) -> Rate:
    """The rate on a cluster of so many nodes, once it is full and the work is known."""
    thresholds = gc.get_threshold()
    collect_rarely()
    cluster, baselines = Cluster(nodes, mixed=mixed, per_gpu=per_gpu), Measuring(SIZES[1])
    gc.collect()
    gc.freeze()
    placed = refused = offered = 0
    took = 0.0
    begun = False
    while offered < count:
        cluster.offer(BATCH)
        if begun:
            offered += BATCH
            baselines.turn()
        while True:
            more, no, each = cluster.decide()
            if begun:
                placed, refused, took = placed + more, refused + no, took + each
            if not more and not no:
                break
        cluster.withdraw()
        if cluster.used > 0.95 * cluster.capacity or begun:
            cluster.end()
        begun = begun or (cluster.jobs >= warm and cluster.used >= 0.8 * cluster.capacity)
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    return Rate(nodes, placed, refused, took, baselines.found)


def measured(nodes: int, *, mixed: bool, per_gpu: tuple[tuple[int, int], ...] = PER_GPU) -> Rate:
    """The median of RUNS, each in a process of its own, as a placer is one: what other rows have left in memory would slow it
    down, and processes differ by some percent in their layout of memory."""
    found: list[Rate] = []
    for _ in range(RUNS):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            found.append(process.submit(measure, nodes, mixed=mixed, per_gpu=per_gpu).result())
    return sorted(found, key=lambda rate: rate.scans)[RUNS // 2]


def rows() -> list[table.Row]:
    """Whole GPUs, the constrained mix, and both on ten times fewer and ten times more nodes."""
    found: list[table.Row] = []
    for what, goal, mixed in (("whole GPUs", Goal(50_000), False), ("constrained mix", Goal(20_000), True)):
        rates = [measured(nodes, mixed=mixed) for nodes in SIZES]
        found += [_row(what, goal, rates[1], _sizes() if mixed else ""), _growth(what, rates)]
    return found


def _sizes() -> str:
    rate = measured(SIZES[1], mixed=True, per_gpu=SIZES_PER_GPU)
    return f"; with {len(SIZES_PER_GPU)} sizes of CPU and memory per GPU {rate.per_s:,.0f}/s, {rate.scans:.2f} scans"


def _row(what: str, goal: Goal, rate: Rate, more: str = "") -> table.Row:
    met, baselines = goal.met_by(rate), rate.baselines
    return table.Row(
        f"placement, {what}, 1,750 nodes x 8 GPUs, 80-95 % full (per second of CPU)",
        f"{rate.per_s:,.0f}/s, {rate.scans:.2f} naive scans",
        goal.text,
        bool(met),
        f"met by {' and '.join(met) or 'neither'}; in turn with it: naive scan {baselines.scan:,.0f}/s ({SCANS_OF_GOALS:,}/s where goals were set), "
        f"bare NumPy score {baselines.score:,.0f}/s, bare bucket index {baselines.buckets:,.0f}/s; "
        f"{rate.refused:,} of {rate.placed + rate.refused:,} refused{more}",
    )


def _growth(what: str, rates: Sequence[Rate]) -> table.Row:
    """Judged in naive scans (on 1,750 nodes, whatever the size): the sizes are measured one after the other."""
    steps = [small.scans / large.scans for small, large in pairwise(rates)]
    measured = ", ".join(f"{rate.per_s:,.0f}" for rate in rates)
    scans = ", ".join(f"{rate.scans:.2f}" for rate in rates)
    return table.Row(
        f"placement, {what}, on 175, 1,750 and 17,500 nodes",
        f"{measured}/s",
        f"≤ {GROWTH_MAX}× slower per step, in naive scans of the same run",
        max(steps) <= GROWTH_MAX,
        f"{scans} naive scans: steps of {steps[0]:.2f}× and {steps[1]:.2f}×",
    )


def main() -> int:
    """Measure and print; 1 when a goal was missed."""
    met = True
    for row in rows():
        met &= row.met
        print(
            f"{'ok  ' if row.met else 'MISS'} {row.what}: {row.measured} (goal {row.goal}; {row.ceiling})", flush=True
        )
    return 0 if met else 1
