"""Placement alone: the placer's core on a large cluster kept 80 to 95 % full, without bus, disk, agents or encoding.

A decision is one unit that got its place, or one offer that was refused; its event is drawn up with all that is
recorded (GPUs, score, reasons), tried on the state and taken back, as a live placer does. What ends, and what the log
folds, is outside the measure. CPU time of one thread, with garbage collected as rarely as a service does.
"""

import gc
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bench import table
from bench.placing.baselines import Baselines, measure_baselines
from fairlead_bus.main import collect_rarely
from fairlead_placer.core import PlacerCore
from fairlead_schemas import events as ev
from fairlead_schemas.commit import GENESIS, VERSION, Commit
from fairlead_schemas.inside import Description, Level, NumaNode
from fairlead_schemas.resources import Gpu, Inventory, Request

GPUS, RACK, RACKS = 8, 16, 8
#: Offers of one commit of the queue.
BATCH = 400
WARM, MEASURED = 4_000, 12_000
SIZES = (175, 1_750, 17_500)
NOW_NS = 1_700_000_000_000_000_000
SPEC = msgspec.Raw(b"{}")
MODELS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB")

#: CPU in thousandths and memory in MiB for each GPU; a share of one takes as large a part of them.
PER_GPU, SIZES_PER_GPU = ((15_000, 122_880),), ((4_000, 32_768), (8_000, 65_536), (15_000, 122_880))

