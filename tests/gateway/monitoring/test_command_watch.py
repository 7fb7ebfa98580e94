"""The gateway on a stream of commands that has lost some: 503 with the words and what to type, never a 202."""

import asyncio

import msgspec
import pytest

from fairlead_bus.command_loss import accept_loss
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import StreamState
from fairlead_gateway.monitoring.command_watch import CommandWatch
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import Readiness
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async

JOB = {"command": ["true"]}


async def restart_without(hub: MemoryHub, behind: int) -> None:
    """The server comes back without the end of CMD."""
    hub.stop()
    hub.truncate(subjects.CMD, behind)
    hub.start()


async def test_after_a_loss_of_commands_requests_are_refused_with_the_remedy_until_it_is_accepted() -> None:
    """Submits, cancels and list submits alike; /readyz names the condition; afterwards everything continues by itself."""
    async with GatewayWorld() as world:
        jobs = [await world.submit() for _ in range(6)]
        await restart_without(world.hub, 2)
        await eventually_async(lambda: bool(world.gateway.watch.conditions))
        for path, body in [("/v1/jobs", JOB), ("/v1/jobs", [JOB, JOB]), (f"/v1/jobs/{jobs[0]}:cancel", {})]:
            answer = await world.http.post(path, json=body)
            problem = answer.json()
            assert (answer.status_code, problem["type"]) == (503, "urn:fairlead:problem:commands_lost"), path
            assert "sequences 3 to 6 (4)" in problem["detail"]
            assert "`fairlead audit commands --accept-loss`" in problem["hint"]
            assert int(answer.headers["retry-after"]) > 0
        ready = await world.http.get("/readyz")
        body = msgspec.json.decode(ready.content, type=Readiness)
        assert (ready.status_code, body.ready) == (503, False)
        codes = [condition.code for condition in body.conditions]
        assert codes[0] == "commands_lost" and "commands_refused" not in codes
        assert (await world.http.get("/v1/jobs")).status_code == 200  # what is known is shown

        assert (await accept_loss(world.hub.connect())).through == 6
        await eventually_async(lambda: not world.gateway.watch.conditions)
        await world.start_queue()  # the one before has ended, as a supervisor restarts it
        assert await world.submit() == "7"
        assert not world.gateway.watch.conditions


async def test_a_gateway_that_starts_on_lost_commands_takes_none() -> None:
    """It holds the stream against the log before the first command is published."""
    async with GatewayWorld() as world:
        for _ in range(4):
            await world.submit()
        await world.stop_gateway()
        await restart_without(world.hub, 1)
        await world.start_gateway()
        answer = await world.http.post("/v1/jobs", json=JOB)
        assert answer.status_code == 503
        assert (await world.hub.connect().state(subjects.CMD)).last == 1, "nothing was stored"


async def test_a_stored_command_with_a_repeated_sequence_is_refused() -> None:
    """The server went back unnoticed: the answer to the append is the first sign of it, and is trusted."""
    hub = MemoryHub()
    bus = hub.connect()
    watch = CommandWatch(bus)
    for _ in range(5):
        await bus.append(subjects.CMD, subjects.cmd("queue"), b"[]")
    await watch.look()
    assert (watch.seen, watch.conditions) == (5, [])
    seen = watch.seen
    hub.truncate(subjects.CMD, 2)
    sequence = await bus.append(subjects.CMD, subjects.cmd("queue"), b"[]")
    refused = watch.stored(sequence, seen)
    assert refused is not None and refused.status == 503
    assert "--through 5" in refused.hint
    await watch.look()
    assert watch.conditions, "the cursors say nothing of it, and still it holds"
    await accept_loss(bus, through=5)
    await watch.look()
    assert watch.conditions == []


async def test_the_answer_to_a_repetition_may_be_below_what_others_have_stored() -> None:
    """A message that was stored at first, its answer lost, is no sign of a stream that went back."""
    bus = MemoryHub().connect()
    watch = CommandWatch(bus)
    await watch.look()
    seen = watch.seen
    first = await bus.append(subjects.CMD, subjects.cmd("queue"), b"[]", msg_id="a")
    other = await bus.append(subjects.CMD, subjects.cmd("placer"), b"[]", msg_id="b")
    assert watch.stored(other, seen) is None
    again = await bus.append(subjects.CMD, subjects.cmd("queue"), b"[]", msg_id="a")
    assert again == first < watch.seen
    assert watch.stored(again, seen) is None


async def test_nothing_is_published_between_a_reconnect_and_the_next_look() -> None:
    """The server may have restarted without the end of the stream: a publish in that moment would be lost."""
    async with GatewayWorld() as world:
        await world.submit()
        watch = world.gateway.watch
        await eventually_async(lambda: watch.is_fresh)
        looked = asyncio.Event()
        look = watch.look

        async def late() -> None:
            await looked.wait()
            await look()

        watch.look = late  # type: ignore[method-assign] -- held up
        world.hub.stop()
        world.hub.start()
        await eventually_async(lambda: not watch.is_fresh)
        before = (await world.hub.connect().state(subjects.CMD)).last
        posted = asyncio.ensure_future(world.http.post("/v1/jobs", json=JOB))
        await asyncio.sleep(0.3)
        assert (await world.hub.connect().state(subjects.CMD)).last == before
        looked.set()
        assert (await posted).status_code == 201


async def test_a_look_asks_for_the_stream_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch looks every second, at rest too; what it needs of the stream is in one answer."""
    bus = MemoryHub().connect()
    watch = CommandWatch(bus)
    await bus.append(subjects.CMD, subjects.cmd("queue"), b"[]")
    await watch.look()
    asked: list[str] = []
    state = bus.state

    async def counted(stream: str) -> StreamState:
        asked.append(stream)
        return await state(stream)

    monkeypatch.setattr(bus, "state", counted)
    await bus.append(subjects.CMD, subjects.cmd("queue"), b"[]")
    await watch.look()
    assert (asked, watch.seen) == ([subjects.CMD], 2)
