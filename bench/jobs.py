"""The live rows: idle latency, submits, real processes, hollow nodes."""

import asyncio
import itertools
import os
import time

from bench import ceilings, cores, finishing, http
from bench.stack import Stack
from bench.table import Row, percentile

ONE_GPU = {"resources": {"nvidia.com/gpu": 1, "cpu": "1", "memory": "1Gi"}}
TRUE = {"command": ["true"], **ONE_GPU}
LIST = 1000


class Goals:
    """Goals of the rows: on this disk, and with every fsync delayed by 2 ms."""

    def __init__(self, slow: bool) -> None:
        self.p50_ms, self.p99_ms = (20.0, None) if slow else (10.0, 30.0)
        self.singles, self.lists = (2500, None) if slow else (5000, 30000)
        self.processes = 400 if slow else 600
        self.hollow = 2000 if slow else 4000
        self.suffix = " (fsync + 2 ms)" if slow else ""


async def idle_latency(stack: Stack, goals: Goals, rounds: int = 200) -> Row:
    """HTTP request to process running, one job at a time: the job's first act is to write into our pipe."""
    pipe = stack.data / "running.fifo"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    loop, connection = asyncio.get_running_loop(), await http.connect(stack.port)
    request = http.post("/v1/jobs", {"command": ["/bin/sh", "-c", f"echo >{pipe}"], **ONE_GPU})
    took: list[float] = []
    meter = stack.cpu_meter(stack.cpu_meter().idle())  # the cluster idles between two jobs
    for _ in range(rounds):
        running = loop.create_future()
        loop.add_reader(reader, lambda f=running: None if f.done() else f.set_result(os.read(reader, 64)))
        began = time.perf_counter()
        status, body = await connection.send(request)
        if status != 201:
            raise RuntimeError(f"submit answered {status}: {body.decode()}")
        await asyncio.wait_for(running, 30)
        took.append((time.perf_counter() - began) * 1e3)
        loop.remove_reader(reader)
        await asyncio.sleep(0.03)
    cpu = meter.per_job(rounds)
    os.close(reader)
    bus = await stack.bus()
    append = await ceilings.append_ms(bus)
    await bus.close()
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    goal = f"p50 ≤ {goals.p50_ms:g} ms" + (f", p99 ≤ {goals.p99_ms:g} ms" if goals.p99_ms else "")
    met = p50 <= goals.p50_ms and (goals.p99_ms is None or p99 <= goals.p99_ms)
    ceiling = f"three awaited appends in a row: {3 * append:.1f} ms"
    return Row(
        f"idle cluster, HTTP request → process running{goals.suffix}",
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        goal,
        met,
        ceiling,
        str(cpu),
    )


async def single_submits(stack: Stack, goals: Goals, seconds: float = 6.0) -> Row:
    """Submit one job per request from 64 connections, each answered with the queue's decision in the log."""
    await http.storm(stack.port, 64, itertools.repeat(http.post("/v1/jobs", TRUE), 2000))
    meter = stack.cpu_meter()
    count, rate = await _storm(stack.port, http.post("/v1/jobs", TRUE), seconds)
    cpu = meter.per_job(count)
    port = stack.port + 1
    echo = ceilings.start_echo(port)
    try:
        await asyncio.sleep(1.5)
        _, best = await _storm(port, http.post("/", TRUE), 2.0)
    finally:
        ceilings.stop(echo)
    ceiling = f"an HTTP server that does nothing: {best:,.0f}/s"
    return Row(
        f"submits one by one, 64 connections{goals.suffix}",
        f"{rate:,.0f}/s",
        f"≥ {goals.singles:,}/s",
        rate >= goals.singles,
        ceiling,
        str(cpu),
    )


async def _storm(port: int, request: bytes, seconds: float) -> tuple[int, float]:
    """Send one request again and again over 64 connections; return the number of answers and the rate per second."""
    deadline = time.perf_counter() + seconds
    requests = itertools.takewhile(lambda _: time.perf_counter() < deadline, itertools.repeat(request))
    began = time.perf_counter()
    statuses = await http.storm(port, 64, requests)
    if set(statuses) != {201}:
        raise RuntimeError(f"submits answered {set(statuses)}")
    return len(statuses), len(statuses) / (time.perf_counter() - began)


async def list_submits(stack: Stack, goals: Goals, lists: int = 150) -> Row:
    """Jobs by the thousand per request, over four connections."""
    request = http.post("/v1/jobs", [TRUE] * LIST)
    await http.storm(stack.port, 2, itertools.repeat(request, 4))
    meter, began = stack.cpu_meter(), time.perf_counter()
    statuses = await http.storm(stack.port, 4, itertools.repeat(request, lists))
    rate = lists * LIST / (time.perf_counter() - began)
    cpu = meter.per_job(lists * LIST)
    if set(statuses) != {200}:
        raise RuntimeError(f"submits answered {set(statuses)}")
    goal = goals.lists or 0
    text = f"≥ {goals.lists:,}/s" if goals.lists else "–"
    what = f"submits in lists of {LIST:,}{goals.suffix}"
    return Row(what, f"{rate:,.0f} jobs/s", text, rate >= goal, "as above", str(cpu))


async def run_jobs(stack: Stack, jobs: list[dict[str, object]]) -> float:
    """Submit these in lists and wait until the log says that each has succeeded; jobs per second."""
    bus = await stack.bus()
    ends = await finishing.EventCount.open(bus)
    requests = iter([http.post("/v1/jobs", jobs[at : at + LIST]) for at in range(0, len(jobs), LIST)])
    began = time.perf_counter()
    ending = asyncio.create_task(ends.reach(len(jobs)))
    statuses = await http.storm(stack.port, 2, requests)
    if set(statuses) != {200}:
        raise RuntimeError(f"submits answered {set(statuses)}")
    ended = await ending
    await ends.close()
    await bus.close()
    return len(jobs) / (ended - began)


async def processes(stack: Stack, goals: Goals, count: int = 6000) -> Row:
    """Real processes of `true` on one node of eight simulated GPUs, one GPU each."""
    await run_jobs(stack, [TRUE] * 500)
    meter = stack.cpu_meter()
    rate = await run_jobs(stack, [TRUE] * count)
    cpu = meter.per_job(count)
    ceiling = f"posix_spawn and wait alone, 8 at a time: {ceilings.spawns_per_s():,.0f}/s"
    what = f"submitted → finished, processes of `true` on one 8-GPU node{goals.suffix}"
    return Row(what, f"{rate:,.0f}/s", f"≥ {goals.processes:,}/s", rate >= goals.processes, ceiling, str(cpu))


async def hollow(stack: Stack, goals: Goals, *, staggered: bool, count: int = 40_000) -> Row:
    """One-GPU jobs over 500 played nodes; `staggered`: they end 0 to 0.3 s after their start."""
    jobs: list[dict[str, object]] = [TRUE] * count
    if staggered:
        jobs = [{"command": ["sleep", f"{n % 300 / 1000:.3f}"], **ONE_GPU} for n in range(count)]
    meter = stack.cpu_meter()
    rate = await run_jobs(stack, jobs)
    cpu = meter.per_job(count)
    kind = "with ends staggered by 0.3 s" if staggered else "of 0 s"
    what = f"submitted → finished, {count:,} jobs {kind} on 500 × 8 hollow GPUs{goals.suffix}"
    return Row(
        what,
        f"{rate:,.0f}/s",
        f"≥ {goals.hollow:,}/s",
        rate >= goals.hollow,
        f"the decisions alone, without bus, disk and agents: {cores.jobs_per_s():,.0f}/s",
        str(cpu),
    )
