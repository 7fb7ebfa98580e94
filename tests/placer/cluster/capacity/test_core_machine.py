"""The placer's core under all kinds of requests: shares, gangs, racks, NUMA nodes, elastic ones, tasks, groups,
exclusive ones, with faults, drains, taints, maintenance windows, reserved nodes, and nodes that return with another
inventory. After every step the invariants hold (I1, I2, I6, and that backfilled jobs leave room for the reservation:
`PlacerWorld` checks them), the snapshot restores to itself, no waiting job fits, and no job starts where a window would
interrupt it. At the end the log folds to the same state."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bench.vectors.allocation import descriptions
from fairlead_placer.cluster.capacity.node_shape import REPLICAS_LABEL, SHARING_LABEL
from fairlead_placer.cluster.capacity.unit_request import unit_requests
from fairlead_placer.cluster.placement.gangs import Shortfall
from fairlead_placer.cluster.timeline.upcoming_maintenance import barred
from fairlead_placer.core import PlacerCore
from fairlead_placer.invariants import check
from fairlead_placer.scheduling.node_selection import find
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import (
    CancelMaintenance,
    CordonNode,
    DrainNode,
    RestoreGpu,
    ScheduleMaintenance,
    TaintNode,
    UncordonNode,
    UntaintNode,
)
from fairlead_schemas.wire.reports import ExitSeen, HealthSeen, InventorySeen
from fairlead_schemas.wire.resources import UNKNOWN_TOPOLOGY, Inventory, NodeTopology, Request
from tests.kit.placer_world import SECOND, PlacerWorld, request
from tests.placer.cluster.capacity.ground import machine

NODES = ("a", "b", "c", "d", "e")
node_names = st.sampled_from(NODES)
INSIDES = (UNKNOWN_TOPOLOGY, descriptions()["dgx1-v100"], descriptions()["rtx4090x8-pcie"], descriptions()["dgx-h100"])
REPLICAS = {REPLICAS_LABEL: "4", SHARING_LABEL: "time-slicing"}

#: What jobs ask for, from shares to groups.
WISHES: list[dict[str, Any]] = [
    {"gpus": 1}, {"gpus": 1, "cpu": 0, "memory_gib": 0}, {"gpus": 2, "require": ("numa",)}, {"gpus": 2, "require": ("nvlink",)},
    {"gpus": 3, "prefer": ("numa", "nvlink")}, {"gpus": 4, "cpu": 9}, {"gpus": 8}, {"gpus": 0, "cpu": 7}, {"gpus": 1, "nics": 1},
    {"gpus": 1, "exclusive": True}, {"gpus": 2, "exclusive": True, "nodes": 2}, {"gpus": 2, "nodes": 2}, {"gpus": 4, "nodes": 3},
    {"gpus": 1, "nodes": 2, "require": ("rack",)}, {"gpus": 2, "nodes": 3, "require": ("block",)}, {"gpus": 8, "nodes": 2, "prefer": ("rack",)},
    {"gpus": 2, "nodes": 5, "nodes_min": 2}, {"gpus": 1, "nodes": 4, "nodes_min": 1, "require": ("rack",)},
    {"gpus": 1, "nodes": 6, "tasks": True}, {"gpus": 2, "nodes": 3, "tasks": True, "require": ("numa",)},
    {"gpus": 1, "nodes": 9, "tasks": True, "require": ("node",)}, {"gpus": 0, "nodes": 12, "tasks": True, "cpu": 2},
    {"gpus": 1, "selector": ("fairlead/rack=r1",)}, {"gpus": 1, "tolerations": ("t",)},
    {"gpus": 2, "also": (Request(nodes=2, cpu_milli=3000),)}, {"gpus": 1, "nodes": 2, "require": ("rack",), "also": (Request(gpu_milli=2000),)},
]  # fmt: skip
SHARES = [
    Request(gpu_milli=milli, gpu_parts=1, gpu_memory_mib=memory, cpu_milli=cpu, nodes=nodes, tasks=tasks)
    for milli, memory, cpu, nodes, tasks in (
        (500, 0, 0, 1, False), (250, 30000, 1000, 1, False), (700, 1000, 500, 1, False), (300, 0, 1000, 3, False),
        (300, 0, 0, 5, True),
    )
] + [Request(gpu_milli=250, gpu_parts=1, replicas=True), Request(gpu_milli=500, gpu_parts=2, replicas=True)]  # fmt: skip
wishes = st.sampled_from([*(request(**wish) for wish in WISHES), *SHARES])


class CoreMachine(RuleBasedStateMachine):
    """Rules are what the world may do; what the placer says of it is the core's own."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PlacerWorld()

    def _stock(self, name: str, inside: NodeTopology, gpus: int, place: tuple[str, str], sliced: bool) -> Inventory:
        labels = {"fairlead/rack": place[0], "fairlead/block": place[1]} if place[0] else {}
        return machine(name, gpus, inside=inside, cpu=16, labels=labels | (REPLICAS if sliced else {}))

    @rule(
        name=node_names,
        inside=st.sampled_from(INSIDES),
        gpus=st.sampled_from([0, 2, 8]),
        new=st.booleans(),
        place=st.sampled_from([("", ""), ("r1", "b1"), ("r2", "b1"), ("r3", "b2")]),
        sliced=st.sampled_from([False, False, True]),
    )
    def take_stock(
        self, name: str, inside: NodeTopology, gpus: int, place: tuple[str, str], sliced: bool, new: bool
    ) -> None:
        """A node joins, or comes back as another; with a new journal, what ran there is lost."""
        world = self.world
        boot = "boot-1"
        if new or name not in world.incarnations:
            world.incarnations[name] = f"{name}-{len(world.log)}"
            world.numbers[name], boot = 0, f"boot-{len(world.log)}"
        world.report(name, InventorySeen(n=0, boot_id=boot, inventory=self._stock(name, inside, gpus, place, sliced)))

    @initialize(
        nodes=st.integers(0, 3), wanted=st.lists(wishes, min_size=3, max_size=8), inside=st.sampled_from(INSIDES)
    )
    def begin(self, nodes: int, wanted: list[Request], inside: NodeTopology) -> None:
        """A little cluster in use."""
        for name in NODES[:nodes]:
            self.take_stock(name, inside, 2, ("r1", "b1"), False, True)
        for each in wanted:
            self.offer(each)

    @rule(wanted=st.lists(wishes, min_size=1, max_size=3), limit_s=st.sampled_from([0, 0, 60, 900]))
    def offer_some(self, wanted: list[Request], limit_s: int) -> None:
        for each in wanted:
            self.offer(each, limit_s)

    @precondition(lambda self: self.world.core.state.offers)
    @rule(data=st.data())
    def keep_nodes(self, data: st.DataObject) -> None:
        """For one that has waited long."""
        job = data.draw(st.sampled_from(sorted(self.world.core.state.offers)))
        asked = ev.ReservationRequested(cause="clock", job=job, attempt=1, waited_ns=1)
        self.watch(self.world.queue(asked))

    @rule(seconds=st.sampled_from([1, 60, 600]))
    def pass_time(self, seconds: int) -> None:
        self.world.now += seconds * SECOND
        self.watch(self.world.step())

    @rule(
        name=node_names,
        in_s=st.sampled_from([30, 300, 2000]),
        lasting_s=st.sampled_from([10, 900]),
        notice_s=st.sampled_from([0, 20]),
        cancel=st.booleans(),
    )
    def window(self, name: str, in_s: int, lasting_s: int, notice_s: int, cancel: bool) -> None:
        """One of the node's own is planned, or what was planned is cancelled."""
        starts_ns = self.world.now + in_s * SECOND
        plan = ScheduleMaintenance(
            id="p",
            name=f"of-{name}",
            nodes=(name,),
            starts_ns=starts_ns,
            ends_ns=starts_ns + lasting_s * SECOND,
            notice_ns=notice_s * SECOND,
        )
        self.watch(self.world.command(CancelMaintenance(id="c", name=f"of-{name}") if cancel else plan))

    def watch(self, events: list[ev.Event]) -> None:
        for event in events:
            if isinstance(event, ev.JobPlaced):
                self._check_placed(event)

    def offer(self, wanted: Request, limit_s: int = 0) -> None:
        events = self.world.offer(wanted, limit_s=limit_s)
        told = [event for event in events if isinstance(event, ev.JobPlaced | ev.JobUnplaceable)]
        state = self.world.core.state
        assert told or any(outcome.outcome for outcome in state.classes.values())
        self.watch(events)

    def _check_placed(self, event: ev.JobPlaced) -> None:
        """I6: all units of all kinds, no node twice, and in one rack where that is required."""
        wanted = self.world.core.state.request_of(event.job)
        assert wanted is not None
        names = [part.node for part in event.parts]
        assert len(set(names)) == len(names)
        units = sum(part.tasks for part in event.parts)
        others = sum(kind.nodes for kind in wanted.also)
        assert (wanted.nodes_min or wanted.nodes) + others <= units <= wanted.units
        level = unit_requests(wanted)[0].level
        if level and len(names) > 1:
            nodes = self.world.core.state.nodes
            found = {nodes[name].inventory.labels.get(f"fairlead/{level}") for name in names}
            assert len(found) == 1 and None not in found

        limit_ns = self.world.core.state.jobs[event.job].total_ns
        for window in self.world.core.state.windows.values():  # start and grace aside
            if limit_ns and not window.started and not set(names).isdisjoint(window.nodes):
                assert self.world.now + limit_ns <= window.starts_ns, f"{event.job} is met by {window}"

    @precondition(lambda self: self.world.core.state.runs)
    @rule(data=st.data(), every=st.booleans(), clean=st.sampled_from([True, True, False]))
    def ranks_end(self, data: st.DataObject, every: bool, clean: bool) -> None:
        state = self.world.core.state
        run = state.runs[data.draw(st.sampled_from(sorted(state.runs)))]
        ranks = range(len(run.parts)) if every else [data.draw(st.integers(0, len(run.parts) - 1))]
        for rank in ranks:
            end = ExitSeen(n=0, job=run.job, attempt=run.attempt, rank=rank, outcome="exited", exit_code=0, clean=clean)
            self.world.report(run.parts[rank].node, end)

    @precondition(lambda self: self.world.core.state.offers)
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.world.core.state.offers)))
        self.world.queue(ev.OfferWithdrawn(cause="cmd:r", job=job, attempt=1, reason="hold"))

    @precondition(lambda self: self.world.core.state.nodes)
    @rule(data=st.data(), gpu=st.integers(0, 3), code=st.sampled_from(["xid79", "xid79", ""]))
    def health(self, data: st.DataObject, gpu: int, code: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.core.state.nodes)))
        self.world.report(name, HealthSeen(n=0, gpu=f"{name}-g{gpu}", code=code))

    @rule(name=node_names, data=st.data())
    def operate(self, name: str, data: st.DataObject) -> None:
        number = f"c{len(self.world.log)}"
        self.world.command(
            data.draw(
                st.sampled_from(
                    [
                        CordonNode(id=number, node=name),
                        UncordonNode(id=number, node=name),
                        DrainNode(id=number, node=name),
                        TaintNode(id=number, node=name, taint="t:NoSchedule"),
                        TaintNode(id=number, node=name, taint="t:PreferNoSchedule"),
                        UntaintNode(id=number, node=name, taint="t"),
                        RestoreGpu(id=number, node=name, gpu=f"{name}-g0"),
                    ]
                )
            )
        )

    @rule(name=node_names, lost=st.booleans())
    def lose_or_hear(self, name: str, lost: bool) -> None:
        (self.world.silent if lost else self.world.heard)(name)

    @rule()
    def restart(self) -> None:
        self.world.core = PlacerCore.restore(self.world.core.snapshot())
        assert not any(isinstance(event, ev.JobPlaced) for event in self.world.step())

    @invariant()
    def what_waits_does_not_fit(self) -> None:
        """Each class was tried since capacity was freed that it could use, except for one that a window excludes."""
        state = self.world.core.state
        for group in state.classes.values():
            free = [job for _, job in group.offers if not barred(state, job, self.world.now)]
            job = free[0] if free else group.offers[0][1]
            assert not free or isinstance(find(state, group.request), Shortfall), (
                f"{job} waits, and fits: {group.request}"
            )

    @invariant()
    def the_snapshot_is_the_state(self) -> None:
        shot = self.world.core.snapshot()
        restored = PlacerCore.restore(shot)
        assert restored.snapshot() == shot
        check(restored.state)

    def teardown(self) -> None:
        """Folding the log from its beginning leads to the same state."""
        fresh = PlacerCore()
        for sequence, commit in enumerate(self.world.log, 1):
            fresh.evolve(sequence, commit)
        assert fresh.snapshot() == self.world.core.snapshot()
        check(fresh.state)


CoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCoreMachine = pytest.mark.slow(CoreMachine.TestCase)


def test_generated_requests_are_valid() -> None:
    """A queue accepts them, except that some have no CPU and no memory."""
    from fairlead_schemas.wire.resource_requests import faults

    for wish in [*(request(**wish) for wish in WISHES), *SHARES]:
        assert faults(wish) == (), wish
        assert msgspec.json.decode(msgspec.json.encode(wish), type=Request) == wish
