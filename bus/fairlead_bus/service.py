"""The one service shell: restore, follow the log until the lease is ours, then loop { wait; fold; decide; append; fold; act }.

It owns the order of things and holds no rules: what to commit is the core's, what to do outside is
`act`'s, which must derive everything from state and be repeatable. Start at `Service.run`.

A process without the lease is a standby: it folds what the leader commits, so that it leads at once when its turn comes. One that
steps down ends with EXIT_STEPPED_DOWN, upon which `main` builds it again in the same process.

    restore ─> stand by ──> ┌ wait for log, inputs or timer
                            │ fold what others committed
                            │ decide ── nothing to commit ──┐
                            │ append (fenced, one in flight)│
                            │ fold up to the own commit     │
                            └─ act <────────────────────────┘
"""

import asyncio
import gc
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from fairlead_bus import bus_faults, input_source, snapshots, streams
from fairlead_bus.bus_faults import retry_until_available, state_reaching
from fairlead_bus.core import Core, Decision, Input
from fairlead_bus.input_source import InputSource
from fairlead_bus.lease import POLL_S, LeaderLease, process_word
from fairlead_bus.log import NO_HEAD, FencedWriter, LogHead, LogReader, built_upon, identity
from fairlead_bus.log_time import SKEW_NS, STEP_NS, OtherClocks, SteadyClock, boottime_ns
from fairlead_bus.pacing import GATHER_S, CommitPace
from fairlead_bus.port import (
    Bus,
    Message,
    StaleWriter,
    Stored,
    StreamFull,
    Subscription,
    TooLarge,
)
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import levels, subjects
from fairlead_schemas.wire.commit import VERSION, Commit, encode_commit
from fairlead_schemas.wire.conditions import ALIVE, EXIT_STEPPED_DOWN, Alive, encode_alive

#: Pause before a refused append (full log) is tried again.
FULL_RETRY_S = 1.0
IDLE_COLLECT_S = 30.0
#: The core's own time is waited for at least so long: log time may run slower than the loop's.
SHORTEST_WAIT_S = 0.001
#: Pauses between comparisons with other clocks: of a leader, and of a process that may not lead yet.
CLOCK_CHECK_S, CLOCK_RETRY_S = 30.0, 5.0
EXIT_OK = 0

log = structlog.get_logger()


def repeated_cursors(cursors: dict[str, int]) -> dict[str, int]:
    """Return the cursors that every commit repeats: those of streams, so that the newest commit states where to resume.

    The numbers of nodes' reports are in the core's own state. Repeating them would put every node into every commit (9 KB
    of it with 500 nodes).
    """
    return {name: position for name, position in cursors.items() if name == subjects.CMD}


class PreparedCommit(NamedTuple):
    """A commit that is ready to be appended."""

    commit: Commit
    payload: bytes


