"""Log, archive and checkpoints agree, or the change is found, also by an attacker with the server who recomputes
hashes."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from fairlead_bus import snapshots
from fairlead_bus.log import identity
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import LogDamaged, Stored
from fairlead_bus.snapshots import Snapshot
from fairlead_queue.core import QueueCore
from fairlead_replay.archive import segments
from fairlead_replay.archive.archiver import Archiver
from fairlead_replay.archive.checkpoints import Signer
from fairlead_replay.archive.contents import BOOK, TAIL, ArchiveContents, NoArchive
from fairlead_replay.archive.segments import ArchiveDamaged
from fairlead_replay.archive.verify import verify_archive, verify_with_export
from fairlead_replay.audit import verify_live
from fairlead_replay.export import write_export
from fairlead_replay.fold import FoldedCluster
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_commit, encode_commit
from fairlead_schemas.wire.conditions import EXIT_DAMAGED
from tests.kit.eventually import eventually_async
from tests.replay.archive.scenes import (
    LOG,
    NOW_NS,
    SIGNER,
    archive,
    chained,
    fill,
    hub_with,
    later,
    rewritten,
    store_at,
    verified,
)

END = len(LOG)


@pytest.fixture
async def good(tmp_path: Path) -> Path:
    """An archive of the whole log, all of it signed."""
    await archive(await hub_with(LOG), tmp_path / "archive")
    return tmp_path / "archive"


async def test_a_whole_log_agrees_with_its_archive(good: Path) -> None:
    """Everything is checked, and the newest checkpoint covers it."""
    report = await verified(await hub_with(LOG), good)
    assert report.ok, report.found
    assert (report.archived, report.log, report.covered, report.found) == (END, END, END, [])
    assert report.checkpoints > 2
    assert report.newest == ArchiveContents(good).notes()[-1]
    assert verify_archive(good, key=SIGNER.verifier)._replace(log=END) == report


async def test_the_log_may_be_ahead_of_its_archive(tmp_path: Path) -> None:
    """Commits not yet archived are checked by their own chain, and nothing is missed."""
    await archive(await hub_with(LOG[:50]), tmp_path)
    report = await verified(await hub_with(LOG), tmp_path)
    assert (report.ok, report.archived, report.covered, report.log) == (True, 50, 50, END)


@pytest.mark.parametrize("sequence", [1, 20, END - 1, END])
async def test_a_changed_byte_in_the_log_is_named(good: Path, sequence: int) -> None:
    """Its own sequence, also where no later commit of the writer tells on it."""
    changed = [later(one) if one.sequence == sequence else one for one in LOG]
    report = await verified(await hub_with(changed), good)
    assert not report.ok
    assert (report.found[0].where, report.found[0].sequence) == ("log", sequence), report.found


@pytest.mark.parametrize("sequence", [2, 30, END])
async def test_a_dropped_commit_is_named(good: Path, sequence: int) -> None:
    """Also if the attacker closed the gap and recomputed every number and hash, so that the log is consistent."""
    log = chained([*LOG[: sequence - 1], *LOG[sequence:]])
    report = await verified(await hub_with(log), good)
    assert (report.found[0].where, report.found[0].sequence) == ("log", sequence), report.found


async def test_an_exported_log_is_held_against_the_archive(good: Path, tmp_path: Path) -> None:
    """As the one on the bus would be."""
    write_export(tmp_path / "whole", LOG)
    assert verify_with_export(tmp_path / "whole", good, key=SIGNER.verifier).ok
    write_export(tmp_path / "forged", rewritten(LOG, 25))
    report = verify_with_export(tmp_path / "forged", good, key=SIGNER.verifier)
    assert report.found[0][:2] == ("log", 25)


async def test_an_archive_that_is_sealed_during_a_read_is_whole(tmp_path: Path) -> None:
    """Every line occurs once, whatever the archiver does between two reads."""
    fill(store_at(tmp_path, segment_events=20), LOG[:40])
    shelf, store, found = ArchiveContents(tmp_path), store_at(tmp_path, segment_events=20), 0
    assert shelf.segments
    for piece in shelf.pieces():
        found += len(list(piece.lines())) if isinstance(piece, segments.Segment) else len(piece)
        if store.size == 40:  # after the first piece: the list of segments is known by now
            fill(store, LOG)
    assert found == END


@pytest.mark.parametrize("kept", [0, 1, 40, END - 1])
async def test_a_truncated_tail_is_named(good: Path, kept: int) -> None:
    """A log that ends early is whole in itself; archive and checkpoints know better."""
    hub = await hub_with(LOG[:kept])
    assert (await verify_live(hub.connect())).ok
    report = await verified(hub, good)
    assert [(one.where, one.sequence) for one in report.found] == [("log", kept + 1)]
    assert f"continues to {END}" in report.found[0].what


@pytest.mark.parametrize("sequence", [1, 25, END])
async def test_a_rewritten_suffix_is_named(good: Path, sequence: int) -> None:
    """All hashes fit, but it is not the archived or the signed history."""
    hub = await hub_with(rewritten(LOG, sequence))
    assert (await verify_live(hub.connect())).ok
    report = await verified(hub, good)
    assert (report.found[0].where, report.found[0].sequence) == ("log", sequence)


async def test_a_server_that_was_set_back_and_went_on_is_named(good: Path) -> None:
    """An old copy of the server's store, and other commits since: where the histories part is named. The archiver, too, stops
    there, and archives none of it."""
    other = chained([*LOG[:40], *(later(one) for one in LOG[40:]), later(LOG[-1], 5)])
    hub = await hub_with(other)
    report = await verified(hub, good)
    assert report.found[0][:2] == ("log", 41)
    before = ArchiveContents(good).notes()
    with pytest.raises(LogDamaged, match="is not the one in the archive"):
        await archive(hub, good)
    with pytest.raises(LogDamaged, match="was cut or set back"):
        await archive(await hub_with(LOG[:40]), good)
    assert ArchiveContents(good).notes() == before


async def test_log_and_archive_rewritten_alike_are_found_by_a_checkpoint(tmp_path: Path) -> None:
    """An attacker with the server and the archive's files, but without the key: both have the same new history, and
    neither is the signed one."""
    await archive(await hub_with(LOG), tmp_path / "true")
    forged = rewritten(LOG, 30)
    fill(store_at(tmp_path / "forged"), forged)
    shutil.copy(tmp_path / "true" / BOOK, tmp_path / "forged" / BOOK)
    report = await verified(await hub_with(forged), tmp_path / "forged")
    assert {one.where for one in report.found} == {"log", "archive"}
    assert all(one.sequence <= 30 and "not what was signed" in one.what for one in report.found)


async def test_log_and_archive_truncated_alike_are_found_by_a_checkpoint_from_elsewhere(tmp_path: Path) -> None:
    """All three were rolled back to a moment when they agreed. Only a later checkpoint kept elsewhere shows it."""
    hub, copy = await hub_with(LOG[:50]), tmp_path / "copy"
    await archive(hub, tmp_path / "archive", copy=copy)
    shutil.copytree(tmp_path / "archive", tmp_path / "old")
    await archive(await hub_with(LOG), tmp_path / "archive", copy=copy)
    report = await verified(hub, tmp_path / "old")
    assert report.ok, "in themselves they agree"
    report = await verified(hub, tmp_path / "old", copy)
    assert {(one.where, one.sequence) for one in report.found} == {("archive", 51), ("log", 51)}
    assert f"was signed for {END}" in report.found[0].what


async def test_an_attacker_with_the_key_is_found_by_a_checkpoint_from_elsewhere(tmp_path: Path) -> None:
    """A history that was signed again contradicts an independently kept checkpoint."""
    await archive(await hub_with(LOG), tmp_path / "true", copy=tmp_path / "kept")
    forged = await hub_with(rewritten(LOG, 30))
    await archive(forged, tmp_path / "forged")
    assert (await verified(forged, tmp_path / "forged")).ok
    report = await verified(forged, tmp_path / "forged", tmp_path / "kept")
    assert not report.ok
    assert any("two histories were signed" in one.what for one in report.found)


async def test_checkpoints_of_another_key_do_not_count(good: Path) -> None:
    """A book signed with another key, and an archive that names another key than the auditor's."""
    other = Signer(SIGNER.verifier.name, bytes(32))
    report = verify_archive(good, key=other.verifier)
    assert {one.where for one in report.found} == {"archive", "checkpoint"}
    assert report.covered == 0


