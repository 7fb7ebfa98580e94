"""What happens to runs, told to the core: by the runtime, by whoever starts and ends them, by their own words. Each is one call of the
core, and what follows is `carrying_out.py`'s."""

import time
from typing import TYPE_CHECKING

from fairlead_agent.lease_file import boottime_ns
from fairlead_agent.records import RunEntry
from fairlead_agent.run import Exit, RunKey, Word
from fairlead_schemas.events import StartFault

if TYPE_CHECKING:  # whose runs they are
    from fairlead_agent.agent import Agent


class Hearing:
    """Of one agent's runs."""

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
            self._agent.measuring.hold(run)
            self._agent.saving.hold(run)
        self._agent.tending.started(key)
        self._agent.do(self._agent.core.started(key, boottime_ns(), time.time_ns(), image))

    def start_failed(self, key: RunKey, message: str, fault: StartFault = "") -> None:
        """The runtime could not start a run."""
        if not self._agent.output.silent(key):
            self._agent.tasks.spawn(self._agent.output.ended(key))
        self._agent.do(self._agent.core.start_failed(key, message, time.time_ns(), fault))
        self._agent.launching.over(key)
        self._agent.runtime.release(key)

    def exited(self, key: RunKey, exit: Exit) -> None:
        """A run has ended: ship its last output, look at its devices, report."""
        self._agent.ending.exited(key, exit)

    def over(self, key: RunKey, exit: Exit, *, clean: bool) -> None:
        """All that had to be looked at after a run's end was."""
        if clean and (run := self._agent.ledger.runs.get(key)) is not None:
            self._agent.measuring.let_go(run)
        word = self._agent.saving.let_go(key)
        self._agent.do(self._agent.core.exited(key, exit, clean, time.time_ns(), word, now=boottime_ns()))
        self._agent.launching.over(key)
        self._agent.runtime.release(key)

    def cleaned(self, run: RunEntry) -> None:
        """Nothing is left on the GPUs of a run that has ended."""
        self._agent.measuring.let_go(run)
        self._agent.do(self._agent.core.cleaned(run.key))

    def unfit(self, key: RunKey, message: str, blames: int | None) -> None:
        """This node, or another of its gang, has failed the check before a run; nothing was started."""
        self._agent.do(self._agent.core.unfit(key, message, time.time_ns(), blames))

    def over_share(self, key: RunKey, message: str) -> None:
        """A run uses more of a GPU than its share."""
        self._agent.do(self._agent.core.over_share(key, message, boottime_ns()))

    def said(self, key: RunKey, word: Word) -> None:
        """A run's word that it has saved lies there."""
        self._agent.do(self._agent.core.said(key, word, boottime_ns()))

    def told(self, key: RunKey, word: Word | None) -> None:
        """A run is told that its end is near."""
        self._agent.do(self._agent.core.told(key, word, boottime_ns()))

    def command_ended(self, key: RunKey, saved: bool) -> None:
        """The command that a run was told by has ended."""
        self._agent.do(self._agent.core.command_ended(key, saved, boottime_ns()))

    def may_start(self, key: RunKey) -> bool:
        """Whether it still may; one that may not has ended by this."""
        if self._agent.journal.reserve.short:
            self.start_failed(
                key, f"the disk of {self._agent.settings.directory} is full: what is left is the journal's"
            )
            return False
        if self._agent.core.may_start(key, boottime_ns()):
            return True
        self._agent.do(self._agent.core.not_started(key, time.time_ns()))
        self._agent.launching.over(key)
        return False
