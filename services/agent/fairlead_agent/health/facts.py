"""What is known about the node at one moment, for `checks.py` to judge. Read by `looking.py`; pure data.

None stands for "not known", here as in the devices' facts: nothing is concluded from it. Times are monotonic nanoseconds.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fairlead_agent.devices.facts import GpuHealth


class Disk(NamedTuple):
    """A file system that the agent or its runtime writes to."""

    path: str
    total_bytes: int
    #: What is left to the agent.
    free_bytes: int


class Clock(NamedTuple):
    """Both clocks, read together, and how far the wall clock is from the placer's."""

    wall_ns: int
    monotonic_ns: int
    #: This node's wall clock minus the placer's; None: not known well enough.
    skew_ns: int | None = None


class Engine(NamedTuple):
    """The container engine."""

    #: Why it does not answer; "" where it does.
    silent: str = ""
    #: Another one means that it was started anew; "" where nothing says so.
    started: str = ""


class Dirt(NamedTuple):
    """A run that has ended, and whose GPUs are not free."""

    run: str
    gpus: tuple[str, ...]
    since_ns: int


class Kill(NamedTuple):
    """A run that was killed and has not ended."""

    run: str
    gpus: tuple[str, ...]
    since_ns: int


class Facts(NamedTuple):
    """All of it."""

    now_ns: int
    gpus: tuple[GpuHealth, ...] = ()
    #: {UUID: percent of its time that it computes}.
    loads: Mapping[str, int] = MappingProxyType({})
    #: GPUs that there should be; 0: nobody has said.
    gpus_expected: int = 0
    disks: tuple[Disk, ...] = ()
    clock: Clock | None = None
    engine: Engine | None = None
    #: Whether the parent of process runs lives; None: there is none.
    spawner: bool | None = None
    dirt: tuple[Dirt, ...] = ()
    kills: tuple[Kill, ...] = ()
