"""Simulated agent: the agent's own reconcile core and outbox on a simulated machine, journal and network.

This module contains only the replacement of the live shell: when records become durable (instructions and reports wait
for it), which of them survive a crash, and how often heartbeats are sent.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fairlead_agent.core.ledger import Ledger, Opened, Record
from fairlead_agent.core.outbox import Outbox
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.runs import Exit, Found, RunKey, key_of
from fairlead_agent.core.steps import (
    GiveUp,
    Instruction,
    KillRun,
    NoticeRun,
    RepartitionGpu,
    StartRun,
    Step,
    TerminateRun,
)
from fairlead_bus.port import Message, Unavailable
from fairlead_replay.sim import health
from fairlead_replay.sim.bus import FaultyBus
from fairlead_replay.sim.context import EPOCH_NS
from fairlead_replay.sim.faults import Faults
from fairlead_replay.sim.machine import SimMachine, Truth
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import LayoutOrder, decode_desired
from fairlead_schemas.wire.reports import Heartbeat, decode_ack, encode
from fairlead_schemas.wire.resources import Inventory

BEAT_S = 2.0
#: Time that a driver takes to repartition a GPU.
CUT_S = 0.5
#: Beats between reads of the desired state, with or without a put.
READ_EVERY_BEATS = 2


class SimAgent:
    """Process of one agent. Its journal is a list that outlives it."""

    def __init__(
        self, machine: SimMachine, journal: list[Record], bus: FaultyBus, faults: Faults, fence_ns: int
    ) -> None:
        self.machine, self.journal, self.bus, self.faults = machine, journal, bus, faults
        self.loop = asyncio.get_running_loop()
        ledger = Ledger()
        for record in journal:
            ledger.apply(record)
        self.ledger = ledger
        boot_id, renewed = machine.lease
        self.core = Reconciler(
            ledger, fence_ns=fence_ns, now=self._now(), renewed=renewed if boot_id == machine.boot_id else None
        )
        self.outbox = Outbox(machine.name, ledger.incarnation, ledger.confirmed, held=ledger.reported > 0)
        for report in ledger.unconfirmed:
            self.outbox.add(report)
        self.dead = False
        #: Called when the placer says that the node was removed.
        self.gave_up: Callable[[], None] = lambda: None
        #: Actions that would have happened while the process is paused, in order; None while it runs.
        self._asleep: list[Callable[[], None]] | None = None
        self.beats = 0
        self._steps: deque[Step] = deque()
        self._syncing: list[Step] = []
        self._starting: set[RunKey] = set()
        #: Whether its gate was closed when it introduced its machine last.
        self._closed = False
        self._tick: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Look at what is there, listen, and begin to beat."""
        name = self.machine.name
        await self.bus.subscribe(subjects.confirm(name), self._on_confirm)
        await self.bus.on_put(subjects.DESIRED, name, lambda _key, value: self._on_desired(value))
        self.bus.on_reconnect(self._on_reconnect)
        self.machine.exited, self.machine.cleaned, self.machine.marked = self._on_exit, self._on_clean, self._on_mark
        self.machine.attended_since = self.loop.time()
        self.machine.lease = self.machine.boot_id, self.core.renewed
        found: dict[RunKey, Found] = {
            run.key: self.machine.find(run.key) for run in self.ledger.runs.values() if run.open
        }
        self._do(
            self.core.begin(
                boot_id=self.machine.boot_id, inventory=self._introduced(), found=found, now=self._now(), at_ns=0
            )
        )
        self._look_after_health()
        for run in self.ledger.runs.values():
            if run.phase == "running":  # adopted: whether its application serves is looked at again
                self._await_app(run.key)
        for run in self.core.dirty():
            if not self.machine.busy(run.key):
                self._do(self.core.cleaned(run.key))
        self._beat()

    async def crash(self) -> None:
        """The process dies; what was being written to the journal is there in part."""
        self.dead = True
        self.machine.exited = self.machine.cleaned = self.machine.marked = self.machine.attended_since = None
        torn = [record for step in self._syncing for record in step.records]
        self.journal.extend(torn[: self.faults.rng.randint(0, len(torn))])
        if self._tick is not None:
            self._tick.cancel()
        for task in list(self._tasks):
            task.cancel()
        await self.bus.close()

    def pause(self) -> None:
        """Pause the process (SIGSTOP): none of its timers fires, and arriving messages are not processed."""
        if not self.dead and self._asleep is None:
            self._asleep = []
            self.machine.attended_since = None

    def resume(self) -> None:
        """Resume the process: all timers and messages delayed by the pause are handled now, in order."""
        waiting, self._asleep = self._asleep or [], None
        if not self.dead:
            self.machine.attended_since = self.loop.time()
            for call in waiting:
                call()

    def _sleeps(self, call: Callable[..., None], *arguments: Any) -> bool:
        """Return True while the process is paused; the call is then made when the process resumes."""
        if self._asleep is None:
            return False
        self._asleep.append(partial(call, *arguments))
        return True

    # -- what happens

    def _on_confirm(self, message: Message) -> None:
        if not self.dead and not self._sleeps(self._on_confirm, message):
            confirm = decode_ack(message.payload)
            self.outbox.confirm(confirm, self._now())
            self._do(self.core.confirmed(confirm, self._now(), 0))
            self.machine.lease = self.machine.boot_id, self.core.renewed
            self._flush()

    def _on_desired(self, value: bytes) -> None:
        if not self.dead and not self._sleeps(self._on_desired, value):
            self._do(self.core.desired(decode_desired(value), self._now(), 0))

    def _on_reconnect(self) -> None:
        if not self.dead and not self._sleeps(self._on_reconnect):
            self.outbox.reconnected()
            self._flush()
            self._read_desired()

    def _on_exit(self, key: RunKey, exit: Exit, clean: bool) -> None:
        if self.dead or self._sleeps(self._on_exit, key, exit, clean):
            return
        if key in self._starting:
            self._on_started(key)
        self._do(self.core.exited(key, exit, clean, 0, self.machine.marks.get(key), now=self._now()))

    def _on_mark(self, key: RunKey) -> None:
        if not self.dead and not self._sleeps(self._on_mark, key) and key in self.machine.marks:
            self._do(self.core.checkpoint_marked(key, self.machine.marks[key], self._now()))

    def _on_command(self, key: RunKey, saved: bool) -> None:
        if not self.dead and not self._sleeps(self._on_command, key, saved):
            self._do(self.core.notice_command_ended(key, saved, self._now()))

    def _on_clean(self, key: RunKey) -> None:
        if self.dead or self._sleeps(self._on_clean, key):
            return
        self._do(self.core.cleaned(key))

    def _on_started(self, key: RunKey) -> None:
        if not self.dead and key in self._starting and not self._sleeps(self._on_started, key):
            self._starting.discard(key)
            self._do(self.core.started(key, self._now(), 0))
            self._await_app(key)

    def _await_app(self, key: RunKey) -> None:
        process = self.machine.processes.get(key)
        if process is not None and process.work.serves_ms >= 0:
            self.loop.call_later(process.work.serves_ms / 1000, self._on_serves, key)

    def _on_serves(self, key: RunKey) -> None:
        process = self.machine.processes.get(key)
        if not self.dead and not self._sleeps(self._on_serves, key) and process is not None and process.running:
            self._do(self.core.app_serves(key, self._now()))

    def _beat(self) -> None:
        if self.dead or self._sleeps(self._beat):
            return
        self.beats += 1
        beat = Heartbeat(
            node=self.machine.name,
            incarnation=self.ledger.incarnation,
            desired=self.core.taken,
            reported=self.ledger.reported,
            at=self._now(),
            wall_ns=EPOCH_NS + self._now(),
        )
        self._publish(subjects.beat(self.machine.name), encode(beat))
        self._do(self.core.tick(self._now()))
        self._look_after_health()
        for run in list(self.ledger.runs.values()):
            if run.open and run.checkpoint is not None:
                self._on_mark(run.key)
        self._flush()
        if self.beats % READ_EVERY_BEATS == 0:
            self._read_desired()
        self.loop.call_later(BEAT_S, self._beat)

    def _introduced(self) -> Inventory:
        self._closed = self.machine.unfit
        return health.introduced(self.machine)

    def _look_after_health(self) -> None:
        seen = health.changes(self.machine, self.ledger.ailing)
        if seen:
            self._do(self.core.ailed(seen))
        if self._closed != self.machine.unfit:
            self._do(self.core.changed(self._introduced()))

    # -- the journal, then what follows

    def _do(self, step: Step) -> None:
        if step.records or step.instructions or step.reports:
            self._steps.append(step)
            self._sync()
        self._arm()

    def _sync(self) -> None:
        if self._syncing or not self._steps or self.dead:
            return
        self._syncing, self._steps = list(self._steps), deque()
        self.loop.call_later(self.faults.sync(), self._synced)

    def _synced(self) -> None:
        if self.dead or self._sleeps(self._synced):
            return
        steps, self._syncing = self._syncing, []
        for step in steps:
            self.journal.extend(step.records)
        for step in steps:
            for report in step.reports:
                self.outbox.add(report)
            for instruction in step.instructions:
                self._carry_out(instruction)
        self._flush()
        self._sync()

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case StartRun(order):
                key = key_of(order)
                if not self.core.may_start(key, self._now()):
                    self._do(self.core.not_started(key, 0))
                    return
                if found := health.unfit(self.machine, self.faults.seed, key, len(order.hosts)):
                    self._do(self.core.unfit(key, "the machine is not fit", 0, found.blames))
                    return
                refused = self.machine.start(order)
                if refused:
                    self._do(self.core.start_failed(key, refused, 0))
                else:
                    self._starting.add(key)
                    self.loop.call_later(self.faults.delay(), self._on_started, key)
            case NoticeRun(key):
                self._do(self.core.noticed(key, self.machine.marks.get(key), self._now()))
                self.machine.notice(key)
                if instruction.checkpoint.command:
                    self.loop.call_later(0.5 + self.faults.delay(), self._on_command, key, not self.faults.chance(0.3))
            case TerminateRun(key):
                self.machine.terminate(key)
            case KillRun(key):
                self.machine.kill(key)
            case RepartitionGpu(order, refusal):
                self.loop.call_later(CUT_S + self.faults.delay(), self._cut, order, refusal)
            case GiveUp(removed=True):
                self.gave_up()
            case GiveUp(reason):  # nothing that happens to a world takes a journal or the log back
                raise Truth(f"the agent of {self.machine.name} gives up: {reason}")

    def _cut(self, order: LayoutOrder, refusal: str) -> None:
        if not self.dead and not self._sleeps(self._cut, order, refusal):
            failure = refusal or self.machine.cut(order, refuses=self.faults.chance(0.1))
            self._do(self.core.was_cut(order.plan, failure, self._introduced()))

    def _arm(self) -> None:
        due = self.core.wake_at()
        if self._tick is not None:
            self._tick.cancel()
        self._tick = None
        if due is not None:
            self._tick = self.loop.call_at(max(due / 1e9, self.loop.time()) + 1e-6, self._on_tick)

    def _on_tick(self) -> None:
        self._tick = None
        if not self.dead and not self._sleeps(self._on_tick):
            self._do(self.core.tick(self._now()))

    # -- the network

    def _flush(self) -> None:
        for payload in self.outbox.due(self._now()):
            self._publish(subjects.report(self.machine.name), payload)

    def _publish(self, subject: str, payload: bytes) -> None:
        self._spawn(self.bus.publish(subject, payload))

    def _read_desired(self) -> None:
        async def read() -> None:
            try:
                value = await self.bus.peek(subjects.DESIRED, self.machine.name)
            except Unavailable:
                return
            if value is not None:
                self._on_desired(value)

        self._spawn(read())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> int:
        return int(self.loop.time() * 1e9)


def new_journal(node: str, incarnation: int) -> list[Record]:
    """The journal of an agent that has none yet."""
    return [Opened(incarnation=f"{node}-journal-{incarnation}", node=node)]
