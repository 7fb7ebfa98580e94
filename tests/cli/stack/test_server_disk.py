"""The disk under a local nats-server: a reserve for when it is full, and a restart when it has room again."""

import asyncio
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.stack.server_disk import (
    AGAIN_FIRST_S,
    AGAIN_LAST_S,
    FULL_BYTES,
    MIB,
    UNSTORED_S,
    DiskPolicy,
    DiskReading,
    DiskStep,
    ServerDisk,
    reserve_bytes,
    write_error,
)
from fairlead_bus.disk_reserve import NAME
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.port import OutcomeUnknown, Unavailable
from fairlead_schemas.wire import subjects
from tests.kit.eventually import eventually_async
from tests.kit.nats_server import NatsServer
from tests.kit.small_disk import fill, small_disk

WELL = DiskReading(free=100 * MIB, write_error="", unstored=False)
STUCK = WELL._replace(write_error="stream CMD write error: no space left on device")


def test_a_server_that_is_well_is_left_alone() -> None:
    """Also on a disk that is nearly full: it works."""
    judge = DiskPolicy(32 * MIB)
    assert judge.step(WELL, 0.0) is DiskStep.NOTHING
    assert judge.step(WELL._replace(free=2 * FULL_BYTES), 1.0) is DiskStep.NOTHING


def test_the_reserve_is_removed_when_the_disk_is_full() -> None:
    """Before or after the server has met the full disk, and without a restart meanwhile: it would fail again."""
    judge = DiskPolicy(32 * MIB)
    assert judge.step(WELL._replace(free=FULL_BYTES - 1), 0.0) is DiskStep.GIVE_RESERVE
    assert judge.step(STUCK._replace(free=0), 1.0) is DiskStep.GIVE_RESERVE
    assert judge.step(STUCK._replace(free=32 * MIB - 1), 2.0) is DiskStep.NOTHING


def test_a_write_error_on_a_disk_with_room_restarts_the_server() -> None:
    """At once; where that does not help, again after pauses that double up to the longest."""
    judge, now, restarts = DiskPolicy(32 * MIB), 0.0, list[float]()
    while now < 4 * AGAIN_LAST_S:
        if judge.step(STUCK, now) is DiskStep.RESTART:
            restarts.append(now)
        now += 1.0
    pauses = [later - earlier for earlier, later in itertools.pairwise(restarts)]
    assert (restarts[0], pauses[0], pauses[-1]) == (0.0, AGAIN_FIRST_S, AGAIN_LAST_S)
    assert pauses == sorted(pauses)


def test_commands_that_are_not_stored_restart_it_only_when_that_lasts() -> None:
    """A slow disk is no reason; and each time that something is stored counts from the start."""
    judge, slow = DiskPolicy(32 * MIB), WELL._replace(unstored=True)
    assert judge.step(slow, 0.0) is DiskStep.NOTHING
    assert judge.step(slow, UNSTORED_S - 1) is DiskStep.NOTHING
    assert judge.step(WELL, UNSTORED_S) is DiskStep.NOTHING
    assert judge.step(slow, UNSTORED_S + 1) is DiskStep.NOTHING
    assert judge.step(slow, 2 * UNSTORED_S) is DiskStep.NOTHING
    assert judge.step(slow, 2 * UNSTORED_S + 1) is DiskStep.RESTART


def test_the_reserves_size_is_a_setting() -> None:
    """In MiB; 0 keeps none, and what cannot be is refused by name."""
    assert reserve_bytes({}) == 16 * MIB
    assert reserve_bytes({"FAIRLEAD_SERVER_RESERVE_MIB": "0"}) == 0
    with pytest.raises(BadSetting, match="FAIRLEAD_SERVER_RESERVE_MIB"):
        reserve_bytes({"FAIRLEAD_SERVER_RESERVE_MIB": "-1"})


# --------------------------------------------------------------------------------- with a real server

RESERVE = 2 * MIB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 24 * MIB) as target:
        yield target


@pytest.fixture
def server(disk: Path) -> Iterator[NatsServer]:
    """A nats-server whose store is on the small disk."""
    server = NatsServer()
    server.store_dir = disk / "store"
    server.start()
    yield server
    server.close()


async def stores(bus: NatsBus) -> bool:
    """True when a command is stored."""
    try:
        await bus.append(subjects.CMD, subjects.cmd("queue"), b"x" * 100_000)
    except (OutcomeUnknown, Unavailable):
        return False
    return True


@pytest.mark.nats
async def test_a_server_that_met_a_full_disk_is_restarted_and_stores_again(
    disk: Path, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps refusing with the disk empty again (docs/reference/facts.md); after the restart it stores. While the disk is
    full the reserve is given up, and it is taken again when there is room."""
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", server.monitor)
    bus, said, asked = await connect(server.url), list[str](), threading.Event()
    await bus.ensure()
    watch = ServerDisk(
        disk, server.monitor, reserve=RESERVE, unstored=lambda: False, restart=asked.set, say=said.append
    )
    reserve = disk / NAME
    assert reserve.stat().st_size == RESERVE
    assert await stores(bus)
    filler = fill(disk)
    assert not await stores(bus)
    assert "no space left" in write_error(server.monitor)

    watch.watch()
    await eventually_async(lambda: reserve.stat().st_size == 0)
    filler.unlink()
    await eventually_async(lambda: reserve.stat().st_size == RESERVE)
    assert await asyncio.to_thread(asked.wait, 30.0)
    server.restart()  # here: the server dies with the thread that has started it
    await asyncio.to_thread(watch.stop)
    assert write_error(server.monitor) == ""
    async with asyncio.timeout(60):
        while not await stores(bus):  # noqa: ASYNC110 -- the client reconnects by itself
            await asyncio.sleep(0.1)
    await bus.close()
    assert [words.partition(": ")[0].partition(" (")[0] for words in said] == [
        f"the disk of {disk} is full",
        f"the disk of {disk} has room again",
        "nats-server refuses although its disk has room",
    ]


def test_a_stack_that_goes_down_on_a_full_disk_leaves_room_for_the_servers_end(disk: Path) -> None:
    """The server writes its index when it stops."""
    watch = ServerDisk(disk, "", reserve=RESERVE, unstored=lambda: False, restart=lambda: None, say=lambda _: None)
    fill(disk)
    watch.stop()
    there = os.statvfs(disk)
    assert there.f_bavail * there.f_frsize >= RESERVE // 2
