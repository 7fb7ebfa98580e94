"""People who also work on the nodes all the time: taints, quarantine, maintenance windows, rolling upgrades.

What a seed draws here takes the place of the plain cordons and drains of `workload.py`. Before the world is asked
whether it recovers, all of it is undone.
"""

import asyncio

import msgspec

from fairlead_replay.sim.workload import EPOCH_NS, SECOND_NS, People
from fairlead_schemas.wire.commands import (
    CancelMaintenance,
    CancelRollout,
    FinishRolloutNode,
    PauseRollout,
    PlacerCommand,
    QuarantineNode,
    RemoveNode,
    ResetBreaker,
    ResumeRollout,
    ScheduleMaintenance,
    StartRollout,
    TaintNode,
    UnquarantineNode,
    UntaintNode,
)

ROLLOUT, WINDOW = "upgrade", "cooling"
TAINTS = ("mine=yes:NoSchedule", "mine=yes:NoExecute", "old:PreferNoSchedule")


class Operators(People):
    """People who send commands, and operators who maintain the machines."""

    async def tidy(self) -> None:
        """No plan is left, and no taint."""
        await self.send("placer", [CancelRollout(id=self.new_id(), name=ROLLOUT)])
        await self.send("placer", [CancelMaintenance(id=self.new_id(), name=WINDOW)])
        await self.send("placer", [UntaintNode(id=self.new_id(), node=node, taint="mine") for node in self.nodes])
        await super().tidy()

    async def _interfere(self) -> None:
        lost = self.lost()
        if lost and self.rng.random() < 0.5:
            await self.send("placer", [RemoveNode(id=self.new_id(), node=self.rng.choice(lost))])
        elif self.rng.random() < 0.5:
            await self._node_command()
        else:
            await super()._interfere()

    async def _node_command(self) -> None:
        draw = self.rng.random()
        if draw < 0.25:
            await super()._node_command()
        elif draw < 0.5:
            await self.send("placer", [self._taint_or_quarantine()])
        else:
            await self.send("placer", [self._plan()])

    def _taint_or_quarantine(self) -> PlacerCommand:
        node, rng = self.rng.choice(self.nodes), self.rng
        kinds: tuple[PlacerCommand, ...] = (
            TaintNode(id="", node=node, taint=rng.choice(TAINTS)), UntaintNode(id="", node=node, taint="mine"),
            QuarantineNode(id="", node=node), UnquarantineNode(id="", node=node), ResetBreaker(id=""),
        )  # fmt: skip
        return self._named(rng.choice(kinds))

    def _plan(self) -> PlacerCommand:
        rng = self.rng
        now_ns = EPOCH_NS + int(asyncio.get_running_loop().time() * SECOND_NS)
        starts_ns = now_ns + int(rng.uniform(-2, 10) * SECOND_NS)
        kinds: tuple[PlacerCommand, ...] = (
            StartRollout(
                id="", name=ROLLOUT, every=True, budget_gpus=rng.choice((8, 16, 64)), nodes_max=rng.choice((0, 1)),
                deadline_ns=rng.choice((0, 2, 20)) * SECOND_NS, stop_long=rng.random() < 0.5,
            ),
            FinishRolloutNode(id="", name=ROLLOUT, node=rng.choice(self.nodes)),
            FinishRolloutNode(id="", name=ROLLOUT, node=rng.choice(self.nodes)),
            PauseRollout(id="", name=ROLLOUT), ResumeRollout(id="", name=ROLLOUT), CancelRollout(id="", name=ROLLOUT),
            ScheduleMaintenance(
                id="", name=WINDOW, nodes=(rng.choice(self.nodes),), starts_ns=starts_ns,
                ends_ns=starts_ns + rng.choice((2, 15)) * SECOND_NS, notice_ns=rng.choice((0, 3)) * SECOND_NS,
            ),
            CancelMaintenance(id="", name=WINDOW),
        )  # fmt: skip
        return self._named(rng.choice(kinds))

    def _named(self, command: PlacerCommand) -> PlacerCommand:
        return msgspec.structs.replace(command, id=self.new_id())
