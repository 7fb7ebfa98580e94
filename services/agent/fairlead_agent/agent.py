"""The agent's shell: bus, journal, runtime and devices around the core. It holds no rules.

Each event becomes one call of the core: messages of the placer and changes of the node here, events of runs in `shell/run_events.py`.
`shell/executor.py` carries out the resulting steps. The parts know nothing of each other. Start at `Agent.run`.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import structlog

from fairlead_agent.core.outbox import Outbox
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.runs import RunEvent, RunKey
from fairlead_agent.core.steps import Step
from fairlead_agent.devices.port import Devices
from fairlead_agent.files import refusal
from fairlead_agent.files.guard_files import GuardReports, boottime_ns, read
from fairlead_agent.files.journal import Journal
from fairlead_agent.launch.preparation import LaunchPreparation
from fairlead_agent.launch.sync_tree import SyncTrees
from fairlead_agent.node.health.collect import with_health
from fairlead_agent.node.health.monitor import HealthMonitor
from fairlead_agent.node.inventory import inventory_of, place_of
from fairlead_agent.node.metrics.server import MetricsServer
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.run_files import answered
from fairlead_agent.runtimes.stored_volumes import StoredVolumes
from fairlead_agent.settings import Settings
from fairlead_agent.shell.app_watcher import AppWatcher
from fairlead_agent.shell.checkpoint_watcher import CheckpointWatcher
from fairlead_agent.shell.drain_hook import DrainedHook
from fairlead_agent.shell.executor import StepExecutor
from fairlead_agent.shell.gpu_use import GpuSampler, GpuUseWatcher
from fairlead_agent.shell.metrics_facts import MetricsFacts
from fairlead_agent.shell.output import OutputShipper, printed
from fairlead_agent.shell.placer_link import PlacerLink
from fairlead_agent.shell.run_connections import RunConnections, RunPresences
from fairlead_agent.shell.run_events import RunEventHandler
from fairlead_agent.shell.run_lifecycle import RunEnder, RunStarter
from fairlead_agent.shell.tunnels import NodeTunnels
from fairlead_agent.shell.upkeep import LeaseKept, Tasks, Upkeep
from fairlead_agent.shell.volume_keeper import VolumeKeeper
from fairlead_bus.pieces import PieceStore
from fairlead_bus.port import Bus, BusError, Message, Subscription
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import Desired
from fairlead_schemas.wire.reports import HealthSeen, ReportAck
from fairlead_schemas.wire.resources import Inventory

_log = structlog.get_logger()


class Agent:
    """Agent of one node. `journal`, `runtime` and `devices` are open, and the agent owns them from then on."""

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        journal: Journal,
        runtime: Runtime,
        devices: Devices,
        *,
        environment: Mapping[str, str],
        boot_id: str,
    ) -> None:
        """Build the parts, in this order: each gets only what is above it, and parts that act later get calls of the agent."""
        self.bus, self.settings = bus, settings
        self.journal, self.ledger = journal, journal.ledger
        self.runtime, self.devices, self.boot_id = runtime, devices, boot_id
        self._stopped = asyncio.Event()
        self.core = self._build_core()
        self.tasks = Tasks(self._task_failed)
        self.lease = LeaseKept(settings, boot_id, self.ledger.incarnation, runtime.name)
        self.outbox = self._build_outbox()
        self.output = OutputShipper(settings.node, bus.publish)
        self.connections = RunConnections(runtime)
        self.tunnels = NodeTunnels(self.connections, self.tasks.spawn)
        self.presences = RunPresences()
        self.gpu_use = self._build_gpu_use()
        self.sampler = self._build_sampler()
        self.preparation = self._build_preparation()
        self.monitor = self._build_monitor()
        pieces = PieceStore(bus, time.time)
        self.trees = SyncTrees(settings.directory, pieces.get, open_to_all=runtime.name == "docker")
        places = StoredVolumes(settings.grants.storage, settings.directory / "images", settings.node)
        self.volumes = VolumeKeeper(bus, settings.node, runtime, places, self._may_start)
        self.starter = self._build_starter(environment)
        self.checkpoints = CheckpointWatcher(runtime, self._handle_run_event, self.tasks.spawn)
        self.apps = AppWatcher(self.connections, self.presences, self._handle_run_event)
        self.upkeep = Upkeep(settings, journal, self.output, self.checkpoints, runtime)
        self.ender = self._build_ender()
        self.metrics = self._build_metrics()
        self.hook = DrainedHook(settings, boot_id, self._stopped.set)
        self.link = PlacerLink(bus, settings, self.core, self.outbox, self)
        self._executor = self._build_executor()
        self._run_events = self._build_run_events()
        #: Why the core has given up; "" while it has not.
        self._given_up = ""
        self._questions: list[Subscription] = []
        #: Nothing of the agent is left in its process: its files are closed, and its threads have ended.
        self.closed = False

    # ------------------------------------------------------------------ parts

    def _build_core(self) -> Reconciler:
        lease = read(self.settings.directory)
        return Reconciler(
            self.ledger,
            fence_ns=self.settings.fence_ns,
            grace_ns=self.settings.fence_grace_ns,
            now=boottime_ns(),
            start_ns=self.settings.start_ns,
            renewed=lease.renewed_ns if lease is not None and lease.boot_id == self.boot_id else None,
        )

    def _build_outbox(self) -> Outbox:
        ledger = self.ledger
        return Outbox(self.settings.node, ledger.incarnation, ledger.confirmed, held=ledger.reported > 0)

    def _build_gpu_use(self) -> GpuUseWatcher:
        return GpuUseWatcher(
            self.core,
            self.runtime,
            self.devices,
            grace_ns=self.settings.share_grace_ns,
            every_s=min(1.0, self.settings.sample_s),
            emit=self._handle_run_event,
        )

    def _build_sampler(self) -> GpuSampler:
        return GpuSampler(
            self.bus,
            self.devices,
            self.gpu_use,
            self.runtime,
            self.settings.node,
            self.ledger.incarnation,
            self.settings.sample_s,
            lambda gpus: with_health(gpus, self.monitor.gpus, self.monitor.xids),
            self.presences.of,
        )

    def _build_preparation(self) -> LaunchPreparation:
        return LaunchPreparation(
            self.bus,
            self.settings.node,
            self.settings.directory,
            may_start=self._may_start,
            spawn=self.tasks.spawn,
        )

    def _build_monitor(self) -> HealthMonitor:
        return HealthMonitor(
            self.settings,
            self.devices,
            self.runtime,
            self.ledger,
            self.boot_id,
            self,
            loads=lambda: self.sampler.loads,
        )

    def _build_starter(self, environment: Mapping[str, str]) -> RunStarter:
        contained, simulated = self.runtime.name == "docker", self.devices.simulated
        return RunStarter(
            self.bus,
            self.runtime,
            self.devices,
            place_of(self.settings, environment, contained=contained, simulated=simulated),
            self.preparation,
            self.monitor,
            self.trees,
            self.volumes,
            emit=self._handle_run_event,
            may_start=self._may_start,
            spawn=self.tasks.spawn,
        )

    def _build_ender(self) -> RunEnder:
        return RunEnder(
            self.core,
            self.output,
            self.devices,
            self.gpu_use,
            self.monitor,
            GuardReports(self.settings.directory),
            self.runtime,
            outputs_bytes_max=self.settings.keep.outputs_bytes_max,
            emit=self._handle_run_event,
            spawn=self.tasks.spawn,
        )

    def _build_metrics(self) -> MetricsServer:
        facts = MetricsFacts(
            self.settings, self.core, self.outbox, self.journal, self.devices, self.sampler, self.monitor
        )
        return MetricsServer(facts.page)

    def _build_executor(self) -> StepExecutor:
        return StepExecutor(
            self.core,
            self.journal,
            self.outbox,
            self.link,
            self.runtime,
            self.devices,
            self.starter,
            self.checkpoints,
            self.monitor,
            self.tasks,
            self,
        )

    def _build_run_events(self) -> RunEventHandler:
        return RunEventHandler(
            self.core,
            self.journal,
            self.runtime,
            self.output,
            sampler=self.sampler,
            checkpoints=self.checkpoints,
            apps=self.apps,
            monitor=self.monitor,
            preparation=self.preparation,
            ender=self.ender,
            directory=self.settings.directory,
            do=self._executor.do,
            spawn=self.tasks.spawn,
        )

    # ------------------------------------------------------------------ life

    async def run(self) -> int:
        """Work until `stop`, or a journal that fails or does not fit the log. The exit code: 0, or 1 for the journal."""
        try:
            return await self._work()
        finally:
            # A cancelled agent did not stop in time: to wait for its disk would cost the end of its process more time.
            if not isinstance(sys.exception(), asyncio.CancelledError):
                await self._close()

    async def _work(self) -> int:
        self.lease.renew(self.core.renewed)
        await self._begin()
        await self._listen()
        if self.settings.metrics is not None:
            await self.metrics.open(*self.settings.metrics)
        for loop in (
            self.link.beats,
            self.link.reads,
            self.link.reports,
            self._executor.ticks,
            self.upkeep.run,
            self.ender.look_at_what_was_left,
            self.sampler.run,
            self.monitor.run,
            self.gpu_use.run,
            self.apps.run,
            self.volumes.run,
        ):
            self.tasks.spawn(loop())
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({stopped, self.journal.failed}, return_when=asyncio.FIRST_COMPLETED)
        failed = self.journal.failed.done()
        if failed:
            # Only durable facts may be acted upon. Runs continue, and the next process adopts them.
            _log.critical("the journal cannot be written", reason=str(self.journal.failed.exception()))
        if self._given_up:  # runs continue here, too, until a person has decided which past is right
            _log.critical("the agent gives up", reason=self._given_up, directory=str(self.settings.directory))
        return 1 if failed or self._given_up else 0

    async def stop(self) -> None:
        """End the agent; runs continue and are adopted by the next agent process."""
        self._stopped.set()

    def statistics(self) -> dict[str, int]:
        """Numbers for people who look at a running agent."""
        return {
            "runs": len(self.ledger.runs),
            "reported": self.ledger.reported,
            "confirmed": self.outbox.confirmed,
            "resends": self.outbox.resends,
            "journal_syncs": self.journal.syncs,
            "output_bytes": self.output.bytes_sent,
        }

    async def _begin(self) -> None:
        await self.runtime.open(self._handle_run_event)
        open_runs = [run for run in self.ledger.runs.values() if run.open]
        found = await self._run_events.recover()
        for report in self.ledger.unconfirmed:
            self.outbox.add(report)
        await self.monitor.begin()
        await asyncio.to_thread(self.trees.clear)
        step = self.core.begin(
            boot_id=self.boot_id,
            inventory=self._inventory(),
            found=found,
            now=boottime_ns(),
            at_ns=time.time_ns(),
        )
        for run in open_runs:
            if not run.open:
                self.runtime.release(run.key)
        await self.preparation.open([key for key, what in found.items() if what.state == "running"])
        self.do(step)
        refusal.forget(self.settings.directory)  # of an agent before this one
        states = [what.state for what in found.values()]
        _log.info(
            "agent started",
            node=self.settings.node,
            incarnation=self.ledger.incarnation,
            adopted=states.count("running"),
            ended=len(states) - states.count("running"),
        )

    async def _listen(self) -> None:
        await self.link.open()
        answers = {
            "output": self._on_output_wanted,
            "files": self._on_files_wanted,
            "tunnel": self.tunnels.answer,
            "presence": self.presences.answer,
        }
        for verb, answer in answers.items():
            self._questions.append(await self.bus.serve(subjects.rpc_node(self.settings.node, verb), answer))

    def _task_failed(self, error: BaseException) -> None:
        if not self.journal.failed.done():
            self.journal.failed.set_exception(error)

    async def _close(self) -> None:
        await self._attempt(self.metrics.close)
        await self._attempt(self.preparation.close)
        await self._attempt(self.link.close)
        for questions in self._questions:
            await self._attempt(questions.close)
        await self._attempt(self.tasks.close)
        await self._attempt(self.monitor.close)
        await self._attempt(self.runtime.close)
        self.lease.close()
        await self.journal.close()
        self.devices.close()
        self.closed = True

    async def _attempt(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close a part. An error is logged, so that the others are closed, too: a start that failed has opened only some."""
        try:
            await close()
        except BusError:  # away, or closed by its other end
            pass
        except Exception:  # noqa: BLE001 -- the journal must be closed all the same
            _log.exception("a part of the agent could not be closed", node=self.settings.node)

    # ------------------------------------------------------------------ what happens, to the core

    def _handle_run_event(self, event: RunEvent) -> None:
        self._run_events.handle(event)  # a part that emits is made before the handler

    def _may_start(self, key: RunKey) -> bool:
        return self._run_events.may_start(key)

    def desired(self, desired: Desired) -> None:
        """Take up the placer's list of runs for this node."""
        self.do(self.core.desired(desired, boottime_ns(), time.time_ns()))
        if (desired.incarnation, desired.sequence) == (self.ledger.incarnation, self.core.taken):
            idle = not self.core.dirty() and not any(run.open for run in self.ledger.runs.values())
            self.hook.heed(desired.drained, idle=idle)
            self.monitor.noticed("drained_hook", self.hook.failure)

    def confirmed(self, confirm: ReportAck, now: int) -> None:
        """Take note that the placer has confirmed reports, and answered a beat."""
        self.monitor.take_placer_time(confirm.wall_ns, confirm.beat)
        self.do(self.core.confirmed(confirm, now, time.time_ns()))
        self.lease.renew(self.core.renewed)

    def reconnected(self) -> None:
        """Send again the output that was lost while the bus was away."""
        self.tasks.spawn(self.output.resend())

    def was_cut(self, plan: int, failure: str) -> None:
        """Handle the end of a repartition; `failure` is "" if it succeeded."""
        self.do(self.core.was_cut(plan, failure, self._inventory()))

    def give_up(self, reason: str) -> None:
        """Stop the agent: its journal contradicts the log, as `reason` says."""
        self._given_up = reason
        self._stopped.set()

    def ailed(self, seen: list[HealthSeen]) -> None:
        """Report changes of the node's health."""
        self.do(self.core.ailed(seen))

    def introduce(self) -> None:
        """Report the node's changed inventory."""
        self.do(self.core.changed(self._inventory()))

    def do(self, step: Step) -> None:
        """Journal a step of the core, and carry it out."""
        self._executor.do(step)

    # ------------------------------------------------------------------ answers

    async def _on_output_wanted(self, message: Message) -> bytes:
        return printed(message.payload, self.runtime, self.ledger.runs, self.settings.keep)

    async def _on_files_wanted(self, message: Message) -> bytes:
        return await asyncio.to_thread(
            answered, message.payload, lambda key: self.runtime.output(key)[0].parent, self.settings.keep
        )

    def _inventory(self) -> Inventory:
        found = inventory_of(self.settings, self.devices, self.runtime)
        return msgspec.structs.replace(found, taints=(*found.taints, *self.monitor.gate.taints))
