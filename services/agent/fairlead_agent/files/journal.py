"""The journal's file: records, one per line with a checksum, made durable in batches off the event loop.

Owns `<directory>/journal`, its lock and its compaction. Must not know what the records mean beyond
folding them. The event loop collects records and hands them to one thread as a batch, one batch at a time. Everything
that arrives in one turn of the loop, or while the last batch is being synced, is one batch: a hundred starts cost one
fsync, and two thread switches. Start at `Journal.open`.
"""

import asyncio
import contextlib
import fcntl
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from fairlead_agent.core.ledger import FORMAT, Ledger, Opened, Record
from fairlead_bus.disk_reserve import FULL, Reserve

COMPACT_BYTES = 8 * 2**20

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


class JournalDamaged(Exception):
    """The journal has a line that is not what was written (a torn last line is no damage), or it is an old copy.
    Never skip: move the directory away, so that the node joins under a new incarnation (which first ends what still
    runs from this one), and keep it for the inquiry."""


class JournalNewer(Exception):
    """The journal was written by a newer agent, in a form that this one does not know: start that version again, or
    drain the node with it and move the directory away."""


class JournalHeld(Exception):
    """Another agent process holds this journal."""


def encode_line(record: Record) -> bytes:
    """Encode one line: eight hex digits of CRC-32, a space, JSON, newline."""
    body = _encoder.encode(record)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def decode_lines(data: bytes, source: str = "journal") -> tuple[list[Record], int]:
    """Records and the length of the whole lines. What follows the last newline is a torn write: it was never
    acted upon, because acting waits for the sync. Raises JournalDamaged for any other fault."""
    whole = data.rfind(b"\n") + 1
    records: list[Record] = []
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], start=1):
        body = line[9:]
        try:
            if line[:9] != b"%08x " % zlib.crc32(body):
                raise ValueError("checksum differs")
            records.append(_decoder.decode(body))
        except ValueError as error:  # msgspec's errors are ValueErrors, too
            raise JournalDamaged(f"{source}, line {number}: {error}") from error
    return records, whole


class _Batch(NamedTuple):
    """Work of the thread: a new file (None: the old one goes on), lines to append, and calls for afterwards."""

    rewrite: bytes | None
    lines: list[bytes]
    then: list[Callable[[], None]]


