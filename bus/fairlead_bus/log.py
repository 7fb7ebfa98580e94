"""The log, read and written by its rules: contiguity, hash chain, fence, read-back.

`Chain` is what a reader knows about the log so far; `LogReader` tails and checks; `FencedWriter`
appends one commit at a time and settles unknown outcomes by reading back. Nothing here decides.
"""

import asyncio
from collections.abc import Iterator

import msgspec
import structlog

from fairlead_bus.port import STALE_S, Bus, LogDamaged, OutcomeUnknown, StaleWriter, Stored, Tail, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import (
    GENESIS,
    Commit,
    CommitUndecodable,
    Envelope,
    commit_hash,
    decode_commit,
    decode_envelope,
    refuse_newer,
)

#: Pause before asking a server again that did not answer.
RETRY_S = 0.2
#: A reader that may pause does not where it gets so many commits at once: it is behind, or the commits come in batches anyway.
MANY_COMMITS = 50

log = structlog.get_logger()


async def identity(bus: Bus) -> str:
    """Return the hash of the log's first commit, which names the log for as long as it lives; "" while it is empty.

    The stream's creation time would not do: a damaged meta.inf gives the same commits another one. Raises LogDamaged
    where the first commit is gone, Unavailable.
    """
    last = (await bus.state(subjects.LOG)).last
    if not last:
        return ""
    first = await bus.read(subjects.LOG, 1)  # asked afterwards: it may be the newest, too
    if first is None:
        raise LogDamaged(1, f"the first commit is missing, but the log continues to {last}")
    return commit_hash(first.payload)


class LogHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A writer's newest commit: its number, its hash and its place in the log."""

    n: int
    hash: str
    sequence: int


NO_HEAD = LogHead(0, GENESIS, 0)


async def built_upon(bus: Bus, head: LogHead) -> Commit:
    """Return the commit that a snapshot names as a writer's newest. Raises LogDamaged unless the log still holds that very
    one, Unavailable."""
    stored = await bus.read(subjects.LOG, head.sequence)
    if stored is None or commit_hash(stored.payload) != head.hash:
        found = "it is gone" if stored is None else "found another one"
        raise LogDamaged(head.sequence, f"expected the commit that a snapshot builds on, {found}")
    return decode_commit(stored.payload)


class Chain:
    """Position of a reader in the log: the last sequence read and each writer's head."""

    def __init__(self, last: int = 0, heads: dict[str, LogHead] | None = None, *, anchored: bool = True) -> None:
        self.last = last
        #: Not anchored: the heads at `last` are not known, so each writer's first commit is taken at its word.
        self.anchored = anchored or last == 0
        self.heads: dict[str, LogHead] = dict(heads or {})

    def head(self, writer: str) -> LogHead:
        """A writer's newest commit so far."""
        return self.heads.get(writer, NO_HEAD)

    def extend(self, stored: Stored, commit: Commit | Envelope) -> LogHead:
        """Take the next commit as its writer's head, or raise LogDamaged naming what does not fit."""
        sequence, writer = stored.sequence, subjects.writer_of(stored.subject)
        if sequence != self.last + 1:
            raise LogDamaged(self.last + 1, f"gap: the next commit found is {sequence}")
        head = self.heads.get(writer)
        if head is None:
            head = NO_HEAD if self.anchored else LogHead(commit.n - 1, commit.prev, 0)
        if commit.writer != writer:
            raise LogDamaged(sequence, f"commit of {commit.writer!r} is stored under {stored.subject}")
        if commit.n != head.n + 1:
            raise LogDamaged(sequence, f"{writer}'s commit {commit.n} follows its commit {head.n}")
        if commit.prev != head.hash:
            bad = head.sequence or sequence
            raise LogDamaged(bad, f"{writer}'s commit {head.n} does not have the hash that commit {commit.n} states")
        self.last = sequence
        head = self.heads[writer] = LogHead(commit.n, commit_hash(stored.payload), sequence)
        return head


class Folded(msgspec.Struct, frozen=True):
    """Checked and decoded commit; `head` is its writer's head including this commit."""

    seq: int
    writer: str
    commit: Commit
    payload: bytes
    head: LogHead


class Checked(msgspec.Struct, frozen=True):
    """Checked commit with its events left undecoded."""

    seq: int
    writer: str
    envelope: Envelope
    payload: bytes


