"""Instructions from the core to the shell, and the step that contains them.

The step that is being made: what follows from the thing that happens now. Pure.

A record is folded into the ledger as it is written down, so that what comes after it in the same step sees it; reports have the numbers
that follow the ledger's. The core's parts share one draft.
"""

from typing import NamedTuple

from fairlead_agent.core.ledger import Ledger, Record, Reported
from fairlead_agent.core.runs import RunKey
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.reports import Report, StartSeen


class StartRun(NamedTuple):
    """Start it; its acceptance is in the journal."""

    order: RunOrder


class NoticeRun(NamedTuple):
    """Tell it that its end is near, as its job file says; record first which mark of it exists (`Reconciler.noticed`)."""

    key: RunKey
    checkpoint: Checkpoint
    #: Why it will end: the order's word, or "node_lost".
    reason: str


class SignalRun(NamedTuple):
    """Send a person's signal to its program; that it is sent is in the journal."""

    key: RunKey
    #: Its name: "SIGUSR1".
    signal: str


class TerminateRun(NamedTuple):
    """Ask it to end (TERM)."""

    key: RunKey


class KillRun(NamedTuple):
    """End it (KILL): its grace is over."""

    key: RunKey


class GiveUp(NamedTuple):
    """End the agent, loudly: journal and log belong to different pasts, and going on would hide it. `removed`: its node was
    removed from the cluster."""

    reason: str
    removed: bool = False


class RepartitionGpu(NamedTuple):
    """Instruction to cut a GPU again and to report the result (`Reconciler.was_cut`). A `refusal` gives the reason not to cut."""

    order: LayoutOrder
    refusal: str


Instruction = StartRun | NoticeRun | SignalRun | TerminateRun | KillRun | GiveUp | RepartitionGpu


class Step(NamedTuple):
    """Consequences of one event."""

    records: list[Record]
    instructions: list[Instruction]
    reports: list[Report]

    @property
    def can_wait(self) -> bool:
        """True if the step only reports one start. No decision is due on it, and the run's end may follow soon."""
        return len(self.reports) == 1 and not self.instructions and isinstance(self.reports[0], StartSeen)


class Draft:
    """Collects until `take`."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._step = Step([], [], [])

    @property
    def n(self) -> int:
        """The number that the next report has."""
        return self.ledger.reported + 1

    def record(self, record: Record) -> None:
        """To be journalled."""
        self.ledger.apply(record)
        self._step.records.append(record)

    def report(self, report: Report) -> None:
        """To be journalled, then sent."""
        self.record(Reported(report=report))
        self._step.reports.append(report)

    def ask(self, instruction: Instruction) -> None:
        """To be carried out once all records are durable."""
        self._step.instructions.append(instruction)

    def take(self) -> Step:
        """Return the collected step and begin the next one."""
        step, self._step = self._step, Step([], [], [])
        return step
