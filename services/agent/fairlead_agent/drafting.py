"""The step that is being made: what follows from the thing that happens now. Pure.

A record is folded into the ledger as it is written down, so that what comes after it in the same step sees it; reports have the numbers
that follow the ledger's. The core's parts share one draft.
"""

from fairlead_agent.instructions import Instruction, Step
from fairlead_agent.records import Ledger, Record, Reported
from fairlead_schemas.reports import Report


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
        """What was collected; the next step begins."""
        step, self._step = self._step, Step([], [], [])
        return step
