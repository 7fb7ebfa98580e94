"""The log and the samples, read from the bus and stored in batches.

Owns the pace. What has been read waits in memory until a question needs it (`flush`), much is pending, or the oldest has waited: a
commit for 30 s, a sample for 5 s. A transaction costs some 60 ms before its first event, because its statements are planned
again, and some ms for a few samples, which is most of what telemetry does in a cluster at rest. A crash loses nothing: log and
samples are read again from the bus. Reading stops while more than `PENDING_BYTES_MAX` wait. Knows no
SQL. One thread owns the warehouse; everything that touches it goes through `on_thread`, questions through `ask`. Start at `run`.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import duckdb
import msgspec
import structlog

from fairlead_bus.bus_faults import retry_until_available, state_reaching
from fairlead_bus.log import LogReader, identity
from fairlead_bus.port import Bus, LogDamaged
from fairlead_schemas.units.timestamps import DAY_NS, MINUTE_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import commit_hash
from fairlead_schemas.wire.samples import SampleColumns, decode_columns
from fairlead_telemetry.samples.intake import SampleBook, SampleDelays
from fairlead_telemetry.warehouse.database import is_damage
from fairlead_telemetry.warehouse.event_rows import CommitBytes
from fairlead_telemetry.warehouse.warehouse import Cursor, Retention, Warehouse, WarehouseRefused

#: Least time between two reads of a few commits. What has been read waits longer than that anyway.
READ_PAUSE_S = 0.025
#: Least time between the starts of two transactions, unless FLUSH_BYTES wait or a question needs what is pending.
INTERVAL_S = 1.0
#: Longest time that a commit and a sample wait to be stored.
LOG_INTERVAL_S, SAMPLE_INTERVAL_S = 30.0, 5.0
#: Samples of this size wait no longer than INTERVAL_S: those of some 2,000 GPUs in a second.
SAMPLE_BYTES = 256 * 1024
#: Some 80,000 events: with an eighth of that, planning and committing cost as much again as the rows themselves.
FLUSH_BYTES = 24 * 2**20
PENDING_BYTES_MAX = 64 * 2**20
#: How often old samples are dropped.
RETENTION_CHECK_S = 600.0
#: How often samples are added up per minute and hour.
ROLL_UP_S = 30.0
#: Samples with a node clock further ahead are refused: they would stay the newest for all time.
AHEAD_NS = MINUTE_NS
#: How long samples and their sums are kept unless settings say otherwise.
KEPT = Retention(7 * DAY_NS, 90 * DAY_NS, 1095 * DAY_NS)

log = structlog.get_logger("telemetry")


class StoringEnded(Exception):
    """Telemetry stores nothing more, so a question cannot be answered with what has been read."""


class Ingest:
    """Moves the warehouse forward until it is stopped or the log is damaged."""

    def __init__(
        self,
        bus: Bus,
        warehouse: Warehouse,
        *,
        kept: Retention = KEPT,
        clock: Callable[[], int] = time.time_ns,
        on_batch: Callable[[SampleColumns], None] = lambda _: None,
    ) -> None:
        """Create the ingest. `on_batch` is called for every new batch as it arrives."""
        self._bus = bus
        self._warehouse = warehouse
        self._kept = kept
        self._clock = clock
        self._on_batch = on_batch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="warehouse")
        self._log_id = ""
        cursor = warehouse.cursor
        self._reader = LogReader(bus, after=cursor.sequence, heads=cursor.heads, pause_s=READ_PAUSE_S)
        self._book = SampleBook(warehouse.sample_heads())
        self._commits: list[CommitBytes] = []
        #: time.monotonic() when the oldest of `_commits` and the oldest pending sample were read.
        self._oldest_at = self._oldest_sample_at = 0.0
        self._commit_bytes = self._sample_bytes = 0
        #: Commits of the transaction that runs now, and their bytes.
        self._storing: list[CommitBytes] = []
        self._storing_bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        #: Callers of `flush` that wait for the next transaction.
        self._flushes: list[asyncio.Future[None]] = []
        self._is_storing = False
        self.delays = SampleDelays()

    @property
    def samples_refused(self) -> dict[str, int]:
        """{reason: batches since the start}."""
        return self._book.refused

    @property
    def cursor(self) -> Cursor:
        """Position up to which commits are stored."""
        return self._warehouse.cursor

    @property
    def sequence(self) -> int:
        """Sequence up to which a question is answered: of the newest commit that has been read."""
        newest = self._commits or self._storing
        return max(newest[-1].sequence, self.cursor.sequence) if newest else self.cursor.sequence

    @property
    def events(self) -> int:
        """Number of events up to `sequence`."""
        return self.cursor.events + sum(len(commit.bodies) for commit in self._unstored())

    @property
    def version(self) -> int:
        """Version of the warehouse once what is pending is stored."""
        return self._warehouse.version + (self._sample_bytes > 0 or any(True for _ in self._unstored()))

    def _unstored(self) -> Iterator[CommitBytes]:
        """Yield the commits that have been read and are not in the warehouse, those of the running transaction included."""
        stored = self.cursor.sequence
        return (commit for commit in (*self._storing, *self._commits) if commit.sequence > stored)

    async def ask[**P, T](self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a question on the warehouse's thread, with everything stored that has been read before."""
        await self.flush()
        return await self.on_thread(call, *args, **kwargs)

    async def flush(self) -> None:
        """Return when the commits and samples that have been read are stored. Raises what prevents that, StoringEnded once `run` has
        ended and commits are left."""
        is_behind = self.sequence > self.cursor.sequence
        if is_behind or (self._sample_bytes and self._is_storing):
            if not self._is_storing:
                raise StoringEnded("telemetry is stopping; ask again")
            flushed = asyncio.get_running_loop().create_future()
            self._flushes.append(flushed)
            self._arrived.set()
            await flushed

    async def on_thread[**P, T](self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call on the warehouse's thread, in turn with the transactions."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(*args, **kwargs))

    async def run(self) -> None:
        """Read and store without end, after `same_log` has permitted it. Raises LogDamaged, or duckdb.Error or OSError (the disk
        cannot take more: no data is lost, the next start resumes at the cursor).
        """
        self._is_storing = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_log(), name="read log")
            group.create_task(self._read_samples(), name="read samples")
            group.create_task(self._drop_old_samples(), name="drop old samples")
            group.create_task(self._roll_up(), name="roll up samples")
            group.create_task(self._store(), name="store")

    async def close(self) -> None:
        """Stop the thread; what had not been stored is read again at the next start."""
        await self._reader.close()
        self._thread.shutdown(wait=True)

    async def same_log(self) -> None:
        """Raises WarehouseRefused for a log that is not the one in the warehouse: mixing two would be worse than having
        none. Raises LogDamaged for the same log that has lost or changed commits of the warehouse."""
        cursor = self.cursor
        state = await retry_until_available(lambda: state_reaching(self._bus, subjects.LOG, cursor.sequence))
        self._log_id = await retry_until_available(lambda: identity(self._bus))
        if not cursor.sequence:
            return
        folder = self._warehouse.measured.folder
        cure = f"restore that log, or move {self._warehouse.path} and {folder} away to start from an empty database"
        if not self._log_id or cursor.is_of(self._log_id):
            await self._check_end(state.last, cursor, cure)
        else:
            names = f"first commit {cursor.log_id[:12]}, this one's {self._log_id[:12]}"
            raise WarehouseRefused(f"the warehouse holds another log ({names}): {cure}")

    async def _check_end(self, last: int, cursor: Cursor, cure: str) -> None:
        """Raise LogDamaged unless the log still holds the commit at the cursor."""
        if last < cursor.sequence:
            raise LogDamaged(last, f"the log went back to {last}, the warehouse is at {cursor.sequence}: {cure}")
        stored = await retry_until_available(lambda: self._bus.read(subjects.LOG, cursor.sequence))
        known = {head.sequence: head.hash for head in cursor.heads.values()}
        if stored is None or commit_hash(stored.payload) != known[cursor.sequence]:
            raise LogDamaged(cursor.sequence, f"the commit is not the one in the warehouse: {cure}")

    async def _read_log(self) -> None:
        while True:
            read = await self._reader.next_checked()
            if not self._commits:
                self._oldest_at = time.monotonic()
            for commit in read:
                self._commits.append(CommitBytes.of(commit.seq, commit.envelope))
                self._commit_bytes += len(commit.payload)
            await self._take_up()

    async def _read_samples(self) -> None:
        """Always from the start of what the stream keeps: its sequences mean nothing after a server's crash."""
        while True:
            first = (await retry_until_available(lambda: self._bus.state(subjects.SAMPLE))).first
            tail = await self._bus.tail(subjects.SAMPLE, after=max(0, first - 1))
            try:
                while True:
                    for stored in await tail.next():
                        self._add_sample(stored.subject, stored.payload)
                    await self._take_up()
            except LogDamaged as error:
                log.warning("samples_went_back", error=str(error))
                await asyncio.sleep(INTERVAL_S)
            finally:
                await tail.close()

    def _add_sample(self, subject: str, payload: bytes) -> None:
        if not self._sample_bytes:
            self._oldest_sample_at = time.monotonic()
        self._sample_bytes += len(payload)
        node = subjects.node_of(subject)
        try:
            batch = decode_columns(payload)
        except msgspec.MsgspecError as error:
            self._refuse_sample(node, "garbage", str(error))
            return
        if batch.node != node:
            self._refuse_sample(node, "other_node", f"batch of node {batch.node!r}")
        elif not self._book.is_known(batch) and (reason := self._is_off(batch)):
            self._refuse_sample(node, reason, f"its time is {batch.at_ns} ns, ours {self._clock()} ns")
        elif self._book.add(batch):
            self._on_batch(batch)

    def _is_off(self, batch: SampleColumns) -> str:
        ahead_ns = batch.at_ns - self._clock()
        return "future" if ahead_ns > AHEAD_NS else "past" if -ahead_ns > self._kept.samples_ns else ""

    def _refuse_sample(self, node: str, reason: str, words: str) -> None:
        refused = self._book.refuse(node, reason, words)
        if refused.bit_count() == 1:  # at the 1st, 2nd, 4th, 8th …: a broken agent must not fill the disk
            log.warning("sample_refused", node=node, reason=reason, error=words, refused=refused)

    async def _take_up(self) -> None:
        """Announce what has been read; wait while too much of it is not stored yet."""
        self._arrived.set()
        if self._commit_bytes + self._sample_bytes + self._storing_bytes > PENDING_BYTES_MAX:
            self._room.clear()
            await self._room.wait()

    async def _store(self) -> None:
        started = time.monotonic()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._due_in_s(started)):
                        await self._arrived.wait()
                self._arrived.clear()
                if self._due_in_s(started) == 0:
                    started = time.monotonic()
                    await self._store_pending()
                    self._room.set()
        finally:
            self._is_storing = False
            _answer(self._flushes, StoringEnded("telemetry is stopping; ask again"))

    def _due_in_s(self, started: float) -> float | None:
        """Return the seconds until the next transaction is due, None while nothing is pending. `started`: start of the last one."""
        if self._flushes or self._is_much():
            return 0
        due = list[float]()
        if self._sample_bytes >= SAMPLE_BYTES:
            due.append(started + INTERVAL_S)
        elif self._sample_bytes:
            due.append(max(started + INTERVAL_S, self._oldest_sample_at + SAMPLE_INTERVAL_S))
        due += [max(started + INTERVAL_S, self._oldest_at + LOG_INTERVAL_S)] if self._commits else []
        return max(0, min(due) - time.monotonic()) if due else None

    def _is_much(self) -> bool:
        return self._commit_bytes + self._sample_bytes > FLUSH_BYTES

    async def _store_pending(self) -> None:
        """Store the samples, and the commits if a question needs them, much is pending or the oldest has waited long enough."""
        # A question that comes while this transaction runs waits for the next one: its commits may not be in this one.
        commits, flushes, started = list[CommitBytes](), list[asyncio.Future[None]](), time.monotonic()
        if self._flushes or self._is_much() or started >= self._oldest_at + LOG_INTERVAL_S:
            commits, self._commits, self._storing_bytes = self._commits, [], self._commit_bytes
            flushes, self._flushes, self._commit_bytes = self._flushes, [], 0
            self._storing = commits
        samples, self._sample_bytes = self._book.take(), 0
        # The chain ends exactly at the last commit taken: both change on the loop only.
        heads = dict(self._reader.chain.heads)
        try:
            if commits and not self._log_id:  # the log was empty at the start
                self._log_id = await retry_until_available(lambda: identity(self._bus))
            cursor = await self.on_thread(self._warehouse.store, commits, heads, self._log_id, samples)
        except BaseException as error:
            _answer(
                flushes, error if isinstance(error, Exception) else StoringEnded("telemetry is stopping; ask again")
            )
            raise
        self._storing, self._storing_bytes = [], 0
        _answer(flushes)
        self.delays.add((batch.at_ns for batch in samples.batches), self._clock())
        log.debug(
            "stored",
            sequence=cursor.sequence,
            commits=len(commits),
            events=sum(len(commit.bodies) for commit in commits),
            sample_batches=len(samples.batches),
            samples_lost=cursor.samples_lost,
            ms=round((time.monotonic() - started) * 1000, 1),
        )
        if not self._is_much():  # else it is behind, and larger pieces cost less
            await self.on_thread(self._warehouse.settle)

    async def _drop_old_samples(self) -> None:
        while True:
            now_ns = self._clock()
            before = Retention(*(now_ns - kept_ns for kept_ns in self._kept))
            await self.on_thread(self._warehouse.drop_samples, before, now_ns=now_ns)
            self._book.forget(before.samples_ns)
            await self._file_samples(now_ns)
            await self.on_thread(self._warehouse.tidy)
            await asyncio.sleep(RETENTION_CHECK_S)

    async def _file_samples(self, now_ns: int) -> None:
        """Move the samples of finished days into files, which are written while others continue to be stored."""
        for filing in await self.on_thread(self._warehouse.plan_files, now_ns):
            try:
                files = await asyncio.to_thread(self._warehouse.write_files, filing)
            except (duckdb.Error, OSError) as error:
                if isinstance(error, duckdb.Error) and is_damage(error):
                    raise
                # Rows stay where they are; the folder may be another disk than the warehouse's.
                log.error("samples_not_filed", reason=str(error).splitlines()[0])
                return
            attached = await self.on_thread(self._warehouse.attach_files, filing, files, now_ns)
            log.info(
                "samples_filed" if attached else "samples_not_filed_yet",
                files=[file.name for file in files],
                rows=sum(file.rows for file in files),
                bytes=sum(file.bytes for file in files),
            )

    async def _roll_up(self) -> None:
        while True:
            await self.on_thread(self._warehouse.roll_up, self._clock())
            await asyncio.sleep(ROLL_UP_S)


def _answer(flushes: list[asyncio.Future[None]], error: Exception | None = None) -> None:
    """Let callers of `flush` continue, with the fault that prevented storing if there is one."""
    for flushed in flushes:
        if flushed.done():
            continue
        if error is None:
            flushed.set_result(None)
        else:
            flushed.set_exception(error)
