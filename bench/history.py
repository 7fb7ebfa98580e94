"""The rows about the past and about size: replay speed, restart behind a long log, memory."""

import asyncio
import gc
import time

import msgspec

from bench import ceilings, http, jobs, lives
from bench.stack import Stack
from bench.table import Row
from fairlead_bus.log import LogReader
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import CancelJob, encode_commands

MILLION = 1_000_000


async def replay(per_commit: int, goal: int, lives_count: int) -> Row:
    """Fold the live log into queue and placer state, chain checked."""
    with Stack() as stack:
        bus = await stack.bus()
        maker = lives.LogMaker(bus)
        await maker.append(lives.opening())
        await maker.append(lives.lives(1, lives_count, per_commit))
        reader, queue, placer = LogReader(bus), QueueCore(), PlacerCore()
        gc.collect()
        gc.freeze()  # what earlier rows left here is not the fold's to look through; `fairlead replay` begins empty
        began, began_cpu, folded = time.perf_counter(), time.process_time(), 0
        while folded < maker.sequence:
            for item in await reader.next():
                queue.evolve(item.seq, item.commit)
                placer.evolve(item.seq, item.commit)
                folded = item.seq
        rate = maker.events / (time.perf_counter() - began)
        cpu_us = (time.process_time() - began_cpu) / maker.events * 1e6
        await reader.close()
        best = await _bare_read(bus, maker)
        await bus.close()
    what = f"replay of the live log, {per_commit} event{'s' if per_commit > 1 else ''} per commit"
    ceiling = f"reading the same commits undecoded: {best:,.0f} events/s"
    return Row(what, f"{rate:,.0f} events/s", f"≥ {goal:,}/s", rate >= goal, ceiling, f"CPU {cpu_us:.1f} µs an event")


async def _bare_read(bus: "lives.NatsBus", maker: lives.LogMaker) -> float:
    tail, read = await bus.tail(subjects.LOG, after=0), 0
    began = time.perf_counter()
    while read < maker.sequence:
        read += len(await tail.next())
    await tail.close()
    return maker.events / (time.perf_counter() - began)


async def restart() -> list[Row]:
    """Queue and placer behind a million events: a clean stop leaves a snapshot, then comes a tail, then they start."""
    with Stack() as stack:
        bus = await stack.bus()
        maker = lives.LogMaker(bus)
        await maker.append(lives.opening())
        await maker.append(lives.lives(1, (MILLION - 40_000) // 6, 100))
        for name in ("queue", "placer"):
            stack.service(name)
        for name in ("queue", "placer"):
            await _serving(bus, name)
        for name in ("queue", "placer"):
            stack.stop(name)
        # Whatever they committed themselves is the end of their chains now.
        maker = await _rejoin(bus, maker)
        await maker.append(lives.lives(MILLION, 40_000 // 6, 100))
        rows = [await _first_decision(stack, bus, name, maker.events) for name in ("queue", "placer")]
        await bus.close()
    return rows


async def _rejoin(bus: "lives.NatsBus", maker: lives.LogMaker) -> lives.LogMaker:
    reader = LogReader(bus, after=maker.sequence, heads=maker.heads)
    end = (await bus.state(subjects.LOG)).last
    while reader.chain.last < end:
        list(await reader.next())
    maker.heads, maker.sequence = reader.chain.heads, end
    await reader.close()
    return maker


async def _serving(bus: "lives.NatsBus", name: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            await bus.request(subjects.rpc(name, "state"), b"", timeout_s=5)
            return
        except Exception:  # noqa: BLE001 -- not there yet is the normal answer here
            await asyncio.sleep(0.1)
    raise RuntimeError(f"{name} does not serve")


async def _first_decision(stack: Stack, bus: "lives.NatsBus", name: str, events: int) -> Row:
    """Time from the start of the process to its commit that answers a waiting command."""
    tail = await bus.tail(subjects.LOG, after=(await bus.state(subjects.LOG)).last)
    command = encode_commands([CancelJob(id=f"bench-{name}", job="999999999")])
    if name == "placer":
        command = msgspec.json.encode([{"type": "CordonNode", "id": "bench-placer", "node": "no-such-node"}])
    await bus.append(subjects.CMD, subjects.cmd(name), command)
    began = time.perf_counter()
    stack.service(name)
    while True:
        found = await asyncio.wait_for(tail.next(), 120)
        if any(b"bench-" + name.encode() in stored.payload for stored in found):
            break
    took = time.perf_counter() - began
    await tail.close()
    what = f"{name} restarted behind {events:,} events and a snapshot, first decision"
    return Row(
        what,
        f"{took:.2f} s",
        "≤ 2 s",
        took <= 2.0,
        f"a process that only imports it: {ceilings.imports(f'fairlead_{name}.service')[0]:.2f} s",
    )


async def placer_memory() -> Row:
    """1,750 nodes × 8 GPUs, 10,000 live jobs."""
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        stack.hollow(1750)
        stack.wait_nodes(1750)
        endless = http.post("/v1/jobs", [{"command": ["sleep", "100000"], **jobs.ONE_GPU}] * 1000)
        await http.storm(stack.port, 2, iter([endless] * 10))
        stack.wait(lambda: _running(stack) >= 10_000, "placer")
        rss = stack.rss_mib("placer")
    return Row(
        "placer's memory, 1,750 nodes × 8 GPUs, 10,000 live jobs",
        f"{rss:.0f} MiB",
        "≤ 150 MB",
        rss * 1.048576 <= 150,
        f"a process that only imports it: {ceilings.imports('fairlead_placer.service')[1]:.0f} MiB",
    )


def _running(stack: Stack) -> int:
    items = stack.get("/v1/queues")["items"]
    assert isinstance(items, list)
    return sum(item["running"] for item in items)


async def growth(total: int = MILLION) -> Row:
    """Queue's and gateway's memory after 100,000 finished jobs and after `total`, in one run over hollow nodes."""
    sizes: dict[int, dict[str, float]] = {}
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        stack.hollow(500)
        stack.wait_nodes(500)
        done = 0
        while done < total:
            step = min(10_000, total - done)
            await jobs.run_jobs(stack, [jobs.TRUE] * step)
            done += step
            if done in (100_000, total):
                await asyncio.sleep(3)
                sizes[done] = {name: stack.rss_mib(name) for name in ("queue", "gateway")}
    early, late = sizes[100_000], sizes[total]
    # The state is bounded; a tenth is left for the allocator's pages.
    met = all(late[name] <= early[name] * 1.1 for name in early)
    text = ", ".join(f"{name} {early[name]:.0f} → {late[name]:.0f} MiB" for name in early)
    bare = {name: ceilings.imports(f"fairlead_{name}.service")[1] for name in early}
    ceiling = "processes that only import them: " + ", ".join(f"{size:.0f} MiB" for size in bare.values())
    return Row(
        f"memory after 100,000 → {total:,} finished jobs",
        text,
        "no more than after 100,000 (a tenth allowed for pages that the allocator keeps)",
        met,
        ceiling,
    )
