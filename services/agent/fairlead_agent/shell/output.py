"""Output of runs, sent from their files to the bus in pieces with byte offsets; and questions to one node's agent: bytes
of what a run has printed, from its own files.

The file is the store, the bus a window onto it: pieces may be lost, doubled or sent again; `offset` is the
cursor. Files are looked at five times a second and once more when the run has ended. Empty output costs
only that last look. Start at `OutputShipper.poll`.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.output_retention import Keep
from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.run_directory import first_data
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import OutputPiece, ReadOutput, encode

# ruff: noqa: PTH116, PTH123, ASYNC230 -- on the way of every run: plain calls on strings, of files in the page cache


#: A piece as a message is a third larger, and within what the stream takes (OUTPUT_MESSAGE_BYTES_MAX).
PIECE_BYTES_MAX = 16 * 1024
#: So much of one file per look: a run that prints without end shall not hold up the others.
POLL_BYTES_MAX = 1024 * 1024
#: After a reconnect the pieces of this long are sent again.
RESEND_S = 10.0
#: So much of each file of an adopted run goes out again.
ADOPTED_BYTES_MAX = 4 * 1024 * 1024
#: Ended runs whose pieces may have to go again.
RECENT_MAX = 500

Publish = Callable[[str, bytes], Awaitable[None]]


class _File:
    __slots__ = ("marks", "offset", "path", "stream")

    def __init__(self, stream: str, path: str, offset: int) -> None:
        self.stream = stream
        self.path = path
        self.offset = offset
        #: (monotonic s, offset before what was sent then).
        self.marks: deque[tuple[float, int]] = deque()


class _Run:
    __slots__ = ("ended", "files", "key", "shipping", "subject")

    def __init__(self, key: RunKey, subject: str, files: list[_File]) -> None:
        self.key = key
        self.subject = subject
        self.files = files
        self.ended = False
        #: Held while its files are read and sent: an end, a poll and a resend may come at the same time.
        self.shipping = asyncio.Lock()


class OutputShipper:
    """Ships the output of one node's runs."""

    def __init__(self, node: str, publish: Publish, clock: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._publish = publish
        self._clock = clock
        self._active: dict[RunKey, _Run] = {}
        self._recent: deque[tuple[float, RunKey, _Run]] = deque()
        self.bytes_sent = 0
        #: Set whenever a run's output is opened, for a poller that waits while there is none.
        self.opened = asyncio.Event()

    @property
    def idle(self) -> bool:
        """True if there is no output to look for: nothing runs, and all was sent."""
        return not self._active

    def open(self, key: RunKey, paths: tuple[str, str], *, adopted: bool = False) -> None:
        """Start shipping a run's output from these files (stdout, stderr). A repeated call changes nothing.

        For an adopted run the newest part is sent again, since the sent offset is not known after a restart. A reader that
        finds a gap before that part asks for the file's own bytes.
        """
        if key in self._active:
            return
        offsets = [max(0, _size(path) - ADOPTED_BYTES_MAX) for path in paths] if adopted else (0, 0)
        files = [_File("stdout", paths[0], offsets[0]), _File("stderr", paths[1], offsets[1])]
        self._active[key] = _Run(key, subjects.output(self._node, key.job), files)
        self.opened.set()

    async def ended(self, key: RunKey) -> None:
        """The run has ended: ship the rest now, before its end is reported (a large rest follows with the polls)."""
        run = self._active.get(key)
        if run is not None:
            run.ended = True
            await self._ship_run(key, run)

    def silent(self, key: RunKey) -> bool:
        """True when a run has ended without output that was not shipped yet; then it is forgotten at once."""
        run = self._active.get(key)
        if run is None:
            return True
        for file in run.files:
            if file.offset or _size(file.path):
                return False
        del self._active[key]
        return True

    async def poll(self) -> None:
        """Ship what was written since the last look."""
        for key, run in list(self._active.items()):
            await self._ship_run(key, run)
        while self._recent and (self._recent[0][0] < self._clock() - RESEND_S or len(self._recent) > RECENT_MAX):
            self._recent.popleft()

    async def resend(self) -> None:
        """The bus was away: send again what went out in the last ten seconds."""
        since = self._clock() - RESEND_S
        for _, key, run in self._recent:
            self._active.setdefault(key, run)
        self._recent.clear()
        for run in self._active.values():
            for file in run.files:
                file.offset = next((offset for at, offset in file.marks if at >= since), file.offset)
        await self.poll()

    async def _ship_run(self, key: RunKey, run: _Run) -> None:
        async with run.shipping:
            done = [await self._ship(run, file) for file in run.files]
        if run.ended and all(done) and self._active.get(key) is run:
            del self._active[key]
            if any(file.marks for file in run.files):
                self._recent.append((self._clock(), key, run))

    async def _ship(self, run: _Run, file: _File) -> bool:
        """Send new bytes of the file. Return True if all of the file has been sent."""
        size = _size(file.path)
        until = min(size, file.offset + POLL_BYTES_MAX)
        if until > file.offset:
            self._mark(file)
            with open(file.path, "rb", buffering=0) as source:
                while file.offset < until:
                    count = min(PIECE_BYTES_MAX, until - file.offset)
                    file.offset, data = _read_kept(source.fileno(), file.offset, count)
                    if not data:
                        break
                    last = run.ended and file.offset + len(data) >= size
                    await self._send(run, file, data, last=last)
                    file.offset += len(data)
        elif run.ended and file.offset and file.marks:  # all had gone out before the end was known
            await self._send(run, file, b"", last=True)
        return file.offset >= size

    def _mark(self, file: _File) -> None:
        now = self._clock()
        while file.marks and file.marks[0][0] < now - RESEND_S:
            file.marks.popleft()
        file.marks.append((now, file.offset))

    async def _send(self, run: _Run, file: _File, data: bytes, *, last: bool) -> None:
        key = run.key
        piece = OutputPiece(
            job=key.job,
            attempt=key.attempt,
            rank=key.rank,
            stream=file.stream,
            offset=file.offset,
            data=data,
            at_ns=time.time_ns(),
            last=last,
        )
        self.bytes_sent += len(data)
        await self._publish(run.subject, encode(piece))


def read_piece(path: Path, stream: str, offset: int, bytes_max: int, ended: bool) -> OutputPiece:
    """A piece from the file itself, for those who ask for what the bus no longer has."""
    try:
        with open(path, "rb", buffering=0) as file:
            count = max(0, min(bytes_max, 8 * PIECE_BYTES_MAX))
            offset, data = _read_kept(file.fileno(), max(0, offset), count)
            last = ended and offset + len(data) >= os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        data, last = b"", ended
    return OutputPiece(stream=stream, offset=max(0, offset), data=data, last=last)


def _read_kept(fd: int, offset: int, count: int) -> tuple[int, bytes]:
    """Read up to `count` bytes from the first kept byte at or after `offset`. Return that byte's offset and the bytes.

    The job's `output.max` frees the head of the file, at any time, and freed bytes read as NUL. So the bytes are used only if
    they are still kept after the read. A reader of pieces sees the gap between their offsets and reports its length.
    """
    while True:
        offset = first_data(fd, offset)
        data = os.pread(fd, count, offset)
        if first_data(fd, offset) == offset:
            return offset, data


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


_REFUSAL = b'{"error":"expected an ReadOutput with a job id and stdout or stderr"}'


def printed(question: bytes, runtime: Runtime, runs: Mapping[RunKey, RunEntry], keep: Keep) -> bytes:
    """The answer to an ReadOutput: an OutputPiece, or {"error"} where it is none."""
    try:
        wanted = msgspec.json.decode(question, type=ReadOutput)
    except msgspec.MsgspecError:
        return _REFUSAL
    if not is_job_id(wanted.job) or wanted.stream not in ("stdout", "stderr"):
        return _REFUSAL
    key = RunKey(wanted.job, wanted.attempt, wanted.rank)
    run = runs.get(key)
    path = runtime.output(key)[0 if wanted.stream == "stdout" else 1]
    ended = run is None or not run.open
    piece = read_piece(path, wanted.stream, wanted.offset, wanted.bytes_max, ended)
    if ended and not path.parent.exists():
        piece = msgspec.structs.replace(piece, gone=keep.words())
    return encode(piece)
