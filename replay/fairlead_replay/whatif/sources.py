"""Where a log is read from for a what-if: an export, an archive, or a bus. The shell around `record.py`.

Nothing is answered from a log that is damaged, or from what is stored before the damage.
"""

from collections.abc import Iterator
from pathlib import Path

from fairlead_bus.main import with_bus
from fairlead_bus.port import Bus, Stored
from fairlead_replay.archive.contents import ArchiveContents, is_archive
from fairlead_replay.audit import read_log
from fairlead_replay.export import MANIFEST_FILE, Exporter, decode_line, read_export
from fairlead_replay.whatif.record import LogRecorder, LogRecording, LogWindow, record_of


def is_directory_log(directory: Path) -> bool:
    """Return True for an export or an archive."""
    return is_archive(directory) or (directory / MANIFEST_FILE).exists()


def stored_in(directory: Path) -> Iterator[Stored]:
    """The commits of an export or an archive, in order. Raises ExportError."""
    if (directory / MANIFEST_FILE).exists() and not is_archive(directory):
        return read_export(directory)
    return map(decode_line, ArchiveContents(directory).lines())


def record_directory(directory: Path, window: LogWindow) -> LogRecording:
    """Read a window of an export or an archive. Raises LogDamaged, ExportError, WindowError."""
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