class Service[C: Core]:
    """Process that runs one core on one bus. `run` returns the process's exit code."""

    def __init__(
        self,
        bus: Bus,
        core_type: type[C],
        *,
        writer: str,
        sources: Sequence[InputSource] = (),
        act: Callable[[C], Awaitable[None]] | None = None,
        clock: Callable[[], int] = time.time_ns,
        boot: Callable[[], int] = boottime_ns,
        skew_ns: int = SKEW_NS,
        instance: str = "",
        snapshot_events: int = snapshots.SNAPSHOT_EVENTS,
        gather_s: Callable[[C], float] = lambda _: GATHER_S,
        read_pause_s: float = 0.0,
    ) -> None:
        """`gather_s`: seconds between two small commits while the service is busy, as of the core's state (pacing.py).
        `read_pause_s`: as `pause_s` of LogReader, for a service whose decisions can wait for it.
        """
        self.bus, self.core_type, self.writer = bus, core_type, writer
        self.core: C = core_type()
        self.sources, self.act, self.clock = sources, act, SteadyClock(clock, boot)
        self._others = OtherClocks(bus, clock, skew_ns)
        #: How this machine's clock differs from the others', as of the last comparison.
        self._clock_differs = ""
        #: Log time of the writer's newest commit.
        self._committed_ns = 0
        self.lease = LeaderLease(bus, writer, instance or f"{writer}-{id(self)}")
        self.fence = FencedWriter(bus, writer)
        self._read_pause_s = read_pause_s
        self.reader = LogReader(bus, pause_s=read_pause_s)
        self.folded = 0
        #: Level of the log's format as folded: what needs a higher one is not written.
        self.level = levels.FIRST
        self.commits = 0
        self.leading = False
        self._snapshots = snapshots.SnapshotWriter(
            bus, writer, core_type.schema, self._take_snapshot, events_max=snapshot_events
        )
        self._heads: dict[str, LogHead] = {}
        self._in_flight = b""
        self._cursors: dict[str, int] = {}
        self._unfolded: deque[Stored] = deque()
        self._inputs: list[Input] = []
        #: Some of the inputs cannot be decided upon: they are taken one by one.
        self._isolating = False
        self._wake = asyncio.Event()
        #: Set, with `_wake`, by what must not wait until more input has gathered.
        self._urgent = asyncio.Event()
        self._pace, self._gather_s = CommitPace(), gather_s
        self._stopping = False
        #: Another process has led since this one began.
        self._is_standby = False
        self._failure: Exception | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._served: list[Subscription] = []
        self._opened: list[InputSource] = []
        self._collected = 0.0

    # -- life

    async def run(self) -> int:
        """Serve until stopped (0), another writer takes over (75), the log is damaged (70) or commands are lost (74)."""
        try:
            await self._restore()
            if not await self._stand_by():
                return EXIT_OK
            await self._take_over()
            await self._open()
            log.info(
                "leading", service=self.writer, sequence=self.folded, commits=self._heads.get(self.writer, NO_HEAD).n
            )
            while not self._stopping:
                await self._cycle()
            await self._hand_over()
            return EXIT_OK
        except StaleWriter as error:
            log.warning("stepped down", service=self.writer, reason=str(error))
            return EXIT_STEPPED_DOWN
        except bus_faults.DAMAGES as error:
            return bus_faults.end_service(self.writer, error)
        finally:
            await self._close()

    async def stop(self) -> None:
        """Let `run` return after the cycle in progress."""
        self._stopping = True
        self._wake_now()

    async def _hand_over(self) -> None:
        """Give the lease back, then store the state: a standby need not wait for that."""
        await self._retire()
        await self._snapshots.save()

    async def _retire(self) -> None:
        """End what a leader does; the lease goes back where the service is stopped."""
        self.leading = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        served, self._served = self._served, []
        for subscription in served:
            await subscription.close()
        opened, self._opened = self._opened, []
        for source in opened:
            await source.close()
        if self._stopping and self.lease.is_held:
            await self.lease.release()

    async def _close(self) -> None:
        await self._retire()
        self._snapshots.close()
        await self.reader.close()

    # -- start

    async def _stand_by(self) -> bool:
        """Fold what others commit until this process has the lease, and a clock that others share. False when the service is stopped
        meanwhile."""
        while not self._stopping:
            if not await self.lease.try_acquire():
                if not self._is_standby:
                    self._is_standby = True
                    log.info("standing by until the lease is free", service=self.writer, sequence=self.folded)
                await self._follow(POLL_S)
                continue
            wrong = self._clock_differs = await self._others.differ()
            if not wrong:
                return True
            await self.lease.release()
            log.error(
                "this machine's clock differs, not leading",
                service=self.writer,
                reason=wrong,
                hint="set the clock (chronyc makestep); FAIRLEAD_CLOCK_SKEW_S sets how far it may differ",
            )
            # The writer has no leader unless another process takes the lease now. The gateway reports the reason.
            answering = await self.bus.serve(subjects.rpc(self.writer, ALIVE), self._answer_alive)
            await self._follow(CLOCK_RETRY_S)
            await answering.close()
        return False

    async def _follow(self, seconds: float) -> None:
        """Fold for so long what arrives of the log, or until the service is stopped."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        timer = loop.call_at(until, self._wake.set)
        try:
            while loop.time() < until and not self._stopping:
                self._fold_ready()
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
                await self._wake.wait()
        finally:
            timer.cancel()

    async def _restore(self) -> None:
        """Newest snapshot, then the tail up to what the log held when we began."""
        loaded = await self._snapshots.load()
        # Asked afterwards: a leader may have committed and stored a snapshot meanwhile.
        last = await self._end_of_log(max((found.sequence for found in loaded), default=0))
        snapshots.check(loaded, log_id=await retry_until_available(lambda: identity(self.bus)), last=last)
        for found in loaded:
            if await self._start_from(found):
                break
        self._spawn(self._read, "read")
        await self._fold_through(last)

    async def _end_of_log(self, known: int) -> int:
        """The last sequence of a log that is known to reach so far."""
        return (await retry_until_available(lambda: state_reaching(self.bus, subjects.LOG, known))).last

    async def _take_over(self) -> None:
        """Fold up to the log's end, which is what a former leader has left. The lease is kept meanwhile."""
        self._spawn(self._keep_lease, "lease")
        if self._is_standby:
            self._snapshots.others_saved()
        await self._fold_through(await self._end_of_log(self.folded))
        await self._resume_clock()

    async def _resume_clock(self) -> None:
        """Resume log time from the writer's newest commit, by the server's measure of the time since."""
        if not self._committed_ns:
            return
        times = await retry_until_available(lambda: self.bus.times(subjects.LOG, subjects.log(self.writer)))
        if times.first_ns <= self._committed_ns:
            self.clock.resume(self._committed_ns, times.now_ns - times.last_ns)
        else:
            # The log was restored from an archive: the server knows when, not when the commits were made. The wall
            # clock does.
            self.clock.resume(max(self._committed_ns, self.clock.now()), 0)

    async def _watch_clock(self) -> None:
        """Keep log time from creeping to a wall clock that differs from the others'."""
        while True:
            await asyncio.sleep(CLOCK_CHECK_S)
            wrong = await self._others.differ(ask_nodes=abs(self.clock.lag_ns) > STEP_NS)
            if wrong and self.clock.is_trusted:
                log.error(
                    "this machine's clock differs, log time does not follow it", service=self.writer, reason=wrong
                )
            elif not wrong and not self.clock.is_trusted:
                log.info("this machine's clock agrees again", service=self.writer)
            self.clock.is_trusted, self._clock_differs = not wrong, wrong

    async def _start_from(self, found: snapshots.Snapshot) -> bool:
        """Take up a snapshot. False when this code cannot read it: another version wrote it, the log has it all."""
        for writer, head in found.heads.items():
            commit = await retry_until_available(lambda head=head: built_upon(self.bus, head))
            self.level = max(self.level, commit.level)  # every commit states it
            if writer == self.writer:
                self._cursors, self._committed_ns = repeated_cursors(commit.cursors), commit.at_ns
        try:
            self.core = self.core_type.restore(found.state)
        except Exception as error:  # noqa: BLE001 -- whatever another version's bytes make the decoder do
            log.warning(
                "snapshot unreadable; falling back to an older one or the log", service=self.writer, reason=str(error)
            )
            self._cursors = {}
            return False
        self.folded, self._heads = found.sequence, dict(found.heads)
        self.reader = LogReader(self.bus, after=found.sequence, heads=found.heads, pause_s=self._read_pause_s)
        return True

    async def _open(self) -> None:
        if self.act is not None:
            await self.act(self.core)
        for source in self.sources:
            wake = self._wake_now if source.is_urgent else self._wake.set
            self._opened.append(source)
            await source.open(self.bus, self.core, self._cursors.get("CMD", 0), wake)
        for verb, answer in (("state", self._answer_state), (ALIVE, self._answer_alive)):
            self._served.append(await self.bus.serve(subjects.rpc(self.writer, verb), answer))
        self._spawn(self._watch_clock, "clock")
        self.leading = True
        self._wake.set()

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        async def guarded() -> None:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 -- handed to `run`, which raises it
                self._failure = error
                self._wake_now()

        self._tasks.append(asyncio.create_task(guarded(), name=f"{self.writer}-{name}"))

    async def _keep_lease(self) -> None:
        await self.lease.keep()
        raise StaleWriter("another holder has the lease")

    async def _read(self) -> None:
        while True:
            self._unfolded.extend(await self.reader.messages())
            self._wake.set()

    # -- the loop

    async def _cycle(self) -> None:
        await self._wait()
        changed = self._fold_ready()
        now_ns = self.clock.now()
        if self.clock.has_stepped:
            await self._record_steps(now_ns)
        for source in self.sources if not self._inputs else ():
            self._inputs.extend(source.take(now_ns))
        prepared = self._decide(now_ns)
        if prepared is not None:
            await self._commit(prepared)
        elif not changed:
            return
        if self.act is not None:
            await self.act(self.core)
        self._snapshots.save_when_due()

    async def _record_steps(self, now_ns: int) -> None:
        """Commit an event for each step of the wall clock. What is decided next is decided at the same log time."""
        kind = ev.CLOCK_STEPPED[self.writer]
        steps = self.clock.steps()
        for step in steps:
            log.warning(
                "the wall clock was set, log time creeps to it",
                service=self.writer,
                step_s=round(step.step_ns / 1e9, 3),
                lag_s=round(step.lag_ns / 1e9, 3),
            )
        events: list[ev.Event] = [kind(cause="clock", step_ns=each.step_ns, lag_ns=each.lag_ns) for each in steps]
        prepared = self._prepare(Decision(events, {}), now_ns)
        assert prepared is not None, "a step is an event"
        await self._commit(prepared)

    def _decide(self, now_ns: int) -> PreparedCommit | None:
        """The next commit, if there is to be one; its inputs count as consumed."""
        inputs = self._inputs[:1] if self._isolating else self._inputs
        try:
            prepared = self._prepare(self.core.decide(inputs, now_ns), now_ns)
        except Exception as error:
            if not inputs:
                raise
            log.critical("inputs cannot be decided upon", service=self.writer, inputs=len(inputs), exc_info=True)
            self._prepare(self.core.decide([], now_ns), now_ns)  # raises where it is not the inputs: then we end
            if len(inputs) > 1:
                self._isolating = True
                return self._decide(now_ns)
            pieces = self.core.split(inputs[0])
            if pieces:
                self._inputs[:1] = pieces
                self._isolating = True
                return self._decide(now_ns)
            prepared = self._isolate(inputs[0], error, now_ns)
        self._inputs = self._inputs[len(inputs) :]
        if self._inputs:
            self._wake.set()
        else:
            self._isolating = False
        return prepared

    def _isolate(self, item: Input, error: Exception, now_ns: int) -> PreparedCommit | None:
        """A commit that records a single input as rejected, or what of it is to blame."""
        if input_source.is_command_message(item):
            return input_source.without_poison(
                item, error, lambda inputs: self._prepare(self.core.decide(inputs, now_ns), now_ns)
            )
        try:  # once more: an exception that does not come again, as for want of memory, rejects nothing
            return self._prepare(self.core.decide([item], now_ns), now_ns)
        except Exception as again:  # noqa: BLE001 -- whatever a core raises, it is recorded
            return self._prepare(input_source.reject_input(self.core, item, again, now_ns), now_ns)

    def _prepare(self, decision: Decision, now_ns: int) -> PreparedCommit | None:
        """A decision as a commit behind our own last one; None when it says nothing. Raises what keeps it from
        being encoded, and TooLarge."""
        if not decision.events and not decision.cursors:
            return None
        head, level = self._heads.get(self.writer, NO_HEAD), levels.level_after(self.level, decision.events)
        levels.check_writable(level, decision.events)
        commit = Commit(
            v=VERSION,
            writer=self.writer,
            n=head.n + 1,
            basis=self.folded,
            at_ns=now_ns,
            cursors=self._cursors | decision.cursors,
            prev=head.hash,
            events=decision.events,
            level=level,
        )
        payload = encode_commit(commit)
        if len(payload) > streams.MESSAGE_BYTES_MAX:
            raise TooLarge(f"a commit of {len(payload)} bytes, at most {streams.MESSAGE_BYTES_MAX}")
        return PreparedCommit(commit, payload)

    async def _wait(self) -> None:
        """Until the log, an input or the core's own time gives a reason to decide."""
        while not self._wake.is_set():
            delay_s = self._delay_s()
            if self.clock.has_stepped:
                break
            if delay_s is not None and delay_s <= 0:
                await asyncio.sleep(0)  # a core that never has enough must not keep the loop from the others
                break
            idle_s = IDLE_COLLECT_S if delay_s is None else min(max(delay_s, SHORTEST_WAIT_S), IDLE_COLLECT_S)
            timer = asyncio.get_running_loop().call_later(idle_s, self._time_passed)  # cheaper than a timeout
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
        await self._gather()
        self._wake.clear()
        self._urgent.clear()
        if self._failure is not None:
            raise self._failure

    async def _gather(self) -> None:
        """Wait for more input while small commits follow each other closely (pacing.py). What is urgent ends it."""
        loop = asyncio.get_running_loop()
        if self._inputs or not self._pace.is_close(loop.time()):
            return
        left_s = self._pace.left_s(loop.time(), self._gather_s(self.core))
        if left_s > 0:
            timer = loop.call_later(left_s, self._urgent.set)
            await self._urgent.wait()
            timer.cancel()

    def _wake_now(self) -> None:
        self._wake.set()
        self._urgent.set()

    def _delay_s(self) -> float | None:
        times = [source.wake_at() for source in self.sources]
        times.append(self.core.wake_at())
        due, now_ns = min((moment for moment in times if moment is not None), default=None), self.clock.now()
        return None if due is None else (due - now_ns) / 1e9

    def _time_passed(self) -> None:
        self._collect_garbage()
        self._wake.set()

    def _collect_garbage(self) -> None:
        """Full collections happen here only: when nothing waits."""
        now = time.monotonic()
        if now - self._collected >= IDLE_COLLECT_S:
            self._collected = now
            gc.collect()

    def _fold_ready(self) -> bool:
        folded_any = bool(self._unfolded)
        while self._unfolded:
            self._fold(self._unfolded.popleft())
        return folded_any

    def _fold(self, stored: Stored) -> None:
        folded = self.reader.check(stored)
        if self.leading and folded.writer == self.writer and folded.payload != self._in_flight:
            # Appending behind it would pass the fence: two leaders would take turns.
            raise StaleWriter(f"another process has written {self.writer}'s commit {folded.commit.n}")
        self.core.evolve(folded.seq, folded.commit)
        self.folded = folded.seq
        self.level = max(self.level, folded.commit.level)
        self._heads[folded.writer] = folded.head
        self._snapshots.count(len(folded.commit.events))
        if folded.writer == self.writer:
            self._cursors, self._committed_ns = repeated_cursors(folded.commit.cursors), folded.commit.at_ns

    async def _fold_through(self, sequence: int) -> None:
        """Fold until the log has been read up to `sequence`."""
        while True:
            while self._unfolded and self.folded < sequence:
                self._fold(self._unfolded.popleft())
            if self.folded >= sequence:
                return
            self._wake.clear()
            if self._failure is not None:
                raise self._failure
            await self._wake.wait()

    async def _commit(self, prepared: PreparedCommit) -> None:
        payload = self._in_flight = prepared.payload
        self._pace.note(len(prepared.commit.events), asyncio.get_running_loop().time())
        self.reader.expect(payload, prepared.commit)
        sequence = await self._append(payload, self._heads.get(self.writer, NO_HEAD).sequence)
        self.commits += 1
        await self._fold_through(sequence)
        self._wake.set()

    async def _append(self, payload: bytes, expected: int) -> int:
        """Append one commit under the fence and return its sequence. Waits while the log is full (running jobs continue
        meanwhile).
        """
        while True:
            try:
                return await self.fence.append(payload, expected)
            except StreamFull as error:
                self.fence.refused = str(error)
                log.error("log is full, nothing is decided until there is room", service=self.writer, reason=str(error))
                await asyncio.sleep(FULL_RETRY_S)
                if self._stopping:
                    raise StaleWriter("stopped while the log was full") from error

    # -- snapshots and questions

    def _take_snapshot(self) -> snapshots.Snapshot:
        """The state as it is at this very sequence. The reader may be ahead of the fold; these are the heads as folded."""
        return snapshots.Snapshot(self.folded, dict(self._heads), self.core.snapshot())

    async def _answer_state(self, message: Message) -> bytes:
        """{"sequence", "sha256", "bytes", "schema"} of the live state, for comparison with a fold."""
        state = self.core.snapshot()
        answer = {
            "sequence": self.folded,
            "sha256": hashlib.sha256(state).hexdigest(),
            "bytes": len(state),
            "schema": self.core_type.schema,
        }
        return msgspec.json.encode(answer)

    async def _answer_alive(self, message: Message) -> bytes:
        """A sign of life for `/readyz`; unlike `state` it costs nothing."""
        return encode_alive(
            Alive(
                sequence=self.folded,
                refused=self.fence.refused,
                clock=self._clock_differs,
                clock_lag_ms=int(self.clock.lag_ns / 1e6),
                word=process_word(),
            )
        )
