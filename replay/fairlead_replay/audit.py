"""`audit verify` and export: over a live log or an exported one. The shell around `chain.py` and `export.py`.

    verify_export(path) -> Verdict          export_url(url, directory) -> Manifest
    verify_live(bus) -> Verdict             verify_url(url) -> Verdict

A verdict that is not ok names the first bad sequence. It never raises for damage: damage is the answer.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path

from fairlead_bus import snapshots
from fairlead_bus.log import identity
from fairlead_bus.main import with_bus
from fairlead_bus.port import Bus, LogDamaged, Stored
from fairlead_replay.chain import Audit, LogVerdict
from fairlead_replay.export import (
    LINES_FILE,
    LOG_FILE,
    Exporter,
    ExportError,
    ExportManifest,
    decode_line,
    digest_line,
    read_manifest,
)
from fairlead_schemas.wire import subjects

#: Called with how much of the log is done, and of how much.
type Seen = Callable[[int, int], None]


def unseen(done: int, of: int) -> None:
    """Show nothing."""


def counted[T](items: Iterable[T], of: int, seen: Seen) -> Iterator[T]:
    """Yield the items, and say after each how many were taken."""
    for number, item in enumerate(items, 1):
        yield item
        seen(number, of)


#: A log that brings nothing for this long, although it holds more, is damaged there.
STALL_S = 10.0
#: Services that keep snapshots.
SNAPSHOTS = (*subjects.WRITERS, "gateway")


def verify_export(path: str | Path, seen: Seen = unseen) -> LogVerdict:
    """Check an exported log: chain, contiguity, contracts, every job's moves, and agreement with its manifest."""
    directory, audit = Path(path), Audit()
    try:
        manifest = read_manifest(directory)
        audit = Audit(manifest.chain_heads())
        sha256 = _take_lines(directory, audit, manifest.commits, seen)
    except (ExportError, OSError) as error:
        return LogVerdict(False, audit.commits, audit.events, 0, str(error))
    if sha256 != manifest.sha256:
        _find_changed_line(directory, audit)
    verdict = audit.verdict(first=manifest.first, last=manifest.last)
    if verdict.ok and (sha256 != manifest.sha256 or audit.commits != manifest.commits):
        return verdict._replace(ok=False, what=f"{LOG_FILE} is not the file that the manifest names")
    return verdict


def _take_lines(directory: Path, audit: Audit, commits: int, seen: Seen) -> str:
    sha256 = hashlib.sha256()
    with (directory / LOG_FILE).open("rb") as file:
        for line in counted(file, commits, seen):
            sha256.update(line)
            try:
                stored = decode_line(line)
            except ExportError as error:
                audit.broken(audit.expected, str(error))
            else:
                audit.take(stored)
    return sha256.hexdigest()


def _find_changed_line(directory: Path, audit: Audit) -> None:
    """Blame the first line that is not the one that was exported, where the list of digests can tell."""
    try:
        digests = (directory / LINES_FILE).read_bytes().splitlines(keepends=True)
    except OSError:
        return
    with (directory / LOG_FILE).open("rb") as file:
        for sequence, line in enumerate(file, start=1):
            if sequence > len(digests) or digest_line(line) != digests[sequence - 1]:
                audit.find(sequence, f"line {sequence} of {LOG_FILE} is not the one that was exported")
                return


async def verify_live(bus: Bus, seen: Seen = unseen) -> LogVerdict:
    """Check the log on the bus, up to what it holds when asked. Raises Unavailable.

    A log that was cut is whole by itself; the services' snapshots stand where it once ended.
    """
    audit = Audit()
    found = [snapshot for name in SNAPSHOTS for snapshot in await snapshots.stored(bus, name)]
    last = (await bus.state(subjects.LOG)).last  # asked afterwards: snapshots are of commits that are in the log
    try:
        async for stored in _read_through(bus, last, seen):
            audit.take(stored)
    except LogDamaged as error:
        audit.find(error.sequence, str(error))
    await _hold_against(found, bus, last, audit)
    return audit.verdict(last=last)


async def _hold_against(found: list[snapshots.Snapshot], bus: Bus, last: int, audit: Audit) -> None:
    furthest = max((snapshot.sequence for snapshot in found), default=0)
    if furthest > last:
        audit.find(last + 1, f"the log went backwards: it ends at {last}, and a snapshot is at {furthest}")
        return
    try:
        snapshots.check(found, log_id=await identity(bus), last=last)
    except LogDamaged as error:
        audit.find(error.sequence, str(error))


async def export(bus: Bus, directory: str | Path, seen: Seen = unseen) -> ExportManifest:
    """Write the log on the bus into a directory, up to what it holds when asked. Raises LogDamaged where the
    log's chain is broken (there is nothing to vouch for then), Unavailable."""
    last = (await bus.state(subjects.LOG)).last
    exporter = Exporter(Path(directory), await identity(bus))
    try:
        async for stored in _read_through(bus, last, seen):
            exporter.add(stored)
    except BaseException:
        exporter.abandon()
        raise
    return exporter.finish()


async def read_log(bus: Bus, seen: Seen = unseen) -> AsyncIterator[Stored]:
    """Every message of the log up to what it holds when asked, unchecked. Raises LogDamaged where it cannot be
    read on, Unavailable."""
    async for stored in _read_through(bus, (await bus.state(subjects.LOG)).last, seen):
        yield stored


async def _read_through(bus: Bus, last: int, report: Seen) -> AsyncIterator[Stored]:
    """Every message of the log up to `last`. A log that stops short raises LogDamaged."""
    if last == 0:
        return
    tail, seen = await bus.tail(subjects.LOG, after=0), 0
    try:
        while seen < last:
            try:
                found = await asyncio.wait_for(tail.next(), STALL_S)
            except TimeoutError:
                raise LogDamaged(seen + 1, f"cannot be read, although the log continues to {last}") from None
            for stored in found:
                if stored.sequence <= last:
                    yield stored
                    report(stored.sequence, last)
                seen = stored.sequence
    finally:
        await tail.close()


def verify_url(url: str, seen: Seen = unseen) -> LogVerdict:
    """`verify_live` for callers without an event loop."""
    return with_bus(url, "audit", lambda bus: verify_live(bus, seen))


def export_url(url: str, directory: str | Path, seen: Seen = unseen) -> ExportManifest:
    """`export` for callers without an event loop."""
    return with_bus(url, "audit", lambda bus: export(bus, directory, seen))
