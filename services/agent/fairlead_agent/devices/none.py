"""No GPUs: a CPU-only node."""

from collections.abc import Collection, Mapping
from pathlib import Path

from fairlead_agent import machine
from fairlead_agent.devices.facts import GpuHealth, GpuProcess, Xid
from fairlead_agent.inside.describe import describe
from fairlead_schemas.desired import LayoutOrder, RunOrder
from fairlead_schemas.inside import Description
from fairlead_schemas.resources import Gpu
from fairlead_schemas.samples import GpuSample


class NoDevices:
    """A node without GPUs."""

    name = "none"
    simulated = False

    def gpus(self) -> tuple[Gpu, ...]:
        """None."""
        return ()

    def inside(self) -> Description:
        """This machine's CPUs and NICs."""
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
