"""The scrub: the whole log is read in the background, and damage that no service meets is found and reported."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_bus.nats.adapter import connect
from fairlead_bus.port import Bus
from fairlead_replay import scrub
from fairlead_replay.explainer.service import Explainer
from fairlead_replay.scrub import PERCENT, QUICK_PER_S, Scrub, pause_s
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import ALIVE, Scrubbed, decode_alive
from tests.bus.commits import chain
from tests.kit.eventually import eventually_async
from tests.kit.nats_server import NatsServer

LENGTH = 400


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes follow each other quickly."""
    for name in ("PAUSE_S", "RETRY_S", "SILENCE_S"):
        monkeypatch.setattr(scrub, name, 0.05)


@asynccontextmanager
async def scrubbing(bus: Bus) -> AsyncIterator[Scrub]:
    """A scrub that runs, in no hurry to save CPU."""
    running = Scrub(bus, percent=99.0)
    task = asyncio.create_task(running.run())
    try:
        yield running
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def filled() -> MemoryHub:
    """A log of LENGTH commits by one writer."""
    hub = MemoryHub()
    bus = hub.connect()
    for payload in chain(LENGTH):
        await bus.append(subjects.LOG, subjects.log("queue"), payload)
    return hub


def test_passes_keep_to_their_share_of_a_cpu() -> None:
    """After the first pass the pauses make checking and receiving PERCENT of the time, whatever a commit costs."""
    for cost_s in (0.0001, 0.002, 0.5):
        pause = pause_s(50, cost_s, quick=False, percent=PERCENT)
        assert cost_s * scrub.COST_OF_RECEIVING / (pause + cost_s * scrub.COST_OF_RECEIVING) == pytest.approx(
            PERCENT / 100
        )


def test_a_first_pass_is_bounded_by_commits_a_second() -> None:
    """100,000 commits take less than half a minute, and no commit is given more than its time."""
    assert 100_000 / 50 * (pause_s(50, 0.001, quick=True, percent=PERCENT) + 0.001) == pytest.approx(
        100_000 / QUICK_PER_S
    )
    assert 100_000 / QUICK_PER_S < 30
    assert pause_s(50, 3.0, quick=True, percent=PERCENT) == 0.0


@pytest.mark.usefixtures("soon")
async def test_a_whole_log_is_read_to_its_end_again_and_again() -> None:
    """New commits are part of the next pass."""
    hub = await filled()
    async with scrubbing(hub.connect()) as running:
        await eventually_async(lambda: running.result.passes >= 2)
        assert (running.result.end, running.result.damaged, running.result.reason) == (LENGTH, 0, "")
        payload = chain(LENGTH + 1)[-1]
        await hub.connect().append(subjects.LOG, subjects.log("queue"), payload)
        await eventually_async(lambda: running.result.end == LENGTH + 1)


@pytest.mark.usefixtures("soon")
async def test_a_changed_commit_is_found_and_reported_until_the_log_is_whole() -> None:
    """By its writer's next commit, which states another hash; one critical line, not one for each pass."""
    hub = await filled()
    original = hub.streams[subjects.LOG].messages[41].payload
    hub.damage(subjects.LOG, 42, lambda payload: payload.replace(b'"c42"', b'"c43"'))
    async with scrubbing(hub.connect()) as running:
        await eventually_async(lambda: running.result.damaged == 42)
        assert "commit 42 does not have the hash" in running.result.reason
        passes = running.result.passes
        await eventually_async(lambda: running.result.passes >= passes + 2)
        assert running.result.damaged == 42
        hub.damage(subjects.LOG, 42, lambda _: original)
        await eventually_async(
            lambda: running.result == Scrubbed(passes=running.result.passes, sequence=LENGTH, end=LENGTH)
        )


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("gone", [[7], [LENGTH], list(range(100, LENGTH + 1)), list(range(1, LENGTH + 1))])
async def test_commits_that_are_gone_are_found(gone: list[int]) -> None:
    """In the middle by the gap; at the end, where no commit follows that would show it, by asking for the next one."""
    hub = await filled()
    for sequence in gone:
        hub.remove(subjects.LOG, sequence)
    async with scrubbing(hub.connect()) as running:
        await eventually_async(lambda: running.result.damaged == gone[0])


@pytest.mark.usefixtures("soon")
async def test_a_bus_that_is_away_is_no_damage() -> None:
    """The pass begins again when it is back."""
    hub = await filled()
    hub.stop()
    async with scrubbing(hub.connect()) as running:
        await asyncio.sleep(0.2)
        assert running.result == Scrubbed()
        hub.start()
        await eventually_async(lambda: running.result.passes >= 1)
        assert running.result.damaged == 0


@pytest.mark.usefixtures("soon")
async def test_an_explainer_scrubs_and_says_so() -> None:
    """Its sign of life carries the result."""
    hub = await filled()
    hub.remove(subjects.LOG, 9)
    explainer, asker = Explainer(hub.connect(), scrub_percent=99.0), hub.connect()
    task = asyncio.create_task(explainer.run())
    async with asyncio.timeout(60):
        found = Scrubbed()
        while not found.damaged:
            await asyncio.sleep(0.02)
            found = decode_alive(await asker.request(subjects.rpc("explainer", ALIVE), b"", timeout_s=5)).scrub or found
    assert found.damaged == 9
    await explainer.stop()
    assert await task == 0


@pytest.mark.nats
async def test_one_flipped_bit_in_an_old_commit_is_found_on_a_server(
    fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has stopped cleanly, so its index is whole and it starts without a word."""
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", fresh_nats.monitor)
    bus = await connect(fresh_nats.url)
    await bus.ensure()
    made = chain(LENGTH)
    for payload in made:
        await bus.append(subjects.LOG, subjects.log("queue"), payload)
    await bus.close()
    fresh_nats.stop()
    _flip_bit(fresh_nats.store_dir, made[LENGTH // 2])
    fresh_nats.start()
    bus = await connect(fresh_nats.url)
    assert (await bus.state(subjects.LOG)).last == LENGTH
    async with scrubbing(bus) as running:
        await eventually_async(lambda: running.result.damaged > 0)
        assert running.result.damaged in (LENGTH // 2 + 1, LENGTH // 2 + 2)
    await bus.close()


def _flip_bit(store: Path, payload: bytes) -> None:
    """Flip one bit in the middle of this commit, in whichever block of the LOG holds it."""
    (block,) = (path for path in store.glob("jetstream/*/streams/LOG/msgs/*.blk") if payload in path.read_bytes())
    data = bytearray(block.read_bytes())
    data[data.index(payload) + len(payload) // 2] ^= 1
    block.write_bytes(data)
