"""The agent's shell: bus, journal, runtime and devices around the core. It holds no rules.

Everything that happens goes to the core as one call; the step that comes back is journalled, and when it
is durable its instructions are carried out and its reports sent. Start at `Agent.run`.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
import structlog

from fairlead_agent.answering import printed
from fairlead_agent.devices.port import Devices
from fairlead_agent.drained import DrainedHook
from fairlead_agent.ending import Ending
from fairlead_agent.guard.told import Told
from fairlead_agent.health.sampled import with_health
from fairlead_agent.health.tending import Tending
from fairlead_agent.instructions import CutGpu, GiveUp, KillRun, NoticeRun, StartRun, Step, TerminateRun
from fairlead_agent.introducing import inventory_of
from fairlead_agent.journal import Journal
from fairlead_agent.launch import Place
from fairlead_agent.launching.launching import BOX_IN_CONTAINER, Launching, box_path
from fairlead_agent.launching.network import interface_of
from fairlead_agent.lease import Lease
from fairlead_agent.lease_file import LeaseFile, boottime_ns, read
from fairlead_agent.measuring import Measuring
from fairlead_agent.metrics.looking import page
from fairlead_agent.metrics.serving import MetricsServer
from fairlead_agent.output import OutputShipper
from fairlead_agent.reconcile import Reconciler
from fairlead_agent.records import RunEntry
from fairlead_agent.reporting import Outbox
from fairlead_agent.run import Exit, Found, RunKey, Word
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.saving import Saving
from fairlead_agent.settings import Settings
from fairlead_agent.sharing.watching import Watching
from fairlead_agent.starting import Starting
from fairlead_bus.port import Bus, BusError, Message, Subscription
from fairlead_schemas import subjects
from fairlead_schemas.desired import Desired, LayoutOrder, decode_desired
from fairlead_schemas.events import StartFault
from fairlead_schemas.reports import Beat, HealthSeen, decode_confirm, encode
from fairlead_schemas.resources import Inventory

OUTPUT_POLL_S = 0.2
REPORT_POLL_S = 0.25
#: The longest wait of the tick loop, so that a new deadline is never seen late by more.
TICK_S = 0.25
JOURNAL_FLUSH_S = 1.0

_log = structlog.get_logger()


class Agent:
    """One node's agent. `journal`, `runtime` and `devices` are open and belong to it from here on."""

    def __init__(
        self, bus: Bus, settings: Settings, journal: Journal, runtime: Runtime, devices: Devices,
        *, environment: Mapping[str, str], boot_id: str,
    ) -> None:  # fmt: skip
        self.bus = bus
        self.settings = settings
        self.journal = journal
        self.ledger = journal.ledger
        self.runtime = runtime
        self.devices = devices
        self.boot_id = boot_id
        lease = read(settings.directory)
        self.core = Reconciler(
            self.ledger, fence_ns=settings.fence_ns, grace_ns=settings.fence_grace_ns, now=boottime_ns(),
            renewed=lease.renewed_ns if lease is not None and lease.boot_id == boot_id else None,
        )  # fmt: skip
        self.lease = LeaseFile(settings.directory)
        self.guard_said = Told(settings.directory)
        self._renewed = -1
        self._told_full = False
        self.outbox = Outbox(
            settings.node, self.ledger.incarnation, self.ledger.confirmed, held=self.ledger.reported > 0
        )
        self.output = OutputShipper(settings.node, bus.publish)
        self.watching = Watching(
            self.core, runtime, devices, grace_ns=settings.share_grace_ns, every_s=min(1.0, settings.sample_s),
            stop=self._over_share,
        )  # fmt: skip
        self.measuring = Measuring(
            bus, devices, self.watching, runtime, settings.node, self.ledger.incarnation, settings.sample_s,
            lambda gpus: with_health(gpus, self.tending.gpus, self.tending.xids),
        )  # fmt: skip
        self.launching = Launching(bus, settings.node, settings.directory, still=self.may_start, spawn=self._spawn)
        self.tending = Tending(
            settings, devices, runtime, self.ledger, boot_id, self, loads=lambda: self.measuring.loads
        )
        self.starting = Starting(
            bus, runtime, devices, self._place(environment), self, self.launching, self._spawn, self.tending
        )
        self.saving = Saving(runtime, self, self._spawn)
        self.ending = Ending(
            self.core, self.output, devices, self.watching, self.tending, self.guard_said, self, self._spawn
        )
        self.metrics = MetricsServer(lambda: page(self))
        self._stopped = asyncio.Event()
        self.hook = DrainedHook(settings, boot_id, self._stopped.set)
        #: Why the core has given up; "" while it has not.
        self._given_up = ""
        self._report = asyncio.Event()
        self._tick = asyncio.Event()
        self._look = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._subscriptions: list[Subscription] = []

    # ------------------------------------------------------------------ life

    async def run(self) -> int:
        """Work until `stop`, or a journal that fails or does not fit the log. The exit code: 0, or 1 for the journal."""
        self._renew()
        await self._begin()
        await self._listen()
        if self.settings.metrics is not None:
            await self.metrics.open(*self.settings.metrics)
        for loop in (
            self._beats,
            self._desired_reads,
            self._reports,
            self._ticks,
            self._outputs,
            self.ending.look_at_what_was_left,
            self.measuring.run,
            self.tending.run,
            self.watching.run,
        ):
            self._spawn(loop())
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({stopped, self.journal.failed}, return_when=asyncio.FIRST_COMPLETED)
        failed = self.journal.failed.done()
        if failed:
            # Nothing may be acted upon that is not durable; runs go on, the next process adopts them.
            _log.critical("the journal cannot be written", reason=str(self.journal.failed.exception()))
        if self._given_up:  # runs go on here, too, until somebody has decided which past is the right one
            _log.critical("the agent gives up", reason=self._given_up, directory=str(self.settings.directory))
        await self._close()
        return 1 if failed or self._given_up else 0

    async def stop(self) -> None:
        """End the agent; runs go on and are adopted by the next agent process."""
        self._stopped.set()

    def statistics(self) -> dict[str, int]:
        """Numbers for people who look at a running agent."""
        return {
            "runs": len(self.ledger.runs), "reported": self.ledger.reported, "confirmed": self.outbox.confirmed,
            "resends": self.outbox.resends, "journal_syncs": self.journal.syncs, "output_bytes": self.output.bytes_sent,
        }  # fmt: skip

    async def _begin(self) -> None:
        await self.runtime.open(self)
        open_runs = {run.key: run for run in self.ledger.runs.values() if run.open}
        found = await self.runtime.adopt(open_runs.keys(), {key: run.epoch for key, run in open_runs.items()})
        self.guard_said.forget({key.name for key in open_runs})
        for key, what in found.items():
            if what.state in ("ended", "lost"):
                clean = not await self.watching.left_over(open_runs[key])
                self.saving.hold(open_runs[key])
                found[key] = Found(
                    what.state, self.ending.explained(key, what.exit), clean, word=self.saving.let_go(key)
                )
            if what.state != "never":
                self.output.open(key, self.runtime.output(key), adopted=True)
                if what.state != "running":
                    self._spawn(self.output.ended(key))
            if what.state == "running":
                self.measuring.hold(open_runs[key])
                self.saving.hold(open_runs[key])
        for report in self.ledger.unconfirmed:
            self.outbox.add(report)
        await self.tending.begin()
        step = self.core.begin(
            boot_id=self.boot_id,
            inventory=self._inventory(),
            found=found,
            now=boottime_ns(),
            at_ns=time.time_ns(),
        )
        for run in open_runs.values():
            if not run.open:
                self.runtime.release(run.key)
        await self.launching.open([key for key, what in found.items() if what.state == "running"])
        self._do(step)
        states = [what.state for what in found.values()]
        _log.info(
            "agent started",
            node=self.settings.node,
            incarnation=self.ledger.incarnation,
            adopted=states.count("running"),
            ended=len(states) - states.count("running"),
        )

    async def _listen(self) -> None:
        node = self.settings.node
        self._subscriptions = [
            await self.bus.subscribe(subjects.confirm(node), self._on_confirm),
            await self.bus.on_put(subjects.DESIRED, node, self._on_desired),
            await self.bus.serve(subjects.rpc_node(node, "output"), self._on_output_wanted),
        ]
        self.bus.on_reconnect(self._on_reconnect)

    async def _close(self) -> None:
        await self.metrics.close()
        with contextlib.suppress(BusError):
            await self.launching.close()
        for subscription in self._subscriptions:
            with contextlib.suppress(BusError):
                await subscription.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.tending.close()
        await self.runtime.close()
        self.lease.close()
        await self.journal.close()
        self.devices.close()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the agent has failed", exc_info=error)
            if not self.journal.failed.done():
                self.journal.failed.set_exception(error)

    # ------------------------------------------------------------------ what happens, to the core

    def _on_desired(self, _key: str, value: bytes) -> None:
        try:
            desired = decode_desired(value)
        except msgspec.MsgspecError as error:
            _log.error("desired state cannot be read", reason=str(error))
            return
        self._desired(desired)

    def _desired(self, desired: Desired) -> None:
        self._do(self.core.desired(desired, boottime_ns(), time.time_ns()))
        if (desired.incarnation, desired.sequence) == (self.ledger.incarnation, self.core.taken):
            idle = not self.core.dirty() and not any(run.open for run in self.ledger.runs.values())
            self.hook.heed(desired.drained, idle=idle)
            self.tending.noticed("drained_hook", self.hook.failure)

    def _on_confirm(self, message: Message) -> None:
        try:
            confirm = decode_confirm(message.payload)
        except msgspec.MsgspecError as error:
            _log.error("a confirmation cannot be read", reason=str(error))
            return
        now = boottime_ns()
        self.outbox.confirm(confirm, now)
        self.tending.heard(confirm.wall_ns, confirm.beat)
        self._do(self.core.confirmed(confirm, now, time.time_ns()))
        self._renew()
        if self.outbox.sent < self.ledger.reported:
            self._report.set()

    def _on_reconnect(self) -> None:
        self.outbox.reconnected()
        self._report.set()
        self._look.set()
        self._spawn(self.output.resend())

    def preparing(self, key: RunKey) -> None:
        """The runtime says in the run's stderr what it waits for."""
        self.output.open(key, self.runtime.output(key))

    def started(self, key: RunKey, image: str = "") -> None:
        """The runtime has started a run."""
        self.output.open(key, self.runtime.output(key))
        run = self.ledger.runs.get(key)
        if run is not None:
            self.measuring.hold(run)
            self.saving.hold(run)
        self.tending.started(key)
        self._do(self.core.started(key, boottime_ns(), time.time_ns(), image))

    def start_failed(self, key: RunKey, message: str, fault: StartFault = "") -> None:
        """The runtime could not start a run."""
        if not self.output.silent(key):
            self._spawn(self.output.ended(key))
        self._do(self.core.start_failed(key, message, time.time_ns(), fault))
        self.launching.over(key)
        self.runtime.release(key)

    def exited(self, key: RunKey, exit: Exit) -> None:
        """A run has ended: ship its last output, look at its devices, report."""
        self.ending.exited(key, exit)

    def over(self, key: RunKey, exit: Exit, *, clean: bool) -> None:
        """All that had to be looked at after a run's end was."""
        if clean and (run := self.ledger.runs.get(key)) is not None:
            self.measuring.let_go(run)
        self._do(self.core.exited(key, exit, clean, time.time_ns(), self.saving.let_go(key)))
        self.launching.over(key)
        self.runtime.release(key)

    def cleaned(self, run: RunEntry) -> None:
        """Nothing is left on the GPUs of a run that has ended."""
        self.measuring.let_go(run)
        self._do(self.core.cleaned(run.key))

    def ailed(self, seen: list[HealthSeen]) -> None:
        """Something is not well, or is again."""
        self._do(self.core.ailed(seen))

    def introduce(self) -> None:
        """The node says something else of itself."""
        self._do(self.core.changed(self._inventory()))

    def unfit(self, key: RunKey, message: str, blames: int | None) -> None:
        """This node, or another of its gang, has failed the check before a run; nothing was started."""
        self._do(self.core.unfit(key, message, time.time_ns(), blames))

    def _renew(self) -> None:
        """Put the lease where the guard and the next agent look."""
        if self._renewed != self.core.renewed:
            self._renewed = self.core.renewed
            settings = self.settings
            self.lease.write(Lease(
                self.boot_id, settings.node, self.ledger.incarnation, self.runtime.name, self._renewed,
                settings.fence_ns, settings.fence_grace_ns, settings.fence_margin_ns,
            ))  # fmt: skip

    async def _busy(self, gpus: tuple[str, ...]) -> dict[str, str]:
        if not gpus or self.devices.simulated:
            return self.devices.busy(gpus) if gpus else {}
        return await asyncio.to_thread(self.devices.busy, gpus)

    def _over_share(self, key: RunKey, message: str) -> None:
        self._do(self.core.over_share(key, message, boottime_ns()))

    # ------------------------------------------------------------------ what follows, from the core

    def _do(self, step: Step) -> None:
        if step.reports or step.instructions:
            self.journal.write(step.records, lambda: self._durable(step))
        elif step.records:
            self.journal.write(step.records)

    def _durable(self, step: Step) -> None:
        for report in step.reports:
            self.outbox.add(report)
        if step.reports:
            self._report.set()
        for instruction in step.instructions:
            match instruction:
                case StartRun(order):
                    self.starting.start(order)
                case NoticeRun(key):
                    self._tick.set()
                    self._notice(instruction)
                case TerminateRun(key):
                    self._tick.set()
                    self.runtime.terminate(key)
                case KillRun(key):
                    self.tending.killed(key)
                    _log.info("grace is over", job=key.job, attempt=key.attempt, rank=key.rank)
                    self.runtime.kill(key)
                case CutGpu(order, refusal):
                    self._spawn(self._cut(order, refusal))
                case GiveUp(reason):
                    self._given_up = reason
                    self._stopped.set()

    def _notice(self, notice: NoticeRun) -> None:
        stopping = self.core.stopping.get(notice.key)
        if stopping is not None and stopping.in_notice:
            self.saving.notice(notice, max(0.0, (stopping.wake_at - boottime_ns()) / 1e9))

    def said(self, key: RunKey, word: Word) -> None:
        """A run's word that it has saved lies there."""
        self._do(self.core.said(key, word, boottime_ns()))

    def told(self, key: RunKey, word: Word | None) -> None:
        """A run is told that its end is near."""
        self._do(self.core.told(key, word, boottime_ns()))

    def command_ended(self, key: RunKey, saved: bool) -> None:
        """The command that a run was told by has ended."""
        self._do(self.core.command_ended(key, saved, boottime_ns()))

    async def _cut(self, order: LayoutOrder, refusal: str) -> None:
        """Look for programs once more, then cut; a driver takes seconds for it."""
        occupied = await self._busy(tuple(each.uuid for each in order.destroy)) if not refusal else {}
        failure = refusal or "; ".join(occupied.values())
        if not failure and self.devices.simulated:
            failure = self.devices.cut(order)
        elif not failure:
            failure = await asyncio.to_thread(self.devices.cut, order)
        _log.info("a GPU is cut anew", gpu=order.gpu, plan=order.plan, failure=failure)
        self._do(self.core.was_cut(order.plan, failure, self._inventory()))

    def may_start(self, key: RunKey) -> bool:
        """Whether it still may; one that may not has ended by this."""
        if self.journal.reserve.short:
            self.start_failed(key, f"the disk of {self.settings.directory} is full: what is left is the journal's")
            return False
        if self.core.may_start(key, boottime_ns()):
            return True
        self._do(self.core.not_started(key, time.time_ns()))
        self.launching.over(key)
        return False

    # ------------------------------------------------------------------ loops

    async def _beats(self) -> None:
        while True:
            ledger = self.ledger
            beat = Beat(
                node=ledger.node, incarnation=ledger.incarnation, desired=self.core.taken, reported=ledger.reported,
                at=boottime_ns(),
            )  # fmt: skip
            await self.bus.publish(subjects.beat(ledger.node), encode(beat))
            await asyncio.sleep(self.settings.beat_s)

    async def _desired_reads(self) -> None:
        while True:
            with contextlib.suppress(BusError):
                value = await self.bus.peek(subjects.DESIRED, self.settings.node)
                if value is not None:
                    self._on_desired(self.settings.node, value)
            await _wait(self._look, self.settings.desired_s)

    async def _reports(self) -> None:
        subject = subjects.report(self.settings.node)
        while True:
            await _wait(self._report, REPORT_POLL_S)
            for message in self.outbox.due(boottime_ns()):
                await self.bus.publish(subject, message)

    async def _ticks(self) -> None:
        while True:
            self._do(self.core.tick(boottime_ns()))
            wake = self.core.wake_at()
            left_s = (wake - boottime_ns()) / 1e9 if wake is not None else TICK_S
            await _wait(self._tick, min(TICK_S, max(0.001, left_s)))

    async def _outputs(self) -> None:
        flushed = time.monotonic()
        while True:
            await asyncio.sleep(OUTPUT_POLL_S)
            await self.output.poll()
            self.saving.poll()
            if time.monotonic() - flushed >= JOURNAL_FLUSH_S:
                self.journal.flush()
                self._mind_the_disk()
                flushed = time.monotonic()

    def _mind_the_disk(self) -> None:
        """Nothing is started on a full disk, and that is said once when it begins and once when it is over."""
        reserve = self.journal.reserve
        if reserve.short and reserve.take():
            _log.warning("the disk has room again", directory=str(self.settings.directory))
        elif reserve.short and not self._told_full:
            _log.critical("the disk is full; nothing is started", directory=str(self.settings.directory))
        self._told_full = reserve.short

    # ------------------------------------------------------------------ answers

    async def _on_output_wanted(self, message: Message) -> bytes:
        return printed(message.payload, self.runtime, self.ledger.runs)

    def _place(self, environment: Mapping[str, str]) -> Place:
        """What runs see of the node: containers have a network of their own, and see their box elsewhere."""
        settings, boxes, contained = self.settings, box_path(self.settings.directory), self.runtime.name == "docker"
        # The interface is told to ranks of gangs only, whose containers may be on the node's network.
        theirs = contained and settings.gang_network == "bridge"
        return Place(
            settings.node, settings.address, environment, self.devices.simulated, contained,
            "" if theirs else interface_of(settings.address), boxes, BOX_IN_CONTAINER if contained else boxes,
        )  # fmt: skip

    def _inventory(self) -> Inventory:
        found = inventory_of(self.settings, self.devices, self.runtime)
        return msgspec.structs.replace(found, taints=(*found.taints, *self.tending.gate.taints))


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    """Until the event is set (and clear it), or the time is over."""
    if not event.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()
    event.clear()
