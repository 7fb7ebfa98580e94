"""Pace of commits: a busy service gathers input for some ms, an idle one never waits."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from fairlead_bus import pacing
from fairlead_bus.core import Core, Decision, Input
from fairlead_bus.input_source import CommandSource
from fairlead_bus.log import LogReader
from fairlead_bus.memory import MemoryHub
from fairlead_bus.pacing import GATHER_S, CommitPace
from fairlead_bus.port import Bus
from fairlead_bus.service import Service
from fairlead_replay.sim.loop import run
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import CancelJob
from tests.bus.commits import commit
from tests.bus.counting import CountingCore, command


def _busy(at_s: float) -> CommitPace:
    pace = CommitPace()
    for n in range(6):
        pace.note(24, at_s + n * GATHER_S)
    return pace


def test_a_service_that_commits_now_and_then_never_waits():
    """Some jobs a second, each with its commits right behind each other, are no load."""
    pace = CommitPace()
    for n in range(100):
        at_s = n * 0.04
        for step_s in (0.0, 0.001, 0.005):
            assert not pace.is_close(at_s + step_s)
            pace.note(2, at_s + step_s)


def test_a_busy_service_waits_since_its_last_commit_began():
    """What comes right behind a commit waits, what comes later does not."""
    pace, last_s = _busy(10.0), 10.0 + 5 * GATHER_S
    assert pace.is_close(last_s + GATHER_S / 4)
    assert abs(pace.left_s(last_s + GATHER_S / 4, GATHER_S) - GATHER_S * 3 / 4) < 1e-9
    assert pace.left_s(last_s + 2 * GATHER_S, GATHER_S) < 0


def test_a_large_commit_is_followed_at_once():
    """Waiting for more input saves nothing where there is much of it."""
    pace = _busy(10.0)
    pace.note(pacing.LARGE_EVENTS, 11.0)
    assert not pace.is_close(11.0)
    assert pace.left_s(11.0, GATHER_S) == 0


def test_a_burst_is_forgotten_soon():
    """Half a second after the greatest commit, the service is idle again."""
    pace = CommitPace()
    pace.note(1_000_000, 10.0)
    pace.note(1, 10.1)
    assert pace.is_close(10.1)
    assert not pace.is_close(10.6)


class _Counting(CountingCore):
    """Keeps its cursor in the commands' stream where the inputs are others."""

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        decided = super().decide(inputs, now_ns)
        return Decision(decided.events, {item.source: item.position for item in inputs if item.source == subjects.CMD})


class _Numbers:
    """A source of numbers that nobody waits for."""

    is_urgent = False

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.wake: Callable[[], None] = lambda: None

    def put(self, number: int) -> None:
        self.numbers.append(number)
        self.wake()

    async def open(self, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        self.wake = wake

    def take(self, now_ns: int) -> list[Input]:
        numbers, self.numbers = self.numbers, []
        return [Input("own", 0, [CancelJob(id=f"n{number}", job="1") for number in numbers])] if numbers else []

    def wake_at(self) -> int | None:
        return None

    async def close(self) -> None: ...


class _World(NamedTuple):
    running: Service[_Counting]
    numbers: _Numbers
    bus: Bus


async def _started(stack: AsyncExitStack) -> _World:
    """A service that leads, in virtual time."""
    bus, numbers = MemoryHub().connect(), _Numbers()
    await bus.ensure()
    running = Service(bus, _Counting, writer="queue", sources=[CommandSource("queue"), numbers])
    task = asyncio.create_task(running.run())
    stack.callback(task.cancel)
    await asyncio.sleep(1)
    assert running.leading
    return _World(running, numbers, bus)


async def _send(world: _World, numbers: Iterable[int], every_s: float) -> None:
    for number in numbers:
        world.numbers.put(number)
        await asyncio.sleep(every_s)


def test_input_of_a_busy_service_gathers_into_fewer_commits():
    """A number every ms: one commit each at first, and one for several once there have been many. None is lost or repeated."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            world = await _started(stack)
            await _send(world, range(40), 0.001)
            assert world.running.commits == 40
            await _send(world, range(40, 240), 0.001)
            assert world.running.commits < 40 + 30 + 200 / 3
            await asyncio.sleep(0.1)
            assert world.running.core.ids == [f"n{number}" for number in range(240)]

    run(story())


def test_a_command_ends_the_wait_of_a_busy_service():
    """Somebody waits for its answer: it is decided with what has gathered so far, at the time it comes."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            world = await _started(stack)
            await _send(world, range(200), 0.001)
            while not world.numbers.numbers:  # until one waits for the next commit
                await _send(world, [1000], 0)
            before_s = asyncio.get_running_loop().time()
            await world.bus.append(subjects.CMD, subjects.cmd("queue"), command(1))
            for _ in range(100):
                await asyncio.sleep(0)
            assert "c1" in world.running.core.ids
            assert asyncio.get_running_loop().time() == before_s

    run(story())


def test_a_reader_that_pauses_reads_commits_together_and_the_first_at_once():
    """After a silence it waits for nothing, behind it reads are at least the pause apart, and it skips no commit."""

    async def story() -> None:
        bus = MemoryHub().connect()
        await bus.ensure()
        reader, read = LogReader(bus, pause_s=0.02), list[tuple[float, int]]()
        loop = asyncio.get_running_loop()

        async def follow() -> None:
            while True:
                found = await reader.next_checked()
                read.append((loop.time(), len(found)))

        following = asyncio.create_task(follow())
        await asyncio.sleep(1)
        began_s, prev = loop.time(), None
        for n in range(1, 101):
            prev = commit(n, prev)
            await bus.append(subjects.LOG, subjects.log("queue"), prev)
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        following.cancel()
        assert read[0] == (began_s, 1)
        assert len(read) < 10
        assert sum(count for _, count in read) == 100

    run(story())
