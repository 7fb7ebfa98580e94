"""The queue's core alone, at size: `python -m bench queue`.

1,000 queues at depth 4 and 1,750 nodes of 8 GPUs. How many offers a second it makes in fair order out of 100,000 waiting
jobs; what one submit, one release and one change of a quota cost on a full cluster with 1,000, 10,000 and 100,000 jobs
waiting; and how much memory a waiting job takes. No bus, no disk, no encoding: decisions and folds.
"""

import gc
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench import ordering, table
from fairlead_bus.core import Input
from fairlead_queue.core import QueueCore
from fairlead_schemas.queuefile.settings import QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit
from fairlead_schemas.wire.resources import Gpu, Inventory, Request

FANOUT = (5, 5, 5, 8)
NODES, GPUS_PER_NODE = 1750, 8
NOW_NS = 1_700_000_000 * SECOND_NS
OFFERS_GOAL, GROWTH_GOAL, BYTES_GOAL = 20_000, 2.0, 1536
WAITING = (1_000, 10_000, 100_000)
OFFERS, EVENTS = 20_000, 300
SPEC = msgspec.Raw(b'{"command":["true"]}')
REQUESTS = tuple(Request(gpu_milli=1000 * g, cpu_milli=1000 * (g or 4), memory_mib=1024) for g in (0, 1, 1, 2, 4, 8))


class Cluster:
    """A queue core over an imagined log; the placer's part is played."""

    def __init__(self, waiting: int) -> None:
        self.core = QueueCore()
        self.sequence = self.jobs = self.asked = 0
        self.rng = random.Random(1)
        self.leaves = list(_leaves())
        paths = sorted({path.rsplit("/", up)[0] for path in self.leaves for up in range(4)}, key=_depth)
        self.fold("queue", [_configured(path) for path in paths])
        self.fold("placer", [_joined(node) for node in range(NODES)])
        while self.jobs < waiting:
            self.fold("queue", [self.submitted() for _ in range(min(500, waiting - self.jobs))])

    def fold(self, writer: str, events: Sequence[ev.Event]) -> None:
        """Fold one commit."""
        self.sequence += 1
        commit = Commit(
            v=VERSION,
            writer=writer,
            n=self.sequence,
            basis=0,
            at_ns=NOW_NS,
            cursors={},
            prev=GENESIS,
            events=list(events),
        )
        self.core.evolve(self.sequence, commit)

    def decide(self, *commands: cmd.QueueCommand) -> list[ev.QueueEvent]:
        """Make one decision and fold it."""
        self.asked += 1
        events = self.core.decide([Input("CMD", self.asked, list(commands))] if commands else [], NOW_NS).events
        if events:
            self.fold("queue", events)
        return events  # type: ignore[return-value] -- the queue decides its own events

    def submitted(self) -> ev.JobSubmitted:
        self.jobs += 1
        return ev.JobSubmitted(
            cause="cmd:c",
            job=str(self.jobs),
            name="job",
            queue=self.leaves[self.jobs % len(self.leaves)],
            user=f"u{self.jobs % 50}",
            request=self.rng.choice(REQUESTS),
            spec=SPEC,
            priority=self.rng.choice((10, 50, 90)),
        )

    def place(self, offers: Sequence[ev.QueueEvent]) -> list[str]:
        """Place everything that was offered; return the jobs' ids."""
        jobs = [event.job for event in offers if isinstance(event, ev.JobOffered)]
        self.fold("placer", [ev.JobPlaced(cause="1.0", job=job, attempt=1, parts=()) for job in jobs])
        return jobs

    def end(self, jobs: Sequence[str]) -> None:
        """End these runs; the queue has not answered yet."""
        self.fold(
            "placer",
            [
                ev.RunEnded(cause="1.0", job=job, attempt=1, outcome="exited", exit_code=0, released=("n1",))
                for job in jobs
            ],
        )


def _leaves(above: str = "", level: int = 0) -> Iterator[str]:
    for number in range(FANOUT[level]):
        path = f"{above}q{number}"
        if level == len(FANOUT) - 1:
            yield path
        else:
            yield from _leaves(f"{path}/", level + 1)


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _configured(path: str) -> ev.QueueConfigured:
    weight = 1 + int(path[-1]) % 3
    return ev.QueueConfigured(cause="clock", path=path, settings=QueueSettings(maximum={"gpu": 10**8}, weight=weight))


def _joined(node: int) -> ev.NodeJoined:
    gpus = tuple(Gpu(uuid=f"g{node}-{at}", index=at, model="A100", memory_mib=81920) for at in range(GPUS_PER_NODE))
    inventory = Inventory(gpus=gpus, cpu_milli=128_000, memory_mib=1 << 20)
    return ev.NodeJoined(cause="clock", node=f"n{node}", incarnation="i", boot_id="b", inventory=inventory)


# ---------------------------------------------------------------------------------------- offers


