"""Events of runs, passed to the core: from the runtime, from the code that starts and ends them, and from their own
reports. Each event is one call of the core; `executor.py` carries out the resulting step.

Start of an agent: finds out what became of the runs that its journal holds open, and resumes the care of the ones
still running.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.runs import CheckpointMark, Exit, Found, RunKey
from fairlead_agent.files.guard_files import boottime_ns
from fairlead_schemas.wire.events import StartFault

if TYPE_CHECKING:
    from fairlead_agent.agent import Agent

if TYPE_CHECKING:  # whose runs they are
    pass


class Hearing:
    """Event receiver for one agent's runs."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    def preparing(self, key: RunKey) -> None:
        """The runtime says in the run's stderr what it waits for."""
        self._agent.output.open(key, self._agent.runtime.output(key))

    def started(self, key: RunKey, image: str = "") -> None:
        """The runtime has started a run."""
        self._agent.output.open(key, self._agent.runtime.output(key))
        run = self._agent.ledger.runs.get(key)
        if run is not None:
            self._agent.sampler.hold(run)
            self._agent.checkpoints.hold(run)
        self._agent.monitor.started(key)
        self._agent.do(self._agent.core.started(key, boottime_ns(), time.time_ns(), image))

    def start_failed(self, key: RunKey, message: str, fault: StartFault = "") -> None:
        """The runtime could not start a run."""
        if not self._agent.output.silent(key):
            self._agent.tasks.spawn(self._agent.output.ended(key))
        self._agent.do(self._agent.core.start_failed(key, message, time.time_ns(), fault))
        self._agent.preparation.over(key)
        self._agent.runtime.release(key)

    def exited(self, key: RunKey, exit: Exit) -> None:
        """A run has ended: ship its last output, look at its devices, report."""
        self._agent.ender.exited(key, exit)

    def over(self, key: RunKey, exit: Exit, *, clean: bool) -> None:
        """All that had to be looked at after a run's end was."""
        if clean and (run := self._agent.ledger.runs.get(key)) is not None:
            self._agent.sampler.let_go(run)
        mark = self._agent.checkpoints.let_go(key)
        self._agent.do(self._agent.core.exited(key, exit, clean, time.time_ns(), mark, now=boottime_ns()))
        self._agent.preparation.over(key)
        self._agent.runtime.release(key)

    def cleaned(self, run: RunEntry) -> None:
        """Nothing is left on the GPUs of a run that has ended."""
        self._agent.sampler.let_go(run)
        self._agent.do(self._agent.core.cleaned(run.key))

    def unfit(self, key: RunKey, message: str, blames: int | None) -> None:
        """Pass on that this node, or another of its gang, has failed the check before a run. The run was not started."""
        self._agent.do(self._agent.core.unfit(key, message, time.time_ns(), blames))

    def over_share(self, key: RunKey, message: str) -> None:
        """A run uses more of a GPU than its share."""
        self._agent.do(self._agent.core.over_share(key, message, boottime_ns()))

    def said(self, key: RunKey, mark: CheckpointMark) -> None:
        """Pass on a run's report that it has saved its work."""
        self._agent.do(self._agent.core.checkpoint_marked(key, mark, boottime_ns()))

    def told(self, key: RunKey, mark: CheckpointMark | None) -> None:
        """Pass on that a run is notified that its end is near."""
        self._agent.do(self._agent.core.noticed(key, mark, boottime_ns()))

    def command_ended(self, key: RunKey, saved: bool) -> None:
        """Pass on that the command that notified a run has ended."""
        self._agent.do(self._agent.core.notice_command_ended(key, saved, boottime_ns()))

    def may_start(self, key: RunKey) -> bool:
        """Return True if the run may still be started. A run that may not is ended by this call."""
        if self._agent.journal.reserve.short:
            self.start_failed(
                key, f"the disk of {self._agent.settings.directory} is full: what is left is the journal's"
            )
            return False
        if self._agent.core.may_start(key, boottime_ns()):
            return True
        self._agent.do(self._agent.core.not_started(key, time.time_ns()))
        self._agent.preparation.over(key)
        return False


if TYPE_CHECKING:  # who begins
    pass


async def take_over(agent: "Agent") -> Mapping[RunKey, Found]:
    """Ask the runtime, and say for each open run what was found. What runs is adopted, and what the journal does not know has gone when
    this returns. Raises RuntimeUnfit."""
    open_runs = {run.key: run for run in agent.ledger.runs.values() if run.open}
    found = await agent.runtime.adopt(open_runs.keys(), {key: run.epoch for key, run in open_runs.items()})
    agent.guard_reports.forget({key.name for key in open_runs})
    for key, what in found.items():
        run = open_runs[key]
        if what.state in ("ended", "lost"):
            clean = not await agent.gpu_use.left_over(run)
            agent.checkpoints.hold(run)
            exit = agent.ender.explained(key, what.exit)
            found[key] = Found(what.state, exit, clean, mark=agent.checkpoints.let_go(key))
        if what.state != "never":
            agent.output.open(key, agent.runtime.output(key), adopted=True)
            if what.state != "running":
                agent.tasks.spawn(agent.output.ended(key))
        if what.state == "running":
            agent.sampler.hold(run)
            agent.checkpoints.hold(run)
    return found
