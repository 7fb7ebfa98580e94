"""Inventories of played nodes: what a repartition and a boot make of them. Pure."""

from collections.abc import Collection

import msgspec

from fairlead_agent.devices.labels import mig_labels
from fairlead_agent.devices.repartition import SimulatedCutter, carry_out
from fairlead_schemas.units.hardware import MIG_PREFIX
from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.resources import Gpu, Inventory


def cut(inventory: Inventory, order: LayoutOrder, refused: Collection[str] = ()) -> tuple[Inventory, str]:
    """Return the inventory when a driver has carried out the order, and why it has not ("" if it has)."""
    gpus, failure = list(inventory.gpus), f"there is no GPU {order.gpu}"
    for at, gpu in enumerate(gpus):
        if gpu.uuid == order.gpu:
            cutter = SimulatedCutter(gpu, order.plan, refused)
            failure = carry_out(cutter, order)
            gpus[at] = cutter.gpu
    return counted(inventory, tuple(gpus)), failure


def counted(inventory: Inventory, gpus: tuple[Gpu, ...]) -> Inventory:
    """Return the inventory with these GPUs, and labels that count their instances."""
    labels = {key: value for key, value in inventory.labels.items() if not key.startswith(MIG_PREFIX)}
    return msgspec.structs.replace(inventory, gpus=gpus, labels={**labels, **mig_labels(gpus)})


def booted(inventory: Inventory) -> Inventory:
    """Return the inventory after a boot: MIG mode lasts over it, instances do not."""
    if not any(gpu.instances for gpu in inventory.gpus):
        return inventory
    return counted(inventory, tuple(msgspec.structs.replace(gpu, instances=()) for gpu in inventory.gpus))