class Journal:
    """The open journal of one agent process. `ledger` is what its records fold into; callers apply to it."""

    def __init__(self, path: Path, ledger: Ledger, fd: int, lock: int, size: int, reserve: Reserve) -> None:
        self.path = path
        self.ledger = ledger
        #: Set when the disk refused: nothing further will be durable, so the agent must stop acting.
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.syncs = 0
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._lock = lock
        self._size = size
        self.reserve = reserve
        self._compact_at = max(COMPACT_BYTES, 2 * size)
        self._rewrite: bytes | None = None
        self._lines: list[bytes] = []
        self._then: list[Callable[[], None]] = []
        #: A batch is due, and the thread has one that is not durable yet.
        self._wanted = self._busy = False
        self._closing = False
        #: The thread's work; None ends it.
        self._batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_forever, name="journal", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, directory: Path, node: str, incarnation: str, reserve_bytes: int = 0) -> "Journal":
        """Open or make the journal of a node; a new one gets `incarnation`. Raises JournalDamaged, JournalNewer,
        JournalHeld."""
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise JournalHeld(f"{directory} is held by another agent process") from error
        path = directory / "journal"
        with contextlib.ExitStack() as failed:  # the process may live on, and try again
            failed.callback(os.close, lock)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            failed.callback(os.close, fd)
            ledger, whole = _fold(path, fd, node, incarnation)
            journal = cls(path, ledger, fd, lock, whole, Reserve(directory, reserve_bytes))
            failed.pop_all()
        return journal

    def write(
        self, records: Sequence[Record], then: Callable[[], None] | None = None, *, can_wait: bool = False
    ) -> None:
        """Append records that the ledger has already folded; `then` is called in the event loop once they are durable.

        Without `then`, and with `can_wait`, the records go with the next batch that another write or `flush` makes due.
        """
        data = b"".join(map(encode_line, records))
        self._lines.append(data)
        self._size += len(data)
        if then is not None:
            self._then.append(then)
        if self._size > self._compact_at:
            self._compact()
        elif then is not None and not can_wait:
            self._make_due()

    def flush(self) -> None:
        """Make durable what waits."""
        if self._lines or self._then:
            self._make_due()

    async def close(self) -> None:
        """Make durable what waits, and let go of the file."""
        self._closing = True
        self._batches.put(self._taken())
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join)
        os.close(self._fd)
        os.close(self._lock)

    def _compact(self) -> None:
        # The ledger has folded every line that waits, so the rewrite replaces them as well.
        self._rewrite = b"".join(map(encode_line, self.ledger.records()))
        self._lines.clear()
        self._size = len(self._rewrite)
        self._compact_at = max(COMPACT_BYTES, 2 * self._size)
        self._make_due()

    # ------------------------------------------------------------------ batches, in the event loop

    def _make_due(self) -> None:
        """Hand over a batch at the end of this turn of the loop, so that the turn's other writes are in it."""
        if not self._wanted:
            self._wanted = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self._wanted and not self._busy and not self._closing:
            self._busy = True
            self._batches.put(self._taken())

    def _taken(self) -> _Batch:
        batch = _Batch(self._rewrite, self._lines, self._then)
        self._rewrite, self._lines, self._then, self._wanted = None, [], [], False
        return batch

    def _durable(self, then: list[Callable[[], None]]) -> None:
        self._busy = False
        self._hand_over()  # first, so that the disk works meanwhile
        for call in then:
            try:
                call()
            except Exception as error:  # noqa: BLE001 -- the others must not be lost with it; the agent ends and resumes
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    # ------------------------------------------------------------------ the thread

    def _write_forever(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                if batch.rewrite is not None:
                    self._replace(batch.rewrite)
                if batch.lines:
                    self._append(b"".join(batch.lines))
            except OSError as error:
                self._loop.call_soon_threadsafe(self._fail, error)
                return
            self._loop.call_soon_threadsafe(self._durable, batch.then)

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except OSError as error:
                self._make_room(error)
        try:
            os.fdatasync(self._fd)
        except OSError:
            self.reserve.give()  # for the next agent; how much of this reached the disk is unknown, so this agent ends
            raise
        self.syncs += 1

    def _make_room(self, error: OSError) -> None:
        """Give up the reserve. Raises the error where that is not what is wrong, or where nothing is left to give."""
        if error.errno not in FULL or not self.reserve.give():
            raise error

    def _replace(self, data: bytes) -> None:
        new = self.path.with_suffix(".new")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        try:
            fd = os.open(new, flags, 0o600)
        except OSError as error:
            self._make_room(error)
            fd = os.open(new, flags, 0o600)
        old, self._fd = self._fd, fd
        os.close(old)
        self._append(data)
        new.rename(self.path)
        _sync_directory(self.path.parent)


def _fold(path: Path, fd: int, node: str, incarnation: str) -> tuple[Ledger, int]:
    """Fold the journal's records, and begin an empty one. Return its ledger, and its size in bytes. Raises JournalDamaged, JournalNewer."""
    data = path.read_bytes()
    refuse_newer(data, str(path))
    records, whole = decode_lines(data, str(path))
    os.ftruncate(fd, whole)
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    if not records:
        first = Opened(incarnation=incarnation, node=node, format=FORMAT)
        whole = os.write(fd, encode_line(first))
        ledger.apply(first)
    os.fsync(fd)
    _sync_directory(path.parent)
    if ledger.node != node:
        raise JournalDamaged(f"{path} is the journal of node {ledger.node}, not of {node}")
    if ledger.condemned:
        raise JournalDamaged(f"{path}: {ledger.condemned}")
    return ledger, whole


class _FirstRecord(msgspec.Struct):
    format: int = FORMAT


def refuse_newer(data: bytes, source: str) -> None:
    """Raises JournalNewer. Looks at the first line alone, and at nothing in it but the format."""
    head = data.partition(b"\n")[0][9:]
    try:
        found = msgspec.json.decode(head, type=_FirstRecord).format
    except msgspec.MsgspecError:
        return  # not for us to say
    if found > FORMAT:
        raise JournalNewer(
            f"{source} was written by a newer agent, in format {found}; this one knows formats up to {FORMAT}: start the "
            "newer agent again, or drain the node with it and move the directory away"
        )


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
