"""Archiver: follows the log and lets an archive grow. The shell around `store.py`; start at `Archiver.run`.

Commits are on the archive's disk before more of the log is read. A checkpoint is signed after a number of events, or a
time after the first commit without a checkpoint. The archiver ends with the reason at any mismatch: a log that went
back or was rewritten must be examined by a person, not archived.

The file that the archiver keeps its signing key in: mode 0600, one line in the spelling of checkpoints.py.
"""

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from fairlead_bus import bus_faults
from fairlead_bus.bus_faults import state_reaching
from fairlead_bus.environment_settings import BadSetting, seconds, whole
from fairlead_bus.log import RETRY_S
from fairlead_bus.nkey import BadSecretFile, read_secret
from fairlead_bus.port import Bus, LogDamaged, Stored, Tail, Unavailable
from fairlead_replay.archive.checkpoints import SEED_BYTES, BadNote, Signer, read_signer
from fairlead_replay.archive.contents import NoArchive
from fairlead_replay.archive.segments import ArchiveDamaged
from fairlead_replay.archive.store import ArchiveBusy, Store
from fairlead_replay.audit import Seen, unseen
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import commit_hash


def generate_key(name: str) -> Signer:
    """A new key from the system's randomness. Raises BadNote for a name that cannot be."""
    return Signer(name, secrets.token_bytes(SEED_BYTES))


def read_key_file(path: Path) -> Signer:
    """Return the key in a file. Raises BadNote. A file that is readable by users other than its owner is refused: every reader
    of the key can sign another history.
    """
    try:
        spelled = read_secret(path, "the signing key", "a secret key (PRIVATE+KEY+…)")
    except BadSecretFile as error:
        raise BadNote(str(error)) from error
    try:
        return read_signer(spelled)
    except BadNote as error:
        raise BadNote(f"{path}: {error}") from None


