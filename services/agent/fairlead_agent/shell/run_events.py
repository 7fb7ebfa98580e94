"""Handler of the events of runs (`core/runs.py`); and recovery at the start of an agent: finds out what became of
the runs that its journal holds open, and resumes the care of the ones still running. Each event becomes one call of the
core; `executor.py` carries out the resulting step.
"""

import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, assert_never

from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.runs import (
    CheckpointMarked,
    Exit,
    Found,
    NoticeCommandEnded,
    ProgramStarted,
    RunEvent,
    RunExited,
    RunFinished,
    RunGpusClean,
    RunKey,
    RunNotAlive,
    RunNoticed,
    RunOverShare,
    RunPreparing,
    RunServes,
    RunStartFailed,
    RunUnfit,
)
from fairlead_agent.core.steps import Step
from fairlead_agent.files.guard_files import boottime_ns
from fairlead_agent.files.journal import Journal
from fairlead_agent.launch.preparation import LaunchPreparation
from fairlead_agent.node.health.monitor import HealthMonitor
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.shell.app_watcher import AppWatcher
from fairlead_agent.shell.checkpoint_watcher import CheckpointWatcher
from fairlead_agent.shell.gpu_use import GpuSampler
from fairlead_agent.shell.output import OutputShipper
from fairlead_agent.shell.run_lifecycle import RunEnder


class RunEventHandler:
    """Handler of all events of one node's runs. `directory`: the agent's own; `do` executes a step of the core."""

    def __init__(
        self,
        core: Reconciler,
        journal: Journal,
        runtime: Runtime,
        output: OutputShipper,
        *,
        sampler: GpuSampler,
        checkpoints: CheckpointWatcher,
        apps: AppWatcher,
        monitor: HealthMonitor,
        preparation: LaunchPreparation,
        ender: RunEnder,
        directory: Path,
        do: Callable[[Step], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._core, self._journal, self._runtime, self._output = core, journal, runtime, output
        self._sampler, self._checkpoints, self._monitor, self._apps = sampler, checkpoints, monitor, apps
        self._preparation, self._ender, self._do, self._spawn = preparation, ender, do, spawn
        self._directory = directory

    def handle(self, event: RunEvent) -> None:
        """Pass an event on to the core, and to the parts that follow the run."""
        match event:
            case RunPreparing(key):
                self._output.open(key, self._runtime.output_paths(key))
            case ProgramStarted(key, image):
                self._started(key, image)
            case RunStartFailed():
                self._start_failed(event)
            case RunExited(key, exit):
                self._ender.exited(key, exit)
            case RunFinished(key, exit, clean):
                self._ended(key, exit, clean=clean)
            case RunGpusClean(key):
                self._release_gpus(key)
                self._do(self._core.cleaned(key))
            case RunUnfit(key, message, blames):
                self._do(self._core.unfit(key, message, time.time_ns(), blames))
            case RunOverShare(key, message):
                self._do(self._core.over_share(key, message, boottime_ns()))
            case CheckpointMarked(key, mark):
                self._do(self._core.checkpoint_marked(key, mark, boottime_ns()))
            case RunServes(key):
                self._do(self._core.app_serves(key, time.time_ns()))
            case RunNotAlive(key, message):
                self._do(self._core.not_alive(key, message, boottime_ns()))
            case RunNoticed(key, mark):
                self._do(self._core.noticed(key, mark, boottime_ns()))
            case NoticeCommandEnded(key, saved):
                self._do(self._core.notice_command_ended(key, saved, boottime_ns()))
            case _:
                assert_never(event)

    def may_start(self, key: RunKey) -> bool:
        """Return True if the run may still be started. A run that may not is ended by this call."""
        if self._journal.reserve.short:
            self._start_failed(
                RunStartFailed(key, f"the disk of {self._directory} is full: what is left is the journal's")
            )
            return False
        if self._core.may_start(key, boottime_ns()):
            return True
        self._do(self._core.not_started(key, time.time_ns()))
        self._preparation.over(key)
        return False

    async def recover(self) -> dict[RunKey, Found]:
        """Return the state of every open run of the journal, as the runtime found it.

        On return, running runs are adopted, and processes that the journal does not know are gone. Raises RuntimeUnfit.
        """
        open_runs = {run.key: run for run in self._core.ledger.runs.values() if run.open}
        found = await self._runtime.adopt(open_runs.keys(), {key: run.epoch for key, run in open_runs.items()})
        self._ender.forget_guard_reports(open_runs.keys())
        for key, what in found.items():
            run = open_runs[key]
            if what.state in ("ended", "lost"):
                exit, clean = await self._ender.ended_while_away(run, what.exit)
                self._checkpoints.hold(run)
                found[key] = what._replace(exit=exit, clean=clean, mark=self._checkpoints.let_go(key))
            if what.state != "never":
                self._output.open(key, self._runtime.output_paths(key), adopted=True)
                if what.state != "running":
                    self._spawn(self._output.ended(key))
            if what.state == "running":
                self._sampler.hold(run)
                self._checkpoints.hold(run)
                self._apps.hold(run)
        return found

    def _started(self, key: RunKey, image: str) -> None:
        self._output.open(key, self._runtime.output_paths(key))
        run = self._core.ledger.runs.get(key)
        if run is not None:
            self._sampler.hold(run)
            self._checkpoints.hold(run)
            self._apps.hold(run)
        self._monitor.started(key)
        self._do(self._core.started(key, boottime_ns(), time.time_ns(), image))

    def _start_failed(self, event: RunStartFailed) -> None:
        key = event.key
        if not self._output.silent(key):
            self._spawn(self._output.ended(key))
        self._do(self._core.start_failed(key, event.message, time.time_ns(), event.fault))
        self._preparation.over(key)
        self._runtime.release(key)

    def _ended(self, key: RunKey, exit: Exit, *, clean: bool) -> None:
        if clean:
            self._release_gpus(key)
        mark = self._checkpoints.let_go(key)
        self._apps.let_go(key)
        self._do(self._core.exited(key, exit, clean, time.time_ns(), mark, now=boottime_ns()))
        self._preparation.over(key)
        self._runtime.release(key)

    def _release_gpus(self, key: RunKey) -> None:
        run = self._core.ledger.runs.get(key)
        if run is not None:
            self._sampler.let_go(run)