def flip(path: Path, at_percent: int) -> None:
    """Change one bit of a file."""
    data = path.read_bytes()
    at = len(data) * at_percent // 100
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


@pytest.mark.parametrize("at_percent", [1, 30, 60, 99])
@pytest.mark.parametrize("pattern", ["segments/*.zst", "segments/*.json", TAIL, BOOK])
async def test_a_changed_byte_in_the_archive_is_found(good: Path, pattern: str, at_percent: int) -> None:
    """In every file, and the log is not blamed for it."""
    flip(min(good.glob(pattern)), at_percent)  # noqa: ASYNC240 -- nobody else runs in this loop
    report = await verified(await hub_with(LOG), good)
    assert not report.ok
    assert not [one for one in report.found if one.where == "log"]


@pytest.mark.parametrize("at_percent", [1, 50, 80])
async def test_an_archive_without_a_valid_owner_is_refused(good: Path, at_percent: int) -> None:
    """Its name and key cannot be read, or are misspelled."""
    flip(good / "archive.json", at_percent)
    with pytest.raises(NoArchive):
        verify_archive(good, key=SIGNER.verifier)


async def test_a_segment_that_is_gone_is_named(good: Path) -> None:
    """File and manifest, file alone, the last one, the tail: by the first sequence that is missing."""
    second, last = sorted((good / segments.FOLDER).glob("*.zst"))[1], ArchiveContents(good).segments[-1]
    for gone, first in (((second,), None), ((good / TAIL,), last.manifest.last + 1)):
        directory = good.with_name(f"without-{gone[0].name}")
        shutil.copytree(good, directory)
        for path in gone:
            (directory / path.relative_to(good)).unlink()
        expected = first or int(second.name.partition(".")[0])
        report = await verified(await hub_with(LOG), directory)
        assert report.found[0][:2] == ("archive", expected), report.found


