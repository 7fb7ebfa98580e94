"""A crowded cluster: more jobs than GPUs for as long as the load lasts, in 30 queues with guarantees and borrowing.

40,000 jobs of 1, 2, 4 or 8 GPUs, three sizes of CPU and 0.1 to 0.3 s each arrive at once on 500 played nodes of 8 GPUs. GPUs that
are never idle would end them at the ideal rate: GPUs divided by the mean GPU-seconds of a job. Meanwhile a person submits one
job after the other and measures the time to each answer. Start at `rows`.
"""

import asyncio
import random
import re
import time
from datetime import datetime
from typing import Any, NamedTuple, cast

import msgspec

from bench import cores, finishing, http
from bench.cpu import CpuPerJob
from bench.stack import Stack
from bench.table import Row, percentile
from fairlead_bus.nats.adapter import NatsBus
from fairlead_schemas.queuefile.parse import read_queue_file
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import ApplyQueues, SubmitJob

NODES, GPUS_PER_NODE, JOBS, LIST, CONNECTIONS = 500, 8, 40_000, 1_000, 2
#: Queues: groups of leaves. A queue's place in its group sets how much of the load it gets.
GROUPS, LEAVES = 6, 5
LOADS = (1, 1, 2, 3, 3)
GUARANTEED_GPUS, BORROWED_GPUS_MAX = 100, 400
#: GPUs of a job, each with its part of all jobs in percent; CPUs for each GPU; milliseconds.
SIZES = {1: 40, 2: 30, 4: 15, 8: 15}
CPUS_PER_GPU = (2, 4, 8)
SHORTEST_MS, LONGEST_MS = 100, 300
RATE_GOAL, RATE_BAR = 6_400, 4_500
CPU_GOAL_US, CPU_BAR_US = 200, 350
#: Pause between a person's submits, s.
PROBE_PAUSE_S = 0.02


class Load(NamedTuple):
    """Jobs as job files, and the rate at which GPUs that are never idle would end them, in jobs per second."""

    jobs: list[dict[str, Any]]
    ideal: float


def queue_names() -> list[str]:
    """The queues that jobs are submitted to, as often as their part of the load."""
    return [f"g{group}/q{leaf}" for group in range(GROUPS) for leaf in range(LEAVES) for _ in range(LOADS[leaf])]


def queue_file() -> dict[str, Any]:
    """Guarantees for three quarters of the GPUs; the queues with the least load borrow only some of the rest."""
    return {
        "queues": {
            name: {"guaranteed": {"nvidia.com/gpu": GUARANTEED_GPUS}}
            | ({"borrowing": {"nvidia.com/gpu": BORROWED_GPUS_MAX}} if LOADS[int(name[-1])] == 1 else {})
            for name in sorted(set(queue_names()))
        }
    }


def load(count: int = JOBS) -> Load:
    """The same jobs each time."""
    chance, names = random.Random(1), queue_names()
    jobs, gpu_ms = list[dict[str, Any]](), 0
    for gpus in chance.choices(list(SIZES), list(SIZES.values()), k=count):
        ms = chance.randint(SHORTEST_MS, LONGEST_MS)
        gpu_ms += gpus * ms
        resources = {"nvidia.com/gpu": gpus, "cpu": gpus * chance.choice(CPUS_PER_GPU), "memory": f"{gpus}Gi"}
        jobs.append({"command": ["sleep", f"{ms / 1000}"], "queue": chance.choice(names), "resources": resources})
    return Load(jobs, NODES * GPUS_PER_NODE / (gpu_ms / 1000 / count))


def decisions_per_s(jobs: list[dict[str, Any]]) -> float:
    """Jobs per second of the decisions alone: both cores in one process, each job ends as soon as it is placed."""
    return pair().play(submits(jobs))


def pair() -> cores.Pair:
    """Both cores with the nodes and queues of the load."""
    made = cores.Pair()
    made.settle([ApplyQueues(id="queues", queues=read_queue_file(queue_file()).queues)])
    return made


def submits(jobs: list[dict[str, Any]]) -> list[SubmitJob]:
    """The commands that these job files become."""
    return [msgspec.structs.replace(cores.submit_of(job), id=str(n)) for n, job in enumerate(jobs)]


class Crowd(NamedTuple):
    """Measured: jobs, the seconds that they took, CPU, times to an answer, and times of decisions by writer, in ms."""

    jobs: int
    took_s: float
    cpu: CpuPerJob
    answers_ms: list[float]
    decisions_ms: dict[str, list[float]]


async def rows(count: int = JOBS) -> list[Row]:
    """Rate, CPU per job, and the times that a person and a decision take meanwhile."""
    crowd = load(count)
    with Stack() as stack:
        start(stack)
        found = await run(stack, crowd)
    return [*_rates(crowd, found), _times(found)]


def start(stack: Stack) -> None:
    """The control plane and its nodes, without queues."""
    stack.control_plane()
    stack.hollow(NODES, GPUS_PER_NODE)
    stack.wait_nodes(NODES)


