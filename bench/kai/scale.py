"""KAI-Scheduler's scale tests in real time on the real bus, compared with its published figures: `python -m bench.kai`.

On 500 played nodes of 8 GPUs: one gang on the empty cluster, one-GPU jobs until it is full, a gang that cannot fit, and
jobs and gangs that take back what their queue is guaranteed. Each figure is what a person sees: it counts from the moment
the (first) submit is sent until the log has the last start, or the decision. Played runs end as soon as they
are asked to, so no grace is in any figure.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import uvloop

from bench import http, table
from bench.kai import load as kai_load
from bench.kai.listening import Cancelled, Ear, Preempting, Refused, Started
from bench.kai.load import Figure, Size
from bench.stack import Stack
from fairlead_bus.main import collect_rarely

CONNECTIONS = 32


class Bench:
    """The rows, one after the other on one stack: each begins with what the one before it has left."""

    def __init__(self, port: int, ear: Ear, size: Size) -> None:
        self.port, self.ear, self.size = port, ear, size

    async def rows(self) -> AsyncIterator[table.Row]:
        """All of them, in order. Raises RuntimeError when something is not answered as it must be."""
        await self.post("/v1/queues:apply", kai_load.queue_file(self.size, owned=self.size.large - 1))
        yield await self.gang()
        yield await self.fill()
        yield await self.judge()
        await self.post("/v1/queues:apply", kai_load.queue_file(self.size, owned=self.size.total))
        yield await self.reclaim_one()
        yield await self.reclaim_gangs()

    async def gang(self) -> table.Row:
        """Start one gang on the empty cluster; it is gone afterwards."""
        awaited = Started(1)
        took = await self._submit([kai_load.shared_gang(self.size)], awaited)
        await self._cancel(awaited.last)
        return row(f"one gang of {self.size.gang} pods: submit → all started", took, kai_load.GANG)

    async def fill(self) -> table.Row:
        """One-GPU jobs, each submitted by itself, until every GPU is taken."""
        took = await self._submit([kai_load.one_gpu(kai_load.FILL)] * self.size.total, Started(self.size.total))
        return row(f"{self.size.total:,} one-GPU jobs: first submit → last start", took, kai_load.FILLED)

    async def judge(self) -> table.Row:
        """Gangs that need one GPU more than may be taken back; each is gone before the next comes."""
        took: list[float] = []
        for _ in range(self.size.samples):
            awaited = Refused()
            took.append(await self._submit([kai_load.too_large(self.size)], awaited))
            await self._cancel(awaited.job)
        what = f"a gang of {self.size.large} GPUs that cannot fit: submit → reason reported {_most(took)}"
        return row(what, sum(took) / len(took), kai_load.JUDGED)

    async def reclaim_one(self) -> table.Row:
        """Reclaim one GPU at a time: it is taken back for its owner, who keeps it; afterwards those who yielded have it again."""
        took, owners = list[float](), list[str]()
        for _ in range(self.size.samples):
            awaited = Preempting()
            took.append(await self._submit([kai_load.one_gpu(kai_load.OWNER)], awaited))
            await self.ear.until(Started(1, awaited.job))
            owners.append(awaited.job)
        again = asyncio.create_task(self.ear.until(Started(len(owners))))
        for job in owners:
            await self.post(f"/v1/jobs/{job}:cancel", {})
        await again
        what = f"one GPU reclaimed on the full cluster: submit → victims decided {_most(took)}"
        return row(what, sum(took) / len(took), kai_load.RECLAIMED_ONE)

    async def reclaim_gangs(self) -> table.Row:
        """Gangs take their queue's guarantee back."""
        size = self.size
        took = await self._submit([kai_load.reclaiming_gang(size)] * size.gangs, Started(size.gangs))
        what = f"{size.gangs} gangs × {size.pods} pods × {size.per_pod} GPUs reclaimed: first submit → last start"
        return row(what, took, kai_load.RECLAIMED_GANGS)

    # ------------------------------------------------------------------ what people do

    async def post(self, path: str, body: object) -> None:
        """Send one request. Raises RuntimeError when it is refused."""
        await _drive(await http.connect(self.port), iter([http.post(path, body)]))

    async def _submit(self, jobs: list[dict[str, object]], awaited: Started | Refused | Preempting) -> float:
        """Submit one by one over some connections; seconds until the log has the awaited event."""
        requests = iter([http.post("/v1/jobs", job) for job in jobs])
        connections = [await http.connect(self.port) for _ in range(min(CONNECTIONS, len(jobs)))]
        listening = asyncio.create_task(self.ear.until(awaited))
        began = time.perf_counter()
        await asyncio.gather(*[_drive(connection, requests) for connection in connections])
        return await listening - began

    async def _cancel(self, job: str) -> None:
        """Cancel a job and wait until it is gone."""
        listening = asyncio.create_task(self.ear.until(Cancelled(job)))
        await self.post(f"/v1/jobs/{job}:cancel", {})
        await listening


async def _drive(connection: http.Connection, requests: Iterator[bytes]) -> None:
    for request in requests:
        status, body = await connection.send(request)
        if status not in (200, 201, 202):
            raise RuntimeError(f"answered {status}: {body.decode()[:1000]}")


def row(what: str, took: float, figure: Figure) -> table.Row:
    """Row with KAI's own figure as its baseline."""
    measured = f"{took:.2f} s" if took >= 1 else f"{took * 1000:.0f} ms"
    baseline = f"KAI-Scheduler's own figure: {figure.published:g} s"
    return table.Row(f"against KAI: {what}", measured, f"< {figure.goal:g} s", took < figure.goal, baseline)


def _most(took: list[float]) -> str:
    return f"(mean of {len(took)}, at most {max(took) * 1000:.0f} ms)"


async def measure(size: Size | None = None) -> AsyncIterator[table.Row]:
    """The rows as they are measured, on a stack of its own."""
    size = size or Size()
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        stack.hollow(size.nodes, size.gpus)
        stack.wait_nodes(size.nodes)
        bus = await stack.bus()
        ear = await Ear.open(bus)
        async for each in Bench(stack.port, ear, size).rows():
            yield each
        await ear.close()
        await bus.close()


async def _print() -> bool:
    rows: list[table.Row] = []
    async for each in measure():
        print(f"  {each.what}: {each.measured} (goal {each.goal}; {each.ceiling})", flush=True)
        rows.append(each)
    print("\n" + table.markdown(rows))
    return all(each.met for each in rows)


def main() -> int:
    """Measure and print; 1 when a goal was missed."""
    argparse.ArgumentParser(prog="python -m bench.kai", description=__doc__).parse_args()
    collect_rarely()
    return 0 if uvloop.run(_print()) else 1
