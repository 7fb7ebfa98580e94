"""A scripted placer for one or many nodes: takes reports in order of their numbers, confirms, writes DESIRED.

It keeps the rules that agents rely on (duplicates ignored, gaps refused, an unknown incarnation joins with an
InventorySeen) and nothing else of a placer.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec

from fairlead_bus.port import Bus, Message
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import Desired, RunOrder, encode_desired
from fairlead_schemas.wire.reports import InventorySeen, Report, ReportAck, decode_heartbeat, decode_reports, encode
from tests.kit.eventually import eventually_async


def order(job: str, *command: str, attempt: int = 1, rank: int = 0, grace_s: float = 5, **more: Any) -> RunOrder:
    """One order with a job file of just a command."""
    spec: dict[str, Any] = {"command": list(command), **more.pop("spec", {})}
    fields: dict[str, Any] = {"epoch": 1, "grace_ns": int(grace_s * 1e9), **more}
    return RunOrder(job=job, attempt=attempt, rank=rank, spec=msgspec.Raw(json.dumps(spec).encode()), **fields)


class PlacerScript:
    """Everything that nodes told, and what they were told."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.incarnation: dict[str, str] = {}
        self.through: dict[str, int] = {}
        self.reports: list[tuple[str, Report]] = []
        self.beats = 0
        self.beat_at: dict[str, int] = {}
        self.sequence = 0
        self.silent = False
        self.on_report: Callable[[str, Report], None] = lambda node, report: None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> "PlacerScript":
        """Listen to every node."""
        await self.bus.subscribe(subjects.REPORTS, self._on_reports)
        await self.bus.subscribe(subjects.BEATS, self._on_beat)
        return self

    async def desire(self, node: str, *orders: RunOrder, sequence: int | None = None) -> int:
        """Write a node's desired state under the next sequence (or the one given)."""
        self.sequence = max(self.sequence + 1, sequence or 0)
        value = Desired(
            node=node, incarnation=self.incarnation[node], sequence=sequence or self.sequence, runs=list(orders)
        )
        return await self.bus.put(subjects.DESIRED, node, encode_desired(value))

    async def until(self, met: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until something holds; reports and beats arrive meanwhile."""
        await eventually_async(met, within_s=timeout_s)

    async def joined(self, *nodes: str) -> None:
        """Wait until these nodes have sent their inventory."""
        await self.until(lambda: all(node in self.incarnation for node in nodes))

    def of(self, kind: type, job: str | None = None) -> list[Any]:
        """Reports of one type (about one job), in order."""
        found = [report for _, report in self.reports if isinstance(report, kind)]
        return [report for report in found if job is None or getattr(report, "job", None) == job]

    def _on_beat(self, message: Message) -> None:
        beat = decode_heartbeat(message.payload)
        self.beats += 1
        self.beat_at[beat.node] = beat.at
        if not self.silent:
            known = self.incarnation.get(beat.node) == beat.incarnation
            self._confirm(beat.node, beat.incarnation if known else "")

    def _on_reports(self, message: Message) -> None:
        if self.silent:
            return
        batch = decode_reports(message.payload)
        for report in batch.reports:
            self._take(batch.node, batch.incarnation, report)
        known = self.incarnation.get(batch.node) == batch.incarnation
        self._confirm(batch.node, batch.incarnation if known else "")

    def _take(self, node: str, incarnation: str, report: Report) -> None:
        if self.incarnation.get(node) != incarnation:
            if not isinstance(report, InventorySeen):
                return
            self.incarnation[node], self.through[node] = incarnation, report.n - 1
        if report.n != self.through[node] + 1:
            return
        self.through[node] = report.n
        self.reports.append((node, report))
        self.on_report(node, report)

    def _confirm(self, node: str, incarnation: str) -> None:
        through = self.through.get(node, 0) if incarnation else 0
        confirm = ReportAck(node=node, incarnation=incarnation, through=through, beat=self.beat_at.get(node, 0))
        task = asyncio.ensure_future(self.bus.publish(subjects.confirm(node), encode(confirm)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
