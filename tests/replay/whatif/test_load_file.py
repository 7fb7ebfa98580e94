"""Load files: the same play from the file as from the log, and files that are refused."""

import errno
import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fairlead_bus.port import LogDamaged, Stored
from fairlead_replay.whatif import load_file
from fairlead_replay.whatif.load_file import LoadFileError, read_head, read_load
from fairlead_replay.whatif.record import LogWindow, WindowError, record_of
from fairlead_replay.whatif.replays import play_recording
from fairlead_replay.whatif.sources import LoadExport, record_directory
from fairlead_schemas.wire import commands as cmd
from tests.replay.whatif.scenes import Scene, at, queues


def busy_log() -> list[Stored]:
    """Return a log with a cancel, a hold, an array, a drain, a lost node and preemption."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(16):
        scene.submit(n * 10, 1 + n % 4, 30 + n % 5, queue="ab"[n % 2], user=f"u{n % 3}", exit_code=int(n % 7 == 0))
    array = scene.submit(50, 1, 20, array=(0, 5))
    scene.cancel_after("3", 5)
    scene.command(60, cmd.HoldJob(id="hold", user="u1", job="9"))
    scene.command(90, cmd.ReleaseJob(id="release", user="u1", job="9"))
    scene.command(70, cmd.DrainNode(id="drain", user="root", node="n002", reason="driver"))
    scene.command(140, cmd.UncordonNode(id="back", user="root", node="n002"))
    scene.fact(100, "n001", "silent", silent_ns=30_000_000_000)
    scene.fact(130, "n001", "heard")
    assert array
    return scene.play(500)[0]


def payloads(recording: load_file.LogRecording) -> list[bytes]:
    """Play a recording and return its commits."""
    log: list[Stored] = []
    play_recording(recording, record=log.append)
    return [each.payload for each in log]


def read_all(export: LoadExport, log: list[Stored]) -> None:
    """Give a log to an export."""
    for read in (export.note, export.take) if export.is_anonymous else (export.take,):
        for stored in log:
            if not read(stored):
                break


def saved(path: Path, log: list[Stored], window: LogWindow = LogWindow()) -> Path:  # noqa: B008 -- a constant
    """Write the load file of a log."""
    export = LoadExport(window, anonymous=False)
    read_all(export, log)
    export.finish(path)
    return path


@pytest.mark.parametrize("window", [LogWindow(), LogWindow(at(65)), LogWindow(at(65), at(200))])
def test_a_load_file_plays_as_its_log(tmp_path: Path, window: LogWindow) -> None:
    """From the log's start, and from the state at a window's begin: the same commits, byte for byte."""
    log = busy_log()
    path = saved(tmp_path / "day.load.jsonl.gz", log, window)
    assert payloads(record_directory(path, LogWindow())) == payloads(record_of(log, window))


def test_the_same_log_gives_the_same_bytes(tmp_path: Path) -> None:
    """So that a repository shows a change only where there is one."""
    log = busy_log()
    some, others = saved(tmp_path / "a.load.jsonl.gz", log), saved(tmp_path / "b.load.jsonl.gz", log)
    assert some.read_bytes() == others.read_bytes()


def test_a_load_file_is_a_window_already(tmp_path: Path) -> None:
    """A further window is refused; the message has its bounds."""
    path = saved(tmp_path / "day.load.jsonl.gz", busy_log())
    with pytest.raises(WindowError, match=r"from: expected none with a load file.*its log's start"):
        record_directory(path, LogWindow(at(20)))


def test_an_old_file_is_never_written_over(tmp_path: Path) -> None:
    """A file that tests rest upon is replaced by hand."""
    path = saved(tmp_path / "day.load.jsonl.gz", busy_log())
    with pytest.raises(LoadFileError, match="never written over"):
        saved(path, busy_log())


def test_a_forged_digest_is_refused(tmp_path: Path) -> None:
    """One line is changed, the head is not."""
    path = saved(tmp_path / "day.load.jsonl.gz", busy_log())
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text.replace(b'"user":"u1"', b'"user":"u2"', 1)))
    with pytest.raises(LoadFileError, match=r"expected lines with the digest [0-9a-f]{16}…, found"):
        read_load(path)


def test_a_forged_head_is_refused(tmp_path: Path) -> None:
    """The head's digest is changed, the lines are not."""
    path = saved(tmp_path / "day.load.jsonl.gz", busy_log())
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(
        gzip.compress(text.replace(read_head(path).sha256.encode(), hashlib.sha256(b"").hexdigest().encode()))
    )
    with pytest.raises(LoadFileError, match="the file was changed or cut"):
        read_load(path)


