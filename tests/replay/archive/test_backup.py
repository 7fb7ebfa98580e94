"""Backups: signed as a whole, refused in words where anything is wrong, and what a restore would lose, to the commit."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fairlead_bus.memory import MemoryBus, MemoryHub
from fairlead_bus.port import BusError, Stored, Unavailable
from fairlead_replay.archive import backup
from fairlead_replay.archive import restore as restoring
from fairlead_replay.archive.backup import BackupDamaged, LossScan, OtherLog
from fairlead_replay.archive.checkpoints import Signer
from fairlead_replay.archive.restore import restore
from fairlead_replay.audit import read_log
from fairlead_schemas.wire import subjects
from tests.replay.archive.scenes import LOG, SIGNER, archive, chained, hub_with, later

MADE_AT = "2026-11-28T12:00:00Z"
#: Where a backup ends that is made before the log's end.
CUT = len(LOG) - 7


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A backup of all of the log, with a day of samples, a list of users and a settings file."""
    directory = tmp_path / "backup"
    fill(directory, tmp_path)
    return directory


def fill(directory: Path, tmp_path: Path) -> None:
    """Make a backup in a directory, or make it again."""
    days, users, settings = tmp_path / "days", tmp_path / "users.json", tmp_path / "services.env"
    (days / "runs").mkdir(parents=True, exist_ok=True)
    (days / "runs" / "2026-11-27.parquet").write_bytes(b"samples" * 99)
    users.write_text("[]")
    settings.write_text("FAIRLEAD_LOG_LEVEL=debug\n")
    backup.write(directory, SIGNER, backup.sources(days, users, [settings]), MADE_AT)


@pytest.fixture(autouse=True)
async def _log(tmp_path: Path) -> None:
    """The archive of the log, which a backup has in its directory."""
    await archive(await hub_with(LOG), tmp_path / "backup" / "log")


def test_a_backup_that_is_whole_is_put_back(made: Path, tmp_path: Path) -> None:
    """Every file, with its contents, readable by its owner alone; never over another file."""
    manifest = backup.check(made, SIGNER.verifier)
    assert (manifest.sequence, manifest.made_at, len(manifest.files)) == (len(LOG), MADE_AT, 3)
    days, others = tmp_path / "new" / "days", tmp_path / "new"
    assert backup.put_back(made, manifest, days, others) == 3
    assert (days / "runs" / "2026-11-27.parquet").read_bytes() == b"samples" * 99
    env = others / "settings" / "services.env"
    assert env.read_text() == "FAIRLEAD_LOG_LEVEL=debug\n" and env.stat().st_mode & 0o077 == 0
    assert backup.put_back(made, manifest, days, others) == 3  # the same once more
    env.write_text("changed")
    with pytest.raises(FileExistsError, match=r"services\.env is there already"):
        backup.put_back(made, manifest, days, others)


async def test_a_second_backup_adds_and_removes(made: Path, tmp_path: Path) -> None:
    """A file that is gone is not part of the newer backup; the log continues."""
    (tmp_path / "days" / "runs" / "2026-11-27.parquet").rename(tmp_path / "days" / "runs" / "2026-11-28.parquet")
    backup.write(made, SIGNER, backup.sources(tmp_path / "days", None, []), MADE_AT)
    assert [file.path for file in backup.check(made).files] == ["days/runs/2026-11-28.parquet"]
    assert not (made / "keys" / "users.json").exists()


def _cut_tail(made: Path) -> None:
    tail = made / "log" / "tail.jsonl"
    tail.write_bytes(tail.read_bytes()[: tail.stat().st_size // 2])


def _drop_archive(made: Path) -> None:
    shutil.rmtree(made / "log")


def _another_settings(made: Path) -> None:
    (made / "settings" / "services.env").write_text("FAIRLEAD_LOG_LEVEL=error\n")


def _shorter(made: Path) -> None:
    (made / "days" / "runs" / "2026-11-27.parquet").write_bytes(b"sam")


def _drop(name: str) -> Callable[[Path], None]:
    return lambda made: (made / name).unlink()


def _forge(made: Path) -> None:
    text = (made / "backup.json").read_text().replace("services.env", "../../etc/x")
    (made / "backup.json").write_text(text)


def _sign_by_another(made: Path) -> None:
    other = Signer("fairlead.log/other", bytes(32))
    (made / "backup.note").write_text(other.sign("fairlead backup\n00\n"))


def _link(made: Path) -> None:
    (made / "settings" / "services.env").unlink()
    (made / "settings" / "services.env").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_cut_tail, "log: archive, sequence"),
        (_drop_archive, "archive"),
        (_another_settings, "settings/services.env has"),
        (_shorter, "has 3 bytes, 693 were signed"),
        (_drop("backup.note"), "was cut off while it was made or copied"),
        (_drop("backup.json"), "was cut off while it was made or copied"),
        (_drop("keys/users.json"), "keys/users.json is missing"),
        (_forge, "is not the one that was signed"),
        (_sign_by_another, "not signed by fairlead.log/test"),
        (_link, "services.env is missing"),
    ],
)
def test_a_backup_that_is_not_what_was_signed_is_refused(made: Path, harm: Callable[[Path], None], words: str) -> None:
    """Cut in half, changed, forged: each fault in words, and the path that it concerns."""
    harm(made)
    with pytest.raises(ValueError, match=words):
        backup.check(made, SIGNER.verifier)


