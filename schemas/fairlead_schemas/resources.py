"""What a job asks for and what a node has, in integers.

milli-GPU (1000 = one whole GPU), milli-CPU, MiB. `Request` is hashable: equal requests form
one equivalence class, which is placed, refused and parked together.
"""

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Resources of one attempt: `nodes` times the amounts per node, all or nothing."""

    nodes: int = 1
    gpu_milli: int = 0  # per node
    cpu_milli: int = 0  # per node
    memory_mib: int = 0  # per node, shm included
    shm_mib: int = 0  # per node, counted in memory_mib
    #: "key=value" node labels that must all be present, sorted.
    selector: tuple[str, ...] = ()
    #: Least memory of each GPU; 0 accepts any.
    gpu_memory_mib: int = 0
    #: Least compute capability times ten (8.0 is 80); 0 accepts any.
    compute_capability: int = 0
    #: Only nodes of this pool ("": the default pool); set by the queue that accepts the job.
    pool: str = ""

    @property
    def gpu_milli_total(self) -> int:
        """milli-GPU over all nodes."""
        return self.nodes * self.gpu_milli


class Gpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One device as an agent found it."""

    uuid: str
    index: int
    model: str
    memory_mib: int
    compute_capability: int = 0  # times ten: 9.0 is 90
    numa: int = -1  # -1: not known


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
    #: Taints that the node's own settings ask for ("key=value:Effect").
    taints: tuple[str, ...] = ()
