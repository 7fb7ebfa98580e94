"""What the node says of itself: its inventory, put together from devices, machine, runtime and settings."""

from fairlead_agent import machine
from fairlead_agent.devices.labels import pool_labels
from fairlead_agent.devices.port import Devices
from fairlead_agent.reserving import BadReservation, without_reserved
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.settings import RESERVED_CPUS, Settings
from fairlead_bus.settings import BadSetting
from fairlead_schemas.resources import Inventory


def inventory_of(settings: Settings, devices: Devices, runtime: Runtime) -> Inventory:
    """Everything that a placement may use, as it is now. Raises BadSetting where more CPUs are reserved than there are."""
    played = getattr(devices, "profile", None)  # a played machine has the profile's CPUs and memory
    labels = {
        **devices.labels(), "kubernetes.io/hostname": machine.hostname(), **settings.admin.labels,
        **pool_labels(settings.pool), "fairlead/runtime": runtime.name, "fairlead/devices": devices.name,
    }  # fmt: skip
    inventory = Inventory(
        gpus=devices.gpus(),
        cpu_milli=played.cpu_milli if played is not None else machine.cpu_milli(),
        memory_mib=played.node_memory_mib if played is not None else machine.memory_mib(),
        labels=labels, runtime=runtime.name, simulated=devices.simulated,
        address=settings.address, hostname=machine.hostname(), inside=devices.inside(),
        taints=settings.admin.taints,
    )  # fmt: skip
    try:
        return without_reserved(inventory, settings.reserved)
    except BadReservation as error:
        raise BadSetting(f"{RESERVED_CPUS}: {error}") from error