#: Two sockets of four GPUs each, all on one NVSwitch: a DGX, as its agent describes it.
_PAIRS: tuple[tuple[Level, ...], ...] = tuple(
    tuple("X" if a == b else ("NODE" if a // 4 == b // 4 else "SYS") for b in range(GPUS)) for a in range(GPUS)
)
INSIDE = Description(
    numa=(0,) * 4 + (1,) * 4,
    nvlinks=tuple(tuple(0 if a == b else 12 for b in range(GPUS)) for a in range(GPUS)),
    pcie=_PAIRS,
    numa_nodes=(NumaNode(node=0, cpus="0-63", socket=0), NumaNode(node=1, cpus="64-127", socket=1)),
    nics=tuple(f"mlx5_{at}" for at in range(GPUS)),
    nic_levels=tuple(tuple("PIX" if a == b else "SYS" for b in range(GPUS)) for a in range(GPUS)),
)


class Rate(NamedTuple):
    """Decisions, and how long they took."""

    nodes: int
    placed: int  # units
    refused: int
    took_s: float

    @property
    def per_s(self) -> float:
        """Decisions per second of CPU."""
        return (self.placed + self.refused) / self.took_s


class Cluster:
    """A placer's core, its log and what runs; jobs end at random as soon as it is too full."""

    def __init__(self, nodes: int, *, mixed: bool, per_gpu: tuple[tuple[int, int], ...] = PER_GPU) -> None:
        self.core, self.chance = PlacerCore(), random.Random(nodes)
        self.sequence = self.jobs = self.used = 0
        self.capacity = nodes * GPUS * 1000
        self.live: list[tuple[ev.JobPlaced, int]] = []
        self.stream = constrained(self.chance, per_gpu) if mixed else whole(self.chance)
        for first in range(0, nodes, 500):
            self.fold("placer", [joined(at, mixed=mixed) for at in range(first, min(first + 500, nodes))])

    def fold(self, writer: str, events: list[ev.Event]) -> None:
        """One commit, as the log would bring it."""
        self.sequence += 1
        self.core.evolve(
            self.sequence,
            Commit(v=VERSION, writer=writer, n=1, basis=0, at_ns=NOW_NS, cursors={}, prev=GENESIS, events=events),
        )

    def offer(self, count: int) -> None:
        """The queue offers so many jobs."""
        events: list[ev.Event] = []
        for _ in range(count):
            self.jobs += 1
            job = str(self.jobs)
            request = next(self.stream)
            events.append(
                ev.JobSubmitted(cause="c", job=job, name="t", queue="q", user="u", request=request, spec=SPEC)
            )
            events.append(ev.JobOffered(cause="c", job=job, attempt=1, rank=self.jobs))
        self.fold("queue", events)

    def decide(self) -> tuple[int, int, float]:
        """One decision of the core: units placed, offers refused, seconds of CPU."""
        began = time.process_time()
        decision = self.core.decide([], NOW_NS)
        took = time.process_time() - began
        if decision.events:
            self.fold("placer", decision.events)
        placed = refused = 0
        for event in decision.events:
            if isinstance(event, ev.JobPlaced):
                placed += sum(part.tasks for part in event.parts)
                milli = sum((part.gpu_milli or 1000) * len(part.gpus) for part in event.parts)
                self.used += milli
                self.live.append((event, milli))
            elif isinstance(event, ev.JobUnplaceable):
                refused += 1
        return placed, refused, took

    def end(self) -> None:
        """Down to four fifths."""
        events: list[ev.Event] = []
        while self.used > 0.8 * self.capacity and self.live:
            at = self.chance.randrange(len(self.live))
            self.live[at], self.live[-1] = self.live[-1], self.live[at]
            event, milli = self.live.pop()
            self.used -= milli
            job = event.job
            for rank, part in enumerate(event.parts[:-1]):
                events.append(
                    ev.RankEnded(cause="c", job=job, attempt=1, rank=rank, outcome="exited", exit_code=0, released=True)
                )
                assert part.node
            events.append(
                ev.RunEnded(
                    cause="c", job=job, attempt=1, outcome="exited", exit_code=0, released=(event.parts[-1].node,)
                )
            )
            events.append(ev.JobSucceeded(cause="c", job=job, attempt=1))
        self.fold("placer", events)

    def recall(self) -> None:
        """What found no place goes back, as a queue's window does; the placer says so."""
        events: list[ev.Event] = []
        events += [ev.JobRecalled(cause="c", job=job, attempt=1, reason="order") for job in self.core.state.offers]
        self.fold("queue", events)
        while self.core.state.recalls:
            self.fold("placer", self.core.decide([], NOW_NS).events)


def joined(at: int, *, mixed: bool) -> ev.NodeJoined:
    """One node; in the mixed cluster of one of three models."""
    model = MODELS[at % 3 if mixed else 0]
    memory = 40_960 if "40GB" in model else 81_920
    gpus = tuple(
        Gpu(uuid=f"GPU-{at:05d}-{i}", index=i, model=model, memory_mib=memory, compute_capability=80)
        for i in range(GPUS)
    )
    rack = at // RACK
    labels = {
        "nvidia.com/gpu.product": model, "fairlead/rack": f"r{rack}", "fairlead/block": f"b{rack // RACKS}",
        "fairlead/spine": "s0",
    }  # fmt: skip
    inventory = Inventory(gpus=gpus, cpu_milli=128_000, memory_mib=1 << 20, labels=labels, inside=INSIDE)
    return ev.NodeJoined(cause="c", node=f"n{at}", incarnation="i", boot_id="b", inventory=inventory)


# ---------------------------------------------------------------------------- the work


def whole(chance: random.Random) -> Iterator[Request]:
    """1, 2, 4 and 8 GPUs, and 5 % gangs of 4 to 16 whole nodes."""
    known: dict[tuple[int, int], Request] = {}
    while True:
        gang = chance.random() < 0.05
        gpus, nodes = (8, chance.randint(4, 16)) if gang else (chance.choice((1, 1, 1, 1, 2, 2, 4, 8)), 1)
        found = known.get((gpus, nodes))
        if found is None:
            found = known[gpus, nodes] = Request(
                nodes=nodes, gpu_milli=gpus * 1000, cpu_milli=gpus * 15_000, memory_mib=gpus * 122_880
            )
        yield found


def constrained(chance: random.Random, per_gpu: tuple[tuple[int, int], ...] = PER_GPU) -> Iterator[Request]:
    """The same with models, memory of GPUs, NUMA nodes, racks and shares of a GPU."""
    known: dict[Request, Request] = {}
    while True:
        gpus = chance.choice((1, 1, 1, 2, 2, 4, 8))
        cpu, memory = chance.choice(per_gpu)
        plain = Request(gpu_milli=gpus * 1000, cpu_milli=gpus * cpu, memory_mib=gpus * memory)
        draw = chance.random()
        if draw < 0.05:
            made = Request(
                nodes=chance.randint(4, 8), gpu_milli=8000, cpu_milli=8 * cpu, memory_mib=8 * memory, require=("rack",)
            )
        elif draw < 0.25:
            share = chance.choice((200, 400, 600))
            made = Request(
                gpu_milli=share, gpu_parts=1, cpu_milli=share * cpu // 1000, memory_mib=share * memory // 1000
            )
        elif draw < 0.45:
            made = replace(plain, selector=(f"nvidia.com/gpu.product={chance.choice(MODELS)}",))
        elif draw < 0.6:
            made = replace(plain, gpu_memory_mib=65_536)
        elif draw < 0.8 and gpus <= 4:
            made = replace(plain, require=("numa",))
        else:
            made = plain
        yield known.setdefault(made, made)


# ---------------------------------------------------------------------------- the rows


def measure(
    nodes: int, *, mixed: bool, per_gpu: tuple[tuple[int, int], ...] = PER_GPU, warm: int = WARM, count: int = MEASURED
) -> Rate:
    """The rate on a cluster of so many nodes, once it is full and the work is known."""
    thresholds = gc.get_threshold()
    collect_rarely()
    cluster = Cluster(nodes, mixed=mixed, per_gpu=per_gpu)
    gc.collect()
    gc.freeze()
    placed = refused = offered = 0
    took = 0.0
    begun = False
    while offered < count:
        cluster.offer(BATCH)
        if begun:
            offered += BATCH
        while True:
            more, no, each = cluster.decide()
            if begun:
                placed, refused, took = placed + more, refused + no, took + each
            if not more and not no:
                break
        cluster.recall()
        if cluster.used > 0.95 * cluster.capacity or begun:
            cluster.end()
        begun = begun or (cluster.jobs >= warm and cluster.used >= 0.8 * cluster.capacity)
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    return Rate(nodes, placed, refused, took)


def rows() -> list[table.Row]:
    """Whole GPUs, the constrained mix, and both on ten times fewer and ten times more nodes."""
    base = measure_baselines(SIZES[1])
    found: list[table.Row] = []
    for what, goal, mixed in (("whole GPUs", 50_000, False), ("constrained mix", 20_000, True)):
        rates = [measure(nodes, mixed=mixed) for nodes in SIZES]
        found += [_row(what, goal, rates[1], base, _sizes() if mixed else ""), _growth(what, rates)]
    return found


def _sizes() -> str:
    rate = measure(SIZES[1], mixed=True, per_gpu=SIZES_PER_GPU)
    return f"; with {len(SIZES_PER_GPU)} sizes of CPU and memory per GPU {rate.per_s:,.0f}/s"


def _row(what: str, goal: int, rate: Rate, base: Baselines, more: str = "") -> table.Row:
    return table.Row(
        f"placement, {what}, 1,750 nodes x 8 GPUs, 80-95 % full (per second of CPU)",
        f"{rate.per_s:,.0f}/s", f">= {goal:,}/s".replace(">=", "≥"), rate.per_s >= goal,
        f"{rate.per_s / base.scan:.1f} naive scans, {base.scan:,.0f}/s; bare NumPy score {base.score:,.0f}/s, bare bucket index {base.buckets:,.0f}/s; "
        f"{rate.refused:,} of {rate.placed + rate.refused:,} refused{more}",
    )  # fmt: skip


def _growth(what: str, rates: list[Rate]) -> table.Row:
    steps = [small.per_s / large.per_s for small, large in pairwise(rates)]
    measured = ", ".join(f"{rate.per_s:,.0f}" for rate in rates)
    return table.Row(
        f"placement, {what}, on 175, 1,750 and 17,500 nodes", f"{measured}/s", "≤ 2× slower per step",
        max(steps) <= 2, f"steps of {steps[0]:.2f}× and {steps[1]:.2f}×",
    )  # fmt: skip


def main() -> int:
    """Measure and print; 1 when a goal was missed."""
    met = True
    for row in rows():
        met &= row.met
        print(
            f"{'ok  ' if row.met else 'MISS'} {row.what}: {row.measured} (goal {row.goal}; {row.ceiling})", flush=True
        )
    return 0 if met else 1