def test_two_gib_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the size that the file system tells: a sparse file of 2 GiB, which is never opened."""
    path = tmp_path / "huge.load.jsonl.gz"
    with path.open("wb") as file:
        file.truncate(2 * 1024**3)

    def opened(*_: object, **__: object) -> None:
        raise AssertionError("the file was opened")

    monkeypatch.setattr(load_file.gzip, "open", opened)
    with pytest.raises(LoadFileError, match="at most 256 MiB, found 2,048 MiB"):
        read_load(path)


def test_a_small_file_of_many_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compressed well is bounded while it is read: as a line, and as all lines."""
    path = saved(tmp_path / "day.load.jsonl.gz", busy_log())
    with monkeypatch.context() as patched:
        patched.setattr(load_file, "LINES_BYTES_MAX", 10_000)
        with pytest.raises(LoadFileError, match="GiB of lines, found more"):
            read_load(path)
    monkeypatch.setattr(load_file, "LINE_BYTES_MAX", 100)
    with pytest.raises(LoadFileError, match="expected lines of at most"):
        read_load(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data[: len(data) // 2], "it is cut, or no load file"),
        (lambda data: b"not gzip", "it is cut, or no load file"),
        (lambda data: b"", "expected a load file"),
        (lambda data: gzip.compress(b"{}\n"), "expected a load file"),
        (lambda data: gzip.compress(b"[1]\n"), "expected a load file"),
        (lambda data: gzip.compress(b'{"load":9}\n'), "a later version wrote it"),
        (lambda data: gzip.compress(gzip.decompress(data) + b"garbage\n"), "line [0-9]+ cannot be read"),
        (lambda data: gzip.compress(gzip.decompress(data).split(b"\n", 1)[0] + b"\n"), "changed or cut"),
    ],
)
def test_what_is_no_load_file_is_refused(tmp_path: Path, change: Callable[[bytes], bytes], told: str) -> None:
    """In words, wherever it breaks off."""
    path = saved(tmp_path / "day.load.jsonl.gz", busy_log())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(LoadFileError, match=told):
        read_load(path)


def test_a_job_without_its_submit_is_refused(tmp_path: Path) -> None:
    """A file that is whole by its digest and still says too little."""
    path = saved(tmp_path / "day.load.jsonl.gz", busy_log())
    head, _, body = gzip.decompress(path.read_bytes()).partition(b"\n")
    body += b'{"line":"job","id":"77","submitted_ns":1,"queue":"a"}\n'
    fields = msgspec.json.decode(head) | {"sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(gzip.compress(msgspec.json.encode(fields) + b"\n" + body))
    with pytest.raises(LoadFileError, match="expected the submit of job 77, found none"):
        read_load(path)


def test_nothing_is_exported_of_a_damaged_log(tmp_path: Path) -> None:
    """The sequence is named, and no file is there afterwards."""
    log = busy_log()
    broken = [
        *log[:40],
        Stored(41, log[40].subject, log[40].payload.replace(b'"n":', b'"n":9')),
        *log[41:],
    ]
    for anonymous in (False, True):
        export = LoadExport(LogWindow(), anonymous=anonymous)
        with pytest.raises(LogDamaged) as caught:
            read_all(export, broken)
        assert caught.value.sequence == 41
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_an_export_names_its_log(tmp_path: Path) -> None:
    """Two windows of one log are of one log; another log is another."""
    log = busy_log()
    heads = [
        read_head(saved(tmp_path / f"{n}.load.jsonl.gz", log, LogWindow(begin))) for n, begin in enumerate((0, at(65)))
    ]
    assert heads[0].log == heads[1].log
    assert heads[0].sha256 != heads[1].sha256


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half a file under the name, nor one next to it."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(load_file.gzip.GzipFile, "write", full)
    with pytest.raises(LoadFileError, match="cannot be written: No space left on device"):
        saved(tmp_path / "day.load.jsonl.gz", busy_log())
    assert list(tmp_path.iterdir()) == []
