"""A large cluster kept 80 to 95 % full, played on the placer's core alone, and the work that is offered to it."""

import random
import time
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from fairlead_placer.core import PlacerCore
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit
from fairlead_schemas.wire.resources import Gpu, Inventory, NodeTopology, NumaNode, PcieLevel, Request

GPUS, RACK, RACKS = 8, 16, 8
NOW_NS = 1_700_000_000 * SECOND_NS
SPEC = msgspec.Raw(b"{}")
MODELS = ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB")

#: CPU in thousandths and memory in MiB for each GPU; a share of one takes as large a part of them.
PER_GPU, SIZES_PER_GPU = ((15_000, 122_880),), ((4_000, 32_768), (8_000, 65_536), (15_000, 122_880))

#: Two sockets of four GPUs each, all on one NVSwitch: a DGX, as its agent describes it.
_PAIRS: tuple[tuple[PcieLevel, ...], ...] = tuple(
    tuple("X" if a == b else ("NODE" if a // 4 == b // 4 else "SYS") for b in range(GPUS)) for a in range(GPUS)
)
INSIDE = NodeTopology(
    numa=(0,) * 4 + (1,) * 4,
    nvlinks=tuple(tuple(0 if a == b else 12 for b in range(GPUS)) for a in range(GPUS)),
    pcie=_PAIRS,
    numa_nodes=(NumaNode(node=0, cpus="0-63", socket=0), NumaNode(node=1, cpus="64-127", socket=1)),
    nics=tuple(f"mlx5_{at}" for at in range(GPUS)),
    nic_levels=tuple(tuple("PIX" if a == b else "SYS" for b in range(GPUS)) for a in range(GPUS)),
)


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
        """Fold one commit, as the log would bring it."""
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
        """Make one decision of the core: units placed, offers refused, seconds of CPU."""
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

    def withdraw(self) -> None:
        """Withdraw the offers that found no place, as a queue's window does; the placer reports them."""
        events: list[ev.Event] = []
        events += [ev.OfferWithdrawn(cause="c", job=job, attempt=1, reason="order") for job in self.core.state.offers]
        self.fold("queue", events)
        while self.core.state.withdrawals:
            self.fold("placer", self.core.decide([], NOW_NS).events)


def joined(at: int, *, mixed: bool) -> ev.NodeJoined:
    """Join one node; in the mixed cluster of one of three models."""
    model = MODELS[at % 3 if mixed else 0]
    memory = 40_960 if "40GB" in model else 81_920
    gpus = tuple(
        Gpu(uuid=f"GPU-{at:05d}-{i}", index=i, model=model, memory_mib=memory, compute_capability=80)
        for i in range(GPUS)
    )
    rack = at // RACK
    labels = {
        "nvidia.com/gpu.product": model,
        "fairlead/rack": f"r{rack}",
        "fairlead/block": f"b{rack // RACKS}",
        "fairlead/spine": "s0",
    }
    inventory = Inventory(gpus=gpus, cpu_milli=128_000, memory_mib=1 << 20, labels=labels, inside=INSIDE)
    return ev.NodeJoined(cause="c", node=f"n{at}", incarnation="i", boot_id="b", inventory=inventory)


# ---------------------------------------------------------------------------- the work


def whole(chance: random.Random) -> Iterator[Request]:
    """Requests for 1, 2, 4 and 8 GPUs, and 5 % gangs of 4 to 16 whole nodes."""
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
