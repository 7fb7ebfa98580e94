"""A full disk: the journal continues in its reserve, runs are managed, nothing is started, and the agent reports it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from fairlead_agent.core.ledger import Took
from fairlead_agent.files.journal import Journal
from fairlead_bus.disk_reserve import NAME, Reserve
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld
from tests.kit.eventually import eventually_async
from tests.kit.small_disk import fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk of 8 MiB."""
    with small_disk(tmp_path) as target:
        yield target


async def test_the_journal_goes_on_in_its_reserve(disk: Path) -> None:
    """Records by the thousand after the disk was full; a second process reads them all."""
    journal = Journal.open(disk / "agent", "n1", "inc", reserve_bytes=2 * 2**20)
    assert not journal.reserve.short
    filler = fill(disk)
    durable = 0

    def count() -> None:
        nonlocal durable
        durable += 1

    for sequence in range(1, 5001):
        record = Took(sequence=sequence)
        journal.ledger.apply(record)
        journal.write([record], count)
        if sequence % 100 == 0:
            await asyncio.sleep(0.001)
    await journal.close()
    await asyncio.sleep(0)
    assert not journal.failed.done()
    assert journal.reserve.short
    again = Journal.open(disk / "agent", "n1", "other", reserve_bytes=2 * 2**20)
    assert (again.ledger.sequence, again.ledger.incarnation) == (5000, "inc")
    assert again.reserve.short and not again.reserve.take()
    filler.unlink()
    assert again.reserve.take() and not again.reserve.short
    await again.close()


def test_a_node_without_reserve_is_never_short(tmp_path: Path) -> None:
    """A reserve of 0 disables the check."""
    none = Reserve(tmp_path, 0)
    assert not none.short and not none.give() and not (tmp_path / NAME).exists()
    some = Reserve(tmp_path, 4096)
    assert some.held and (tmp_path / NAME).stat().st_size == 4096
    assert some.give() and some.short and not some.give()


@pytest.fixture
async def world(disk: Path) -> AsyncIterator[AgentWorld]:
    """A node whose directory is on that disk."""
    made = AgentWorld(disk)
    made.settings = msgspec.structs.replace(made.settings, reserve_mib=2)
    await made.open()
    yield made
    await made.close()


async def test_on_a_full_disk_runs_are_managed_and_nothing_is_started(world: AgentWorld, disk: Path) -> None:
    """A stop is executed and reported; a new order is refused with the reason; with room again everything continues."""
    await world.placer.desire("n1", order("1", "sleep", "600"))
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "1")))
    filler = fill(disk)
    journal = world.agents[0][0].journal
    async with asyncio.timeout(60):
        for attempt in range(1, 100_000):  # each is journalled and refused, until the file's last block is full
            await world.placer.desire("n1", order("1", "sleep", "600"), order("2", "true", attempt=attempt))
            await world.placer.until(lambda: any(e.attempt == attempt for e in world.placer.of(ExitSeen, "2")))  # noqa: B023
            if journal.reserve.short:
                break
    await world.placer.desire("n1", order("1", "sleep", "600", stop="cancelled"), order("3", "true"))
    assert (await world.ended("1")).outcome == "stopped"
    refused = await world.ended("3")
    assert refused.outcome == "start_failed"
    assert "is full: what is left is the journal's" in refused.message
    filler.unlink()
    await eventually_async(lambda: not journal.reserve.short, look_s=0.1)
    await world.placer.desire("n1", order("4", "true"))
    assert (await world.ended("4")).outcome == "exited"
