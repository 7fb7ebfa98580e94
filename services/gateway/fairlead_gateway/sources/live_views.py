"""Keeps the views at the log's end: snapshot, then the tail, then every commit as it comes.

Views are disposable: a snapshot that does not fit is ignored and the log folded from its start.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable

import structlog

from fairlead_bus import snapshots
from fairlead_bus.bus_faults import retry_until_available, state_reaching
from fairlead_bus.log import Folded, LogHead, LogReader, built_upon, identity
from fairlead_bus.port import Bus, StreamState, Unavailable
from fairlead_gateway.views.fold import SCHEMA, Views
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX

log = structlog.get_logger()

NAME = "gateway"
#: Events folded between two snapshots. Writing one holds up the loop for as long as it takes to encode the rows;
#: folding this many on a restart takes seconds.
SNAPSHOT_EVENTS = 200_000
SNAPSHOT_AGE_S = 300.0
#: How often the log's end is asked for, to tell how far behind the views are.
END_POLL_S = 1.0
#: Least time between two full garbage collections.
COLLECT_S = 30.0
#: /readyz says no when the views are further behind than this.
LAG_MAX = 2_000
#: The last twentieth of the log (at least four full commits) takes no new jobs.
KEPT_SHARE = 20
KEPT_BYTES_MIN = 4 * COMMIT_BYTES_MAX


class LiveViews:
    """Owns the reader; the views change only here. `saves`: False for a process that takes snapshots up and stores none."""

    def __init__(self, bus: Bus, *, saves: bool = True) -> None:
        self._bus = bus
        self._saves = saves
        self.views = Views()
        #: True once the views have reached what the log held at the start.
        self.caught_up = False
        #: The log's last sequence when it was last asked for, and whether the bus answered then.
        self.log_end = 0
        self.bus_answers = False
        #: Monotonic time at which the log's end was asked for that the views have reached since; -inf: not yet.
        self._end_seen_s = float("-inf")
        #: Time and end of the question whose answer the views have not reached yet.
        self._end_ahead: tuple[float, int] | None = None
        #: Bytes that the log holds (as last asked for, and what came since) and its limit (-1: none).
        self.log_bytes = 0
        self.log_bytes_max = -1
        #: Called with each batch of commits after they are folded.
        self.on_folded: Callable[[list[Folded]], None] | None = None
        self._log_id = ""
        self._heads: dict[str, LogHead] = {}
        self._turn = 0
        self._events = 0
        self._saved_at = 0.0
        self._seen = self._collected = 0
        #: Loop time from which on the next full garbage collection may run.
        self._collect_at = 0.0

    async def restore(self) -> None:
        """Take up the newest snapshot, if there is one. Raises LogDamaged where the log does not hold what it builds on."""
        kept = await snapshots.load_or_fold(self._bus, NAME, schema=f"views-{SCHEMA}")
        found = next(iter(kept), None)
        # Asked afterwards: a gateway on its way out may have stored a snapshot of what was committed meanwhile.
        known = max((each.sequence for each in kept), default=0)
        state = await retry_until_available(lambda: state_reaching(self._bus, subjects.LOG, known))
        self._log_id = await retry_until_available(lambda: identity(self._bus))
        snapshots.check(kept, log_id=self._log_id, last=state.last)
        self._note_end(state)
        self.caught_up = not state.last
        if found is None:
            return
        self._turn = found.turn  # the next one goes into the other slot
        for head in found.heads.values():
            await retry_until_available(lambda head=head: built_upon(self._bus, head))
        views = Views.restore(found.state)
        if views is None:
            log.warning("snapshot is of another shape, folding the log instead", sequence=found.sequence)
        else:
            self.views, self._heads = views, found.heads
            log.info("snapshot taken up", sequence=found.sequence, log_end=state.last)

    def take_up(self, views: Views, heads: dict[str, LogHead]) -> None:
        """Begin with views that were folded before. `heads`: each writer's newest commit in them."""
        self.views, self._heads = views, heads

    async def run(self) -> None:
        """Fold the log without end. Raise LogDamaged, or KeyError on a log that is not valid."""
        reader = LogReader(self._bus, after=self.views.sequence, heads=self._heads)
        target = self.log_end
        loop = asyncio.get_running_loop()
        self._saved_at = loop.time()
        self._reached(target)
        try:
            while True:
                batch: list[Folded] = []
                for folded in await reader.next():
                    batch.append(folded)
                    self.views.fold(folded.seq, folded.commit)
                    self._heads[folded.writer] = folded.head
                    self._events += len(folded.commit.events)
                    if self.caught_up:
                        self.log_bytes += len(folded.payload)
                if self._end_ahead is not None:
                    self._look_for_end()
                if self.on_folded is not None:
                    self.on_folded(batch)
                self._reached(target)
                if self._saves and (self._events >= SNAPSHOT_EVENTS or loop.time() - self._saved_at > SNAPSHOT_AGE_S):
                    await self.save()
                elif not self.caught_up:
                    await asyncio.sleep(0)
        finally:
            await reader.close()

    def _reached(self, target: int) -> None:
        if not self.caught_up and self.views.sequence >= target:
            self.caught_up = True
            # What is here now stays; later collections need not look at it.
            gc.freeze()
            log.info("caught up", sequence=self.views.sequence)

    async def save(self) -> None:
        """Store a snapshot of the views; a failure costs only the next restart time."""
        self._events, self._saved_at = 0, asyncio.get_running_loop().time()
        self._turn += 1
        snapshot = snapshots.Snapshot(self.views.sequence, dict(self._heads), self.views.snapshot())
        with contextlib.suppress(Unavailable):
            self._log_id = self._log_id or await identity(self._bus)
            await snapshots.save(
                self._bus, NAME, snapshot, log_id=self._log_id, schema=f"views-{SCHEMA}", turn=self._turn
            )

    async def watch_end(self) -> None:
        """Ask for the log's end now and then, so that answers need not; collect garbage while nothing happens."""
        while True:
            self._collect_when_idle()
            asked_s = time.monotonic()
            try:
                self._note_end(await self._bus.state(subjects.LOG))
                self._end_ahead = self._end_ahead or (asked_s, self.log_end)
                self._look_for_end()
            except Unavailable:
                self.bus_answers = False
            await asyncio.sleep(END_POLL_S)

    def _note_end(self, state: StreamState) -> None:
        self.log_end, self.log_bytes, self.log_bytes_max = state.last, state.bytes, state.bytes_max
        self.bus_answers = True

    def _look_for_end(self) -> None:
        if self._end_ahead is not None and self.views.sequence >= self._end_ahead[1]:
            self._end_seen_s, self._end_ahead = self._end_ahead[0], None

    def blind_s(self) -> float:
        """Return the seconds for which the views may lack a commit that the log had; infinite before the end was ever seen."""
        return time.monotonic() - self._end_seen_s

    def _collect_when_idle(self) -> None:
        """Run a full garbage collection when no commit is folded, at most every COLLECT_S. Full collections stall the loop, so
        the collector is configured to leave them to this method.
        """
        now_s = asyncio.get_running_loop().time()
        if self._seen != self.views.sequence:
            self._seen = self.views.sequence
        elif self._collected != self._seen and now_s >= self._collect_at:
            self._collected, self._collect_at = self._seen, now_s + COLLECT_S
            gc.collect()

    @property
    def has_room(self) -> bool:
        """False when the log nears its limit: the rest is kept for what runs already, so that it can be recorded."""
        kept = max(self.log_bytes_max // KEPT_SHARE, KEPT_BYTES_MIN)
        return self.log_bytes_max <= 0 or self.log_bytes + kept <= self.log_bytes_max

    @property
    def is_near_end(self) -> bool:
        """True when the bus answers and the views are within LAG_MAX commits of the log's end."""
        return self.caught_up and self.bus_answers and self.log_end - self.views.sequence <= LAG_MAX
