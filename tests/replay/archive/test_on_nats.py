"""The archiver as a process, on a real server with keys: killed again and again, and against an attacker with the
server's files."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.port import LogDamaged
from fairlead_replay.archive import archiver
from fairlead_replay.archive.archiver import Archiver
from fairlead_replay.archive.contents import ArchiveContents
from fairlead_replay.archive.restore import restore
from fairlead_replay.archive.store import Store
from fairlead_replay.archive.verify import ArchiveReport, verify_together
from fairlead_replay.export import decode_line
from fairlead_schemas.wire import subjects
from tests.bus.keyed import Keyed
from tests.kit.eventually import eventually_async
from tests.kit.nats_server import NatsServer
from tests.replay.archive.scenes import LOG, SIGNER, rewritten

pytestmark = pytest.mark.nats

KILLS = 8


@pytest.fixture
def keyed() -> Iterator[Keyed]:
    """A server on which everybody has a key of their own."""
    site = Keyed()
    yield site
    site.close()


async def append(bus: NatsBus, writers: dict[str, NatsBus], log: Any) -> None:
    """Each commit by its own writer, slowly enough that an archiver is killed among them."""
    for stored in log:
        await writers.get(stored.subject, bus).append(subjects.LOG, stored.subject, stored.payload)
        await asyncio.sleep(0.05)


def lines(directory: Path) -> int:
    try:
        return sum(1 for _ in ArchiveContents(directory).lines())
    except ValueError:
        return 0  # not begun yet


async def verify(bus: NatsBus, directory: Path) -> ArchiveReport:
    return await asyncio.wait_for(verify_together(bus, directory, key=SIGNER.verifier), 60)


@pytest.mark.slow
async def test_the_archiver_loses_and_doubles_nothing_when_it_is_killed(keyed: Keyed, tmp_path: Path) -> None:
    """With the key of `archiver` alone. After every kill it continues after the lines on the disk."""
    await keyed.make_streams()
    archiver.write_key_file(tmp_path / "archive.key", SIGNER)
    directory = tmp_path / "archive"
    env = os.environ | {
        "FAIRLEAD_NATS": keyed.server.url,
        "FAIRLEAD_NATS_NKEY_FILE": str(keyed.seed_file("archiver")),
        "FAIRLEAD_ARCHIVE": str(directory),
        "FAIRLEAD_ARCHIVE_KEY_FILE": str(tmp_path / "archive.key"),
        "FAIRLEAD_ARCHIVE_COPY": str(tmp_path / "copy"),
        "FAIRLEAD_CHECKPOINT_EVENTS": "20",
    }
    writers = {subjects.log(name): await keyed.connect(name) for name in subjects.WRITERS}
    auditor = await keyed.connect("auditor")
    appending = asyncio.create_task(append(auditor, writers, LOG[:-1]))
    for number in range(1, KILLS + 1):
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "fairlead_replay.archive", env=env)
        if number == KILLS:
            # What nobody has archived before it: once that is there, it is at work, and hears a SIGTERM.
            await appending
            await append(auditor, writers, LOG[-1:])
        await eventually_async(lambda n=number: lines(directory) >= len(LOG) * n // KILLS, look_s=0.05)
        process.send_signal(signal.SIGKILL if number < KILLS else signal.SIGTERM)
        assert await process.wait() == (-signal.SIGKILL if number < KILLS else 0)
    assert [decode_line(line) for line in ArchiveContents(directory).lines()] == LOG
    report = await asyncio.wait_for(
        verify_together(auditor, directory, key=SIGNER.verifier, known=(tmp_path / "copy",)), 60
    )
    assert (report.ok, report.covered) == (True, len(LOG)), report.found
    for bus in (*writers.values(), auditor):
        await bus.close()


async def archived(bus: NatsBus, directory: Path) -> int:
    store = Store(directory, SIGNER)
    try:
        return await Archiver(bus, store).catch_up()
    finally:
        store.close()


async def filled(url: str, log: Any) -> NatsBus:
    bus = await connect(url, name="test")
    await bus.ensure()
    for stored in log:
        await bus.append(subjects.LOG, stored.subject, stored.payload)
    return bus


async def test_a_store_that_was_rolled_back_is_found(fresh_nats: NatsServer, tmp_path: Path) -> None:
    """An attacker with the server's disk replaces its store by an older copy, which the server accepts."""
    bus = await filled(fresh_nats.url, LOG[:60])
    await bus.close()
    fresh_nats.stop()
    shutil.copytree(fresh_nats.store_dir, tmp_path / "old")
    fresh_nats.start()
    bus = await connect(fresh_nats.url, name="test")
    for stored in LOG[60:]:
        await bus.append(subjects.LOG, stored.subject, stored.payload)
    assert await archived(bus, tmp_path / "archive") == len(LOG)
    assert (await verify(bus, tmp_path / "archive")).ok
    await bus.close()
    fresh_nats.stop()
    shutil.rmtree(fresh_nats.store_dir)
    shutil.copytree(tmp_path / "old", fresh_nats.store_dir)
    fresh_nats.start()
    bus = await connect(fresh_nats.url, name="test")
    report = await verify(bus, tmp_path / "archive")
    assert [(one.where, one.sequence) for one in report.found] == [("log", 61)], report.found
    with pytest.raises(LogDamaged, match="was cut or set back"):
        await archived(bus, tmp_path / "archive")
    await bus.close()


