"""Requests of jobs and resources of nodes, in integers; and an agent's description of its node's inside: links, NUMA
nodes, CPUs, NICs.

milli-GPU (1000 = one whole GPU), milli-CPU, MiB. `Request` is hashable: equal requests form one equivalence
class, which is placed, refused and parked together.

The description is plain data; the placer checks its consistency.

Every list here has the GPUs in the order of the node's inventory.
"""

from typing import Literal, get_args

import msgspec

#: Connection between two devices on PCIe, nearest first, in nvidia-smi's words: one board, one bridge (PIX),
#: several bridges (PXB), the host bridge (PHB), several of one NUMA node (NODE), across NUMA nodes (SYS). "X"
#: is the device itself; "" is not known.
PcieLevel = Literal["SAME_BOARD", "PIX", "PXB", "PHB", "NODE", "SYS", "X", ""]
PCIE_LEVELS: tuple[str, ...] = get_args(PcieLevel)

#: A node has no more of each: an agent that says otherwise is not believed.
TOPOLOGY_GPUS_MAX = 64
TOPOLOGY_NICS_MAX = 128
NUMA_NODES_MAX = 64
NVLINKS_MAX = 64
NIC_CHARS_MAX = 63
#: Of a description's JSON.
TOPOLOGY_BYTES_MAX = 32 * 1024


class NumaNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """NUMA node, with or without GPUs."""

    node: int
    #: As Linux writes it, "0-19,40-59" (units/hardware.py); "" is not known. CPUs are given in this order: who knows which threads share
    #: a core lists them side by side ("0,40,1,41,…"), so that two jobs share no core.
    cpus: str = ""
    socket: int = -1  # -1: not known; the node is then taken for a socket of its own


class NodeTopology(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The inside of a node. Hashable: equal nodes have equal descriptions."""

    #: NUMA node of each GPU, -1 where it is not known. As long as the node has GPUs.
    numa: tuple[int, ...] = ()
    #: [gpu][gpu]: NVLinks between the two, 0 on the diagonal. (): there are none.
    nvlinks: tuple[tuple[int, ...], ...] = ()
    #: [gpu][gpu]: PCIe level. (): not known.
    pcie: tuple[tuple[PcieLevel, ...], ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    nics: tuple[str, ...] = ()
    #: [gpu][nic]: PCIe level. (): not known.
    nic_levels: tuple[tuple[PcieLevel, ...], ...] = ()

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.numa)


#: Nothing is known. What is left out of bytes: an agent that knows nothing says this very object.
UNKNOWN_TOPOLOGY = NodeTopology()


class Request(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False, cache_hash=True
):
    """Resources of one attempt: `nodes` units of the same amounts, and those of `also`; all or nothing.

    A unit is what one node gives, or (`tasks`) one of several that may share a node.
    """

    nodes: int = 1
    #: Of a unit. 1000 for each whole GPU; of parts of a GPU what they are charged as, all `gpu_parts` together.
    gpu_milli: int = 0
    cpu_milli: int = 0  # of a unit
    memory_mib: int = 0  # of a unit, shm included
    shm_mib: int = 0  # of a unit, counted in memory_mib
    #: What the node's labels must say, each a requirement of units/selectors.py, sorted: "key=value".
    selector: tuple[str, ...] = ()
    #: Least memory of each GPU, and what a share may use of it; 0: any, and as much as its share of the GPU.
    gpu_memory_mib: int = 0
    #: Least compute capability times ten (8.0 is 80); 0 accepts any.
    compute_capability: int = 0
    #: Only nodes of this pool ("": the default pool); set by the queue that accepts the job.
    pool: str = ""
    #: Not 0: the unit gets so many parts of GPUs: shares of gpu_milli each, or replicas of GPUs that their node slices by
    #: time (`replicas`), each on another GPU; or MIG instances (`profile`), wherever on the node they are. 0: whole GPUs.
    gpu_parts: int = 0
    #: MIG profile of the parts: "3g.20gb".
    profile: str = ""
    replicas: bool = False
    #: True where units may share a node: 16 tasks on 2, 3 or 16 nodes.
    tasks: bool = False
    #: Fewest units that it starts with; 0: all of them.
    nodes_min: int = 0
    #: True: no other job runs on its nodes, and it gets all their CPUs and memory.
    exclusive: bool = False
    #: Network devices that its node must have.
    nics: int = 0
    #: Taints of nodes that it puts up with: "key=value:Effect", "key:Effect", "key", ":Effect", sorted.
    tolerations: tuple[str, ...] = ()
    #: Levels of units/hardware.py within which all of it must lie, or shall if it can be had; sorted.
    require: tuple[str, ...] = ()
    prefer: tuple[str, ...] = ()
    #: Policy of packing that it wants ("": its pool's): "pack" or "spread".
    packing: str = ""
    #: Further units of another kind, placed with these or not at all. Theirs alone: nodes, amounts, GPUs, selector.
    also: tuple["Request", ...] = ()

    def without(self, missing: int) -> "Request":
        """Return the resources of an attempt whose placement has `missing` units less than the request's maximum
        (`nodes_min`).
        """
        return msgspec.structs.replace(self, nodes=self.nodes - missing) if missing else self

    @property
    def kinds(self) -> tuple["Request", ...]:
        """Each kind of unit, in the order of the ranks."""
        return (self, *self.also)

    @property
    def gpu_milli_total(self) -> int:
        """milli-GPU of all units."""
        own = self.nodes * self.gpu_milli
        return own + sum([kind.nodes * kind.gpu_milli for kind in self.also]) if self.also else own

    @property
    def cpu_milli_total(self) -> int:
        """milli-CPU of all units."""
        own = self.nodes * self.cpu_milli
        return own + sum([kind.nodes * kind.cpu_milli for kind in self.also]) if self.also else own

    @property
    def memory_mib_total(self) -> int:
        """MiB of all units."""
        own = self.nodes * self.memory_mib
        return own + sum([kind.nodes * kind.memory_mib for kind in self.also]) if self.also else own

    @property
    def units(self) -> int:
        """Units of all kinds."""
        return self.nodes + sum([kind.nodes for kind in self.also]) if self.also else self.nodes


class MigInstance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """MIG instance that exists on a GPU."""

    uuid: str
    profile: str  # "3g.20gb"
    #: Its first memory slice; -1: not known.
    start: int = -1


class MigPlace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A MIG instance that shall be made."""

    profile: str
    start: int  # its first memory slice


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """GPU device as an agent found it."""

    uuid: str
    index: int
    model: str
    memory_mib: int
    compute_capability: int = 0  # times ten: 9.0 is 90
    numa: int = -1  # -1: not known
    #: Whether it corrects errors of its memory; "": not known, or it cannot.
    ecc: Literal["on", "off", ""] = ""
    #: True in MIG mode: then only its instances can be used.
    mig: bool = False
    instances: tuple[MigInstance, ...] = ()


class Inventory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything of a node that a placement may use."""

    gpus: tuple[Gpu, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    #: Node labels in GPU-feature-discovery's words ("nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB").
    labels: dict[str, str] = {}
    runtime: str = "process"  # process | docker | hollow
    #: True where the GPUs are played, not real. Shown wherever the node is.
    simulated: bool = False
    #: Where other ranks of a gang reach this node.
    address: str = "127.0.0.1"
    hostname: str = ""
    #: Links, NUMA nodes, CPUs and NICs; UNKNOWN, or a place for each GPU.
    inside: NodeTopology = UNKNOWN_TOPOLOGY
    #: As its admin says, each as units/taints.py reads it: "key=value:Effect".
    taints: tuple[str, ...] = ()
