"""Inputs that a core cannot decide upon: recorded, passed, and never a reason to end twice."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fairlead_bus.core import Core, Decision, Input
from fairlead_bus.input_source import CommandSource
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Bus
from fairlead_bus.service import EXIT_OK, Service
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import CancelJob, Undecodable, encode_commands
from fairlead_schemas.wire.commit import Commit, decode_commit
from fairlead_schemas.wire.events import CommandRejected
from tests.bus.counting import CountingCore, command
from tests.bus.worlds import BusWorld
from tests.kit.eventually import eventually_async

CMD = subjects.cmd("queue")


class Frail(CountingCore):
    """A counter with three kinds of poison: an exception, an unencodable event, too many events."""

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        commands = [each for item in inputs for each in item.body if not isinstance(each, Undecodable)]
        if any(each.id.startswith("raise") for each in commands):
            raise KeyError("no such thing")
        sayings = {"encode": "\ud800", "large": "x" * 2**20}
        said = {each.id: sayings.get(each.id, "") for each in commands}
        return Decision(
            [_said(event.command, said.get(event.command, "rejected")) for event in self._counted(inputs)],
            {"CMD": inputs[-1].position} if inputs else {},
        )

    def _counted(self, inputs: Sequence[Input]) -> list[Any]:
        return list(super().decide(inputs, 0).events)


def _said(command_id: str, message: str) -> CommandRejected:
    return CommandRejected(cause=f"cmd:{command_id}", command=command_id, code="not_found", message=message)


class Own:
    """A source of inputs of a core's own kind, all there from the start."""

    is_urgent = False

    def __init__(self, bodies: list[Any]) -> None:
        self.bodies = bodies

    async def open(self, bus: Bus, core: Core, cursor: int, wake: Callable[[], None]) -> None:
        wake()

    def take(self, now_ns: int) -> list[Input]:
        bodies, self.bodies = self.bodies, []
        return [Input("own", 0, body) for body in bodies]

    def wake_at(self) -> int | None:
        return None

    async def close(self) -> None: ...


class Once(CountingCore):
    """Takes inputs of lists of words, and raises at the first decision on any."""

    raised = 0

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        if inputs and self.raised < 1:
            self.raised += 1
            raise MemoryError
        return Decision([_said(word, "heard") for item in inputs for word in item.body], {})


class Splitting(CountingCore):
    """Takes inputs of lists of words; "bad" cannot be decided."""

    def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
        words = [word for item in inputs for word in item.body]
        if "bad" in words:
            raise ValueError("bad word")
        return Decision([_said(word, "heard") for word in words], {})

    def split(self, item: Input) -> list[Input]:
        return [item._replace(body=[word]) for word in item.body] if len(item.body) > 1 else []

    def reject(self, item: Input, error: str, now_ns: int) -> Decision:
        return Decision([_said(item.body[0], error)], {})


async def commits(bus: Bus) -> list[Commit]:
    """The whole log."""
    last = (await bus.state(subjects.LOG)).last
    found = [await bus.read(subjects.LOG, sequence) for sequence in range(1, last + 1)]
    return [decode_commit(stored.payload) for stored in found if stored is not None]


async def test_each_kind_of_poison_is_recorded_and_its_neighbours_are_decided(world: BusWorld) -> None:
    """In one message and in several: each id is answered once, the poison by what was raised."""
    bus = await world.connect()
    mixed = encode_commands([CancelJob(id=id_, job="1") for id_ in ("c1", "raise-1", "c2", "encode", "c3")])
    for payload in (command(0), mixed, command(4), encode_commands([CancelJob(id="large", job="1")]), command(5)):
        await bus.append(subjects.CMD, CMD, payload)
    running = Service(bus, Frail, writer="queue", sources=[CommandSource("queue")])
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: len(running.core.ids) == 9)
    assert running.core.ids == ["c0", "c1", "raise-1", "c2", "encode", "c3", "c4", "large", "c5"]
    await running.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK
    assert (await commits(bus))[-1].cursors == {"CMD": 5}


async def test_a_restart_behind_poison_decides_nothing_twice(world: BusWorld) -> None:
    """The cursor in the log is behind it."""
    bus = await world.connect()
    for payload in (encode_commands([CancelJob(id="raise", job="1")]), command(1)):
        await bus.append(subjects.CMD, CMD, payload)
    for _ in range(2):
        running = Service(await world.connect(), Frail, writer="queue", sources=[CommandSource("queue")])
        task = asyncio.create_task(running.run())
        await eventually_async(lambda r=running: r.leading and r.core.ids == ["raise", "c1"])
        await running.stop()
        assert await asyncio.wait_for(task, 60) == EXIT_OK


async def test_an_input_of_the_cores_own_is_split_and_only_its_bad_part_is_rejected(world: BusWorld) -> None:
    """The shell asks the core, which alone knows what a part is."""
    running = Service(
        await world.connect(), Splitting, writer="queue", sources=[Own([["a", "b"], ["c", "bad", "d"], ["e"]])]
    )
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: len(running.core.ids) == 6)
    assert running.core.ids == ["a", "b", "c", "bad", "d", "e"]
    messages = {event.command: event.message for each in await commits(running.bus) for event in each.events}  # type: ignore[union-attr]
    assert messages == dict.fromkeys("abcde", "heard") | {"bad": "cannot be decided: ValueError: bad word"}
    await running.stop()
    await task


async def test_a_core_that_fails_without_inputs_ends_the_service(world: BusWorld) -> None:
    """Nothing can be isolated then, and rejecting acknowledged commands would lose them: a crash tells more."""

    class Broken(CountingCore):
        def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
            raise AssertionError("books do not balance")

    bus = await world.connect()
    await bus.append(subjects.CMD, CMD, command(1))
    running = Service(bus, Broken, writer="queue", sources=[CommandSource("queue")])
    (error,) = await asyncio.gather(asyncio.wait_for(running.run(), 60), return_exceptions=True)
    assert isinstance(error, AssertionError)
    assert await commits(bus) == []


async def test_an_input_with_a_single_failed_decision_is_decided() -> None:
    """A transient exception, such as a lack of memory, rejects nothing: a report would be lost permanently."""
    bus = MemoryHub().connect()
    await bus.ensure()
    running = Service(bus, Once, writer="queue", sources=[Own([["good"]])], instance="a")
    task = asyncio.create_task(running.run())
    await eventually_async(lambda: running.core.ids == ["good"])
    await running.stop()
    assert await asyncio.wait_for(task, 60) == EXIT_OK
    assert [_message(event) for each in await commits(bus) for event in each.events] == ["heard"]


def _message(event: object) -> str:
    assert isinstance(event, CommandRejected)
    return event.message
