"""The processes of a simulated world: replicas of the services, and machines with their agents; and execution of each
planned disaster of `faults.py` in a world, and recovery of its targets. Each starts, dies and starts again, with what
its kind of process keeps over that: nothing but the log, or a journal.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fairlead_agent.core.ledger import Record
from fairlead_bus.input_source import CommandSource
from fairlead_bus.port import Bus
from fairlead_placer.shell.node_link import ReportSource
from fairlead_placer.shell.publisher import DesiredStatePublisher
from fairlead_replay.sim.agent import SimAgent, new_journal
from fairlead_replay.sim.context import SimContext
from fairlead_replay.sim.faults import DecisionFaults, Disaster
from fairlead_replay.sim.invariants import Violation
from fairlead_replay.sim.machine import SimMachine
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import EXIT_DAMAGED
from fairlead_telemetry.activity import ActivitySource

#: Half and double as in production (60 s, 120 s), shorter so that a seed meets more of them.
FENCE_NS = 10 * SECOND_NS
LEASE_NS = 24 * SECOND_NS
QUIET_NS = 8 * SECOND_NS


class Replica:
    """Process of a service, which may be started, crashed and started again under one name for its lease."""

    def __init__(
        self,
        context: SimContext,
        decisions: DecisionFaults,
        service: Callable[..., Any],
        core_type: type[Any],
        writer: str,
        name: str,
        compare: Callable[[str, int, bytes], None],
    ) -> None:
        self.context, self.writer, self.name = context, writer, name
        self._decisions, self._service_type, self._core_type = decisions, service, core_type
        #: Comparison of a writer's folded state at a sequence with the observer's.
        self._compare = compare
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
        self.bus = self.context.connect()
        self.service = self._build(self.bus)
        self.task = asyncio.get_running_loop().create_task(self._run(self.service))

    def _build(self, bus: Bus) -> Any:
        loop, make = asyncio.get_running_loop(), self._service_type
        core = self._decisions.interrupting(self._core_type)

        def clock() -> int:
            return self.context.wall_ns() + self.skew_ns

        def boot() -> int:
            return int(loop.time() * 1e9) + 1

        sources, more = self._sources(bus, clock, boot)
        return make(
            bus,
            core,
            writer=self.writer,
            sources=sources,
            clock=clock,
            boot=boot,
            instance=self.name,
            snapshot_events=self.context.faults.snapshot_events,
            **more,
        )

    def _sources(self, bus: Bus, clock: Callable[[], int], boot: Callable[[], int]) -> tuple[list[Any], dict[str, Any]]:
        """Return what the service is fed with, and its further arguments."""
        commands = CommandSource(self.writer, waits=self.writer != "queue")
        match self.writer:
            case "telemetry":
                self.activity = ActivitySource(clock)
                return [commands, self.activity], {}
            case "placer":
                actor = DesiredStatePublisher(bus, monotonic=asyncio.get_running_loop().time, wall=clock)
                return [commands, ReportSource(actor, LEASE_NS, boot, QUIET_NS)], {"act": actor.act}
            case _:
                return [commands], {}

    async def _run(self, service: Any) -> None:
        try:
            code = await service.run()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever is raised is a finding
            self.context.fail(error)
            return
        if code == EXIT_DAMAGED:
            self.context.fail(Violation(f"I8: {self.name} reports that the log is damaged"))
            return
        # Stepped down: the supervisor of processes restarts it.
        await self._gone()
        self.context.later(self.context.faults.rng.uniform(0.1, 1.0), self.start)

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
            self.context.judge(lambda: self._compare(self.writer, service.folded, service.core.snapshot()))


class SimNode:
    """A machine, its agent's journal, and the agent while it lives."""

    def __init__(self, context: SimContext, machine: SimMachine, agent_type: type[SimAgent]) -> None:
        self.context, self.machine, self._agent_type = context, machine, agent_type
        self.incarnation = 1
        self.journal: list[Record] = new_journal(machine.name, 1)
        self.agent: SimAgent | None = None

    async def start(self) -> None:
        """Start the agent's process, if it does not run."""
        if self.agent is None:
            context = self.context
            agent = self._agent_type(self.machine, self.journal, context.connect(), context.faults, FENCE_NS)
            agent.gave_up = lambda: context.spawn(self._begin_anew(agent))
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


