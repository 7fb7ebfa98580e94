"""The processes of a simulated world: replicas of the services, and machines with their agents. Each starts, dies
and starts again, with what its kind of process keeps over that: nothing but the log, or a journal.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from fairlead_agent.core.ledger import Record
from fairlead_bus.input_source import CommandSource
from fairlead_bus.port import Bus
from fairlead_placer.act import Actor
from fairlead_placer.sources import ReportSource
from fairlead_replay.sim.agent import SimAgent, new_journal
from fairlead_replay.sim.invariants import Violation
from fairlead_replay.sim.machine import Machine
from fairlead_schemas.wire.conditions import EXIT_DAMAGED
from fairlead_telemetry.activity import ActivitySource

if TYPE_CHECKING:
    from fairlead_replay.sim.world import World

#: Half and double as in production (60 s, 120 s), shorter so that a seed meets more of them.
FENCE_NS = 10_000_000_000
LEASE_NS = 24_000_000_000
QUIET_NS = 8_000_000_000


class Replica:
    """Process of a service, which may be started, crashed and started again under one name for its lease."""

    def __init__(self, world: "World", writer: str, name: str) -> None:
        self.world, self.writer, self.name = world, writer, name
        self.skew_ns = 0
        self.service: Any = None
        self.bus: Any = None
        self.task: asyncio.Task[None] | None = None
        #: Of a telemetry service: what it has seen.
        self.activity: ActivitySource | None = None

    def start(self) -> None:
        """A new process, which knows nothing but the log."""
        if self.task is not None:
            return
        self.bus = self.world.connect()
        self.service = self._build(self.bus)
        self.task = asyncio.get_running_loop().create_task(self._run(self.service))

    def _build(self, bus: Bus) -> Any:
        parts, loop, decisions = self.world.parts, asyncio.get_running_loop(), self.world.decisions

        def clock() -> int:
            return self.world.wall_ns() + self.skew_ns

        def boot() -> int:
            return int(loop.time() * 1e9) + 1

        if self.writer == "queue":
            return parts.service(
                bus, decisions.interrupting(parts.queue), writer="queue", sources=[CommandSource("queue")], clock=clock, boot=boot, instance=self.name,
                snapshot_events=self.world.faults.snapshot_events,
            )  # fmt: skip
        if self.writer == "telemetry":
            self.activity = ActivitySource(clock)
            return parts.service(
                bus, decisions.interrupting(parts.telemetry), writer="telemetry", sources=[CommandSource("telemetry", waits=True), self.activity], clock=clock, boot=boot,
                instance=self.name, snapshot_events=self.world.faults.snapshot_events,
            )  # fmt: skip
        actor = Actor(bus, monotonic=loop.time, wall=clock)
        sources = [CommandSource("placer", waits=True), ReportSource(actor, LEASE_NS, boot, QUIET_NS)]
        return parts.service(
            bus, decisions.interrupting(parts.placer), writer="placer", sources=sources, act=actor.act, clock=clock, boot=boot, instance=self.name,
            snapshot_events=self.world.faults.snapshot_events,
        )  # fmt: skip

    async def _run(self, service: Any) -> None:
        try:
            code = await service.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever is raised is a finding
            self.world.fail(error)
            return
        if code == EXIT_DAMAGED:
            self.world.fail(Violation(f"I8: {self.name} says that the log is damaged"))
            return
        # Stepped down: the supervisor of processes restarts it.
        await self._gone()
        self.world.later(self.world.faults.rng.uniform(0.1, 1.0), self.start)

    async def crash(self) -> None:
        """The process dies here and now; what it had folded is compared first."""
        if self.task is None:
            return
        self.compare()
        self.task.cancel()
        await asyncio.wait([self.task])
        await self._gone()

    async def _gone(self) -> None:
        await self.bus.close()
        self.task = None

    def compare(self) -> None:
        """I7 for this process."""
        if self.task is not None and self.service.folded:
            service = self.service
            self.world.judge(lambda: self.world.observer.compare(self.writer, service.folded, service.core.snapshot()))


class Node:
    """A machine, its agent's journal, and the agent while it lives."""

    def __init__(self, world: "World", machine: Machine) -> None:
        self.world, self.machine = world, machine
        self.incarnation = 1
        self.journal: list[Record] = new_journal(machine.name, 1)
        self.agent: SimAgent | None = None

    async def start(self) -> None:
        """Start the agent's process, if it does not run."""
        if self.agent is None:
            world = self.world
            agent = world.parts.agent(self.machine, self.journal, world.connect(), world.faults, FENCE_NS)
            agent.gave_up = lambda: world.spawn(self._begin_anew(agent))
            self.agent = agent
            await agent.start()

    async def _begin_anew(self, agent: SimAgent) -> None:
        """Move the journal of a removed node away and start the node again, once its agent has reported the removal."""
        if self.agent is agent:
            await self.crash()
            self.wipe()
            await self.start()

    async def crash(self) -> None:
        """The agent's process dies; what it started runs on."""
        if self.agent is not None:
            agent, self.agent = self.agent, None
            await agent.crash()

    def wipe(self) -> None:
        """The disk with the journal is lost. An agent without one clears up before it joins."""
        self.incarnation += 1
        self.journal = new_journal(self.machine.name, self.incarnation)
        self.machine.clear()
