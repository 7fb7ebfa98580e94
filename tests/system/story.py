"""Events of the log, read back from the bus: ends, starts, and whether state equals a fold."""

import asyncio
import hashlib
from collections import Counter
from typing import NamedTuple

import msgspec

from fairlead_bus.log import LogReader
from fairlead_bus.nats.adapter import NatsBus
from fairlead_bus.port import Unavailable
from fairlead_placer import invariants
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.events import JobCancelled, JobFailed, JobPlaced, JobSubmitted, JobSucceeded, RunStarted

ENDS = (JobSucceeded, JobFailed, JobCancelled)


class Story(NamedTuple):
    """Counts over the whole log."""

    submitted: set[str]
    ends: Counter[str]
    #: Placements and starts per (job, attempt).
    placed: Counter[tuple[str, int]]
    started: Counter[tuple[str, int]]
    outcomes: dict[str, str]
    sequence: int


async def read(bus: NatsBus, *, check: bool = False) -> Story:
    """Fold the log from its start, chain checked; with `check` the placer's invariants after every commit."""
    end = (await bus.state(subjects.LOG)).last
    story = Story(set(), Counter(), Counter(), Counter(), {}, end)
    reader, placer = LogReader(bus), PlacerCore()
    while reader.chain.last < end:
        for folded in await asyncio.wait_for(reader.next(), 30):
            if check:
                placer.evolve(folded.seq, folded.commit)
                invariants.check(placer.state)
            for event in folded.commit.events:
                _count(story, event)
    await reader.close()
    return story


def _count(story: Story, event: object) -> None:
    if isinstance(event, JobSubmitted):
        story.submitted.add(event.job)
    elif isinstance(event, ENDS):
        story.ends[event.job] += 1
        story.outcomes[event.job] = type(event).__name__
    elif isinstance(event, JobPlaced):
        story.placed[(event.job, event.attempt)] += 1
    elif isinstance(event, RunStarted):
        story.started[(event.job, event.attempt)] += 1


async def state_equals_fold(bus: NatsBus) -> dict[str, bool]:
    """For queue and placer: does the live state have the very bytes of a fold up to its sequence?"""
    result: dict[str, bool] = {}
    for name, core in (("queue", QueueCore()), ("placer", PlacerCore())):
        answer = await _ask(bus, name)
        reader = LogReader(bus)
        folded = 0
        while folded < answer.sequence:
            for item in await asyncio.wait_for(reader.next(), 30):
                if item.seq <= answer.sequence:
                    core.evolve(item.seq, item.commit)
                    folded = item.seq
        await reader.close()
        result[name] = hashlib.sha256(core.snapshot()).hexdigest() == answer.sha256
    return result


class _Live(msgspec.Struct):
    sequence: int
    sha256: str


async def _ask(bus: NatsBus, name: str) -> _Live:
    for _ in range(100):
        try:
            return msgspec.json.decode(await bus.request(subjects.rpc(name, "state"), b"", timeout_s=5), type=_Live)
        except Unavailable:
            await asyncio.sleep(0.1)
    raise AssertionError(f"{name} does not answer")