def test_a_signed_path_outside_the_backup_is_refused(made: Path) -> None:
    """A stolen key does not let its thief write elsewhere."""
    text = (made / "backup.json").read_bytes().replace(b"settings/services.env", b"settings/../../x")
    (made / "backup.json").write_bytes(text)
    (made / "backup.note").write_text(SIGNER.sign(backup._signed_text(text)))
    with pytest.raises(BackupDamaged, match="outside the backup"):
        backup.check(made)


async def test_lost_commits_are_named(made: Path, tmp_path: Path) -> None:
    """The present log has seven commits more: each with its writer and what it says; the restored one ends where the backup does."""
    early = tmp_path / "early"
    await archive(await hub_with(LOG[:CUT]), early / "log")
    fill(early, tmp_path)
    manifest, scan = backup.check(early), LossScan(backup.check(early))
    take_all(scan, LOG)
    scan.end()
    assert [each.sequence for each in scan.lost] == list(range(CUT + 1, len(LOG) + 1))
    assert {each.writer for each in scan.lost} <= set(subjects.WRITERS) and all(each.events for each in scan.lost)
    end = backup.state_at_end(early, manifest.sequence)
    assert (end.sequence, sum(end.commits.values())) == (CUT, CUT)
    hub = MemoryHub()
    assert await restore(hub.connect(), early / "log") == CUT


def take_all(scan: LossScan, log: Iterable[Stored]) -> None:
    """Let a scan take every commit."""
    for stored in log:
        scan.take(stored)


def test_another_log_is_not_compared(made: Path) -> None:
    """One with other commits, and one that ends before the backup."""
    manifest = backup.check(made)
    scan = LossScan(manifest)
    with pytest.raises(OtherLog, match="it is not the same log"):
        take_all(scan, chained([*LOG[:CUT], *map(later, LOG[CUT:])]))
    scan = LossScan(manifest)
    take_all(scan, LOG[:CUT])
    with pytest.raises(OtherLog, match=f"ends at sequence {CUT}, before the backup at {len(LOG)}"):
        scan.end()


class Breaking(MemoryBus):
    """A bus that goes away after some messages of a restore, `breaks` times."""

    breaks = 0

    async def append(self, stream: str, subject: str, payload: bytes, **more: object) -> int:
        if stream == subjects.LOG and self.breaks and (self.hub.streams[stream].last + 1) % 9 == 0:
            self.breaks -= 1
            raise Unavailable("elections")
        return await super().append(stream, subject, payload, **more)  # pyright: ignore[reportArgumentType]


async def test_a_restore_continues_after_the_bus_was_away(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored already is kept and not stored again."""
    monkeypatch.setattr(restoring, "RESUME_PAUSE_S", 0.0)
    bus = Breaking(MemoryHub())
    bus.breaks = 5
    assert await restore(bus, made / "log") == len(LOG) and bus.breaks == 0
    assert [stored async for stored in read_log(bus)] == LOG


async def test_a_restore_among_other_writers_ends(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is not the source's is never built upon."""
    monkeypatch.setattr(restoring, "RESUME_PAUSE_S", 0.0)
    hub = MemoryHub()

    class Disturbed(MemoryBus):
        async def append(self, stream: str, subject: str, payload: bytes, **more: object) -> int:
            if stream == subjects.LOG and self.hub.streams[stream].last == 3:
                await super().append(stream, subject, b"another", **more)  # pyright: ignore[reportArgumentType]
                raise Unavailable("elections")
            return await super().append(stream, subject, payload, **more)  # pyright: ignore[reportArgumentType]

    with pytest.raises(BusError, match="something else writes this log"):
        await restore(Disturbed(hub), made / "log")