def offers() -> table.Row:
    """Offers a second: decided and folded, with 100,000 waiting; placed and ended in between, outside the measure."""
    cluster, took, made = Cluster(WAITING[-1]), 0.0, 0
    gc.collect()
    gc.freeze()
    cluster.core.decide([], NOW_NS)  # the first decision builds the order of all queues
    while made < OFFERS:
        began = time.process_time()
        events = cluster.decide()
        took += time.process_time() - began
        jobs = cluster.place(events)
        made += len(jobs)
        cluster.end(jobs)
        cluster.fold("queue", [ev.JobSucceeded(cause="1.0", job=job, attempt=1) for job in jobs])
    gc.unfreeze()
    rate = made / took
    turns = ordering.measure()
    return table.Row(
        "ordered offers, 100,000 jobs waiting in 1,000 queues of depth 4 (per second of CPU)",
        f"{rate:,.0f}/s",
        f"≥ {OFFERS_GOAL:,}/s",
        rate >= OFFERS_GOAL,
        f"turns of the order alone: {turns.turns:,.0f}/s; a plain heap with the same arithmetic: {turns.heap:,.0f}/s",
    )


# ---------------------------------------------------------------------------------------- single events


def events() -> list[table.Row]:
    """Measure one event on a full cluster, at three sizes."""
    costs = [_costs(waiting) for waiting in WAITING]
    return [_growth(what, [cost[what] for cost in costs]) for what in costs[0]]


def _growth(what: str, costs: list[float]) -> table.Row:
    growth = max(costs) / costs[0]
    measured = ", ".join(f"{cost * 1e6:,.0f}" for cost in costs)
    return table.Row(
        f"one {what} with 1,000, 10,000, 100,000 jobs waiting",
        f"{measured} µs",
        f"growth ≤ {GROWTH_GOAL:g}×",
        growth <= GROWTH_GOAL,
        f"the largest is {growth:.2f}× the first",
    )


def _costs(waiting: int) -> dict[str, float]:
    """Seconds per event, by kind: folded, decided, and the decision folded."""
    cluster = Cluster(waiting + 20_000)
    running: list[str] = []
    while len(cluster.core.state.jobs) - len(running) > waiting:
        jobs = cluster.place(cluster.decide())
        running += jobs
        if not jobs:  # full: the rest of what is too much ends
            break
    surplus = cluster.core.state.in_line - waiting
    if surplus > 0:
        waiting_jobs = [job.id for job in cluster.core.state.jobs.values() if job.wait == "line"][:surplus]
        cluster.fold("queue", [ev.JobCancelled(cause="cmd:x", job=job) for job in waiting_jobs])
    while cluster.decide():
        pass
    gc.collect()
    gc.freeze()
    costs = {"submit": _submits(cluster), "release": _releases(cluster, running), "quota change": _quotas(cluster)}
    gc.unfreeze()
    return costs


def _submits(cluster: Cluster) -> float:
    took = 0.0
    for number in range(EVENTS):
        queue = cluster.leaves[number * 7 % len(cluster.leaves)]
        command = cmd.SubmitJob(id=f"s{number}", user="u1", name="job", queue=queue, request=REQUESTS[1], spec=SPEC)
        began = time.perf_counter()
        cluster.decide(command)
        took += time.perf_counter() - began
    return took / EVENTS


def _releases(cluster: Cluster, running: list[str]) -> float:
    """A run ends, and the next job is offered; placed outside the measure."""
    took = 0.0
    for job in running[:EVENTS]:
        began = time.perf_counter()
        cluster.end([job])
        offered = cluster.decide()
        took += time.perf_counter() - began
        cluster.place(offered)
    return took / EVENTS


def _quotas(cluster: Cluster) -> float:
    took = 0.0
    for number in range(EVENTS):
        path = cluster.leaves[number * 11 % len(cluster.leaves)]
        entry = QueueEntry(path=path, settings=QueueSettings(maximum={"gpu": 9 * 10**7 + number}))
        began = time.perf_counter()
        cluster.decide(cmd.ApplyQueues(id=f"q{number}", queues=(entry,)))
        took += time.perf_counter() - began
    return took / EVENTS


# ---------------------------------------------------------------------------------------- memory


def memory() -> table.Row:
    """Bytes of a waiting job of a class that is there already; in a process of its own."""
    out = subprocess.run([sys.executable, "-m", "bench.queueing"], check=True, capture_output=True, text=True).stdout
    each, resident = (float(word) for word in out.split())
    return table.Row(
        "memory of a waiting job",
        f"{each:,.0f} B",
        f"< {BYTES_GOAL:,} B",
        each < BYTES_GOAL,
        f"the whole process with 120,000 of them: {resident:,.0f} MiB",
    )


def _weigh() -> str:
    """(bytes of each further job, MiB of the process in all)."""
    cluster = Cluster(20_000)
    gc.collect()
    before = _resident()
    more = 100_000
    for _ in range(more // 500):
        cluster.fold("queue", [cluster.submitted() for _ in range(500)])
    gc.collect()
    each = (_resident() - before) / more
    return f"{each} {_resident() / 2**20}"


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    print(_weigh())


def rows() -> list[table.Row]:
    """Measure all rows of the queue."""
    return [offers(), *events(), memory()]