class Strikes:
    """Carries out the disasters of one world; `struck` counts them."""

    def __init__(self, context: SimContext, replicas: Sequence[Replica], nodes: Sequence[SimNode]) -> None:
        self.context, self.replicas, self.nodes = context, replicas, nodes
        self.struck = 0
        self._old_snapshots: dict[str, bytes] = {}

    async def carry_out(self, planned: list[Disaster]) -> None:
        """Each at its time, until the world's faults are over."""
        loop = asyncio.get_running_loop()
        for disaster in planned:
            await asyncio.sleep(max(0.0, disaster.at_s - loop.time()))
            if self.context.faults.quiet:
                return
            self.struck += 1
            self.context.spawn(self._strike(disaster))

    async def _strike(self, disaster: Disaster) -> None:
        replica = self.replicas[disaster.target % len(self.replicas)]
        node = self.nodes[disaster.target % len(self.nodes)]
        if disaster.target % 3:  # mostly where it hurts
            node = max(self.nodes, key=lambda node: len(node.machine.processes))
        match disaster.kind:
            case "crash_service":
                await replica.crash()
                self.context.later(disaster.lasting_s / 4, replica.start)
            case "partition_service":
                await self._cut(replica.bus, disaster.lasting_s)
            case "crash_agent":
                await node.crash()
                await self._agent_back(node, disaster)
            case "reboot_node":
                await node.crash()
                node.machine.reboot()
                await self._agent_back(node, disaster)
            case "wipe_node":
                await node.crash()
                node.wipe()
                await self._agent_back(node, disaster)
            case "partition_node":
                if node.agent is not None:
                    await self._cut(node.agent.bus, disaster.lasting_s)
            case "restart_server":
                if self.context.hub.up:
                    self.context.hub.stop()
                    self.context.later(min(disaster.lasting_s, 8.0), self._server_back)
            case "lose_desired":
                # Puts there are not fsynced: a crash of the server may take back the newest.
                for key in sorted(self.context.hub.buckets[subjects.DESIRED]):
                    if self.context.faults.rng.random() < 0.5:
                        del self.context.hub.buckets[subjects.DESIRED][key]
                self.context.hub.stop()
                self.context.later(0.2, self._server_back)
            case "pause_service":
                await self._pause(replica.bus, disaster.lasting_s)
            case "pause_agent":
                if node.agent is not None:
                    await self._pause(node.agent, disaster.lasting_s)
            case "lose_snapshot":
                # What was stored last is gone, as after the restore of an older backup of the objects.
                snapshots = self.context.hub.objects[subjects.SNAPSHOT]
                self._old_snapshots = self._old_snapshots or dict(snapshots)
                snapshots.clear()
                snapshots.update(self._old_snapshots)
                await replica.crash()
                self.context.later(disaster.lasting_s / 4, replica.start)
            case "clock_jump":
                await self._step(replica, disaster)

    async def _step(self, replica: Replica, disaster: Disaster) -> None:
        """Set the wall clock of one process, or of the whole head machine with its server: by up to 10 s or by an hour,
        for a while, or until the faults are over."""
        drawn_s = self.context.faults.rng.uniform(-20, 20)
        step_ns = int((drawn_s if abs(drawn_s) < 10 else 3600 * drawn_s / abs(drawn_s)) * 1e9)
        stays = disaster.target % 4 == 0
        if disaster.target % 5 == 0:
            self.context.skew_ns += step_ns
        else:
            replica.skew_ns += step_ns
        if not stays:
            await asyncio.sleep(disaster.lasting_s)
            self.set_clocks()

    def set_clocks(self) -> None:
        """Every wall clock is right from here on."""
        self.context.skew_ns = 0
        for replica in self.replicas:
            replica.skew_ns = 0

    async def _pause(self, process: Any, lasting_s: float) -> None:
        if process is not None:
            process.pause()
            await asyncio.sleep(lasting_s)
            process.resume()

    async def _agent_back(self, node: SimNode, disaster: Disaster) -> None:
        await asyncio.sleep(disaster.lasting_s)
        await node.start()

    def _server_back(self) -> None:
        if not self.context.hub.up:
            self.context.hub.start()

    async def _cut(self, bus: Any, lasting_s: float) -> None:
        if bus is not None and bus.client.linked:
            bus.client.unlink()
            await asyncio.sleep(lasting_s)
            if not bus.client.linked and not bus.client.closed:
                bus.client.relink()
