"""Real agent on the in-memory bus, and a placer that confirms everything and orders the runs that it is given.

Left out are the network and the control plane; journal, reports, runtime and output are the agent's own.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import msgspec

from fairlead_agent.__main__ import build_agent
from fairlead_agent.agent import Agent
from fairlead_agent.settings import Settings
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Message
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import Desired, RunOrder, encode_desired
from fairlead_schemas.wire.reports import (
    ExitSeen,
    InventorySeen,
    ReportAck,
    StartSeen,
    decode_heartbeat,
    decode_reports,
    encode,
)

WAIT_S = 120.0


class LoneNode:
    """Agent, and everything that it reported. Times are `time.perf_counter()`."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self._hub = MemoryHub()
        self._settings = Settings(node="n1", data=data, **settings)
        self._wanted: dict[str, RunOrder] = {}
        self._through = 0
        self._incarnation = ""
        self._beat_at = 0
        self._sequence = 0
        self._agent: Agent
        self._task: asyncio.Task[int]
        self._heard = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        #: {job: when its start or end was reported}.
        self.started: dict[str, float] = {}
        self.ended: dict[str, ExitSeen] = {}
        self.beats: list[float] = []
        self.inventories = 0

    async def open(self) -> "LoneNode":
        """Listen as a placer does, and start the agent."""
        self._bus = self._hub.connect()
        await self._bus.ensure()
        await self._bus.subscribe(subjects.report("n1"), self._on_reports)
        await self._bus.subscribe(subjects.beat("n1"), self._on_beat)
        await self.start_agent()
        return self

    async def start_agent(self) -> None:
        """Start the agent and wait for its inventory: it has then adopted the runs that it found."""
        before = self.inventories
        self._agent = await build_agent(self._hub.connect(), self._settings)
        self._task = asyncio.ensure_future(self._agent.run())
        await self.until(lambda: self.inventories > before)

    async def stop_agent(self) -> None:
        """Stop the agent as an upgrade does: runs continue."""
        await self._agent.stop()
        await self._task

    async def order(self, jobs: list[str], argv: list[str], image: str = "") -> float:
        """Order runs; when that was written."""
        spec = msgspec.Raw(json.dumps({"command": argv, "image": image}).encode())
        for job in jobs:
            self._wanted[job] = RunOrder(
                job=job, attempt=1, rank=0, epoch=1, spec=spec, memory_mib=32, cpu_milli=100, grace_ns=SECOND_NS
            )
        at = time.perf_counter()
        await self._write()
        return at

    async def stop_runs(self) -> None:
        """End everything, and wait until it has ended."""
        await self._forget()
        running = [job for job in self._wanted if job not in self.ended]
        self._wanted = {job: msgspec.structs.replace(self._wanted[job], stop="cancelled") for job in running}
        await self._write()
        await self.until(lambda: all(job in self.ended for job in running))
        await self._forget()

    async def _forget(self) -> None:
        self._wanted = {job: order for job, order in self._wanted.items() if job not in self.ended}
        await self._write()

    async def until(self, met: Any) -> None:
        """Wait for something that a report or beat tells."""
        async with asyncio.timeout(WAIT_S):
            while not met():
                self._heard.clear()
                await self._heard.wait()

    async def close(self) -> None:
        """End what runs, and the agent."""
        await self.stop_runs()
        await asyncio.sleep(1.0)  # containers are removed
        await self.stop_agent()

    async def _write(self) -> None:
        self._sequence += 1
        desired = Desired(
            node="n1", incarnation=self._incarnation, sequence=self._sequence, runs=list(self._wanted.values())
        )
        await self._bus.put(subjects.DESIRED, "n1", encode_desired(desired))

    def _on_reports(self, message: Message) -> None:
        batch, at = decode_reports(message.payload), time.perf_counter()
        self._incarnation = batch.incarnation
        for report in batch.reports:
            if report.n != self._through + 1:
                continue
            self._through = report.n
            if isinstance(report, StartSeen):
                self.started[report.job] = at
            elif isinstance(report, ExitSeen):
                self.ended[report.job] = report
            elif isinstance(report, InventorySeen):
                self.inventories += 1
        self._confirm()

    def _on_beat(self, message: Message) -> None:
        self._beat_at = decode_heartbeat(message.payload).at
        self.beats.append(time.perf_counter())
        self._confirm()

    def _confirm(self) -> None:
        confirm = ReportAck(node="n1", incarnation=self._incarnation, through=self._through, beat=self._beat_at)
        task = asyncio.ensure_future(self._bus.publish(subjects.confirm("n1"), encode(confirm)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._heard.set()
