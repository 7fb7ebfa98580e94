"""Where a log is read from for a what-if: an export, an archive, a load file, or a bus. The shell around `record.py`.

Nothing is answered from a log that is damaged, or from what is stored before the damage.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fairlead_bus.main import with_bus
from fairlead_bus.port import Bus, LogDamaged, Stored
from fairlead_replay.archive.contents import ArchiveContents, is_archive
from fairlead_replay.audit import read_log
from fairlead_replay.export import MANIFEST_FILE, Exporter, decode_line, read_export
from fairlead_replay.whatif.anonymous import NameBook
from fairlead_replay.whatif.load_file import LoadHead, is_load_file, read_load, write_load
from fairlead_replay.whatif.record import LogRecorder, LogRecording, LogWindow, WindowError, record_of
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire.commit import CommitUndecodable, commit_hash, decode_commit


def is_directory_log(directory: Path) -> bool:
    """Return True for an export, an archive, or a load file."""
    return is_load_file(directory) or is_archive(directory) or (directory / MANIFEST_FILE).exists()


def stored_in(directory: Path) -> Iterator[Stored]:
    """The commits of an export or an archive, in order. Raises ExportError."""
    if (directory / MANIFEST_FILE).exists() and not is_archive(directory):
        return read_export(directory)
    return map(decode_line, ArchiveContents(directory).lines())


def record_directory(directory: Path, window: LogWindow) -> LogRecording:
    """Read a window of an export or an archive, or a load file, which is one. Raises LogDamaged, ExportError, LoadFileError,
    WindowError."""
    if is_load_file(directory):
        head, recording = read_load(directory)
        if window != LogWindow():
            field = "from" if window.from_ns else "to"
            bounds = f"{rfc3339(head.from_ns) if head.from_ns else "its log's start"} to {rfc3339(head.to_ns)}"
            raise WindowError(f"{field}: expected none with a load file, which is one window ({bounds}), found one")
        return recording
    return record_of(stored_in(directory), window)


def record_url(url: str, window: LogWindow) -> LogRecording:
    """Read a window of the log on a bus. Raises LogDamaged, Unavailable, WindowError."""

    async def read(bus: Bus) -> LogRecording:
        recorder = LogRecorder(window)
        async for stored in read_log(bus):
            if not recorder.take(stored):
                break
        return recorder.finish()

    return with_bus(url, "replay", read)


class SavedLoad(NamedTuple):
    """Load file that was written, and the replacements of names in it."""

    head: LoadHead
    #: {name: replacement}; {} unless it is anonymous.
    names: dict[str, str]


class LoadExport:
    """Load file of a window of a log. Of an anonymous one the log is read twice: `note` for names, then `take`."""

    def __init__(self, window: LogWindow, *, anonymous: bool) -> None:
        self._window = window
        self._names = NameBook() if anonymous else None
        self._recorder = LogRecorder(window, self._names.disguised if self._names is not None else None)
        self._log = self._commit = ""
        self._noted_ns = 0

    @property
    def is_anonymous(self) -> bool:
        """True where names are replaced."""
        return self._names is not None

    def note(self, stored: Stored) -> bool:
        """Take note of the names of the next commit. False behind the window. Raises LogDamaged."""
        assert self._names is not None
        try:
            commit = decode_commit(stored.payload)
        except CommitUndecodable as error:
            raise LogDamaged(stored.sequence, str(error)) from error
        self._noted_ns = max(self._noted_ns, commit.at_ns)
        if self._window.to_ns and self._noted_ns > self._window.to_ns:
            return False
        self._names.note(commit)
        return True

    def take(self, stored: Stored) -> bool:
        """Read the next commit. False behind the window. Raises LogDamaged."""
        if not self._recorder.take(stored):
            return False
        self._commit = commit_hash(stored.payload)
        self._log = self._log or self._commit
        return True

    def finish(self, path: Path) -> SavedLoad:
        """Write the file. Raises WindowError, LoadFileError."""
        recording = self._recorder.finish()
        head = write_load(path, recording, log=self._log, commit=self._commit, anonymous=self.is_anonymous)
        return SavedLoad(head, self._names.replacements() if self._names is not None else {})


def save_load_of_directory(directory: Path, export: LoadExport, path: Path) -> SavedLoad:
    """Write the load file of an export or an archive. Raises LogDamaged, ExportError, WindowError, LoadFileError."""
    for read in (export.note, export.take) if export.is_anonymous else (export.take,):
        for stored in stored_in(directory):
            if not read(stored):
                break
    return export.finish(path)


def save_load_of_url(url: str, export: LoadExport, path: Path) -> SavedLoad:
    """Write the load file of the log on a bus. Raises LogDamaged, Unavailable, WindowError, LoadFileError."""

    async def save(bus: Bus) -> SavedLoad:
        for read in (export.note, export.take) if export.is_anonymous else (export.take,):
            async for stored in read_log(bus):
                if not read(stored):
                    break
        return export.finish(path)

    return with_bus(url, "replay", save)


class PlayedExport:
    """Export of a play: the recorded commits before its window, then its own. Memory holds those before only while they are
    written."""

    def __init__(self, directory: Path) -> None:
        self._exporter = Exporter(directory, "")
        self.directory = directory

    def before(self, stored: Iterator[Stored], last: int) -> None:
        """Write the recorded commits up to a sequence."""
        for message in stored:
            if message.sequence > last:
                break
            self._exporter.add(message)

    def add(self, stored: Stored) -> None:
        """Write the next commit of the play."""
        self._exporter.add(stored)

    def finish(self) -> None:
        """Make it a whole export."""
        self._exporter.finish()

    def abandon(self) -> None:
        """Leave it without a manifest."""
        self._exporter.abandon()
