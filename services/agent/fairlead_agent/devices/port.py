"""What a device adapter can do. Adapters: simulated, NVML, none; one contract suite.

`busy` is the evidence on which GPUs come back: an exit message alone frees nothing.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from fairlead_schemas.desired import LayoutOrder
from fairlead_schemas.inside import Description
from fairlead_schemas.resources import Gpu
from fairlead_schemas.samples import GpuSample


class DevicesUnfit(Exception):
    """These devices cannot be used on this machine; the message says what is missing."""


class Devices(Protocol):
    """The GPUs of one node."""

    #: "simulated", "nvml" or "none".
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

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        """One moment of every GPU. `holders`: {uuid: "<job>.<attempt>"} of granted GPUs."""
        ...

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        """What still occupies these GPUs or MIG instances, {uuid: evidence}; empty when all are free. One that cannot be
        asked counts as busy."""
        ...

    def cut(self, order: LayoutOrder) -> str:
        """Cut a GPU anew, of which nobody uses what goes. "", or why it was not done; `gpus` says what is there now."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...
