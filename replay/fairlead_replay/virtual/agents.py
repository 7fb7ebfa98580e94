"""Simulated nodes: a placed run starts at once, lasts as long as its work takes, and keeps its finished work.

A run that is asked to stop continues for the notice, then ends; the next run of its job continues from there.
Every start costs the setting's restart time. Each node numbers its reports as an agent does, and repeats those
that were not consumed.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

import msgspec

from fairlead_bus.core import Input
from fairlead_placer.evolve import REPORT_CURSOR
from fairlead_replay.virtual.load import Setting
from fairlead_replay.virtual.outcome import Life, Run
from fairlead_schemas.wire.events import Event, JobPlaced, JobStopRequested, PreemptionStarted
from fairlead_schemas.wire.reports import ExitSeen, InventorySeen, Report, ReportBatch, StartSeen

#: Reports that one decision is asked to take up.
REPORTS_MAX = 400
_BOOT, _JOURNAL = "boot", "journal"


class _Execution:
    """Run of one attempt, on all its nodes."""

    __slots__ = ("attempt", "life", "nodes", "over", "stopped")

    def __init__(self, life: Life, attempt: int, nodes: tuple[str, ...]) -> None:
        self.life, self.attempt, self.nodes = life, attempt, nodes
        #: It was asked to end; it has ended.
        self.stopped = self.over = False


class Agents:
    """All nodes, their runs, and what they have to report."""

    def __init__(self, setting: Setting, lives: dict[str, Life]) -> None:
        self._setting = setting
        #: {job: its life}; the owner adds to it as jobs are accepted.
        self._lives = lives
        self._running: dict[str, _Execution] = {}
        #: (when, serial, run) of what ends by itself or after its notice.
        self._ends: list[tuple[int, int, _Execution]] = []
        self._serial = 0
        self._reported = dict.fromkeys(setting.nodes, 0)
        #: {node: reports not taken up yet}
        self._waiting: dict[str, list[Report]] = {}
        for node, inventory in setting.nodes.items():
            self._report(node, InventorySeen(n=0, boot_id=_BOOT, inventory=inventory))

    # ------------------------------------------------------------------ what happens to runs

    def see(self, events: Iterable[Event], now_ns: int) -> None:
        """Do what a commit asks for."""
        for event in events:
            match event:
                case JobPlaced():
                    self._start(event, now_ns)
                case PreemptionStarted() | JobStopRequested():
                    execution = self._running.get(event.job)
                    if execution is not None and execution.attempt == event.attempt and not execution.stopped:
                        execution.stopped = True
                        self._end_at(execution, now_ns + self._setting.notice_ns)
                case _:
                    pass

    def _start(self, placed: JobPlaced, now_ns: int) -> None:
        life = self._lives[placed.job]
        execution = _Execution(life, placed.attempt, tuple(part.node for part in placed.parts))
        self._running[placed.job] = execution
        life.runs.append(Run(now_ns))
        for rank, node in enumerate(execution.nodes):
            self._report(node, StartSeen(n=0, job=placed.job, attempt=placed.attempt, rank=rank))
        self._end_at(execution, now_ns + self._setting.restart_ns + life.left_ns)

    def _end_at(self, execution: _Execution, at_ns: int) -> None:
        self._serial += 1
        heappush(self._ends, (at_ns, self._serial, execution))

    def next_ns(self) -> int | None:
        """Return the time of the next end of a run in ns, None if no run is active."""
        while self._ends and self._ends[0][2].over:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def pass_time(self, now_ns: int) -> None:
        """End what has come to its end."""
        while self._ends and self._ends[0][0] <= now_ns:
            _, _, execution = heappop(self._ends)
            if not execution.over:
                self._end(execution, now_ns)

    def _end(self, execution: _Execution, now_ns: int) -> None:
        life = execution.life
        execution.over = True
        del self._running[life.id]
        run = life.runs[-1]
        run.ended_ns = now_ns
        life.done_ns += max(0, now_ns - run.started_ns - self._setting.restart_ns)
        outcome, code = ("stopped", None) if life.left_ns else ("exited", 0)
        for rank, node in enumerate(execution.nodes):
            self._report(
                node,
                ExitSeen(
                    n=0, job=life.id, attempt=execution.attempt, rank=rank, outcome=outcome, exit_code=code, clean=True
                ),
            )  # fmt: skip

    # ------------------------------------------------------------------ reports

    def _report(self, node: str, report: Report) -> None:
        number = self._reported[node] = self._reported[node] + 1
        self._waiting.setdefault(node, []).append(msgspec.structs.replace(report, n=number))

    def reports(self) -> list[Input]:
        """Return the next reports for the placer, from the longest waiting nodes first."""
        inputs: list[Input] = []
        count = 0
        for node, waiting in self._waiting.items():
            count += len(waiting)
            if inputs and count > REPORTS_MAX:
                break
            inputs.append(Input("report", waiting[-1].n, ReportBatch(node=node, incarnation=_JOURNAL, reports=waiting)))
        return inputs

    def taken(self, cursors: dict[str, int]) -> None:
        """The placer has taken up reports up to these numbers."""
        for source, number in cursors.items():
            if source.startswith(REPORT_CURSOR):
                node = source[len(REPORT_CURSOR) :]
                left = [report for report in self._waiting.pop(node) if report.n > number]
                if left:
                    self._waiting[node] = left
