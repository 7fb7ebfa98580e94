"""Descriptions of the node: the inventory for the placer, and the place for its runs."""

from collections.abc import Mapping

from fairlead_agent.core.cpu_pinning import BadReservation, without_reserved
from fairlead_agent.devices.labels import pool_labels
from fairlead_agent.devices.port import Devices
from fairlead_agent.launch.plan import NodePlace
from fairlead_agent.launch.preparation import BOX_IN_CONTAINER, box_path
from fairlead_agent.linux import machine
from fairlead_agent.linux.machine import interface_of
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.settings import RESERVED_CPUS, Settings
from fairlead_bus.environment_settings import BadSetting
from fairlead_schemas.policies.storage import STORAGE_LABEL
from fairlead_schemas.wire.resources import Inventory


def inventory_of(settings: Settings, devices: Devices, runtime: Runtime) -> Inventory:
    """Everything that a placement may use, as it is now. Raises BadSetting where more CPUs are reserved than there are."""
    played = getattr(devices, "profile", None)  # a played machine has the profile's CPUs and memory
    labels = {
        **devices.labels(),
        "kubernetes.io/hostname": machine.hostname(),
        **settings.admin.labels,
        **pool_labels(settings.pool),
        "fairlead/runtime": runtime.name,
        "fairlead/devices": devices.name,
        **{f"{STORAGE_LABEL}{name}": place.backend for name, place in settings.grants.storage.items()},
    }
    gpus = devices.gpus()
    if injection := runtime.injection([gpu.uuid for gpu in gpus]):
        labels["fairlead/gpu-injection"] = injection
    inventory = Inventory(
        gpus=gpus,
        cpu_milli=played.cpu_milli if played is not None else machine.cpu_milli(),
        memory_mib=played.node_memory_mib if played is not None else machine.memory_mib(),
        labels=labels,
        runtime=runtime.name,
        simulated=devices.simulated,
        address=settings.address,
        hostname=machine.hostname(),
        inside=devices.inside(),
        taints=settings.admin.taints,
    )
    try:
        return without_reserved(inventory, settings.reserved)
    except BadReservation as error:
        raise BadSetting(f"{RESERVED_CPUS}: {error}") from error


def place_of(settings: Settings, environment: Mapping[str, str], *, contained: bool, simulated: bool) -> NodePlace:
    """Return the runs' view of the node. Containers have a network of their own, and see their box at another path."""
    boxes = box_path(settings.directory)
    # Only ranks of gangs receive the interface: their containers may be on the node's network.
    theirs = contained and settings.gang_network == "bridge"
    return NodePlace(
        settings.node,
        settings.address,
        environment,
        simulated,
        contained,
        "" if theirs else interface_of(settings.address),
        boxes,
        BOX_IN_CONTAINER if contained else boxes,
    )
