"""Questions about starts to the process that estimates them, and its answers: request and reply on the bus, never stored."""

from typing import Literal

import msgspec

from fairlead_schemas.units.validation import decode
from fairlead_schemas.wire.commands import SubmitJob

#: A question is answered within this time, or with an error.
ANSWER_S = 4.0
#: Queues that a question may name as alternatives.
QUEUES_MAX = 3


class _Words(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class AskStart(_Words, frozen=True, kw_only=True, tag=True):
    """When would this job start if it were submitted now; or when will this waiting job start."""

    submit: SubmitJob | None = None
    job: str = ""
    #: Queues that may be proposed instead.
    queues: tuple[str, ...] = ()
    #: What the asking gateway has folded: the answer is of this sequence or a later one.
    sequence: int = 0
    #: Unix ns.
    now_ns: int = 0


class AskLedger(_Words, frozen=True, kw_only=True, tag=True):
    """What was said of submits, and what came."""

    #: 0: calibration alone.
    entries_max: int = 0


AskEstimates = AskStart | AskLedger


class Yielder(_Words, frozen=True, kw_only=True):
    """Run that is asked to yield in some of the futures."""

    job: str
    rule: str
    futures: int


class SoonerStart(_Words, frozen=True, kw_only=True):
    """Smallest change of its kind with which the job starts earlier."""

    kind: Literal["smaller", "other_queue", "time_limit"]
    start_ns: int
    #: Of each unit, and units: of "smaller".
    gpu_milli: int = 0
    nodes: int = 0
    queue: str = ""
    total_ns: int = 0


class StartAnswer(_Words, frozen=True, kw_only=True):
    """What is said of a start. Times are Unix ns."""

    #: Why no interval can be given: refused | held | after | array | queue_held | no_node | never | not_waiting
    unknown: str = ""
    low_ns: int = 0
    middle_ns: int = 0
    high_ns: int = 0
    at_once: bool = False
    #: Where it starts, of a job that starts at once.
    nodes: tuple[str, ...] = ()
    displaced: tuple[Yielder, ...] = ()
    #: How many futures say so, and whether they were played or laid out.
    futures: int = 0
    basis: str = ""
    #: Earlier estimates of its queue of which it is known what came, and how many of them held.
    like_it: int = 0
    held: int = 0
    #: Too few of them: the interval is wider than it need be.
    wide: bool = False
    sooner: tuple[SoonerStart, ...] = ()


class LedgerEntry(_Words, frozen=True, kw_only=True):
    """An estimate of the ledger, a row of `start_estimates`. Times are Unix ns, 0: none."""

    job: str
    user: str
    queue: str
    pool: str
    sequence: int
    at_ns: int
    basis: str
    futures: int
    at_once: bool
    unknown: str = ""
    low_ns: int = 0
    middle_ns: int = 0
    high_ns: int = 0
    #: waiting | started | cancelled | ended
    outcome: str = "waiting"
    over_ns: int = 0
    held: bool | None = None
    nodes: tuple[str, ...] = ()
    got: tuple[str, ...] = ()
    #: Pinball loss in log seconds; None: not known.
    loss: float | None = None


class QueueCalibration(_Words, frozen=True, kw_only=True):
    """How right the estimates of a queue were."""

    queue: str
    #: Estimates with an interval of which it is known what came; how many of them held (a part of 1); mean pinball loss.
    estimates: int
    coverage: float
    pinball: float
    #: Median length of the interval, in middles of it.
    width: float
    #: {simple way of estimating: our loss over its loss}
    against: dict[str, float] = {}
    #: "Starts at once" that was said, and was true.
    at_once: int = 0
    at_once_true: int = 0
    #: Estimates without an interval, and of jobs that still wait.
    unknown: int = 0
    waiting: int = 0


class LedgerAnswer(_Words, frozen=True, kw_only=True):
    """The ledger."""

    queues: tuple[QueueCalibration, ...] = ()
    #: The newest first.
    entries: tuple[LedgerEntry, ...] = ()
    #: Of those with the greatest loss.
    worst: tuple[LedgerEntry, ...] = ()


class EstimatesAnswer(_Words, frozen=True, kw_only=True):
    """Answer to a question, as of a log sequence, or the reason for its absence."""

    sequence: int = 0
    start: StartAnswer | None = None
    ledger: LedgerAnswer | None = None
    #: behind: the log is being folded | busy: ask again | slow: it took too long | invalid | failed | away: nobody answers
    error: str = ""
    message: str = ""


_encoder = msgspec.json.Encoder(order="deterministic")
_ask = msgspec.json.Decoder(AskEstimates)
_answer = msgspec.json.Decoder(EstimatesAnswer)


def encode(message: AskEstimates | EstimatesAnswer) -> bytes:
    """Canonical bytes."""
    return _encoder.encode(message)


def decode_ask(payload: bytes) -> AskEstimates:
    """Decode one question. Raises msgspec.MsgspecError."""
    return decode(_ask, payload)


def decode_answer(payload: bytes) -> EstimatesAnswer:
    """Decode one answer. Raises msgspec.MsgspecError."""
    return decode(_answer, payload)
