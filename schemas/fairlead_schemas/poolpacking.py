"""Packing of a pool and its free capacity, in the explainer's answers and in the API."""

import msgspec

from fairlead_schemas.clustermap import OneNode
from fairlead_schemas.queues import Packing


class Room(msgspec.Struct, frozen=True, kw_only=True):
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
    #: Of what is free: what the usual request cannot use, for want of GPUs, CPU or memory beside it or for the GPUs' model.
    gpu_milli_unusable: int = 0
    #: Requests that have arrived: what the usual work is known from.
    requests_seen: int = 0
    #: The node with the most whole GPUs that are free; null: there is none.
    largest_on_one_node: OneNode | None = None
    #: {level of topology.DOMAIN_LABELS, and "pool"}: the largest gangs that fit into one domain, GPUs per node falling and nodes
    #: rising. A level that no node's labels name is left out.
    largest_gangs: dict[str, tuple[Room, ...]] = {}
    sequence: int = 0
    #: Of a past moment that was asked for: the time of its sequence.
    at: str | None = None
