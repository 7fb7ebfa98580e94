"""What a device adapter can do. Adapters: NVML, simulated, recorded, none, and those of installed packages (`named.py`);
one contract suite for all.

`busy` is the evidence on which GPUs come back: an exit message alone frees nothing.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from fairlead_agent.devices.facts import GpuHealth, GpuProcess, Xid
from fairlead_schemas.desired import LayoutOrder, RunOrder
from fairlead_schemas.inside import Description
from fairlead_schemas.resources import Gpu
from fairlead_schemas.samples import GpuSample


class DevicesUnfit(Exception):
    """These devices cannot be used on this machine; the message says what is missing."""


class Devices(Protocol):
    """The GPUs of one node."""

    #: "simulated", "recorded", "nvml", "none", or that of an installed package.
    name: str
    #: True where the GPUs are played.
    simulated: bool

    def gpus(self) -> tuple[Gpu, ...]:
        """Every GPU, by rising index; the same answer while the machine is up, but for what `cut` changes."""
        ...

    def inside(self) -> Description:
        """Links, NUMA nodes, CPUs and NICs, a place for each GPU in the order of `gpus`; UNKNOWN where nothing is known."""
        ...

    def labels(self) -> dict[str, str]:
        """Node labels in GPU-feature-discovery's words; none where there is no GPU."""
        ...

    def environment(self, order: RunOrder, *, contained: bool) -> dict[str, str]:
        """Variables that a run on these devices needs besides those that every run has; no job can set them otherwise.
        `contained`: it runs in a container, where the machine's files and pipes are not."""
        ...

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        """One moment of every GPU, each followed by its MIG instances. `holders`: {uuid: "<job>.<attempt>"} of granted GPUs and
        instances."""
        ...

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        """What still occupies these GPUs or MIG instances, {uuid: evidence}; empty when all are free. One that cannot be
        asked counts as busy."""
        ...

    def health(self) -> list[GpuHealth]:
        """What is known of every GPU's health, in the order of `gpus`; one that is lost is there, and says so."""
        ...

    def xids(self) -> list[Xid]:
        """Faults that the driver has reported since the last call, oldest first; never waits for one."""
        ...

    def processes(self) -> list[GpuProcess]:
        """Who computes on the GPUs, by GPU and pid. Nothing of a GPU that does not say."""
        ...

    def cut(self, order: LayoutOrder) -> str:
        """Cut a GPU anew, of which nobody uses what goes. "", or why it was not done; `gpus` says what is there now."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...