class LogReader:
    """Reads the log in order from a place on; stops with LogDamaged at whatever does not fit.

    `pause_s`: least time between two reads of a few commits, for a reader that nobody waits for: a wake-up costs more than a commit.
    What comes after a longer silence is read at once.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        after: int = 0,
        heads: dict[str, LogHead] | None = None,
        anchored: bool = True,
        pause_s: float = 0.0,
    ) -> None:
        self.bus = bus
        self._pause_s, self._next_read_s = pause_s, 0.0
        self.chain = Chain(after, heads, anchored=anchored)
        self._tail: Tail | None = None
        self._expected: tuple[bytes, Commit] | None = None

    def expect(self, payload: bytes, commit: Commit) -> None:
        """An own commit on its way back: equal bytes need no second decoding."""
        self._expected = (payload, commit)

    async def messages(self) -> list[Stored]:
        """The next messages, unchecked, for those who `check` them one by one; waits for at least one."""
        if self._tail is None:
            self._tail = await self.bus.tail(subjects.LOG, after=self.chain.last)
        if not self._pause_s:
            return await self._tail.next()
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._next_read_s - loop.time())  # at once where that is over
        found = await self._tail.next()
        self._next_read_s = loop.time() + (self._pause_s if len(found) < MANY_COMMITS else 0.0)
        return found

    async def next(self) -> Iterator[Folded]:
        """The next commits; waits for at least one. Raises LogDamaged, for good, where the damage is.

        Each is decoded when its turn comes, so that it is folded while it is still in the processor's cache."""
        return map(self.check, await self.messages())

    async def next_checked(self) -> list[Checked]:
        """Return the next commits like `next`, with events left undecoded."""
        return [self.check_envelope(stored) for stored in await self.messages()]

    def check_envelope(self, stored: Stored) -> Checked:
        """Check one commit that comes next, its events left undecoded."""
        try:
            envelope = decode_envelope(stored.payload)
            refuse_newer(envelope.level)
        except CommitUndecodable as error:
            raise LogDamaged(stored.sequence, str(error)) from error
        self.chain.extend(stored, envelope)
        return Checked(stored.sequence, envelope.writer, envelope, stored.payload)

    def check(self, stored: Stored) -> Folded:
        """Decode and check one commit that comes next."""
        own = self._expected
        if own is not None and own[0] == stored.payload:
            self._expected, commit = None, own[1]
        else:
            try:
                commit = decode_commit(stored.payload)
            except CommitUndecodable as error:
                raise LogDamaged(stored.sequence, str(error)) from error
        head = self.chain.extend(stored, commit)
        return Folded(stored.sequence, commit.writer, commit, stored.payload, head)

    async def close(self) -> None:
        """Stop reading."""
        if self._tail is not None:
            await self._tail.close()


class FencedWriter:
    """Appends a writer's commits. The fence is the server's: the subject's last sequence must be our own."""

    def __init__(self, bus: Bus, writer: str) -> None:
        self.bus = bus
        self.subject = subjects.log(writer)
        #: The reason for which the server has not stored the commit in progress; "" while there is none.
        self.refused = ""

    async def append(self, payload: bytes, expected: int) -> int:
        """Store one commit behind our own last one and return its sequence.

        A timed-out append is unknown, not failed: it is settled by reading back. Raises StaleWriter when
        another writer has written (step down), StreamFull and TooLarge (nothing stored). Waits out a server
        that is away, or that refuses for other reasons; each of these is logged once, and so is the end of it.
        """
        lost_at: float | None = None
        while True:
            try:
                sequence = await self.bus.append(subjects.LOG, self.subject, payload, expected=expected)
            except (OutcomeUnknown, StaleWriter) as error:
                settled = await self._read_back(payload, expected)
                if settled is not None:
                    self.refused = ""
                    log.info("append found stored", subject=self.subject, sequence=settled, reason=str(error))
                    return settled
                if isinstance(error, StaleWriter):
                    lost_at = lost_at or asyncio.get_running_loop().time()
                    if await self._is_lost(lost_at):
                        raise LogDamaged(
                            expected, "the server's last sequence for the writer is below its own"
                        ) from error
                if str(error) != self.refused:
                    self.refused = str(error)
                    log.warning("append not stored, trying again", subject=self.subject, reason=self.refused)
            except Unavailable:
                pass
            else:
                if self.refused:
                    self.refused = ""
                    log.info("append stored after all", subject=self.subject, sequence=sequence)
                return sequence
            await asyncio.sleep(RETRY_S)

    async def _is_lost(self, since: float) -> bool:
        """True where commits that were stored are gone. Of several copies, one that was cut off may be behind for a while."""
        try:
            copies = (await self.bus.state(subjects.LOG)).copies
        except Unavailable:
            return False
        return copies == 1 or asyncio.get_running_loop().time() - since > STALE_S

    async def _read_back(self, payload: bytes, expected: int) -> int | None:
        """The sequence if our commit is there, None if it is absent. Raises StaleWriter if another's is."""
        while True:
            try:
                newest = await self.bus.last(subjects.LOG, self.subject)
                break
            except Unavailable:
                await asyncio.sleep(RETRY_S)
        if newest is None or newest.sequence <= expected:
            return None
        if newest.payload == payload:
            return newest.sequence
        raise StaleWriter(f"another writer has written {self.subject} at sequence {newest.sequence}")
