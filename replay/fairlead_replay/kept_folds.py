"""Core of a service, folded from the bus to the sequence that a question needs, and kept for the next question.

At most two are kept: one that advances towards the log's end, and one of the past. The bus is not read between
questions. Deadlines are in the event loop's time; the commits folded before a deadline stay folded. Start at `Folds`.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import structlog

from fairlead_bus import snapshots
from fairlead_bus.bus_faults import state_reaching
from fairlead_bus.core import Core
from fairlead_bus.log import LogHead, LogReader, identity
from fairlead_bus.port import Bus, LogDamaged, Stored, Unavailable
from fairlead_schemas.wire import subjects

if TYPE_CHECKING:
    from fairlead_placer.core import PlacerCore
    from fairlead_queue.core import QueueCore

#: After folding for so long everybody else on the loop gets a turn. A commit is never split: it takes some
#: milliseconds, 50 where it makes hundreds of lanes.
STEP_S = 0.02
#: A fold that has more commits to go looks for a stored snapshot that is nearer.
FAR_COMMITS = 10_000

log = structlog.get_logger()


class NotYet(Exception):
    """The log has not come to the sequence that was asked for."""

    def __init__(self, last: int) -> None:
        super().__init__(f"the log is at sequence {last}")
        self.last = last


class Fold[C: Core]:
    """A core at a sequence of the log, and the way on from there."""

    def __init__(self, bus: Bus, core: C, sequence: int = 0, heads: dict[str, LogHead] | None = None) -> None:
        self.core = core
        self.sequence = sequence
        self._bus = bus
        self._reader = LogReader(bus, after=sequence, heads=heads)
        self._unfolded: deque[Stored] = deque()

    async def advance(self, sequence: int, deadline: float) -> None:
        """Fold up to a sequence that the log has. Raises TimeoutError at the deadline, LogDamaged."""
        loop = asyncio.get_running_loop()
        while self.sequence < sequence:
            if loop.time() >= deadline:
                raise TimeoutError
            if not self._unfolded:
                await self._read(deadline)
            self._step(sequence)
            await asyncio.sleep(0)

    async def _read(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                self._unfolded.extend(await self._reader.messages())
        except TimeoutError:
            # Messages may have been on their way to us: they are read again, behind what is folded.
            await self._reader.close()
            self._reader = LogReader(self._bus, after=self.sequence, heads=self._reader.chain.heads)
            raise

    def _step(self, sequence: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + STEP_S
        while self._unfolded and self.sequence < sequence:
            folded = self._reader.check(self._unfolded.popleft())
            self.core.evolve(folded.seq, folded.commit)
            self.sequence = folded.seq
            if loop.time() >= until:
                return

    async def close(self) -> None:
        """Stop reading, for good."""
        await self._reader.close()


class CoreKind[C: Core](NamedTuple):
    """Kind of core: its writer, and the functions that create one."""

    writer: str
    #: The shape of its snapshots.
    schema: str
    fresh: Callable[[], C]
    restore: Callable[[bytes], C]


class Folds[C: Core]:
    """Folds kept between questions. Not for two callers at once.

    `kind` returns the core's kind. It is called at the first question, and may import the core.
    """

    def __init__(self, bus: Bus, kind: Callable[[], CoreKind[C]]) -> None:
        self._bus, self._find_kind = bus, kind
        self._live: Fold[C] | None = None
        self._past: Fold[C] | None = None
        #: The log that they are of (`fairlead_bus.log.identity`).
        self._log_id = ""
        #: End of the log at its last query, sequence that the working fold has reached, and count of commits folded.
        self.last = self.reached = self.folded = 0

    @cached_property
    def _kind(self) -> CoreKind[C]:
        return self._find_kind()

    @property
    def held(self) -> bool:
        """True while there is something to release."""
        return self._live is not None or self._past is not None

    async def at(self, sequence: int, deadline: float) -> Fold[C]:
        """Return the state at a sequence; 0: at the log's end, as it is now. Raises NotYet, TimeoutError, LogDamaged,
        Unavailable.
        """
        await self._look()
        if sequence > self.last:
            raise NotYet(self.last)
        if not sequence or (self._live is not None and self._live.sequence <= sequence):
            sequence = sequence or self.last
            fold = self._live = await self._nearest(self._live, sequence, deadline)
        else:
            if self._past is not None and self._past.sequence > sequence:
                await self._past.close()
                self._past = None
                gc.collect()
            fold = self._past = await self._nearest(self._past, sequence, deadline)
        return await self._advance(fold, sequence, deadline)

    async def release(self) -> None:
        """Let go of everything."""
        for fold in (self._live, self._past):
            if fold is not None:
                await fold.close()
        self._live = self._past = fold = None
        gc.collect()  # jobs, lanes and queues know each other; the process collects rarely by itself

    async def _look(self) -> None:
        """Ask for the log's end. What is of another log, or of an end that was lost, is of no use any more."""
        furthest = max((fold.sequence for fold in (self._live, self._past) if fold is not None), default=0)
        state = await state_reaching(self._bus, subjects.LOG, furthest)
        self.last = state.last
        log_id = await identity(self._bus)
        if log_id != self._log_id:
            await self.release()
            self._log_id = log_id
        furthest = max((fold.sequence for fold in (self._live, self._past) if fold is not None), default=0)
        if furthest > state.last:
            raise LogDamaged(state.last, f"log went backwards: it was folded up to {furthest}")

    async def _nearest(self, kept: Fold[C] | None, sequence: int, deadline: float) -> Fold[C]:
        """The fold that was kept, or one from a stored snapshot if that is much nearer to the sequence."""
        after = kept.sequence if kept is not None else 0
        if kept is not None and sequence - after <= FAR_COMMITS:
            return kept
        found = await self._restored(after, sequence, deadline)
        if found is not None and kept is not None:
            await kept.close()
        fold = found or kept or Fold(self._bus, self._kind.fresh())
        log.info("folding", after=fold.sequence, to=sequence)
        return fold

    async def _restored(self, after: int, upto: int, deadline: float) -> Fold[C] | None:
        """From its writer's newest snapshot within (after, upto] that can be read."""
        writer = self._kind.writer
        try:
            async with asyncio.timeout_at(deadline):
                found = await snapshots.load_all(self._bus, writer, log_id=self._log_id, schema=self._kind.schema)
        except Unavailable as error:
            log.warning("snapshots cannot be read, the log is folded", service=writer, reason=str(error))
            return None
        for kept in found:
            if not after < kept.sequence <= upto:
                continue
            try:
                # On a thread: with 100,000 jobs it takes a second.
                core = await asyncio.to_thread(self._kind.restore, kept.state)
            except Exception as error:  # noqa: BLE001 -- whatever another version's bytes make the decoder do
                log.warning("snapshot cannot be read, the log is", sequence=kept.sequence, reason=str(error))
                continue
            return Fold(self._bus, core, kept.sequence, kept.heads)
        return None

    async def _advance(self, fold: Fold[C], sequence: int, deadline: float) -> Fold[C]:
        before = fold.sequence
        try:
            await fold.advance(sequence, deadline)
        finally:
            self.reached = fold.sequence
            self.folded += fold.sequence - before
        return fold


def queue_kind() -> "CoreKind[QueueCore]":
    """Return the queue's core, imported here: with numpy the cores take more memory than the rest of a process."""
    from fairlead_queue.core import QueueCore

    return CoreKind(QueueCore.writer, QueueCore.schema, QueueCore, QueueCore.restore)


def placer_kind() -> "CoreKind[PlacerCore]":
    """Return the placer's core, imported here."""
    from fairlead_placer.core import PlacerCore

    return CoreKind(PlacerCore.writer, PlacerCore.schema, PlacerCore, PlacerCore.restore)
