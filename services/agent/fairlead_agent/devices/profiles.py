"""Machines that can be played: their GPUs, links, CPUs and NICs, as data (`profiles.json`, which names its sources and
what is assumed). UUIDs follow from the node's name and the index, so a node keeps its GPUs over restarts.
"""

import hashlib
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from fairlead_agent.devices.labels import gpu_labels, inside_labels
from fairlead_agent.devices.port import DevicesUnfit
from fairlead_schemas.units.hardware import list_cpus, parse_cpus
from fairlead_schemas.wire.resources import Gpu, NodeTopology, NumaNode, PcieLevel


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Profile of one kind of machine."""

    machine: str
    product: str
    memory_mib: int
    compute_capability: int
    ecc: Literal["on", "off"]
    numa: tuple[int, ...]  # per GPU
    nvlinks: tuple[tuple[int, ...], ...]  # between GPU pairs
    pcie: tuple[tuple[PcieLevel, ...], ...]  # likewise; () where it is not recorded
    #: CPU lists as published: the first thread of each core, then the second ones in the same order.
    numa_nodes: tuple[NumaNode, ...]
    threads: int  # per core
    nics: tuple[str, ...]
    nic_levels: tuple[tuple[PcieLevel, ...], ...]
    cpu_milli: int
    node_memory_mib: int
    source: str
    assumed: str = ""

    def inside(self) -> NodeTopology:
        """Return the description that an agent on such a machine would give. Its CPUs are the simulated machine's, not
        this one's.
        """
        return NodeTopology(
            numa=self.numa,
            nvlinks=self.nvlinks if any(map(any, self.nvlinks)) else (),
            pcie=self.pcie,
            numa_nodes=tuple(
                msgspec.structs.replace(node, cpus=_side_by_side(node.cpus, self.threads)) for node in self.numa_nodes
            ),
            nics=self.nics,
            nic_levels=self.nic_levels,
        )

    def gpus(self, node: str) -> tuple[Gpu, ...]:
        """Return the machine's GPUs, on a node of that name."""
        return tuple(
            Gpu(
                uuid=simulated_uuid(node, index),
                index=index,
                model=self.product,
                memory_mib=self.memory_mib,
                compute_capability=self.compute_capability,
                numa=numa,
                ecc=self.ecc,
            )
            for index, numa in enumerate(self.numa)
        )

    def labels(self, gpus: tuple[Gpu, ...], inside: NodeTopology) -> dict[str, str]:
        """GPU feature discovery's, and that they are simulated."""
        return {**gpu_labels(gpus, self.machine), **inside_labels(inside), "fairlead/simulated": "true"}


def _side_by_side(cpus: str, threads: int) -> str:
    """ "0-1,4-5" with two threads per core is "0,4,1,5"."""
    listed = parse_cpus(cpus)
    cores = len(listed) // threads
    return list_cpus(tuple(listed[core + cores * thread] for core in range(cores) for thread in range(threads)))


class _Profiles(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    licence: str
    note: str
    profiles: dict[str, Profile]


@cache
def profiles() -> dict[str, Profile]:
    """Every profile that ships with the package, by name."""
    data = resources.files("fairlead_agent.devices").joinpath("profiles.json").read_bytes()
    return msgspec.json.decode(data, type=_Profiles).profiles


def profile_named(name: str) -> Profile:
    """Return one profile. Raises DevicesUnfit with the names of all profiles."""
    try:
        return profiles()[name]
    except KeyError:
        raise DevicesUnfit(f"no profile {name!r}; expected one of {', '.join(sorted(profiles()))}") from None


@cache
def played_inside(name: str) -> NodeTopology:
    """The inside of a profile: one object, however many nodes play it."""
    return profile_named(name).inside()


def simulated_uuid(node: str, index: int) -> str:
    """Return "GPU-" and a UUID made from node and index: always the same, different on every node."""
    digest = hashlib.sha256(f"{node}/{index}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
