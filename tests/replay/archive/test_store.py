"""The archive grows by what was stored, survives a crash at every point, and refuses what does not follow."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from fairlead_bus.port import LogDamaged, Stored
from fairlead_replay.archive import segments
from fairlead_replay.archive.checkpoints import Signer
from fairlead_replay.archive.contents import BOOK, TAIL, ArchiveContents, NoArchive
from fairlead_replay.archive.segments import ArchiveDamaged
from fairlead_replay.archive.store import ArchiveBusy, Store
from fairlead_replay.archive.verify import verify_archive
from fairlead_replay.export import decode_line
from tests.replay.archive.scenes import LOG, NOW_NS, SIGNER, chained, fill, rewritten, store_at


def filled(directory: Path, log: list[Stored] = LOG, *, copy: Path | None = None) -> Path:
    """An archive of a log that was stored ten commits at a time."""
    fill(store_at(directory, copy=copy), log)
    return directory


def held(directory: Path) -> list[Stored]:
    return [decode_line(line) for line in ArchiveContents(directory).lines()]


def test_it_holds_the_very_commits(tmp_path: Path) -> None:
    """Over segments and tail, byte for byte, in order; every segment begins where the one before ended."""
    archive = filled(tmp_path)
    assert held(archive) == LOG
    found = ArchiveContents(archive).segments
    assert len(found) > 2
    assert 0 < found[-1].manifest.last < len(LOG)
    assert sum(one.manifest.file_bytes for one in found) < sum(one.manifest.plain_bytes for one in found)


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    """Opened again after every ten commits it is, file by file, the same as one that was never closed."""
    whole, pieces = filled(tmp_path / "whole"), tmp_path / "pieces"
    size = 0
    while size < len(LOG):
        store = store_at(pieces)
        assert store.size == size
        size += store.add(LOG[size : size + 10])
        if store.full():
            store.sign(NOW_NS)
            store.seal()
        if size == len(LOG):
            store.sign(NOW_NS)
        store.close()
    files = {path.relative_to(whole): path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    assert files == {path.relative_to(pieces): path.read_bytes() for path in pieces.rglob("*") if path.is_file()}


def test_an_interrupted_write_is_repeated(tmp_path: Path) -> None:
    """At any break of the last lines, the archive opens with the whole ones and reads the rest again."""
    store = store_at(tmp_path / "begun", segment_events=10**6)
    store.add(LOG[:3])
    store.close()
    lines = (tmp_path / "begun" / TAIL).read_bytes()
    ends = [at + 1 for at, byte in enumerate(lines) if byte == 0x0A]
    for cut in range(0, len(lines), 37):
        directory = tmp_path / f"cut-{cut}"
        shutil.copytree(tmp_path / "begun", directory)
        (directory / TAIL).write_bytes(lines[:cut])
        again = store_at(directory, segment_events=10**6)
        assert again.size == sum(end <= cut for end in ends)
        again.add(LOG[again.size : 5])
        again.close()
        assert held(directory) == LOG[:5]


def test_a_crash_between_sealing_and_emptying_the_tail_doubles_nothing(tmp_path: Path) -> None:
    """Lines that lie in both places count once, now and after more has come."""
    store = store_at(tmp_path, segment_events=10**6)
    store.add(LOG[:30])
    tail = (tmp_path / TAIL).read_bytes()
    store.seal()
    store.close()
    (tmp_path / TAIL).write_bytes(tail)
    assert held(tmp_path) == LOG[:30]
    again = store_at(tmp_path, segment_events=10**6)
    assert again.size == 30
    again.add(LOG[30:40])
    again.close()
    assert held(tmp_path) == LOG[:40]
    last = store_at(tmp_path, segment_events=10**6)
    last.seal()
    last.close()
    assert held(tmp_path) == LOG[:40]


def test_a_full_disk_ends_it_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial write is an error; the next process continues after the whole lines."""
    store = store_at(tmp_path)
    store.add(LOG[:5])

    def half(path: Path, payload: bytes) -> None:
        with path.open("ab") as file:
            file.write(payload[: len(payload) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(segments, "append", half)
        with pytest.raises(OSError, match="No space left"):
            store.add(LOG[5:9])
        with pytest.raises(OSError, match="No space left"):
            store.sign(NOW_NS)
    store.close()
    again = store_at(tmp_path)
    assert 5 <= again.size < 9
    fill(again, LOG)
    assert held(tmp_path) == LOG
    assert verify_archive(tmp_path, key=SIGNER.verifier).ok


def test_a_partial_checkpoint_is_signed_again(tmp_path: Path) -> None:
    """The remains of a crash do not count; the copy of the book, which is behind, is updated."""
    archive, copy = filled(tmp_path / "archive", copy=tmp_path / "copy"), tmp_path / "copy"
    book = (archive / BOOK).read_bytes()
    assert copy.read_bytes() == book
    (archive / BOOK).write_bytes(book[:-30])
    copy.write_bytes(book[:-300])  # within the one before: it is written after the book
    store = store_at(archive, copy=copy)
    assert store.sign(NOW_NS) is not None
    store.spread()
    store.close()
    assert (archive / BOOK).read_bytes() == book == copy.read_bytes()


def test_commits_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    """A gap, another chain, a line break; earlier commits of the same batch are kept."""
    store = store_at(tmp_path)
    store.add(LOG[:4])
    with pytest.raises(LogDamaged, match="gap"):
        store.add([LOG[4], LOG[6]])
    assert store.size == 5
    store.close()
    store = store_at(tmp_path)
    assert store.size == 5
    broken = Stored(6, LOG[5].subject, LOG[5].payload.replace(b",", b",\n", 1))
    with pytest.raises(LogDamaged, match="not canonical"):
        store.add([broken])
    assert store.size == 5
    # A writer's first commit was another one; its next ones say so, those of others do not.
    with pytest.raises(LogDamaged, match="does not have the hash"):
        store.add(rewritten(LOG, 1)[5:])
    size = store.size
    store.close()
    assert held(tmp_path) == LOG[:size]


def test_it_has_one_writer_and_one_key(tmp_path: Path) -> None:
    """A second process, and another key, are refused."""
    store = store_at(tmp_path)
    with pytest.raises(ArchiveBusy):
        store_at(tmp_path)
    store.close()
    with pytest.raises(NoArchive, match="is signed by"):
        Store(tmp_path, Signer("fairlead.log/other", bytes(32)))
    store_at(tmp_path).close()


def test_an_older_copy_of_the_archive_is_not_gone_on_with(tmp_path: Path) -> None:
    """Its checkpoints say that there was more: the book's own where only lines are old, the copy's where all is."""
    copy = tmp_path / "copy"
    old = filled(tmp_path / "archive", LOG[:40], copy=copy)
    shutil.copytree(old, tmp_path / "kept")
    filled(old, LOG, copy=copy)
    with pytest.raises(ArchiveDamaged, match="an older archive was put in its place"):
        store_at(tmp_path / "kept", copy=copy)
    shutil.copy(old / BOOK, tmp_path / "kept" / BOOK)
    with pytest.raises(ArchiveDamaged, match=rf"ends at sequence 40, but a checkpoint was signed for {len(LOG)}"):
        store_at(tmp_path / "kept", copy=copy)


def test_another_history_is_not_gone_on_with(tmp_path: Path) -> None:
    """Lines that were put in place of the signed ones are found when the archive is opened."""
    archive, other = filled(tmp_path / "archive"), filled(tmp_path / "other", chained(LOG[1:]))
    shutil.rmtree(archive / segments.FOLDER)
    shutil.copytree(other / segments.FOLDER, archive / segments.FOLDER)
    shutil.copy(other / TAIL, archive / TAIL)
    with pytest.raises((ArchiveDamaged, LogDamaged)):
        store_at(archive)


@pytest.mark.parametrize("kind", ["missing", "changed", "renamed"])
def test_manifests_fit_together_or_are_refused(tmp_path: Path, kind: str) -> None:
    """One that is gone, changed or at another place is named."""
    archive = filled(tmp_path)
    second = sorted((archive / segments.FOLDER).glob("*.json"))[1]
    if kind == "missing":
        second.unlink()
    elif kind == "changed":
        second.write_bytes(second.read_bytes().replace(b'"events":', b'"events": '))
    else:
        second.rename(second.with_name(f"{7:016}.json"))
    with pytest.raises(ArchiveDamaged):
        store_at(archive)


def test_a_directory_that_is_no_archive_is_named(tmp_path: Path) -> None:
    """With the file that was expected."""
    with pytest.raises(NoArchive, match=r"archive\.json"):
        ArchiveContents(tmp_path)
