"""The log with its beginning: what the bus does not hold any more is read from an archive of the same log.

Naively one would ask the archive where the log has nothing. An archive of another log, or one that ends before the log begins, would
then give a past that never was. So an archive counts only where it reaches the log's first commit: where both have that commit, it
must be the same, and readers check the hash chain over the seam. Start at `with_archive`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import structlog

from fairlead_bus.port import Bus, LogDamaged, Stored, StreamState, Tail
from fairlead_replay.archive.contents import ArchiveContents, NoArchive
from fairlead_replay.archive.segments import ArchiveDamaged
from fairlead_replay.export import ExportError, decode_line
from fairlead_schemas.wire import subjects

#: Commits of an archive that are read at once.
CHUNK = 1_000

log = structlog.get_logger()


def with_archive(bus: Bus, directory: Path | None) -> Bus:
    """Return a bus whose log begins with an archive of it; None: the bus as it is."""
    return bus if directory is None else cast(Bus, ArchivedLog(bus, directory))


class ArchivedLog:
    """Bus with an archive of its log. All but reading the log is the bus's own."""

    def __init__(self, bus: Bus, directory: Path) -> None:
        self._bus, self._directory = bus, directory
        #: First sequence of the log for which the archive was looked at last, and whether it fits.
        self._looked_at, self._fits = 0, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def state(self, stream: str) -> StreamState:
        """Return the state of a stream; a log that is continued backwards by the archive begins at 1."""
        found = await self._bus.state(stream)
        if stream == subjects.LOG and await self._has(found.first):
            return found._replace(first=1)
        return found

    async def read(self, stream: str, sequence: int) -> Stored | None:
        """Return one message; a commit that the log does not hold any more from the archive. Raises LogDamaged for a damaged one."""
        found = await self._bus.read(stream, sequence)
        if found is not None or stream != subjects.LOG:
            return found
        first = (await self._bus.state(stream)).first
        if not 0 < sequence < first or not await self._has(first):
            return None
        return next(iter(await asyncio.to_thread(self.piece, sequence, 1)), None)

    async def tail(self, stream: str, *, after: int, subject: str | Sequence[str] = "") -> Tail:
        """Return a reader; one of the log begins in the archive where the log does not hold what comes next."""
        if stream == subjects.LOG and not subject:
            first = (await self._bus.state(stream)).first
            if after + 1 < first and await self._has(first):
                return ArchiveTail(self, self._bus, after)
        return await self._bus.tail(stream, after=after, subject=subject)

    async def _has(self, first: int) -> bool:
        """Return True if the archive holds everything before a log's first commit."""
        if first <= 1:
            return False
        if first != self._looked_at or not self._fits:  # an archive that was too short may have grown
            stored = await self._bus.read(subjects.LOG, first)
            self._fits = await asyncio.to_thread(self._reaches, first, stored)
            self._looked_at = first
        return self._fits

    def _reaches(self, first: int, stored: Stored | None) -> bool:
        try:
            both = self.piece(first - 1, 2)
        except LogDamaged as error:
            log.warning("archive is not used", path=str(self._directory), reason=str(error))
            return False
        if not both:
            log.warning("archive is not used", path=str(self._directory), reason=f"it ends before sequence {first - 1}")
            return False
        if len(both) == 2 and stored is not None and both[1].payload != stored.payload:
            log.warning("archive is not used", path=str(self._directory), reason="it is of another log")
            return False
        return True

    def piece(self, sequence: int, count: int) -> list[Stored]:
        """Return up to so many commits of the archive from a sequence on. Raises LogDamaged, also where there is no archive any more."""
        try:
            return list(islice(self._from(sequence), count))
        except ArchiveDamaged as error:
            raise LogDamaged(error.sequence or sequence, f"archive: {error}") from error
        except (ExportError, NoArchive, OSError) as error:
            raise LogDamaged(sequence, f"archive: {error}") from error

    def _from(self, sequence: int) -> Iterator[Stored]:
        contents = ArchiveContents(self._directory)
        for segment in contents.segments:
            if segment.manifest.last < sequence:
                continue
            segment.check_file()
            yield from map(decode_line, islice(segment.lines(), max(0, sequence - segment.manifest.first), None))
        for number, line in contents.unsealed():
            if number >= sequence and number > contents.sealed:
                yield decode_line(line)


class ArchiveTail:
    """Implements `port.Tail`: the archive's commits up to the log's first, then the log's."""

    def __init__(self, archived: ArchivedLog, bus: Bus, after: int) -> None:
        self._archived, self._bus, self._after = archived, bus, after
        self._live: Tail | None = None

    async def next(self) -> list[Stored]:
        """Return the next messages. Raises LogDamaged where the archive is, or no longer reaches the log."""
        if self._live is None:
            first = (await self._bus.state(subjects.LOG)).first
            if self._after + 1 < first:
                count = min(CHUNK, first - 1 - self._after)
                found = await asyncio.to_thread(self._archived.piece, self._after + 1, count)
                if not found:
                    raise LogDamaged(self._after + 1, "archive: it ends here, and the log begins later")
                self._after = found[-1].sequence
                return found
            self._live = await self._bus.tail(subjects.LOG, after=self._after)
        return await self._live.next()

    async def close(self) -> None:
        """Stop reading."""
        if self._live is not None:
            await self._live.close()
