"""What runs use of GPUs, summed over their processes; and what a run has left behind beside neighbours. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from fairlead_agent.devices.facts import GpuProcess
from fairlead_agent.run import RunKey
from fairlead_agent.sharing.guard import Share
from fairlead_schemas.desired import RunOrder


class Use(NamedTuple):
    """Of one run, on one GPU or MIG instance. What the driver does not say counts as nothing."""

    memory_mib: int
    utilization_pct: int


def uses(processes: Iterable[GpuProcess], owners: Mapping[int, RunKey]) -> dict[tuple[RunKey, str], Use]:
    """{(run, UUID): use}. Processes that are of no run are nobody's."""
    found: dict[tuple[RunKey, str], Use] = {}
    for each in processes:
        if (key := owners.get(each.pid)) is not None:
            memory_mib, percent = found.get((key, each.uuid), Use(0, 0))
            found[key, each.uuid] = Use(
                memory_mib + (each.memory_mib or 0), min(100, percent + (each.utilization_pct or 0))
            )
    return found


def is_share(order: RunOrder) -> bool:
    """Whether the order is for a part of a GPU that hardware does not mark off."""
    return bool(order.gpu_milli and order.gpu_memory_mib and order.gpus and not order.instances)


def shares(orders: Mapping[RunKey, RunOrder], running: Collection[RunKey]) -> list[Share]:
    """Those of running runs, one per GPU."""
    return [
        Share(key, gpu, order.gpu_memory_mib)
        for key, order in orders.items()
        if key in running and is_share(order)
        for gpu in order.gpus
    ]


def left_behind(
    key: RunKey,
    devices: Collection[str],
    processes: Iterable[GpuProcess],
    owners: Mapping[int, RunKey],
    neighbours: Collection[RunKey],
) -> dict[str, str]:
    """What of an ended run still occupies GPUs that others share, {UUID: evidence}: all processes but the neighbours'. One
    that nobody owns may be the run's."""
    found: dict[str, str] = {}
    for uuid in devices:
        pids = [each.pid for each in processes if each.uuid == uuid and owners.get(each.pid) not in neighbours]
        if pids:
            found[uuid] = f"processes of {key.name} on it: " + ", ".join(map(str, pids[:8]))
    return found
