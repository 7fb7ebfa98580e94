"""The explainer on a real server: it answers next to a live queue, from its snapshot, and after the server was killed."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from fairlead_bus.input_source import CommandSource
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.port import Bus, Unavailable
from fairlead_bus.service import Service
from fairlead_queue.core import QueueCore
from fairlead_queue.explain.explain import explain
from fairlead_replay.audit import read_log
from fairlead_replay.explainer.service import Explainer, build
from fairlead_replay.fold import FoldedCluster, commits_of, fold_to
from fairlead_schemas.queries.explainer import Ask, AskDryRun, AskWhy, ExplainerAnswer, decode_answer, encode
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import QueueCommand, SubmitJob, encode_commands
from tests.kit.nats_server import NatsServer
from tests.kit.queue_world import SPEC, request

pytestmark = pytest.mark.nats

JOBS = 1200
WAIT_S = 60.0


def submission(number: int) -> SubmitJob:
    """A job of one GPU."""
    return SubmitJob(id=f"c{number}", user="ada", name="job", queue="default", request=request(), spec=SPEC)


class Site:
    """A live queue, two explainers, and a client; each on a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.buses: list[NatsBus] = []
        self.parts: list[Any] = []
        self.running: list[asyncio.Task[int]] = []

    async def bus(self, name: str) -> NatsBus:
        bus = await connect(self.url, name=name)
        await bus.ensure()
        self.buses.append(bus)
        return bus

    def run(self, part: Any) -> None:
        self.parts.append(part)
        self.running.append(asyncio.create_task(part.run()))

    async def start(self) -> None:
        """The queue stores a snapshot every 500 events."""
        bus = await self.bus("queue")
        self.run(Service(bus, QueueCore, writer="queue", sources=[CommandSource("queue")], snapshot_events=500))
        for number in range(2):
            self.run(await build(await self.bus(f"explainer-{number}")))
        self.asker = await self.bus("asker")

    async def close(self) -> None:
        for part in self.parts:
            await part.stop()
        await asyncio.gather(*self.running)
        for bus in self.buses:
            await bus.close()

    @property
    def explainers(self) -> list[Explainer]:
        return [part for part in self.parts if isinstance(part, Explainer)]

    async def submit(self, first: int, last: int) -> None:
        """Submit, and wait until all are in the log."""
        for number in range(first, last + 1, 100):
            commands: list[QueueCommand] = [submission(each) for each in range(number, min(number + 99, last) + 1)]
            await self.patiently(self.asker.append, subjects.CMD, subjects.cmd("queue"), encode_commands(commands))
        async with asyncio.timeout(WAIT_S):
            while (await self.ask(AskWhy(job=str(last)))).error:  # noqa: ASYNC110 -- the log is what is waited for
                await asyncio.sleep(0.05)

    async def ask(self, ask: Ask) -> ExplainerAnswer:
        """One question."""
        request = partial(self.asker.request, subjects.ASK, encode(ask), timeout_s=60)
        return decode_answer(await self.patiently(request))

    async def patiently[**P, T](self, act: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What is done again until the server is there."""
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    return await act(*args, **kwargs)
                except Unavailable:
                    await asyncio.sleep(0.1)


async def folded(bus: Bus, sequence: int) -> FoldedCluster:
    """The whole log, read and folded to there."""
    return fold_to(commits_of([stored async for stored in read_log(bus)]), sequence)


async def check(site: Site, job: str, at: int = 0) -> int:
    """An answer is what the function says of a fold of the whole log; its sequence."""
    answer = await site.ask(AskWhy(job=job, at=at))
    assert answer.error == "", answer.message
    state = (await folded(site.asker, answer.sequence)).queue.state
    assert answer.why == explain(state, state.jobs[job])
    return answer.sequence


async def test_queries_are_answered_next_to_a_live_queue(
    fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live, past and dry-run; from a snapshot if there is one; and again after the server was killed."""
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", fresh_nats.monitor)
    site = Site(fresh_nats.url)
    await site.start()
    try:
        await site.submit(1, JOBS)
        last = await check(site, str(JOBS))
        early = await check(site, "1", at=last // 2)
        assert early == last // 2
        assert (await site.ask(AskWhy(job="1", at=last + 1_000_000))).error == "not_yet"
        (outcome,) = (await site.ask(AskDryRun(commands=(submission(JOBS + 1),)))).outcomes
        assert (outcome.code, outcome.pool) == ("", "default")
        for _ in range(100):  # the server takes one of them by chance
            if all(each.statistics()["answered"] for each in site.explainers):
                break
            await check(site, "1")
        assert all(each.statistics()["answered"] for each in site.explainers)

        await asyncio.to_thread(fresh_nats.kill)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(fresh_nats.start)
        await site.submit(JOBS + 1, JOBS + 10)
        assert await check(site, str(JOBS + 10)) > last
        await check(site, "1", at=last // 2)

        third = await build(await site.bus("explainer-late"))
        for each in site.explainers:
            await each.stop()
        await asyncio.gather(*site.running[1:])
        site.run(third)
        assert await check(site, str(JOBS)) > last
        assert third.statistics()["folded"] < last, "it began at a snapshot of the queue's"
    finally:
        await site.close()