async def run(stack: Stack, crowd: Load) -> Crowd:
    """Submit everything at once and wait until all has succeeded. Raises RuntimeErrors as a group if a job is refused."""
    await _accepted(stack.port, [http.post("/v1/queues:apply", queue_file())])
    bus = await stack.bus()
    first = (await bus.state(subjects.LOG)).last + 1
    ends = await finishing.EventCount.open(bus)
    lists = [http.post("/v1/jobs", crowd.jobs[at : at + LIST]) for at in range(0, len(crowd.jobs), LIST)]
    meter, began = stack.cpu_meter(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for part in range(CONNECTIONS):
            group.create_task(_accepted(stack.port, lists[part::CONNECTIONS]))
        probe = group.create_task(_probe(stack.port, ends, len(crowd.jobs)))
        # The person's jobs end among the others: those ends may be counted before the last of the load.
        await ends.reach(len(crowd.jobs))
        answers = await probe
        jobs = len(crowd.jobs) + len(answers)
        took_s = await ends.reach(jobs) - began
    cpu = meter.per_job(jobs)
    await ends.close()
    decisions = await decision_times(bus, first, (await bus.state(subjects.LOG)).last)
    await bus.close()
    return Crowd(jobs, took_s, cpu, answers, decisions)


async def _accepted(port: int, requests: list[bytes]) -> None:
    """Send requests one after the other. Raises RuntimeError for a refused one, and for a list with a refused job."""
    connection = await http.connect(port)
    for request in requests:
        status, body = await connection.send(request)
        answer = msgspec.json.decode(body)
        if status != 200 or (isinstance(answer, list) and not all("id" in item for item in cast(list[Any], answer))):
            raise RuntimeError(f"answered {status}: {body.decode()[:1000]}")


async def _probe(port: int, ends: finishing.EventCount, until: int) -> list[float]:
    """Submit one job after the other until so many have ended; the milliseconds to each answer."""
    connection, took = await http.connect(port), list[float]()
    job = {"command": ["true"], "queue": "g0/q0", "resources": {"nvidia.com/gpu": 1, "cpu": 1, "memory": "1Gi"}}
    request = http.post("/v1/jobs", job)
    while ends.found < until:
        began = time.perf_counter()
        status, body = await connection.send(request)
        if status != 201:
            raise RuntimeError(f"submit answered {status}: {body.decode()}")
        took.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(PROBE_PAUSE_S)
    return took


# ---------------------------------------------------------------------------------------- times of decisions


class _Message(msgspec.Struct):
    class Content(msgspec.Struct):
        subject: str
        data: bytes
        time: datetime

    message: Content


_AT_NS = re.compile(rb'"at_ns":(\d+)')


async def decision_times(bus: NatsBus, first: int, last: int) -> dict[str, list[float]]:
    """Milliseconds from the log time of each commit, read before its decision, to its arrival at the server, by writer.

    Both clocks are this machine's. What a commit waits for its fsync is not in it.
    """
    found: dict[str, list[float]] = {}
    for sequence in range(first, last + 1):
        answer = await bus.link.read(f"$JS.API.STREAM.MSG.GET.{subjects.LOG}", msgspec.json.encode({"seq": sequence}))
        message = msgspec.json.decode(answer, type=_Message).message
        at_ns = _AT_NS.search(message.data)
        if at_ns is None:
            raise RuntimeError(f"sequence {sequence} of the log is no commit")
        took_ms = message.time.timestamp() * 1e3 - int(at_ns[1]) / 1e6
        found.setdefault(subjects.writer_of(message.subject), []).append(took_ms)
    return found


# ---------------------------------------------------------------------------------------- rows


def _rates(crowd: Load, found: Crowd) -> list[Row]:
    rate, us = found.jobs / found.took_s, sum(found.cpu.us.values())
    alone = decisions_per_s(crowd.jobs)
    what = f"crowded, {len(crowd.jobs):,} jobs of 1 to 8 GPUs at once, 30 queues, {NODES} × {GPUS_PER_NODE} hollow GPUs"
    return [
        Row(
            f"{what}, submitted → finished",
            f"{rate:,.0f}/s, {rate / crowd.ideal:.0%} of the ideal rate",
            f"≥ {RATE_GOAL:,}/s (bar {RATE_BAR:,}/s)",
            rate >= RATE_GOAL,
            f"GPUs never idle: {crowd.ideal:,.0f}/s; the decisions alone: {alone:,.0f}/s",
            str(found.cpu),
        ),
        Row(
            "crowded, CPU for a job, all processes",
            f"{us:,.0f} µs",
            f"≤ {CPU_GOAL_US} µs (bar {CPU_BAR_US} µs)",
            us <= CPU_GOAL_US,
            f"the decisions alone: {1e6 / alone:,.0f} µs",
        ),
    ]


def _times(found: Crowd) -> Row:
    decisions = ", ".join(
        f"{writer} {percentile(times, 0.99):,.0f} ms" for writer, times in sorted(found.decisions_ms.items())
    )
    return Row(
        "crowded, a submit meanwhile, sent → answered",
        f"p99 {percentile(found.answers_ms, 0.99):,.0f} ms; decisions p99 {decisions}",
        "none",
        True,
        f"p50 {percentile(found.answers_ms, 0.5):,.0f} ms over {len(found.answers_ms)} submits",
    )
