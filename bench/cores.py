"""The decisions alone: queue and placer cores in one process, without bus, disk, agents or encoding.

What is left of a live row beyond this is the cost of storing, sending and folding what was decided.
"""

import time
from collections.abc import Sequence

import msgspec

from fairlead_bus.core import Core, Decision, Input
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_schemas.jobfile import job_spec, resolve
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.commands import QueueCommand, SubmitJob
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit
from fairlead_schemas.wire.events import JobPlaced, JobRejected, JobSucceeded
from fairlead_schemas.wire.reports import ExitSeen, InventorySeen, Report, ReportBatch, StartSeen
from fairlead_schemas.wire.resources import Gpu, Inventory

NODES, GPUS, BATCH = 500, 8, 400
NODES_TAKEN = 50
NOW_NS = 1_700_000_000 * SECOND_NS


class Pair:
    """Both cores over one imagined log; nodes whose jobs end as soon as they are placed."""

    def __init__(self) -> None:
        self.queue, self.placer = QueueCore(), PlacerCore()
        self.sequence = self.succeeded = 0
        self.reported: dict[str, int] = {}
        self.waiting: dict[str, list[Report]] = {}
        for node in range(NODES):
            self._report(f"n{node}", InventorySeen(n=0, boot_id="b", inventory=_inventory(node)))

    def run(self, jobs: int) -> float:
        """Jobs per second from the submit of all to the end of all: jobs of one GPU in one queue."""
        submit = submit_of({"command": ["true"], "resources": {"nvidia.com/gpu": 1, "cpu": "1", "memory": "1Gi"}})
        return self.play([msgspec.structs.replace(submit, id=str(n)) for n in range(jobs)])

    def play(self, submits: Sequence[SubmitJob]) -> float:
        """Jobs per second from the submit of all to the end of all. Raises ValueError if the queue rejects one."""
        self.settle([])
        began = time.perf_counter()
        for first in range(0, len(submits), BATCH):
            self._step(submits[first : first + BATCH])
        while self.succeeded < len(submits):
            self._step([])
        return len(submits) / (time.perf_counter() - began)

    def settle(self, commands: Sequence[QueueCommand]) -> None:
        """Decide these commands and all reports of the nodes."""
        self._step(commands)
        while self.waiting:
            self._step([])

    def _step(self, commands: Sequence[QueueCommand]) -> None:
        inputs = [Input("CMD", self.sequence + 1, list(commands))] if commands else []
        self.fold("queue", self.queue.decide(inputs, NOW_NS))
        self.fold("placer", self.placer.decide(self._taken(), NOW_NS))

    def _taken(self) -> list[Input]:
        """Reports of some nodes: as many as are sure to fit one commit."""
        nodes = list(self.waiting)[:NODES_TAKEN]
        taken = [(node, self.waiting.pop(node)) for node in nodes]
        return [
            Input("report", reports[-1].n, ReportBatch(node=node, incarnation="i", reports=reports))
            for node, reports in taken
        ]

    def fold(self, writer: str, decision: Decision) -> None:
        """Fold a decision into both cores, and report for the nodes what they do about it."""
        if not decision.events and not decision.cursors:
            return
        self.sequence += 1
        commit = Commit(
            v=VERSION,
            writer=writer,
            n=1,
            basis=0,
            at_ns=NOW_NS,
            cursors=decision.cursors,
            prev=GENESIS,
            events=decision.events,
        )
        cores: tuple[Core, Core] = (self.queue, self.placer)
        for core in cores:
            core.evolve(self.sequence, commit)
        for event in decision.events:
            if isinstance(event, JobPlaced):
                run = {"job": event.job, "attempt": event.attempt, "rank": 0}
                self._report(event.parts[0].node, StartSeen(n=0, **run))
                self._report(event.parts[0].node, ExitSeen(n=0, outcome="exited", exit_code=0, clean=True, **run))
            elif isinstance(event, JobSucceeded):
                self.succeeded += 1
            elif isinstance(event, JobRejected):
                raise ValueError(f"a job of the load was rejected: {event.message}")

    def _report(self, node: str, report: Report) -> None:
        number = self.reported[node] = self.reported.get(node, 0) + 1
        self.waiting.setdefault(node, []).append(msgspec.structs.replace(report, n=number))


def _inventory(node: int) -> Inventory:
    gpus = tuple(
        Gpu(uuid=f"GPU-{node}-{index}", index=index, model="NVIDIA A100-SXM4-80GB", memory_mib=81920)
        for index in range(GPUS)
    )
    return Inventory(gpus=gpus, cpu_milli=256_000, memory_mib=2**20, runtime="hollow", simulated=True)


def submit_of(job: dict[str, object]) -> SubmitJob:
    """The command that a job file becomes."""
    return resolve.resolve(job_spec.decode_job(msgspec.json.encode(job)), command_id="0", user="bench")


def jobs_per_s(jobs: int = 20_000) -> float:
    """The rate of the decisions alone."""
    return Pair().run(jobs)