def write_key_file(path: Path, signer: Signer) -> None:
    """Write a key for its owner alone (0600). Raises FileExistsError: a key is never written over; OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(
            f"# Signs checkpoints; public {signer.verifier.spelled}. The next line is secret: it can sign checkpoints.\n"
        )
        file.write(f"{signer.spelled}\n")
        file.flush()
        os.fsync(file.fileno())


CHECKPOINT_EVENTS = 1000
CHECKPOINT_S = 60.0

log = structlog.get_logger("archiver")


class Archiver:
    """Follows until it is stopped. Time is counted by the loop's clock; `clock` (Unix ns) only dates checkpoints."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        *,
        checkpoint_events: int = CHECKPOINT_EVENTS,
        checkpoint_s: float = CHECKPOINT_S,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._bus, self._store, self._clock = bus, store, clock
        self._checkpoint_events, self._checkpoint_s = checkpoint_events, checkpoint_s
        self._stopping = asyncio.Event()
        self._unsigned = 0
        self._due: float | None = None  # by the loop's clock

    async def run(self) -> int:
        """Archive until stopped; returns the exit code. One line says why it ends otherwise."""
        try:
            await self._follow()
        except LogDamaged as error:
            return bus_faults.end_service("archiver", error)
        except OSError as error:
            log.critical("archiver_refused", reason=f"{type(error).__name__}: {error}", sequence=self._store.size)
            return 1
        finally:
            self._store.close()
        log.info("archiver_stopped", sequence=self._store.size)
        return 0

    async def stop(self) -> None:
        """Ask `run` to end, with a checkpoint of what there is."""
        self._stopping.set()

    async def catch_up(self, seen: Seen = unseen) -> int:
        """Archive what the log holds now, sign it, and return the last sequence. Raises LogDamaged, Unavailable, OSError."""
        last = (await self._bus.state(subjects.LOG)).last
        await self.check_same_log()
        tail = await self._bus.tail(subjects.LOG, after=self._store.size)
        try:
            while self._store.size < last:
                await self._take(await tail.next())
                seen(self._store.size, last)
        finally:
            await tail.close()
        await self._sign()
        return self._store.size

    async def check_same_log(self) -> None:
        """Is the log the one in the archive? Looked at are its end and every writer's newest commit; `verify` looks at all
        of it. Raises LogDamaged, Unavailable."""
        state = await state_reaching(self._bus, subjects.LOG, self._store.size)
        if state.last < self._store.size:
            raise LogDamaged(
                state.last + 1,
                f"the log ends at {state.last}, the archive at {self._store.size}: the log was cut or set back",
            )
        for writer, head in sorted(self._store.heads.items()):
            stored = await self._bus.read(subjects.LOG, head.sequence)
            if stored is None or stored.subject != subjects.log(writer) or commit_hash(stored.payload) != head.hash:
                raise LogDamaged(head.sequence, f"{writer}'s commit {head.n} is not the one in the archive")

    async def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                await self.check_same_log()
                break
            except Unavailable:
                await asyncio.sleep(RETRY_S)
        log.info("archiver_started", sequence=self._store.size)
        tail = await self._bus.tail(subjects.LOG, after=self._store.size)
        try:
            await self._follow_tail(tail)
        finally:
            await tail.close()
        await self._sign()

    async def _follow_tail(self, tail: Tail) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.ensure_future(self._stopping.wait())
        # Kept from turn to turn: a read that is cut off may have taken commits with it.
        reading = asyncio.ensure_future(tail.next())
        try:
            while not stop.done():
                wait_s = None if self._due is None else max(0.0, self._due - loop.time())
                await asyncio.wait((stop, reading), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    await self._take(await reading)
                    reading = asyncio.ensure_future(tail.next())
                if self._due is not None and loop.time() >= self._due:
                    await self._sign()
        finally:
            stop.cancel()
            reading.cancel()

    async def _take(self, found: list[Stored]) -> None:
        """Commits that were read; none is taken up before those in front of it are on the disk."""
        while found:
            before, remaining = self._store.events, self._checkpoint_events - self._unsigned
            taken = await asyncio.to_thread(self._store.add, found, events_max=remaining)
            found = found[taken:]
            self._unsigned += self._store.events - before
            if self._due is None:
                self._due = asyncio.get_running_loop().time() + self._checkpoint_s
            if self._unsigned >= self._checkpoint_events or self._store.full():
                await self._sign()
            if self._store.full():
                await self._seal()

    async def _seal(self) -> None:
        segment = await asyncio.to_thread(self._store.seal)
        assert segment is not None, "a full segment has lines"
        sealed = segment.manifest
        log.info("segment_sealed", first=sealed.first, last=sealed.last, bytes=sealed.file_bytes)

    async def _sign(self) -> None:
        self._unsigned, self._due = 0, None
        signed = await asyncio.to_thread(self._store.sign, self._clock())
        if signed is None:
            return
        log.info("checkpoint_signed", size=signed.size, root=signed.root.hex())
        try:
            await asyncio.to_thread(self._store.spread)
        except OSError as error:
            log.warning("checkpoint_not_copied", reason=str(error), cure="it is tried again with the next one")


async def build(bus: Bus) -> Archiver:
    """The archiver with its settings from the environment (docs/reference/settings.md). Raises BadSetting."""
    env = os.environ
    directory, key = env.get("FAIRLEAD_ARCHIVE"), env.get("FAIRLEAD_ARCHIVE_KEY_FILE")
    if not directory or not key:
        missing = "FAIRLEAD_ARCHIVE" if not directory else "FAIRLEAD_ARCHIVE_KEY_FILE"
        raise BadSetting(f"{missing}: expected a path, found none (docs/how-to/archive.md)")
    copy = env.get("FAIRLEAD_ARCHIVE_COPY")
    try:
        store = Store(Path(directory), read_key_file(Path(key)), copy=Path(copy) if copy else None)
    except BadNote as error:
        raise BadSetting(f"FAIRLEAD_ARCHIVE_KEY_FILE: {error}") from error
    except (NoArchive, ArchiveBusy, ArchiveDamaged, LogDamaged, OSError) as error:
        raise BadSetting(f"FAIRLEAD_ARCHIVE: {error}") from error
    return Archiver(
        bus,
        store,
        checkpoint_events=whole(
            env, "FAIRLEAD_CHECKPOINT_EVENTS", CHECKPOINT_EVENTS, unit="events", least=1, most=10**9
        ),
        checkpoint_s=seconds(env, "FAIRLEAD_CHECKPOINT_S", CHECKPOINT_S),
    )
