"""Random streams of jobs for instances and whole GPUs, ends, faults, losses, and agents that are slow, fail or answer late.

After every step: the invariants hold (I1, I2: `World.fold`), no reported layout is illegal, and no instance in use was ever
touched (`MigWorld.cut` looks as the driver would). At the end everything heals, and every job that fits has run.
"""

import random

import pytest

from fairlead_placer.core import PlacerCore
from fairlead_placer.mig.layouts import Instance, legal_fault
from fairlead_placer.mig.models import BY_NAME
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, UncordonNode
from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.reports import HealthSeen, InventorySeen
from tests.kit.placer_world import SECOND, request
from tests.placer.scheduling.repartition.migworld import MigWorld, mig

PROFILES = ("1g.5gb", "1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
NODES = {"n1": "auto", "n2": "recut", "n3": "fixed"}


class Stream:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = MigWorld()
        self.running: dict[str, tuple[str, ...]] = {}
        #: Orders that an agent has read and not carried out yet.
        self.read: dict[str, LayoutOrder] = {}
        self.wanted = 0
        for node, word in NODES.items():
            layouts = {"n1": (None, None), "n2": ("", "2g.10gb@0 3g.20gb@4"), "n3": ("3g.20gb@0 1g.5gb@4", None)}[node]
            self.absorb(self.world.join_cut(node, *layouts, cpu=16, labels={"fairlead/mig": word}))

    def absorb(self, events: list[ev.Event]) -> None:
        for event in events:
            if isinstance(event, ev.JobPlaced):
                self.running[event.job] = tuple(part.node for part in event.parts)
            elif isinstance(event, ev.RunEnded):
                self.running.pop(event.job)
        for inventory in self.world.inventories.values():
            for gpu in inventory.gpus:
                instances = [Instance(each.profile, each.start) for each in gpu.instances]
                assert not legal_fault(BY_NAME["A100-40GB"], instances)
        for node in sorted(self.world.inventories):
            orders = self.world.layout_orders(node)
            assert len(orders) <= 1 and not (orders and node == "n3")

    def offer(self) -> None:
        kind = self.random.random()
        if kind < 0.6:
            self.absorb(self.world.offer(mig(self.random.choice(PROFILES))))
        elif kind < 0.75:
            nodes = self.random.choice((1, 1, 2))
            self.absorb(self.world.offer(mig(self.random.choice(("1g.5gb", "3g.20gb")), 3 - nodes, nodes=nodes)))
        else:
            self.absorb(self.world.offer(request(self.random.choice((1, 1, 2)))))

    def end(self) -> None:
        if self.running:
            job = self.random.choice(sorted(self.running))
            for rank, node in enumerate(self.running[job]):
                self.absorb(self.world.exit(node, job, rank))

    def agent(self) -> None:
        """Reads an order, carries out one that it has read (which may be withdrawn since), or fails."""
        node = self.random.choice(("n1", "n2"))
        orders = self.world.layout_orders(node)
        order = self.read.pop(node, None)
        if order is None:
            if orders:
                self.read[node] = orders[0]
            return
        held = {each for run in self.world.core.state.runs.values() for part in run.parts for each in part.instances}
        there = {each.uuid for gpu in self.world.inventories[node].gpus for each in gpu.instances}
        wanted = {each.uuid for each in order.destroy}
        withdrawn = order not in orders
        failure = "no" if self.random.random() < 0.2 or (withdrawn and (held & wanted or wanted - there)) else ""
        if withdrawn:
            failure = failure or "withdrawn"
        if not failure:
            self.world.inventories[node] = self.world.cut(node, order)
        self.report(node, order.plan, failure)

    def report(self, node: str, plan: int, failure: str) -> None:
        inventory = self.world.inventories[node]
        self.absorb(
            self.world.report(
                node, InventorySeen(n=0, boot_id="boot-1", inventory=inventory, plan=plan, failure=failure)
            )
        )

    def trouble(self) -> None:
        node = self.random.choice(sorted(NODES))
        kind = self.random.randrange(5)
        if kind == 0:
            self.absorb(self.world.silent(node))
        elif kind == 1:
            self.absorb(self.world.heard(node))
        elif kind == 2:
            self.absorb(self.world.command(CordonNode(id="c", user="ann", node=node, reason="x")))
        elif kind == 3:
            self.absorb(self.world.command(UncordonNode(id="u", user="ann", node=node)))
        else:
            code = self.random.choice(("xid79", "", ""))
            self.absorb(self.world.report(node, HealthSeen(n=0, gpu=f"{node}-g0", code=code)))

    def heal(self) -> None:
        for node in sorted(self.world.inventories):
            self.absorb(self.world.heard(node))
            self.absorb(self.world.command(UncordonNode(id="u", user="ann", node=node)))
            self.absorb(self.world.report(node, HealthSeen(n=0, gpu=f"{node}-g0", code="")))
        for _ in range(200):
            self.world.now += 3600 * SECOND
            self.absorb(self.world.step())
            self.read.clear()
            for node in NODES:
                for order in self.world.layout_orders(node):
                    self.world.inventories[node] = self.world.cut(node, order)
                    self.report(node, order.plan, "")
            self.end()
            if not self.running and not self.world.core.state.offers:
                return


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_streams(seed: int) -> None:
    """See the module."""
    stream = Stream(seed)
    for _ in range(60):
        act = stream.random.random()
        if act < 0.4:
            stream.offer()
        elif act < 0.6:
            stream.end()
        elif act < 0.9:
            stream.agent()
        else:
            stream.trouble()
        stream.world.now += SECOND * stream.random.choice((1, 1, 1, 90))
        stream.absorb(stream.world.step())
    stream.heal()
    waiting = [offer.request for offer in stream.world.core.state.offers.values()]
    assert not waiting, f"never placed: {waiting}"
    assert PlacerCore.restore(stream.world.core.snapshot()).snapshot() == stream.world.core.snapshot()
