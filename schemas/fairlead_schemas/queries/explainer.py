"""Questions to the folded state, and their answers: request and reply on the bus, never stored, never in the log; and
plans to move runs so that a big job starts, as the explainer answers them and the API shows them.

The answering service has folded the log with the queue's own core, so its answer is the queue's own decision.
For moves and free capacity of pools it uses the placer's core. An answer is true for `sequence` and promises
nothing for later.
"""

from typing import Literal

import msgspec

from fairlead_schemas.queries.cluster_map import PoolPacking
from fairlead_schemas.units.validation import decode
from fairlead_schemas.wire.commands import ApplyQueues, SubmitJob
from fairlead_schemas.wire.events import Victim


class _DefragWords(msgspec.Struct, frozen=True, kw_only=True):
    pass


class DefragMove(_DefragWords, frozen=True, kw_only=True):
    """A run that would yield here and find a place there."""

    job: str
    attempt: int
    gpu_milli: int
    #: Ids of nodes, in the order of its ranks.
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    #: GPU-seconds that the move costs: work lost, and time in which it runs nowhere.
    cost_gpu_s: int


class DefragPlan(_DefragWords, frozen=True, kw_only=True):
    """For one job that fits nowhere now: what would be moved, or why nothing would."""

    job: str
    attempt: int
    gpu_milli: int
    moves: tuple[DefragMove, ...] = ()
    #: Number of moves of jobs that the caller may not see; `moves` leaves them out.
    moves_hidden: int = 0
    #: Nodes on which the job would start.
    nodes: tuple[str, ...] = ()
    #: GPU-seconds: what the job gains (as long again as it has waited), and what all moves cost.
    gain_gpu_s: int = 0
    cost_gpu_s: int = 0
    #: young | kept | few_free | no_moves | costs_more; "": it would be done, where the pool asks for it.
    why_not: str = ""
    #: The same as a sentence.
    message: str = ""


class Defrag(_DefragWords, frozen=True, kw_only=True):
    """Planned moves in a pool, as of a log sequence. Each plan is independent of the others; one is carried out at a
    time.
    """

    pool: str
    #: Whether the pool asks for it (`defragment`): else nothing is ever moved.
    on: bool
    plans: tuple[DefragPlan, ...] = ()
    #: Number of plans for jobs that the caller may not see; `plans` leaves them out.
    plans_hidden: int = 0
    sequence: int = 0


#: Maximum time that a question is processed before it is answered with `busy`. Callers wait a little longer.
ANSWER_S = 10.0
#: Jobs that one AskDryRun may name.
COMMANDS_MAX = 100
#: Jobs ahead of a job that are counted.
AHEAD_MAX = 10_000


