"""Reports: what an agent saw on its node. Never stored by the bus; the agent's journal is the store.

An agent numbers its reports 1, 2, 3 … within its incarnation (the id of its journal), sends many
per message on `fairlead.report.<node>` and resends until the placer confirms on
`fairlead.confirm.<node>` that it has committed them. Beats carry no facts, only presence.
"""

import msgspec

from fairlead_schemas.decoding import decode
from fairlead_schemas.events import RunOutcome
from fairlead_schemas.resources import Inventory

REPORT_BYTES_MAX = 64 * 1024
REPORTS_PER_MESSAGE_MAX = 200


class ReportBase(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """What every report carries: its number, rising by one."""

    n: int


class InventorySeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """The agent started (or its node changed) and found this. Always an incarnation's first report."""

    boot_id: str
    inventory: Inventory
    #: Of a GPU that was to be cut anew: the order's plan, and why it was not done ("": it was).
    plan: int = 0
    failure: str = ""


class StartSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """A rank's process or container runs."""

    job: str
    attempt: int
    rank: int
    #: Wall clock of the node, for people; never used to decide.
    at_ns: int = 0


class ExitSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """A rank's process or container has ended; `clean` only with evidence that its devices are free."""

    job: str
    attempt: int
    rank: int
    outcome: RunOutcome
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    clean: bool = False
    at_ns: int = 0


class CleanSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """The devices of an ended rank are free: no process on them, memory down."""

    job: str
    attempt: int
    rank: int


class HealthSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """What the agent found of a GPU's health: a fault's code ("xid79"; which codes mean what: the placer's
    nodes/health.py), or "" when it is well again."""

    gpu: str  # its UUID
    code: str = ""
    #: What was seen, for people.
    evidence: str = ""
    at_ns: int = 0


Report = InventorySeen | StartSeen | ExitSeen | CleanSeen | HealthSeen


class ReportBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of reports: consecutive numbers of one incarnation."""

    node: str
    incarnation: str
    reports: list[Report]


class Beat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """I am alive. `desired` is the log sequence of the desired state that the node has taken up."""

    node: str
    incarnation: str
    desired: int = 0
    #: Number of the newest report in the journal, so that the placer notices what it never got.
    reported: int = 0
    #: The agent's own time when it said so (nanoseconds of no epoch): nobody else compares it.
    at: int = 0


class Confirm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The placer's answer to reports and beats: committed up to `through`; the node's lease is renewed."""

    node: str
    #: "" while the placer does not know this node: the agent sends its reports from the first.
    incarnation: str = ""
    through: int = 0
    #: `at` of the newest beat that was heard: the lease runs from then, not from when this arrives. 0: no beat was
    #: heard yet, and no lease is renewed.
    beat: int = 0
    #: Nothing may be started from a desired state of a lower log sequence: the placer may have ended it since.
    desired: int = 0


class OutputPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a rank's output. `offset` (bytes, per stream) is the cursor, not the bus's sequence."""

    stream: str  # stdout | stderr
    offset: int
    data: bytes
    at_ns: int = 0
    #: Nothing of this stream follows.
    last: bool = False


class OutputWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Asks an agent (request/reply) for output from its own file: what the bus no longer has."""

    job: str
    attempt: int
    rank: int
    stream: str
    offset: int
    bytes_max: int = 65536


_encoder = msgspec.json.Encoder(order="deterministic")
_batch = msgspec.json.Decoder(ReportBatch)
_beat = msgspec.json.Decoder(Beat)
_confirm = msgspec.json.Decoder(Confirm)


def encode(message: "ReportBatch | Beat | Confirm | OutputPiece | OutputWanted") -> bytes:
    """Canonical bytes of anything on these subjects."""
    return _encoder.encode(message)


def decode_reports(payload: bytes) -> ReportBatch:
    """One message of reports. Raises msgspec.ValidationError or DecodeError with the path."""
    return decode(_batch, payload)


def decode_beat(payload: bytes) -> Beat:
    """One beat. Raises msgspec.MsgspecError."""
    return decode(_beat, payload)


def decode_confirm(payload: bytes) -> Confirm:
    """One confirmation. Raises msgspec.MsgspecError."""
    return decode(_confirm, payload)
