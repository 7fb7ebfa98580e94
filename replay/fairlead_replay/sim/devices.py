"""Devices of one machine that processes hold, as the machine sees them; and GPUs repartitioned as a driver does it.

The ground truth of I1 beyond whole GPUs: shares with a sum above one GPU, an instance that is missing or held by two
processes, CPUs to which two processes are pinned.
"""

from collections.abc import Collection, Iterable

import msgspec

from fairlead_agent.devices.labels import mig_labels
from fairlead_agent.devices.repartition import carry_out
from fairlead_agent.devices.simulated_mig import SimulatedCutter
from fairlead_schemas.units.hardware import MIG_PREFIX, parse_cpus
from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.resources import Gpu, Inventory

MILLI = 1000


def shared(order: RunOrder, other: RunOrder) -> list[str]:
    """Return the devices that both orders hold although only one may: instances, GPUs, CPUs."""
    if instances := set(order.instances) & set(other.instances):
        return sorted(instances)
    gpus = set(order.gpus) & set(other.gpus)
    if gpus and not (order.instances and other.instances) and not _are_shares(order, other):
        return sorted(gpus)
    if order.cpus and other.cpus:
        return [f"CPU {cpu}" for cpu in sorted(set(parse_cpus(order.cpus)) & set(parse_cpus(other.cpus)))]
    return []


def _are_shares(*orders: RunOrder) -> bool:
    return all(order.gpu_milli and not order.instances for order in orders)


def misfit(order: RunOrder, others: Iterable[RunOrder], inventory: Inventory) -> str:
    """Return a description of the devices that the machine lacks for the order in addition to the others, "" if none."""
    there = {each.uuid: gpu.uuid for gpu in inventory.gpus for each in gpu.instances}
    for gpu, instance in zip(order.gpus, order.instances, strict=False):
        if there.get(instance) != gpu:
            return f"there is no instance {instance} on {gpu}"
    if not order.instances and (cut := {gpu.uuid for gpu in inventory.gpus if gpu.mig} & set(order.gpus)):
        return f"{sorted(cut)} are in MIG mode"
    used: dict[str, int] = {}
    for each in (order, *others):
        for gpu in each.gpus if _are_shares(each) else ():
            used[gpu] = used.get(gpu, 0) + each.gpu_milli
    over = {gpu: milli for gpu, milli in used.items() if milli > MILLI and gpu in order.gpus}
    return f"shares of a GPU are more than all of it: {over}" if over else ""


def in_use(order: LayoutOrder, others: Iterable[RunOrder]) -> str:
    """Return a run that holds an instance or GPU that the layout removes, "" if there is none."""
    going = {each.uuid for each in order.destroy}
    for other in others:
        if going & set(other.instances) or (order.mode and order.gpu in other.gpus):
            return f"{other.job}.{other.attempt}"
    return ""


def cut(inventory: Inventory, order: LayoutOrder, refused: Collection[str] = ()) -> tuple[Inventory, str]:
    """The inventory when a driver has carried out the order, and why it has not ("" if it has)."""
    gpus, failure = list(inventory.gpus), f"there is no GPU {order.gpu}"
    for at, gpu in enumerate(gpus):
        if gpu.uuid == order.gpu:
            cutter = SimulatedCutter(gpu, order.plan, refused)
            failure = carry_out(cutter, order)
            gpus[at] = cutter.gpu
    return counted(inventory, tuple(gpus)), failure


def counted(inventory: Inventory, gpus: tuple[Gpu, ...]) -> Inventory:
    """The inventory with these GPUs, and labels that count their instances."""
    labels = {key: value for key, value in inventory.labels.items() if not key.startswith(MIG_PREFIX)}
    return msgspec.structs.replace(inventory, gpus=gpus, labels={**labels, **mig_labels(gpus)})


def booted(inventory: Inventory) -> Inventory:
    """MIG mode lasts over a boot, instances do not."""
    if not any(gpu.instances for gpu in inventory.gpus):
        return inventory
    return counted(inventory, tuple(msgspec.structs.replace(gpu, instances=()) for gpu in inventory.gpus))
