"""Nodes whose GPUs are cut, and agents that carry out the plans of a `PlacerWorld`."""

from typing import Any

import msgspec

from fairlead_placer.desired_state import OrderBook
from fairlead_placer.mig.layouts import Instance, legal_fault
from fairlead_placer.mig.models import BY_NAME
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.desired import LayoutOrder, decode_desired
from fairlead_schemas.wire.reports import InventorySeen
from fairlead_schemas.wire.resources import Gpu, Inventory, MigInstance, Request
from tests.kit.placer_world import PlacerWorld

A100 = "NVIDIA A100-SXM4-40GB"


def cut_inventory(node: str, *layouts: str | None, cpu: int = 64, labels: dict[str, str] | None = None) -> Inventory:
    """A machine with a GPU for each layout ("1g.5gb@6 3g.20gb@0"; "": MIG mode without instances; None: not in MIG mode)."""
    gpus = tuple(
        Gpu(
            uuid=f"{node}-g{i}",
            index=i,
            model=A100,
            memory_mib=40960,
            compute_capability=80,
            mig=layout is not None,
            instances=tuple(_instance(f"{node}-g{i}", text) for text in (layout or "").split()),
        )
        for i, layout in enumerate(layouts)
    )
    return Inventory(
        gpus=gpus,
        cpu_milli=cpu * 1000,
        memory_mib=512 * 1024,
        labels=labels or {},
        runtime="hollow",
        simulated=True,
        address="10.0.0.1",
        hostname=node,
    )


def _instance(gpu: str, text: str) -> MigInstance:
    profile, _, start = text.partition("@")
    return MigInstance(uuid=f"{gpu}/{text}", profile=profile, start=int(start))


def mig(profile: str, count: int = 1, **more: Any) -> Request:
    """A request for instances, charged as their part of seven."""
    milli = -(-1000 * int(profile[0]) // 7)
    wanted = Request(profile=profile, gpu_parts=count, gpu_milli=count * milli, cpu_milli=1000, memory_mib=1024)
    return msgspec.structs.replace(wanted, **more)


class MigWorld(PlacerWorld):
    """A world whose agents answer plans. `inventories`: what each node last reported."""

    def __init__(self) -> None:
        super().__init__()
        self.inventories: dict[str, Inventory] = {}
        self.made = 0

    def join_cut(self, node: str, *layouts: str | None, incarnation: str = "", **more: Any) -> list[ev.Event]:
        """An agent with a new journal takes stock of a machine that is cut."""
        self.inventories[node] = cut_inventory(node, *layouts, **more)
        self.incarnations[node] = incarnation or f"{node}-inc{len(self.log)}"
        self.numbers[node] = 0
        return self.report(node, InventorySeen(n=0, boot_id="boot-1", inventory=self.inventories[node]))

    def layout_orders(self, node: str) -> list[LayoutOrder]:
        """What the node's agent is told to cut."""
        state = self.core.state
        return decode_desired(OrderBook().desired(state, state.nodes[node])).layouts

    def carry_out(self, node: str, failure: str = "") -> list[ev.Event]:
        """The agent does as it is told, or fails and leaves all as it was; what the placer commits upon its report."""
        (order,) = self.layout_orders(node)
        if not failure:
            self.inventories[node] = self.cut(node, order)
        return self.report(
            node,
            InventorySeen(n=0, boot_id="boot-1", inventory=self.inventories[node], plan=order.plan, failure=failure),
        )

    def cut(self, node: str, order: LayoutOrder) -> Inventory:
        """The inventory when the order is carried out; every order is checked as a driver would."""
        inventory = self.inventories[node]
        held = {each for run in self.core.state.runs.values() for part in run.parts for each in part.instances}
        assert not held & {each.uuid for each in order.destroy}, "an instance in use is touched"
        gpus = [self._cut(gpu, order) if gpu.uuid == order.gpu else gpu for gpu in inventory.gpus]
        return msgspec.structs.replace(inventory, gpus=tuple(gpus))

    def _cut(self, gpu: Gpu, order: LayoutOrder) -> Gpu:
        assert gpu.mig == (order.mode != "on")
        gone = {each.uuid for each in order.destroy}
        assert gone <= {each.uuid for each in gpu.instances}
        stay = [each for each in gpu.instances if each.uuid not in gone]
        for place in order.create:
            self.made += 1
            stay.append(MigInstance(uuid=f"{gpu.uuid}/new{self.made}", profile=place.profile, start=place.start))
        assert not legal_fault(BY_NAME["A100-40GB"], [Instance(each.profile, each.start) for each in stay])
        if order.mode == "off":
            assert not stay
        return msgspec.structs.replace(gpu, mig=order.mode != "off", instances=tuple(stay))


def given(events: list[ev.Event]) -> dict[str, tuple[str, ...]]:
    """{job: UUIDs of the instances that it got} of all placements, over its parts."""
    return {
        event.job: tuple(each for part in event.parts for each in part.instances)
        for event in events
        if isinstance(event, ev.JobPlaced)
    }


def planned(events: list[ev.Event]) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """(GPU, mode, what goes, what is made) of all plans."""
    return [
        (
            event.gpu,
            event.mode,
            tuple(f"{each.profile}@{each.start}" for each in event.destroy),
            tuple(f"{each.profile}@{each.start}" for each in event.create),
        )
        for event in events
        if isinstance(event, ev.MigLayoutPlanned)
    ]