class _Words(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class AskWhy(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the reason that a job or array waits, and for the changes with which it would start now."""

    job: str
    #: The log sequence to answer for; 0: the newest.
    at: int = 0


class AskDryRun(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the outcome of these jobs if each alone were submitted now. COMMANDS_MAX of them at most."""

    commands: tuple[SubmitJob, ...]


class AskDefrag(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the runs of the pool that would be moved so that big jobs start."""

    pool: str
    #: The log sequence to answer for; 0: the newest.
    at: int = 0
    #: Unix ns that count as now; 0: the clock of who answers.
    now_ns: int = 0


class AskPacking(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the pool's packing, its fragmentation, and the largest jobs that could start."""

    pool: str
    #: The log sequence to answer for; 0: the newest.
    at: int = 0
    #: Nodes that take no work in addition to those of the log: their agents are silent.
    away: tuple[str, ...] = ()


class AskQueues(_Words, frozen=True, kw_only=True, tag=True):
    """Question for the standing of all queues: amounts that are kept for them, past use, and GPU time of their budgets."""

    #: The log sequence to answer for; 0: the newest.
    at: int = 0


class AskQueueChange(_Words, frozen=True, kw_only=True, tag=True):
    """Question for what a change of queues and pools would do now: whether it is refused, and which jobs it concerns at once."""

    command: ApplyQueues
    at: int = 0


Ask = AskWhy | AskDryRun | AskDefrag | AskPacking | AskQueues | AskQueueChange


class JobOfChange(_Words, frozen=True, kw_only=True):
    """A job that a change of queues would concern at once."""

    job: str
    attempt: int
    gpu_milli: int


class QueueChangeOutcome(_Words, frozen=True, kw_only=True):
    """What a change of queues and pools would do. `code` and `message`: as of the refusal; "": it would be done."""

    code: str = ""
    message: str = ""
    configured: int = 0
    removed: int = 0
    unchanged: int = 0
    #: Runs that would be asked to yield, offers that would be withdrawn, and jobs that would be offered next; in this order
    #: by the queue's own next decisions. At most CONCERNED_MAX of each.
    yields: tuple[JobOfChange, ...] = ()
    withdrawn: tuple[JobOfChange, ...] = ()
    offered: tuple[JobOfChange, ...] = ()


#: Jobs of each kind that a `QueueChangeOutcome` names.
CONCERNED_MAX = 1000


class Limit(_Words, frozen=True, kw_only=True):
    """Limit that refuses a job: held + needed would be more than the ceiling."""

    queue: str = ""
    resource: str = ""
    held: int = 0
    needed: int = 0
    ceiling: int = 0
    #: The job for which free capacity is kept ("claimed").
    holder: str = ""


class MissingAmount(_Words, frozen=True, kw_only=True):
    """Amount that must come free in a queue, or in one user's part of it. A queue of "" is the whole pool."""

    queue: str
    resource: str
    amount: int
    user: str = ""
    #: True if given back it would be kept for others, so that it must be lent.
    lent: bool = False


class RaisedLimit(_Words, frozen=True, kw_only=True):
    """Limits of a queue that would let the job start. 0: the limit may stay as it is."""

    queue: str
    resource: str
    #: Amount that the queue would use.
    use: int
    maximum: int = 0
    borrowing: int = 0


class PossibleChange(_Words, frozen=True, kw_only=True):
    """Smallest change with which the job could start now, within the queue's knowledge."""

    #: wait: for `short` | smaller: `gpu_milli` | other_queue: `queue` | quota: `raised`
    kind: Literal["wait", "smaller", "other_queue", "quota"]
    queue: str = ""
    #: Of each unit.
    gpu_milli: int = 0
    short: tuple[MissingAmount, ...] = ()
    raised: tuple[RaisedLimit, ...] = ()
    #: Jobs that would take what comes free first, AHEAD_MAX at most.
    before: int = 0


class Explanation(_Words, frozen=True, kw_only=True):
    """The dominant reason, its evidence, and what would change it. The gateway turns it into sentences."""

    #: turn | budget | queue_held | maximum | user_limit | reserved | claimed | place | next; "": it does not wait in line.
    reason: str
    limit: Limit | None = None
    #: Why a job that is not submitted yet would wait for a place.
    no_place: Literal["", "pool_full", "class_refused"] = ""
    changes: tuple[PossibleChange, ...] = ()
    #: Jobs that get their turn before it, AHEAD_MAX at most, and the first of them.
    ahead: int = 0
    first_ahead: tuple[str, ...] = ()


class DryRunQuota(_Words, frozen=True, kw_only=True):
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
    """Estimate of a job's start by the time limits of the runs and of the jobs ahead, or the cause of its absence."""

    #: Why no estimate is possible: it waits for other jobs, no node is known, what it needs is kept for others, or its queue
    #: is held.
    unknown: Literal["", "after", "no_node", "reserved", "claimed", "queue_held"] = ""
    #: Unix ns; 0: no estimate.
    start_ns: int = 0
    #: Jobs ahead that were laid out in time, and True if there are more.
    ahead: int = 0
    more: bool = False
    #: Jobs among the runs and those ahead that have no time limit.
    unlimited: int = 0


class DryRunOutcome(_Words, frozen=True, kw_only=True):
    """Expected outcome of one job."""

    #: Why it would be refused: the code, the field, and what was expected.
    code: str = ""
    field: str = ""
    message: str = ""
    pool: str = ""
    quota: tuple[DryRunQuota, ...] = ()
    #: What it would use beyond its queue's guarantee, by resource.
    borrows: dict[str, int] = {}
    waits: Explanation | None = None
    #: Runs that might be asked to yield to it.
    displaces: tuple[Victim, ...] = ()
    estimate: Estimate | None = None


class QueueStanding(_Words, frozen=True, kw_only=True):
    """Standing of one queue, with those below it. Amounts are by resource, as those of its limits."""

    queue: str
    #: Idle amounts of its guarantee that it does not lend: nobody else may use them.
    kept: dict[str, int] = {}
    #: Decayed average use, where the pool's order counts past use.
    past_use: dict[str, int] | None = None
    #: Of its budget in the running period, up to the placer's newest commit, in milli-GPU-seconds weighted by model; None: no budget.
    spent: int | None = None


class ExplainerAnswer(_Words, frozen=True, kw_only=True):
    """Answer to a question, as of a log sequence, or the reason for its absence."""

    sequence: int = 0
    why: Explanation | None = None
    outcomes: tuple[DryRunOutcome, ...] = ()
    defrag: Defrag | None = None
    packing: PoolPacking | None = None
    queues: tuple[QueueStanding, ...] = ()
    change: QueueChangeOutcome | None = None
    #: not_found: no such job, or it has ended | not_yet: the log has not reached this sequence | busy: ask again
    #: soon | invalid: the question cannot be read | failed: the answering process has more in its log
    error: str = ""
    message: str = ""


_encoder = msgspec.json.Encoder(order="deterministic")
_ask = msgspec.json.Decoder(Ask)
_answer = msgspec.json.Decoder(ExplainerAnswer)


def encode(message: "Ask | ExplainerAnswer") -> bytes:
    """Canonical bytes."""
    return _encoder.encode(message)


def decode_ask(payload: bytes) -> Ask:
    """Decode one question. Raises msgspec.MsgspecError."""
    return decode(_ask, payload)


def decode_answer(payload: bytes) -> ExplainerAnswer:
    """Decode one answer. Raises msgspec.MsgspecError."""
    return decode(_answer, payload)