async def archived_elsewhere(directory: Path) -> None:
    """Archive the log from a server that is gone afterwards."""
    true = NatsServer()
    true.start()
    try:
        bus = await filled_unchecked(true, LOG)
        await archived(bus, directory)
        await bus.close()
    finally:
        true.close()


async def test_a_server_with_another_history_is_found(fresh_nats: NatsServer, tmp_path: Path) -> None:
    """A log whose hashes were all recomputed, on a server that presents it as its own."""
    await archived_elsewhere(tmp_path / "archive")
    bus = await filled_unchecked(fresh_nats, rewritten(LOG, 100))
    report = await verify(bus, tmp_path / "archive")
    assert report.found[0][:2] == ("log", 100), report.found
    await bus.close()


async def filled_unchecked(server: NatsServer, log: Any) -> NatsBus:
    os.environ["FAIRLEAD_NATS_MONITOR"] = server.monitor
    return await filled(server.url, log)


async def test_a_changed_byte_in_the_servers_files_is_found(fresh_nats: NatsServer, tmp_path: Path) -> None:
    """The server skips such a message, or cuts the log there (docs/reference/facts.md); either is named."""
    bus = await filled(fresh_nats.url, LOG)
    await archived(bus, tmp_path / "archive")
    await bus.close()
    fresh_nats.stop()
    flip(fresh_nats.store_dir, LOG[80].payload)
    fresh_nats.start()
    bus = await connect(fresh_nats.url, name="test")
    report = await verify(bus, tmp_path / "archive")
    assert not report.ok
    assert report.found[0].where == "log"
    assert 0 < report.found[0].sequence <= 81
    await bus.close()


def flip(store: Path, payload: bytes) -> None:
    """One bit within a message in the file that holds it."""
    for path in store.rglob("*.blk"):
        data = path.read_bytes()
        at = data.find(payload)
        if at >= 0:
            at += len(payload) // 2
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            return
    raise AssertionError("no file holds it")


async def test_a_log_is_restored_into_a_new_server(fresh_nats: NatsServer, tmp_path: Path) -> None:
    """The same commits at the same sequences; commands continue after those that were consumed, also after a crash."""
    await archived_elsewhere(tmp_path / "archive")
    os.environ["FAIRLEAD_NATS_MONITOR"] = fresh_nats.monitor
    bus = await connect(fresh_nats.url, name="test")
    assert await restore(bus, tmp_path / "archive") == len(LOG)
    assert (await verify(bus, tmp_path / "archive")).ok
    consumed = (await bus.state(subjects.CMD)).last
    assert consumed > 0
    await bus.close()
    fresh_nats.kill()
    fresh_nats.start()
    bus = await connect(fresh_nats.url, name="test")
    assert await bus.append(subjects.CMD, subjects.cmd("queue"), b"[]") == consumed + 1
    assert (await verify(bus, tmp_path / "archive")).ok
    await bus.close()
