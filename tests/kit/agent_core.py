"""The agent's core alone, with a journal in a list: no clock, so every case is a few lines."""

from fairlead_agent.core.ledger import Ledger, Opened, Record
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.runs import Found, RunKey
from fairlead_agent.core.steps import StartRun, Step
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.desired import Desired, RunOrder
from fairlead_schemas.wire.reports import ReportAck
from fairlead_schemas.wire.resources import Inventory

FENCE = 60 * SECOND_NS
KEY = RunKey("7", 1, 0)


class CoreNode:
    """A core with a journal in a list; `restart` folds the list again."""

    def __init__(self, boot_id: str = "boot-1", lease: bool = True) -> None:
        self.lines: list[Record] = [Opened(incarnation="inc", node="n1")]
        self.starts: list[RunKey] = []
        self.boot(boot_id, {})
        if lease:
            self.do(self.core.confirmed(ReportAck(node="n1", incarnation="inc", beat=1), 1, 0))

    def boot(self, boot_id: str, found: dict[RunKey, Found], now: int = 0) -> Step:
        ledger = Ledger()
        for line in self.lines:
            ledger.apply(line)
        self.core = Reconciler(ledger, fence_ns=FENCE, now=now)
        return self.do(self.core.begin(boot_id=boot_id, inventory=Inventory(), found=found, now=now, at_ns=0))

    def do(self, step: Step) -> Step:
        self.lines.extend(step.records)
        for instruction in step.instructions:
            if isinstance(instruction, StartRun):
                self.starts.append(RunKey(instruction.order.job, instruction.order.attempt, instruction.order.rank))
        return step

    def desire(self, sequence: int, *orders: RunOrder, now: int = 0, incarnation: str = "inc") -> Step:
        desired = Desired(node="n1", incarnation=incarnation, sequence=sequence, runs=list(orders))
        return self.do(self.core.desired(desired, now, 0))
