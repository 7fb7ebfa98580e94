"""The cluster map as columns (`GET /v1/map/columns`): what the map page draws, in a tenth of the bytes of `GET /v1/map`.

The first answer has all nodes. With `since`, the cursor of an answer before, it has the nodes that have changed after that, each
whole, and the jobs that hold GPUs of them; a reader replaces those nodes and keeps the others. Texts that repeat stand once, in
`texts`, and columns name them by their place there. UUIDs are left out: they do not compress, and no picture shows them.
"""

import msgspec

from fairlead_schemas.queries.cluster_map import GPU_STATES, GpuState, PoolRoom

#: {state of a GPU: its letter in `NodeColumns.gpus`}
STATE_LETTERS: dict[GpuState, str] = dict(zip(GPU_STATES, "fktxchlu", strict=True))


class NodeColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, one in each place of every column."""

    id: list[str]
    pool: list[int]
    state: list[int]
    reason: list[int]
    access: list[int]
    #: The waiting job whose work alone it takes, and when that has room there; the text "": none, not known.
    reserved_for: list[int]
    reserved_from: list[int]
    #: Joined by commas.
    taints: list[int]
    #: True: its agent has been silent for too long.
    silent: list[bool]
    simulated: list[bool]
    #: {level: the node's domain there}; the text "" for a node that names none.
    domains: dict[str, list[int]]
    #: Of its first GPU.
    model: list[int]
    #: One letter for each GPU, in order of their indices.
    gpus: list[str]
    #: Indices of GPUs where they are not 0, 1, 2 …: [node, index, index, …].
    indices: list[list[int]]
    #: For each GPU of each node, one after the other: the place in `jobs` of the job that holds all of it, -1 for none.
    holders: list[int]
    #: Holders of GPUs that are not held by one job alone: [node, GPU, place in `jobs`, thousandths, place of the profile of the MIG
    #: instance in `texts`].
    shares: list[tuple[int, int, int, int, int]]
    #: [node, GPU, place in `texts`] of what is wrong with it.
    faults: list[tuple[int, int, int]]
    #: [node, GPU, place in `texts` of the profile] of each MIG instance.
    instances: list[tuple[int, int, int]]


class JobColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that hold GPUs of the nodes of the same answer. One that the caller may not see has the id ""."""

    id: list[str]
    name: list[str]
    user: list[int]
    queue: list[int]
    state: list[int]
    #: When the run was placed (Unix seconds); 0: not known.
    placed_at: list[int]


class MapColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The map, or what has changed in it, as of a sequence."""

    sequence: int
    at: str | None
    #: What the next request names as `since`; "": there are no changes to be had, ask for the whole again.
    cursor: str
    #: True: all nodes; others that a reader has are gone.
    whole: bool
    pools: list[PoolRoom]
    texts: list[str]
    nodes: NodeColumns
    jobs: JobColumns


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """How far the log is (`GET /v1/ticks`), and how long to wait between two requests for one document."""

    sequence: int
    pause_ms: int