async def test_a_manifest_with_a_false_continuation_is_found(good: Path) -> None:
    """The next start would trust its heads and peaks, which differ from those of its lines."""
    path = max((good / segments.FOLDER).glob("*.json"))
    manifest = msgspec.json.decode(path.read_bytes(), type=segments.SegmentManifest)
    lie = msgspec.structs.replace(manifest, peaks=["00" * 32, *manifest.peaks[1:]])
    path.write_bytes(msgspec.json.encode(lie))
    report = verify_archive(good, key=SIGNER.verifier)
    assert report.found[0][:2] == ("archive", manifest.first)
    with pytest.raises(ArchiveDamaged, match="differs from its signed checkpoint"):
        store_at(good)


async def with_snapshot(kept_at: int, folded_to: int) -> MemoryHub:
    """The log, and the queue's state as of one sequence kept as that of another."""
    hub, cluster = await hub_with(LOG), FoldedCluster()
    for stored in LOG[:folded_to]:
        cluster.evolve(stored.sequence, decode_commit(stored.payload))
    bus = hub.connect()
    await snapshots.save(
        bus,
        "queue",
        Snapshot(kept_at, {}, cluster.queue.snapshot()),
        log_id=await identity(bus),
        schema=QueueCore.schema,
        turn=0,
    )
    return hub


async def test_a_snapshot_that_was_rolled_back_is_found(good: Path) -> None:
    """A service would continue from an older state as if it were the newer one. A true one, however old, is no fault."""
    assert (await verified(await with_snapshot(30, 30), good)).ok
    report = await verified(await with_snapshot(60, 30), good)
    assert [(one.where, one.sequence) for one in report.found] == [("snapshot", 60)]
    report = await verified(await with_snapshot(END + 5, END), good)
    assert [(one.where, one.sequence) for one in report.found] == [("snapshot", END + 5)]


async def test_a_log_with_undecodable_commits_is_named(good: Path) -> None:
    """The check of the rest continues."""
    junk = [Stored(one.sequence, one.subject, b"{}") if one.sequence == 12 else one for one in LOG]
    report = await verified(await hub_with(junk), good)
    assert report.found[0][:2] == ("log", 12)
    assert report.archived == END


async def test_the_archiver_follows_and_signs_what_came(tmp_path: Path) -> None:
    """It keeps up with a log that grows, signs after the events that were asked for, and signs the rest when it is stopped."""
    hub = await hub_with(LOG[:20])
    archiver = Archiver(hub.connect(), store_at(tmp_path), checkpoint_events=25, clock=lambda: NOW_NS)
    running = asyncio.create_task(archiver.run())
    bus = hub.connect()
    for stored in LOG[20:]:
        await bus.append(subjects.LOG, stored.subject, stored.payload)
    await eventually_async(lambda: sum(1 for _ in ArchiveContents(tmp_path).lines()) >= END)
    await archiver.stop()
    assert await asyncio.wait_for(running, 60) == 0
    report = await verified(hub, tmp_path)
    assert (report.ok, report.archived, report.covered) == (True, END, END)
    assert report.checkpoints > 2


async def test_the_archiver_ends_at_a_log_that_breaks(tmp_path: Path) -> None:
    """With the exit code of damage; what was whole is archived, the rest is not."""
    broken = [*LOG[:30], *LOG[31:]]
    store = store_at(tmp_path)
    hub = await hub_with(broken)  # the memory bus numbers anew: the chain breaks at 31
    assert await Archiver(hub.connect(), store, clock=lambda: NOW_NS).run() == EXIT_DAMAGED
    assert sum(1 for _ in ArchiveContents(tmp_path).lines()) == next(
        at
        for at, one in enumerate(broken[30:], start=30)
        if decode_commit(one.payload).writer == decode_commit(LOG[30].payload).writer
    )
    assert encode_commit(decode_commit(LOG[0].payload)) == LOG[0].payload
