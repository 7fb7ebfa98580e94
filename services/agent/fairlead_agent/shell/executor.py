"""Execution of the core's steps.

Each step is journalled. Its reports are sent and its instructions carried out when it is durable, never before.
The report of a start waits a little for another one: a short run's start and end are then one sync, one message, and
one commit of the placer. Start at `StepExecutor.do`.
"""

import asyncio
from collections import deque
from typing import Protocol

import structlog

from fairlead_agent.core.outbox import Outbox
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.steps import (
    GiveUp,
    Instruction,
    KillRun,
    NoticeRun,
    RepartitionGpu,
    SignalRun,
    StartRun,
    Step,
    TerminateRun,
)
from fairlead_agent.devices.port import Devices
from fairlead_agent.files.guard_files import boottime_ns
from fairlead_agent.files.journal import Journal
from fairlead_agent.node.health.monitor import HealthMonitor
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.shell.checkpoint_watcher import CheckpointWatcher
from fairlead_agent.shell.placer_link import PlacerLink
from fairlead_agent.shell.run_lifecycle import RunStarter
from fairlead_agent.shell.upkeep import Tasks, set_or_after
from fairlead_schemas.wire.desired import LayoutOrder

#: The longest wait between two looks at the clock, so that a new deadline is never seen late by more.
TICK_S = 0.25
#: The same while no run is open: then time changes nothing but the lease, whose age is looked at before each start.
REST_S = 2.0
#: The longest time that the report of a start waits for another one, before it is journalled and sent alone.
START_WAIT_NS = 5_000_000

_log = structlog.get_logger()


class InstructionResults(Protocol):
    """Receiver of the results of instructions."""

    def was_cut(self, plan: int, failure: str) -> None:
        """Handle the end of a repartition; `failure` is its reason, "" if it succeeded."""
        ...

    def give_up(self, reason: str) -> None:
        """End the agent."""
        ...


class StepExecutor:
    """Executor of one agent's steps. `starter` starts runs and `checkpoints` notifies them; the runtime sends TERM and
    KILL.
    """

    def __init__(
        self,
        core: Reconciler,
        journal: Journal,
        outbox: Outbox,
        link: PlacerLink,
        runtime: Runtime,
        devices: Devices,
        starter: RunStarter,
        checkpoints: CheckpointWatcher,
        monitor: HealthMonitor,
        tasks: Tasks,
        results: InstructionResults,
    ) -> None:
        self._core, self._journal, self._outbox, self._link = core, journal, outbox, link
        self._runtime, self._devices, self._results, self._tasks = runtime, devices, results, tasks
        self._starter, self._checkpoints, self._monitor = starter, checkpoints, monitor
        self._tick = asyncio.Event()
        self._resting = False
        #: (number, time by which it is sent) of reports that wait for another one, by rising number.
        self._waiting: deque[tuple[int, int]] = deque()

    def do(self, step: Step) -> None:
        """Journal a step; send and carry out the rest of it when that is on the disk."""
        if step.can_wait:
            self._journal.write(step.records, lambda: self._outbox.add_all(step.reports), can_wait=True)
            self._waiting.append((step.reports[-1].n, boottime_ns() + START_WAIT_NS))
            if len(self._waiting) == 1:
                self._send_later(START_WAIT_NS)
        elif step.reports or step.instructions:
            self._journal.write(step.records, lambda: self._durable(step))
        elif step.records:
            self._journal.write(step.records)

    async def ticks(self) -> None:
        """Report the passage of time to the core, as soon as it matters to the core. Never returns."""
        while True:
            self.do(self._core.tick(boottime_ns()))
            wake = self._core.wake_at()
            self._resting = not any(run.open for run in self._core.ledger.runs.values())
            longest_s = REST_S if self._resting else TICK_S
            left_s = (wake - boottime_ns()) / 1e9 if wake is not None else longest_s
            await set_or_after(self._tick, min(longest_s, max(0.001, left_s)))

    def _durable(self, step: Step) -> None:
        if step.reports:
            self._outbox.add_all(step.reports)
            self._link.report_soon()
        for instruction in step.instructions:
            self._carry_out(instruction)

    def _send_later(self, wait_ns: int) -> None:
        asyncio.get_running_loop().call_later(wait_ns / 1e9, self._send_waiting)

    def _send_waiting(self) -> None:
        """Send the reports that have waited for long enough, and look again when the next one has."""
        while self._waiting and self._waiting[0][0] <= self._outbox.sent:
            self._waiting.popleft()
        if not self._waiting:
            return
        left_ns = self._waiting[0][1] - boottime_ns()
        if left_ns > 0:
            self._send_later(left_ns)
        else:
            self._waiting.clear()
            self._journal.write([], self._link.report_soon)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case StartRun(order):
                if self._resting:
                    self._tick.set()
                self._starter.start(order)
            case NoticeRun():
                self._tick.set()
                self._notice(instruction)
            case SignalRun(key, name):
                _log.info("signal of a person", job=key.job, attempt=key.attempt, rank=key.rank, signal=name)
                self._runtime.signal(key, name)
            case TerminateRun(key):
                self._tick.set()
                if not self._starter.stop(key):
                    self._runtime.terminate(key)
            case KillRun(key):
                self._monitor.killed(key)
                _log.info("grace is over", job=key.job, attempt=key.attempt, rank=key.rank)
                if not self._starter.stop(key):
                    self._runtime.kill(key)
            case RepartitionGpu(order, refusal):
                self._tasks.spawn(self._cut(order, refusal))
            case GiveUp(reason):
                self._results.give_up(reason)

    def _notice(self, notice: NoticeRun) -> None:
        stopping = self._core.stopping.get(notice.key)
        if stopping is not None and stopping.in_notice:
            self._checkpoints.notice(notice, max(0.0, (stopping.wake_at - boottime_ns()) / 1e9))

    async def _cut(self, order: LayoutOrder, refusal: str) -> None:
        """Look for programs once more, then cut; a driver takes seconds for it."""
        occupied = await self._busy(tuple(each.uuid for each in order.destroy)) if not refusal else {}
        failure = refusal or "; ".join(occupied.values())
        if not failure and self._devices.simulated:
            failure = self._devices.cut(order)
        elif not failure:
            failure = await asyncio.to_thread(self._devices.cut, order)
        _log.info("GPU repartitioned", gpu=order.gpu, plan=order.plan, failure=failure)
        self._results.was_cut(order.plan, failure)

    async def _busy(self, gpus: tuple[str, ...]) -> dict[str, str]:
        if not gpus or self._devices.simulated:
            return self._devices.busy(gpus) if gpus else {}
        return await asyncio.to_thread(self._devices.busy, gpus)
