"""Desired state: the whole list of what should be on a node now. Written by the placer only.

Desired state is derived from the log, so it may be lost and written again at any time. An agent ignores a value
with a lower `sequence` than one it has seen, and a value for another incarnation. So a late message or the loss
of a journal cannot start an attempt a second time.
"""

import msgspec

from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.units.hostlists import expand
from fairlead_schemas.units.validation import decode
from fairlead_schemas.wire.resources import MigInstance, MigPlace


class RunOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rank of an attempt that this node shall run."""

    job: str
    attempt: int
    rank: int
    #: Sequence of the commit that placed it: a later placement always has a higher one.
    epoch: int
    gpus: tuple[str, ...] = ()  # UUIDs
    cpu_milli: int = 0
    memory_mib: int = 0
    shm_mib: int = 0
    #: As in the placement (events.Part).
    gpu_milli: int = 0
    gpu_memory_mib: int = 0
    instances: tuple[str, ...] = ()
    cpus: str = ""
    nics: tuple[str, ...] = ()
    tasks: int = 1
    #: Addresses of all ranks' nodes, in rank order.
    hosts: tuple[str, ...] = ()
    #: Of a gang: its nodes, and on each how many processes a launcher starts unless the job file says it: tasks, or GPUs, or one.
    nodes: tuple[str, ...] = ()
    #: `hosts` and `nodes` of a large gang on the wire, as hostlists (units/hostlists.py); `decode_desired` expands them.
    hostlist: str = ""
    nodelist: str = ""
    slots: tuple[int, ...] = ()
    gpus_per_node: int = 0
    master_address: str = ""
    master_port: int = 0
    grace_ns: int = 0
    #: Silence of the placer after which its agent stops it; 0: as the node does; -1: never (policies/partitions.py).
    stop_after_ns: int = 0
    user: str = ""
    queue: str = ""
    name: str = ""
    #: The job file, canonical JSON; empty (null) where `spec_hash` names it in the SPEC store.
    spec: msgspec.Raw = msgspec.Raw(b"null")
    spec_hash: str = ""
    #: How it saves its work (orders to start).
    checkpoint: Checkpoint | None = None
    #: Why the attempt before this one has ended, where there was one: the queue's word (events.RequeueReason).
    restarted: str = ""
    #: Newest signals for its program, by rising number: (number, name). The agent delivers each number at most once.
    signals: tuple[tuple[int, str], ...] = ()
    #: Set when the run shall end: notice, TERM, grace, KILL.
    stop: str = ""
    #: For such an order: notice before TERM in nanoseconds; 0: TERM at once, also if its notice already runs.
    notice_ns: int = 0
    #: Of a stop for a time limit: it begins once the run has run for so long by the clock of the node's boot. A service
    #: whose clock was set may have asked for it too early.
    ran_ns: int = 0


class LayoutOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Order to repartition a GPU once: all of `destroy` are removed, then all of `create` are made.

    If one step fails, the previous layout is restored. Either way the answer is an inventory
    (reports.InventorySeen) that names the plan.
    """

    gpu: str  # UUID
    #: Sequence of the commit that planned it: a later plan for this node has a higher one.
    plan: int
    #: "on": MIG mode is turned on first; "off": it is turned off at the end.
    mode: str = ""
    destroy: tuple[MigInstance, ...] = ()
    create: tuple[MigPlace, ...] = ()


class Drained(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Mark of a drained node: the node stays empty until it is returned, and may be worked on."""

    #: What led to the drain ("cmd:<id>"): another drain has another one.
    cause: str
    setter: str  # who may return it by himself (events.Setter): a person, a window, a rollout
    reason: str = ""


class Desired(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that should be on one node, as of a log sequence."""

    node: str
    incarnation: str
    sequence: int
    #: The boot that the placer knows; "" is taken under any. What was placed before a reboot was reported has
    #: been ended by that report, and must not be started by a value that comes late.
    boot_id: str = ""
    runs: list[RunOrder] = []
    layouts: list[LayoutOrder] = []
    drained: Drained | None = None


class DesiredRaw(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`Desired` with each run already encoded, for a writer that keeps the bytes of each order."""

    node: str
    incarnation: str
    sequence: int
    boot_id: str = ""
    runs: list[msgspec.Raw] = []
    layouts: list[LayoutOrder] = []
    drained: Drained | None = None


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Desired)


def encode_desired(desired: Desired | DesiredRaw) -> bytes:
    """Bytes of one node's desired state."""
    return _encoder.encode(desired)


def encode_order(order: RunOrder) -> msgspec.Raw:
    """Bytes of one order, to be kept and joined into many values."""
    return msgspec.Raw(_encoder.encode(order))


def decode_desired(payload: bytes) -> Desired:
    """Decode one node's desired state, hostlists expanded. Raises msgspec.MsgspecError."""
    desired = decode(_decoder, payload)
    if not any(order.hostlist or order.nodelist for order in desired.runs):
        return desired
    try:
        runs = [_expanded(order) for order in desired.runs]
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from error
    return msgspec.structs.replace(desired, runs=runs)


def _expanded(order: RunOrder) -> RunOrder:
    """The order with its names in full."""
    if not (order.hostlist or order.nodelist):
        return order
    hosts = expand(order.hostlist) if order.hostlist else order.hosts
    nodes = expand(order.nodelist) if order.nodelist else order.nodes
    return msgspec.structs.replace(order, hosts=hosts, nodes=nodes)
