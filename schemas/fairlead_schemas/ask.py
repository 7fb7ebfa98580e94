"""Questions to the folded state, and their answers: request and reply on the bus, never stored, never in the log.

The answering service has folded the log with the queue's own core, so its answer is the queue's own decision.
For moves and free capacity of pools it uses the placer's core. An answer is true for `sequence` and promises
nothing for later.
"""

import msgspec

from fairlead_schemas.commands import SubmitJob
from fairlead_schemas.decoding import decode
from fairlead_schemas.defrag import Defrag
from fairlead_schemas.events import Victim
from fairlead_schemas.poolpacking import PoolPacking

#: A question is worked at for so long before it is answered with `busy`; whoever asks waits a little longer.
ANSWER_S = 10.0
#: Jobs that one AskDryRun may name.
COMMANDS_MAX = 100


class _Words(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class AskWhy(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the reason of a job's state, and for the changes with which it would start now."""

    job: str
    #: The log sequence to answer for; 0: the newest.
    at: int = 0


class AskDryRun(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the outcome of these jobs if each alone were submitted now. COMMANDS_MAX of them at most."""

    commands: tuple[SubmitJob, ...]


class AskDefrag(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the runs of the pool that would be moved so that big jobs start."""

    pool: str


class AskPacking(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the pool's packing, its fragmentation, and the largest jobs that could start."""

    pool: str
    #: The log sequence to answer for; 0: the newest.
    at: int = 0
    #: Nodes that take no work besides those of the log: their agents are silent.
    away: tuple[str, ...] = ()


Ask = AskWhy | AskDryRun | AskDefrag | AskPacking


class Change(_Words, frozen=True, kw_only=True):
    """Smallest change with which the job could start now, within the queue's knowledge."""

    #: wait | smaller | other_queue | quota | request (another one: waiting does not help)
    kind: str
    message: str
    queue: str = ""
    resource: str = ""
    amount: int = 0


class Explanation(_Words, frozen=True, kw_only=True):
    """The dominant reason, its evidence, and what would change it."""

    #: turn | budget | maximum | user_limit | reserved | claimed | place | next; "": it does not wait in line.
    reason: str
    message: str = ""
    numbers: dict[str, int | str] = {}
    changes: tuple[Change, ...] = ()
    #: Jobs that get their turn before it, and the first of them.
    ahead: int = 0
    first_ahead: tuple[str, ...] = ()


class QuotaAfter(_Words, frozen=True, kw_only=True):
    """A queue on the way up, with the job in it."""

    queue: str
    resource: str
    used: int
    after: int
    guaranteed: int = 0
    maximum: int | None = None
    #: Whose part of the queue it is, where that limits single users; "": all of it.
    user: str = ""


class Estimate(_Words, frozen=True, kw_only=True):
    """Estimate of a job's start, with its basis."""

    basis: str
    #: Unix ns; 0: nothing can be said.
    start_ns: int = 0


class Outcome(_Words, frozen=True, kw_only=True):
    """Expected outcome of one job."""

    #: Why it would be refused: the code, the field, and what was expected.
    code: str = ""
    field: str = ""
    message: str = ""
    pool: str = ""
    quota: tuple[QuotaAfter, ...] = ()
    #: What it would use beyond its queue's guarantee, by resource.
    borrows: dict[str, int] = {}
    waits: Explanation | None = None
    #: Runs that might be asked to yield to it.
    displaces: tuple[Victim, ...] = ()
    estimate: Estimate | None = None


class Answer(_Words, frozen=True, kw_only=True):
    """Answer to a question, as of a log sequence, or the reason for its absence."""

    sequence: int = 0
    why: Explanation | None = None
    outcomes: tuple[Outcome, ...] = ()
    defrag: Defrag | None = None
    packing: PoolPacking | None = None
    #: not_found: no such job, or not any more | not_yet: the log has not come so far | busy: ask again soon
    #: | invalid: the question cannot be read | failed: whoever answers has more in its log
    error: str = ""
    message: str = ""


_encoder = msgspec.json.Encoder(order="deterministic")
_ask = msgspec.json.Decoder(Ask)
_answer = msgspec.json.Decoder(Answer)


def encode(message: "Ask | Answer") -> bytes:
    """Canonical bytes."""
    return _encoder.encode(message)


def decode_ask(payload: bytes) -> Ask:
    """Decode one question. Raises msgspec.MsgspecError."""
    return decode(_ask, payload)


def decode_answer(payload: bytes) -> Answer:
    """Decode one answer. Raises msgspec.MsgspecError."""
    return decode(_answer, payload)
