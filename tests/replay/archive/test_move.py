"""A cluster of one server is moved to three and back: the same log, people and credentials; and what is refused before."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlead.commands.bus import replace_settings
from fairlead_bus.lease import LeaderLease
from fairlead_bus.memory import MemoryHub
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_replay.archive.move import Moved, MoveRefused, check_at_rest, move
from fairlead_replay.archive.restore import NotEmpty, restore
from fairlead_replay.audit import read_log
from fairlead_schemas.wire import subjects
from tests.kit.nats_cluster import NatsCluster
from tests.kit.nats_server import NatsServer
from tests.replay.archive.scenes import LOG, archive, hub_with, store_at

JOBS = 1000


@asynccontextmanager
async def bus_at(url: str, monitor: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NatsBus]:
    """A connection to one server or three, whose monitoring pages are at `monitor`."""
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", monitor)
    monkeypatch.setenv("FAIRLEAD_NATS_REPLICAS", str(len(url.split(","))))
    bus = await connect(url)
    try:
        yield bus
    finally:
        await bus.close()


@pytest.mark.nats
async def test_a_cluster_goes_from_one_server_to_three_and_back(
    fresh_nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every commit at its sequence with three current copies, the newest value of every key, and commands behind those that were read.
    A target that holds something is refused."""
    await archive(await hub_with(LOG), tmp_path / "made")
    last, cluster = NatsServer(), NatsCluster()
    try:
        last.start()
        cluster.start()
        async with bus_at(fresh_nats.url, fresh_nats.monitor, monkeypatch) as one:
            await restore(one, tmp_path / "made")
            for number in range(JOBS):
                await one.put_quickly(subjects.PEOPLE, f"principal.p{number % 400}", b"name %d" % number)
            await one.flush()
            await one.put(subjects.CREDENTIAL, "token.t1", b"digest")
            async with bus_at(cluster.url, cluster.monitor, monkeypatch) as three:
                moved = await move(one, three, store_at(tmp_path / "archive"), tmp_path / "archive")
                assert moved == Moved(
                    len(LOG), {**dict.fromkeys(moved.carried, 0), "KV_PEOPLE": 400, "KV_CREDENTIAL": 1}
                )
                assert [stored async for stored in read_log(three)] == LOG
                cluster.wait(lambda: cluster.copies("LOG") == 3, "three current copies of the log")
                with pytest.raises(NotEmpty, match="expected an empty one: move into new servers"):
                    await move(one, three, store_at(tmp_path / "archive"), tmp_path / "archive")
                async with bus_at(last.url, last.monitor, monkeypatch) as back:
                    assert await move(three, back, store_at(tmp_path / "archive"), tmp_path / "archive") == moved
                    assert [stored async for stored in read_log(back)] == LOG
                    entry = await back.get(subjects.PEOPLE, "principal.p399")
                    assert entry is not None and entry.value == b"name 799"
                    assert (await back.state(subjects.CMD)).last == (await one.state(subjects.CMD)).last > 0
    finally:
        last.close()
        cluster.close()


async def test_a_cluster_whose_services_run_is_not_moved() -> None:
    """By the name of the service, and of the command that it has not decided."""
    hub = MemoryHub()
    bus = hub.connect()
    await check_at_rest(bus)
    sequence = await bus.append(subjects.CMD, subjects.cmd("placer"), b"[]")
    with pytest.raises(MoveRefused, match=f"placer service has not decided the command at sequence {sequence}"):
        await check_at_rest(bus)
    lease = LeaderLease(hub.connect(), "queue", "queue-1")
    assert await lease.try_acquire()
    with pytest.raises(MoveRefused, match="the queue service runs: stop all services"):
        await check_at_rest(bus)


def test_addresses_in_settings_are_replaced(tmp_path: Path) -> None:
    """Other lines stay, and the old file is kept."""
    path = tmp_path / "services.env"
    before = "# of the site\nFAIRLEAD_NATS=nats://bus:4222\nFAIRLEAD_LOG_LEVEL=debug\n"
    path.write_text(before)
    replace_settings(path, {"FAIRLEAD_NATS": "nats://a:4222,nats://b:4222", "FAIRLEAD_NATS_REPLICAS": "2"})
    assert path.read_text() == (
        "# of the site\nFAIRLEAD_LOG_LEVEL=debug\nFAIRLEAD_NATS=nats://a:4222,nats://b:4222\nFAIRLEAD_NATS_REPLICAS=2\n"
    )
    assert (tmp_path / "services.env.before-move").read_text() == before
