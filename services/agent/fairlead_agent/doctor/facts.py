"""What is known of a machine that is, or is to be, a node. Read by `reading.py`; pure data. None: not known."""

from collections.abc import Mapping
from typing import NamedTuple


class Node(NamedTuple):
    """What its settings say that it is."""

    name: str
    runtime: str
    devices: str
    #: Versions that are too old are a warning only: whoever packages them has mended them (FAIRLEAD_FLOORS=note).
    notes_old: bool = False
    #: Where gangs are told to meet, and what network their containers join.
    address: str = "127.0.0.1"
    gang_network: str = "bridge"


class Engine(NamedTuple):
    """The container engine, as it describes itself; `silent` says why it does not."""

    silent: str = ""
    version: str = ""
    runc: str = ""
    live_restore: bool = False
    userns_remap: bool = False
    seccomp: bool = False
    cgroup: str = ""  # "1" | "2"
    #: Limits that the kernel does not give it: "memory", "swap", "pids", "cpu", "cpuset".
    missing_limits: tuple[str, ...] = ()
    cdi: bool = False
    #: systemd keeps its containers' control groups, and what devices they may use.
    by_systemd: bool = False


class Driver(NamedTuple):
    """NVIDIA's driver and container toolkit. "": not there."""

    version: str = ""
    silent: str = ""
    gpus: int = 0
    toolkit: str = ""
    #: Whether a container gets GPUs by naming them in its environment (accept-nvidia-visible-devices-envvar-when-unprivileged).
    environment_opens: bool | None = None
    #: Device files of it without a link in /dev/char, by which systemd would know them.
    unlinked: tuple[str, ...] = ()


class Disk(NamedTuple):
    """A file system that runs or images fill."""

    path: str
    total_bytes: int
    free_bytes: int


class Mode(NamedTuple):
    """A file or directory, who owns it, and what of its mode others must not have."""

    path: str
    mode: int
    owner: int
    forbidden: int


class Facts(NamedTuple):
    """All of it."""

    python: tuple[int, int, int] = (0, 0, 0)
    #: Where the settings stand, and why they cannot be used.
    settings_from: str = ""
    node: Node | None = None
    bad_setting: str = ""
    engine: Engine | None = None
    driver: Driver = Driver()
    disks: tuple[Disk, ...] = ()
    clock_synchronised: bool | None = None
    #: Whether the bus took us; "" yes, else why not.
    bus: str = ""
    bus_url: str = ""
    keyed: bool = False
    modes: tuple[Mode, ...] = ()
    agent_runs: bool | None = None
    guard_runs: bool | None = None
    spawner_runs: bool | None = None
    #: {"kernel.pid_max": 4194304}, of what could be read.
    kernel: Mapping[str, int] = {}
