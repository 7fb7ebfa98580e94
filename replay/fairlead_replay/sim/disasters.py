"""Execution of each planned disaster of `faults.py` in a world, and recovery of its targets."""

import asyncio
from typing import TYPE_CHECKING, Any

from fairlead_replay.sim.faults import Disaster
from fairlead_replay.sim.processes import Node, Replica
from fairlead_schemas.wire import subjects

if TYPE_CHECKING:
    from fairlead_replay.sim.world import World


class Strikes:
    """Carries out the disasters of one world; `struck` counts them."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.struck = 0
        self._old_snapshots: dict[str, bytes] = {}

    async def carry_out(self, planned: list[Disaster]) -> None:
        """Each at its time, until the world's faults are over."""
        loop = asyncio.get_running_loop()
        for disaster in planned:
            await asyncio.sleep(max(0.0, disaster.at_s - loop.time()))
            if self.world.faults.quiet:
                return
            self.struck += 1
            self.world.spawn(self._strike(disaster))

    async def _strike(self, disaster: Disaster) -> None:
        replica = self.world.replicas[disaster.target % len(self.world.replicas)]
        node = self.world.nodes[disaster.target % len(self.world.nodes)]
        if disaster.target % 3:  # mostly where it hurts
            node = max(self.world.nodes, key=lambda node: len(node.machine.processes))
        match disaster.kind:
            case "crash_service":
                await replica.crash()
                self.world.later(disaster.lasting_s / 4, replica.start)
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
                if self.world.hub.up:
                    self.world.hub.stop()
                    self.world.later(min(disaster.lasting_s, 8.0), self._server_back)
            case "lose_desired":
                # Puts there are not fsynced: a crash of the server may take back the newest.
                for key in sorted(self.world.hub.buckets[subjects.DESIRED]):
                    if self.world.faults.rng.random() < 0.5:
                        del self.world.hub.buckets[subjects.DESIRED][key]
                self.world.hub.stop()
                self.world.later(0.2, self._server_back)
            case "pause_service":
                await self._pause(replica.bus, disaster.lasting_s)
            case "pause_agent":
                if node.agent is not None:
                    await self._pause(node.agent, disaster.lasting_s)
            case "lose_snapshot":
                # What was stored last is gone, as after the restore of an older backup of the objects.
                kept = self.world.hub.objects[subjects.SNAPSHOT]
                self._old_snapshots = self._old_snapshots or dict(kept)
                kept.clear()
                kept.update(self._old_snapshots)
                await replica.crash()
                self.world.later(disaster.lasting_s / 4, replica.start)
            case "clock_jump":
                await self._step(replica, disaster)

    async def _step(self, replica: Replica, disaster: Disaster) -> None:
        """Set the wall clock of one process, or of the whole head machine with its server: by up to 10 s or by an hour,
        for a while, or until the faults are over."""
        drawn_s = self.world.faults.rng.uniform(-20, 20)
        step_ns = int((drawn_s if abs(drawn_s) < 10 else 3600 * drawn_s / abs(drawn_s)) * 1e9)
        stays = disaster.target % 4 == 0
        if disaster.target % 5 == 0:
            self.world.skew_ns += step_ns
        else:
            replica.skew_ns += step_ns
        if not stays:
            await asyncio.sleep(disaster.lasting_s)
            self.world.set_clocks()

    async def _pause(self, process: Any, lasting_s: float) -> None:
        if process is not None:
            process.pause()
            await asyncio.sleep(lasting_s)
            process.resume()

    async def _agent_back(self, node: Node, disaster: Disaster) -> None:
        await asyncio.sleep(disaster.lasting_s)
        await node.start()

    def _server_back(self) -> None:
        if not self.world.hub.up:
            self.world.hub.start()

    async def _cut(self, bus: Any, lasting_s: float) -> None:
        if bus is not None and bus.client.linked:
            bus.client.unlink()
            await asyncio.sleep(lasting_s)
            if not bus.client.linked and not bus.client.closed:
                bus.client.relink()
