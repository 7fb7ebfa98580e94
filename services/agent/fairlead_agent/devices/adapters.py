"""Device adapters by name: our own, and those that installed packages offer by an entry point in `fairlead.devices`; and
the adapter of a node without GPUs.

An entry point names a function that takes a `Machine` and returns devices (`port.Devices`), or raises DevicesUnfit.
"""

from collections.abc import Callable, Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import NamedTuple, cast

from fairlead_agent.devices.port import Devices, DevicesUnfit, GpuHealth, GpuProcess, Xid
from fairlead_agent.devices.recorded import RecordedDevices
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_agent.linux import machine
from fairlead_agent.linux.machine import describe
from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.resources import Gpu, NodeTopology
from fairlead_schemas.wire.samples import GpuSample


class NoDevices:
    """A node without GPUs."""

    name = "none"
    simulated = False

    def gpus(self) -> tuple[Gpu, ...]:
        """None."""
        return ()

    def inside(self) -> NodeTopology:
        """Return the description of this machine's CPUs and NICs."""
        return describe(Path("/sys"), machine.cpus())

    def labels(self) -> dict[str, str]:
        """None."""
        return {}

    def environment(self, order: RunOrder, *, contained: bool) -> dict[str, str]:
        """None."""
        return {}

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        """Nothing to measure."""
        return []

    def health(self) -> list[GpuHealth]:
        """Nothing to be well or ill."""
        return []

    def xids(self) -> list[Xid]:
        """None."""
        return []

    def processes(self) -> list[GpuProcess]:
        """None."""
        return []

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        """A GPU that is not there cannot be shown to be free."""
        return dict.fromkeys(uuids, "this node has no such GPU")

    def cut(self, order: LayoutOrder) -> str:
        """There is nothing to cut."""
        return f"this node has no GPU {order.gpu}"

    def close(self) -> None:
        """Nothing to let go of."""


GROUP = "fairlead.devices"


class Machine(NamedTuple):
    """Facts for an adapter about the node for which it is opened."""

    node: str
    #: The agent's own, for what has to outlive it.
    directory: Path
    #: The agent's environment: an adapter of a package reads its settings there.
    environment: Mapping[str, str]
    profile: str = "dgx-a100"
    simulation: Path | None = None
    recording: Path | None = None
    gpu_free_mib: int = 64


def _simulated(machine: Machine) -> Devices:
    return SimulatedDevices(
        machine.node,
        machine.profile,
        kept=machine.directory / "simulated-mig.json",
        script=machine.simulation,
        reports=machine.directory / "simulated-gpus",
    )


def _recorded(machine: Machine) -> Devices:
    if machine.recording is None:
        raise DevicesUnfit("FAIRLEAD_RECORDING: expected the file that recorded devices replay, found nothing")
    return RecordedDevices.load(machine.recording)


def _nvml(machine: Machine) -> Devices:
    from fairlead_agent.devices.nvml import NvmlDevices  # needs a package that CPU-only nodes may not have

    return NvmlDevices(free_mib=machine.gpu_free_mib)


def _auto(machine: Machine) -> Devices:
    try:
        return _nvml(machine)
    except DevicesUnfit:
        return NoDevices()


OURS: dict[str, Callable[[Machine], Devices]] = {
    "simulated": _simulated,
    "recorded": _recorded,
    "nvml": _nvml,
    "none": lambda _: NoDevices(),
    "auto": _auto,
}


def open_devices(name: str, machine: Machine) -> Devices:
    """The devices of that name. Raises DevicesUnfit, also where there is no such name or it cannot be loaded."""
    make = OURS.get(name)
    if make is not None:
        return make(machine)
    devices = _installed(name)(machine)
    missing = [each for each in _PORT if not hasattr(devices, each)]
    if missing:
        raise DevicesUnfit(f'devices "{name}" lack {", ".join(missing)}: see docs/reference/devices.md')
    return devices


_PORT = (
    "name",
    "simulated",
    "gpus",
    "inside",
    "labels",
    "environment",
    "sample",
    "health",
    "xids",
    "processes",
    "busy",
    "cut",
    "close",
)


def _installed(name: str) -> Callable[[Machine], Devices]:
    points = [point for point in entry_points(group=GROUP) if point.name not in OURS]
    offered = [point for point in points if point.name == name]
    if not offered:
        known = sorted({*OURS, *(point.name for point in points)})
        raise DevicesUnfit(f'FAIRLEAD_DEVICES: expected one of {", ".join(known)}, found "{name}"')
    if len(offered) > 1:
        values = sorted(point.value for point in offered)
        raise DevicesUnfit(f'devices "{name}" are offered by more than one package: {", ".join(values)}')
    return _load(offered[0])


def _load(point: EntryPoint) -> Callable[[Machine], Devices]:
    try:
        found = point.load()
    except Exception as error:
        raise DevicesUnfit(f'devices "{point.name}" ({point.value}) cannot be loaded: {error!r}') from error
    if not callable(found):
        raise DevicesUnfit(f'devices "{point.name}" ({point.value}) are no function that takes a Machine')
    return cast(Callable[[Machine], Devices], found)
