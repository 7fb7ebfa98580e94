"""Desired state: the whole list of what should be on a node now. Written by the placer only.

Derived from the log, so it may be lost and written again at any time. An agent ignores a value
with a lower `sequence` than one it has seen, and a value for another incarnation: so neither a
late message nor a journal that was lost can start an attempt a second time.
"""

import msgspec

from fairlead_schemas.decoding import decode
from fairlead_schemas.resources import MigInstance, MigPlace


class RunOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rank of one attempt, as this node shall run it."""

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
    gpus_per_node: int = 0
    master_address: str = ""
    master_port: int = 0
    grace_ns: int = 0
    user: str = ""
    queue: str = ""
    name: str = ""
    #: The job file, canonical JSON; empty (null) where `spec_hash` names it in the SPEC store.
    spec: msgspec.Raw = msgspec.Raw(b"null")
    spec_hash: str = ""
    #: Set when the run shall end: TERM, grace, KILL.
    stop: str = ""


class LayoutOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU to be cut anew, once: all of `destroy` go, then all of `create` are made; where one step fails, what was
    there is put back. Either way the answer is an inventory (reports.InventorySeen) that names the plan."""

    gpu: str  # UUID
    #: Sequence of the commit that planned it: a later plan for this node has a higher one.
    plan: int
    #: "on": MIG mode is turned on first; "off": it is turned off at the end.
    mode: str = ""
    destroy: tuple[MigInstance, ...] = ()
    create: tuple[MigPlace, ...] = ()


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


class DesiredRaw(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`Desired` with each run already encoded, for a writer that keeps the bytes of each order."""

    node: str
    incarnation: str
    sequence: int
    boot_id: str = ""
    runs: list[msgspec.Raw] = []
    layouts: list[LayoutOrder] = []


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Desired)


def encode_desired(desired: Desired | DesiredRaw) -> bytes:
    """Bytes of one node's desired state."""
    return _encoder.encode(desired)


def encode_order(order: RunOrder) -> msgspec.Raw:
    """Bytes of one order, to be kept and joined into many values."""
    return msgspec.Raw(_encoder.encode(order))


def decode_desired(payload: bytes) -> Desired:
    """One node's desired state. Raises msgspec.MsgspecError."""
    return decode(_decoder, payload)
