"""Start of a run, from an order whose acceptance is durable to a program handed to the runtime: fetches the job file
where the order only names it, lets ranks of several nodes meet, and reports what cannot be started. The core
decides if a run still may be started.

End of a run, from RunExited to RunEnded: its last output is shipped, its GPUs are looked at, and the node itself after one
that failed or was long. The core decides what follows. Start at `RunStarter.start` and `RunEnder.exited`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

import msgspec
import structlog

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.runs import Emit, Exit, RunFinished, RunGpusClean, RunKey, RunStartFailed, RunUnfit, key_of
from fairlead_agent.devices.port import Devices
from fairlead_agent.files.guard_files import GuardReports
from fairlead_agent.launch.plan import Launch, NodePlace, Unlaunchable, plan, read_program
from fairlead_agent.launch.preparation import LaunchPreparation
from fairlead_agent.launch.sync_tree import SyncTrees
from fairlead_agent.linux.run_apps import environment_of
from fairlead_agent.node.health.monitor import HealthMonitor
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.run_directory import write_note
from fairlead_agent.runtimes.run_files import keep_outputs
from fairlead_agent.shell.gpu_use import GpuUseWatcher
from fairlead_agent.shell.output import OutputShipper
from fairlead_agent.shell.volume_keeper import VolumeKeeper
from fairlead_bus.port import Bus, BusError
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import RunOrder

SPEC_TRIES = 5

_log = structlog.get_logger()


class Checks(Protocol):
    """Checks of the node before a gang starts."""

    async def before(self, order: RunOrder) -> tuple[str, int | None]:
        """Return ("" or why this node's part shall not start, the rank whose node is to blame where it is another)."""
        ...


class RunStarter:
    """Starter of one node's runs. `may_start` returns True if a run may still be started, and ends one that may not; called
    whenever time has passed.
    """

    def __init__(
        self,
        bus: Bus,
        runtime: Runtime,
        devices: Devices,
        place: NodePlace,
        preparation: LaunchPreparation,
        checks: Checks,
        trees: SyncTrees,
        volumes: VolumeKeeper,
        *,
        emit: Emit,
        may_start: Callable[[RunKey], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._preparation = preparation
        self._checks, self._trees, self._volumes = checks, trees, volumes
        #: Parts of gangs that may start: their node was looked at.
        self._fit: set[RunKey] = set()
        self._bus, self._runtime, self._devices = bus, runtime, devices
        self._place, self._emit, self._may_start, self._spawn = place, emit, may_start, spawn
        #: Tasks of runs that were not handed to the runtime yet, and those of them with a requested stop.
        self._under_way: dict[RunKey, asyncio.Task[Any]] = {}
        self._stopped: set[RunKey] = set()

    def start(self, order: RunOrder) -> None:
        """Start a run, now or when its job file is here; emit the reason where it cannot be started."""
        key = key_of(order)
        if not self._may_start(key):
            return
        if len(order.nodes) > 1:
            self._preparation.expect(order)
        there = {each.uuid for gpu in self._devices.gpus() for each in gpu.instances} if order.instances else set[str]()
        if missing := [uuid for uuid in order.instances if uuid not in there]:
            self._emit(RunStartFailed(key, f"this node has no MIG instance {missing[0]}"))
        elif len(order.hosts) > 1 and key not in self._fit:
            self._spawn(self._guarded(key, self._look_and_start(order)))
        elif order.spec_hash:
            self._spawn(self._guarded(key, self._fetch_and_start(order)))
        else:
            self._launch(order)

    async def _look_and_start(self, order: RunOrder) -> None:
        """Check the node, then start this part of a gang. A part that cannot work would keep all the others, so it is not
        started.
        """
        key = key_of(order)
        failure, blames = await self._checks.before(order)
        if failure:
            self._emit(RunUnfit(key, failure, blames))
            return
        self._fit.add(key)
        self.start(order)

    def _launch(self, order: RunOrder) -> None:
        self._fit.discard(key_of(order))
        try:
            launch = plan(order, read_program(order.spec), self._place)
            launch.env.update(self._devices.environment(order, contained=self._runtime.name != "process"))
            if launch.app is not None:
                launch.env.update(environment_of(launch.app))
            if len(order.nodes) > 1 or launch.output.work or any(each.made for each in launch.volumes):
                self._spawn(self._guarded(launch.key, self._prepare_and_start(launch)))
                return
            self._preparation.prepare(launch)
        except Unlaunchable as error:
            self._emit(RunStartFailed(key_of(order), str(error), error.fault))
            return
        except Exception as error:  # noqa: BLE001 -- one job file must not end the agent
            self._gave_up(key_of(order), error)
            return
        self._runtime.start(launch)

    def stop(self, key: RunKey) -> bool:
        """End what is done for a run before the runtime gets it. False: nothing is under way."""
        task = self._under_way.get(key)
        if task is not None:
            self._stopped.add(key)
            task.cancel()
        return task is not None

    async def _guarded(self, key: RunKey, work: Coroutine[Any, Any, None]) -> None:
        """Do it so that the run has an end, whatever happens: until then it holds its GPUs."""
        task = asyncio.current_task()
        assert task is not None
        self._under_way[key] = task
        try:
            await work
        except asyncio.CancelledError:
            if key not in self._stopped:
                raise  # the agent ends
            self._fit.discard(key)
            self._emit(RunStartFailed(key, "was asked to stop before it was started"))
        except Exception as error:  # noqa: BLE001 -- as in `_launch`
            self._gave_up(key, error)
        finally:
            self._stopped.discard(key)
            if self._under_way.get(key) is task:
                del self._under_way[key]

    def _gave_up(self, key: RunKey, error: Exception) -> None:
        _log.error("a run could not be started", run=key.name, exc_info=error)
        self._emit(RunStartFailed(key, f"its agent could not start it: {type(error).__name__}: {error}"))

    async def _prepare_and_start(self, launch: Launch) -> None:
        """Start a run when its volumes and its directory are here; a rank, when every rank's node could start its own."""
        try:
            if any(each.made for each in launch.volumes):
                granted = await self._volumes.granted(launch)
                if granted is None:
                    return
                launch = granted
            if launch.output.work:
                launch = launch._replace(work=await self._trees.stage(launch.key, launch.sync))
            if len(launch.order.nodes) > 1:
                await self._runtime.prepare(launch)
                if not await self._preparation.meet(launch.order):
                    return
            elif not self._may_start(launch.key):
                return
            self._preparation.prepare(launch)
        except Unlaunchable as error:
            self._emit(RunStartFailed(launch.key, str(error), error.fault))
            return
        self._runtime.start(launch)

    async def _fetch_and_start(self, order: RunOrder) -> None:
        for attempt in range(SPEC_TRIES):
            with contextlib.suppress(BusError):
                spec = await self._bus.peek(subjects.SPEC, subjects.spec_key(self._place.node, order.spec_hash))
                if spec is not None:
                    self.start(msgspec.structs.replace(order, spec=msgspec.Raw(spec), spec_hash=""))
                    return
            await asyncio.sleep(0.2 * 2**attempt)
        self._fit.discard(key_of(order))
        self._emit(RunStartFailed(key_of(order), f"its job file {order.spec_hash} is not in the SPEC store"))


DIRTY_POLL_S = 1.0


class RunEnder:
    """Observer of the ends of one node's runs: output, GPUs and the node's health after them."""

    def __init__(
        self,
        core: Reconciler,
        output: OutputShipper,
        devices: Devices,
        gpu_use: GpuUseWatcher,
        monitor: HealthMonitor,
        guard_reports: GuardReports,
        runtime: Runtime,
        *,
        outputs_bytes_max: int,
        emit: Emit,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._runtime, self._outputs_bytes_max = runtime, outputs_bytes_max
        self._core, self._output, self._devices = core, output, devices
        self._gpu_use, self._monitor, self._guard_reports = gpu_use, monitor, guard_reports
        self._emit, self._spawn = emit, spawn
        #: Ended runs after which the node is being looked at.
        self._checking: set[RunKey] = set()

    def exited(self, key: RunKey, exit: Exit) -> None:
        """Emit RunEnded for a run that has exited: at once if there is nothing to wait for, otherwise in the background."""
        exit = self._explained(key, exit)
        run = self._core.ledger.runs.get(key)
        gpus = run.devices if run is not None else ()
        has_outputs = bool(self._runtime.bounds(key).outputs)
        if (
            not has_outputs
            and self._output.silent(key)
            and (not gpus or (self._devices.simulated and not self._devices.busy(gpus)))
        ):
            self._ended(key, exit, clean=True)
        else:
            self._spawn(self._exited(key, exit, run))

    async def ended_while_away(self, run: RunEntry, exit: Exit) -> tuple[Exit, bool]:
        """Return (exit, clean) of a run that has ended while no agent was running."""
        await self._keep_outputs(run.key)
        clean = not await self._gpu_use.left_over(run)
        return self._explained(run.key, exit), clean

    def forget_guard_reports(self, still_open: Collection[RunKey]) -> None:
        """Remove the guard's reports that are about none of these runs."""
        self._guard_reports.forget({key.name for key in still_open})

    async def look_at_what_was_left(self) -> None:
        """Check the GPUs with leftovers periodically, without end, and emit RunGpusClean once they are clean."""
        while True:
            await asyncio.sleep(DIRTY_POLL_S)
            for run in [run for run in self._core.dirty() if run.key not in self._checking]:
                if not await self._gpu_use.left_over(run):
                    self._emit(RunGpusClean(run.key))

    def _explained(self, key: RunKey, exit: Exit) -> Exit:
        """Return the exit, or the guard's account of it where the guard has ended the run while this process did not work."""
        how = self._guard_reports.how(key.name)
        return exit._replace(message=how, fenced=True) if how else exit

    async def _keep_outputs(self, key: RunKey) -> None:
        """Keep the files that the job file names, and report in the run's stderr which are not kept."""
        if outputs := self._runtime.bounds(key).outputs:
            stderr = self._runtime.output(key)[1]
            for note in await asyncio.to_thread(keep_outputs, stderr.parent, outputs, self._outputs_bytes_max):
                write_note(stderr, note)

    async def _exited(self, key: RunKey, exit: Exit, run: RunEntry | None) -> None:
        await self._keep_outputs(key)
        await self._output.ended(key)
        self._ended(key, exit, clean=run is None or not await self._gpu_use.left_over(run))

    def _ended(self, key: RunKey, exit: Exit, *, clean: bool) -> None:
        exit = self._monitor.ended(key, exit)
        if self._monitor.wants_check(key, exit, requested=key in self._core.stopping):
            clean = self._check(key) and clean
        self._emit(RunFinished(key, exit, clean))

    def _check(self, key: RunKey) -> bool:
        """Look at the node. False: the run's GPUs wait for what comes of it."""
        run = self._core.ledger.runs.get(key)
        gpus = run.gpus if run is not None else ()
        self._checking.add(key)
        self._spawn(self._checked(key, gpus))
        return not gpus or self._devices.simulated

    async def _checked(self, key: RunKey, gpus: tuple[str, ...]) -> None:
        try:
            await self._monitor.short(gpus, key)
        finally:
            self._checking.discard(key)
