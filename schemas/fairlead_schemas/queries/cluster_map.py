"""Cluster map of the HTTP API (`GET /v1/map`): every node's GPUs, their holders, and the remaining capacity.

A GPU is in one state:

free       no run holds any of it, and it may be given now
kept       as free, but its node takes the work of one waiting job only (`MapNode.reserved_for`)
tainted    as free, but only work that tolerates its node's taints may have it
cut        as free, but in MIG mode: only its instances can be given, not all of it
closed     no run holds any of it, but its node takes no work: it is cordoned, draining, drained, in quarantine,
           lost or silent, suspect with its one run, or tainted by Fairlead itself (fairlead/unhealthy, fairlead/preflight)
held       runs hold it, or parts of it
cleaning   the runs that held it have ended; it waits for evidence that nothing is left on it
unhealthy  no run holds any of it, and it is faulted: it may not be used

Packing of a pool and its free capacity, in the explainer's answers and in the API.
"""

from typing import Literal

import msgspec

from fairlead_schemas.queuefile.settings import Packing

type GpuState = Literal["free", "kept", "tainted", "cut", "closed", "held", "cleaning", "unhealthy"]
GPU_STATES: tuple[GpuState, ...] = ("free", "kept", "tainted", "cut", "closed", "held", "cleaning", "unhealthy")
#: Work that a node accepts: all, that of one waiting job, work that tolerates its taints, or none.
type Access = Literal["open", "kept", "tainted", "closed"]

#: A whole GPU.
WHOLE_MILLI = 1000


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rank of a run and how much of the GPU it holds."""

    job: str
    attempt: int
    rank: int
    milli: int
    #: UUID of the MIG instance that it holds; "": the GPU is not cut.
    instance: str = ""


class MapInstance(msgspec.Struct, frozen=True, kw_only=True):
    """MIG instance on a GPU; its holder names it (`Holder.instance`)."""

    uuid: str
    profile: str  # "3g.20gb"


class MapGpu(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GPU with its state and its holders."""

    uuid: str
    index: int
    model: str
    state: GpuState
    holders: list[GpuHolder]
    #: Of a GPU in MIG mode.
    instances: list[MapInstance] = []
    #: Code of what is wrong with it; "": nothing is. A run may still hold it.
    fault: str = ""


class MapNode(msgspec.Struct, frozen=True, kw_only=True):
    """Node with its GPUs. `domains` is {level: its domain there}, for the levels that its labels name (rack, block,
    spine …).
    """

    id: str
    pool: str
    domains: dict[str, str]
    state: str  # as of `api.Node`
    reason: str
    simulated: bool
    #: The waiting job whose work alone it takes; "": anybody's.
    reserved_for: str
    gpus: list[MapGpu]
    #: When that job will have room there; null: not known.
    reserved_from: str | None = None
    access: Access = "open"
    taints: list[str] = []
    #: Seconds for which its agent has been silent; 0: heartbeats arrive.
    silent_seconds: int = 0


class MapJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that holds GPUs of the map, and how many of them. A job that is not known any more has a state of ""."""

    id: str
    name: str
    user: str
    queue: str
    state: str
    gpu_milli: int


class OneNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node that could give the most whole GPUs now."""

    node: str
    gpus: int


class MapGang(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one domain, each with so many GPUs and all of them free."""

    domain: str
    nodes: int
    gpus_per_node: int


class PoolRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Free capacity of the shown nodes of one pool."""

    pool: str
    nodes: int
    nodes_simulated: int
    gpus: int
    #: {state of GPUs: how many}; they add up to `gpus`.
    states: dict[GpuState, int]
    #: Free GPUs whose node has others that are not free: no work can have them that needs whole nodes.
    gpus_fragmented: int
    #: What is left of GPUs that are held in part, on nodes that take anybody's work.
    shares_free_milli: int
    #: The largest job that could start now on one node, and (by level; "pool": anywhere) of whole nodes within one
    #: domain. null: none could. A level that no node's labels name is left out.
    largest_on_one_node: OneNode | None
    largest_of_whole_nodes: dict[str, MapGang | None]


class ClusterMap(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, as of a sequence; `nodes` by name, `jobs` by what they hold, the most first."""

    sequence: int
    at: str | None
    pools: list[PoolRoom]
    nodes: list[MapNode]
    jobs: list[MapJob]


class DomainCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one domain that have so many GPUs free as a whole, each or more."""

    domain: str
    nodes: int
    gpus_per_node: int


class PoolPacking(msgspec.Struct, frozen=True, kw_only=True):
    """Free is what anybody's job may be given; what is free on nodes that take no work, that of one waiting job only, or that
    which tolerates their taints, is aside.
    MIG instances that are asked for as GPUs count as such."""

    pool: str
    #: By which of the nodes that could take a job one is chosen.
    policy: Packing
    nodes: int = 0
    gpus: int = 0
    gpu_milli_free: int = 0
    gpu_milli_aside: int = 0
    #: Part of the free GPUs that the usual request cannot use, for want of GPUs, CPU or memory, or because of
    #: their model.
    gpu_milli_unusable: int = 0
    #: Requests that have arrived: what the usual work is known from.
    requests_seen: int = 0
    #: The node with the most whole GPUs that are free; null: there is none.
    largest_on_one_node: OneNode | None = None
    #: {level of topology.DOMAIN_LABELS, and "pool"}: the largest gangs that fit into one domain, GPUs per node falling and nodes
    #: rising. A level that no node's labels name is left out.
    largest_gangs: dict[str, tuple[DomainCapacity, ...]] = {}
    sequence: int = 0
    #: Of a past moment that was asked for: the time of its sequence.
    at: str | None = None
