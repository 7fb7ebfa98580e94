"""Reports: what an agent saw on its node. Never stored by the bus; the agent's journal is the store.

An agent numbers its reports 1, 2, 3 … within its incarnation (the id of its journal), sends many
per message on `fairlead.report.<node>` and resends until the placer confirms on
`fairlead.confirm.<node>` that it has committed them. Heartbeats carry no facts, only presence.
"""

import msgspec

from fairlead_schemas.units.validation import decode
from fairlead_schemas.wire.events import RunOutcome, StartFault
from fairlead_schemas.wire.resources import Inventory

REPORT_BYTES_MAX = 64 * 1024
REPORTS_PER_MESSAGE_MAX = 200
#: A name of at most 255 characters (Docker's own bound), "@" and a digest.
IMAGE_CHARS_MAX = 400


class ReportBase(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """Field that every report carries: its number, rising by one."""

    n: int


class InventorySeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """The agent started (or its node changed) and found this. Always an incarnation's first report."""

    boot_id: str
    inventory: Inventory
    #: For a GPU that was to be repartitioned: the order's plan, and the reason why it was not done ("": it was).
    plan: int = 0
    failure: str = ""


class StartSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """A rank's process or container runs."""

    job: str
    attempt: int
    rank: int
    #: What it was made of: "name@sha256:…", or the engine's id of an image from no registry; "" for a process.
    image: str = ""
    #: Wall clock of the node, for people; never used to decide.
    at_ns: int = 0
    #: Clock of the node's boot, for the agent's next process: how long the run has run is measured from it. 0: not known.
    boot_ns: int = 0


class ExitSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """A rank's process or container has ended; `clean` only with evidence that its devices are free."""

    job: str
    attempt: int
    rank: int
    outcome: RunOutcome
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    #: Of one that could not be started.
    fault: StartFault = ""
    clean: bool = False
    #: Of a preflight that another rank's node has failed: that rank.
    blames: int | None = None
    at_ns: int = 0
    #: Run time by the clock of the node's boot, which is never set; 0: not known, or it never ran.
    ran_ns: int = 0


class CheckpointSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """A run says that its work is saved (only rank 0 is asked)."""

    job: str
    attempt: int
    rank: int
    #: When its file was written, by the node's clock: it tells words apart, and is never used to decide.
    at_ns: int = 0
    #: Note in the report: the file's first line.
    note: str = ""
    #: The report came after the notice of the run's end.
    noticed: bool = False


class AppSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """A run's application serves (only rank 0 has one)."""

    job: str
    attempt: int
    rank: int
    #: Of the node's clock, for people.
    at_ns: int = 0


class CleanSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """The devices of an ended rank are free: no process on them, memory down."""

    job: str
    attempt: int
    rank: int


class HealthSeen(ReportBase, tag=True, frozen=True, kw_only=True):
    """Finding of the agent about a GPU's health, or the node's own: a code of health.py. A GPU has one at a time, the
    gravest; the node may have several.
    """

    gpu: str  # its UUID; "": the node itself
    #: Of a GPU, "": it is well again.
    code: str = ""
    #: Of the node: what the code says is over.
    over: bool = False
    #: What was seen, for people.
    evidence: str = ""
    at_ns: int = 0


Report = InventorySeen | StartSeen | AppSeen | CheckpointSeen | ExitSeen | CleanSeen | HealthSeen


class ReportBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Message of reports: consecutive numbers of one incarnation."""

    node: str
    incarnation: str
    reports: list[Report]


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """I am alive. `desired` is the log sequence of the desired state that the node has taken up."""

    node: str
    incarnation: str
    desired: int = 0
    #: Number of the newest report in the journal, so that the placer notices what it never got.
    reported: int = 0
    #: The agent's own time of this report (nanoseconds of no epoch). Only this agent compares it.
    at: int = 0
    #: The node's wall clock at this report (Unix ns; 0: not stated). Writers compare their own clock with it
    #: before they lead.
    wall_ns: int = 0


class ReportAck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The placer's answer to reports and beats: committed up to `through`; the node's lease is renewed."""

    node: str
    #: "" while the placer does not know this node: the agent sends its reports from the first.
    incarnation: str = ""
    through: int = 0
    #: `at` of the newest received beat. The lease runs from then, not from the arrival of this message. 0: no
    #: beat was received yet, and no lease is renewed.
    beat: int = 0
    #: The placer's wall clock at this confirmation (Unix ns; 0: not stated). A node with a very different clock
    #: is not well.
    wall_ns: int = 0
    #: Nothing may be started from a desired state of a lower log sequence: the placer may have ended it since.
    desired: int = 0
    #: The incarnation that asked, where its node was removed from the cluster: it never joins again.
    removed: str = ""


class OutputPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a rank's output. `offset` (bytes, per stream) is the cursor, not the bus's sequence."""

    #: The run, on the bus: several share a subject. An answer to ReadOutput leaves it out.
    job: str = ""
    attempt: int = 0
    rank: int = 0
    stream: str  # stdout | stderr
    offset: int
    data: bytes
    at_ns: int = 0
    #: Nothing of this stream follows.
    last: bool = False
    #: Of an answer to ReadOutput: why the node has none of it; "" where it has.
    gone: str = ""


class ReadOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Asks an agent (request/reply) for output from its own file: what the bus no longer has."""

    job: str
    attempt: int
    rank: int
    stream: str
    offset: int
    bytes_max: int = 65536


_encoder = msgspec.json.Encoder(order="deterministic")
_batch = msgspec.json.Decoder(ReportBatch)
_beat = msgspec.json.Decoder(Heartbeat)
_confirm = msgspec.json.Decoder(ReportAck)


def encode(message: "ReportBatch | Heartbeat | ReportAck | OutputPiece | ReadOutput") -> bytes:
    """Canonical bytes of anything on these subjects."""
    return _encoder.encode(message)


def decode_reports(payload: bytes) -> ReportBatch:
    """Decode one message of reports. Raises msgspec.ValidationError or DecodeError with the path."""
    return decode(_batch, payload)


def decode_heartbeat(payload: bytes) -> Heartbeat:
    """Decode one heartbeat. Raises msgspec.MsgspecError."""
    return decode(_beat, payload)


def decode_ack(payload: bytes) -> ReportAck:
    """Decode one acknowledgement. Raises msgspec.MsgspecError."""
    return decode(_confirm, payload)
