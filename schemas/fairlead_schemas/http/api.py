"""Documents of the HTTP API: the shapes that `-o json` prints and scripts hold us to."""

from typing import Any, Literal

import msgspec

from fairlead_schemas.policies.idle import IdleEvidence
from fairlead_schemas.queries.cluster_map import GpuState


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reason for a job's state: a closed code, one sentence, and the decision's own numbers."""

    code: str
    message: str
    detail: dict[str, int | str] = {}


class IdleStatus(msgspec.Struct, kw_only=True):
    """Idle run under a policy: its start, its consequence and the time of that, and the evidence."""

    rule: str  # utilization | interaction | lifetime
    scope: str
    action: str  # warn | stop | requeue | shrink
    mode: str  # dry_run (nothing follows) | on_demand (when a waiting job can use its GPUs) | always
    since: str
    #: When its notice is over; null: nothing follows. After it, `asked` says that it is asked back.
    reclaim_at: str | None
    asked: bool
    #: The evidence in one line, and signal by signal in the signal's unit.
    words: str
    evidence: list[IdleEvidence]
    extended_until: str | None = None


#: Earlier attempts that are listed, the newest ones, and characters kept of the message at an attempt's end.
ATTEMPTS_MAX, ATTEMPT_MESSAGE_CHARS_MAX = 20, 200


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that has ended and was followed by another one."""

    attempt: int
    nodes: list[str] = []
    started_at: str | None = None
    ended_at: str | None = None
    #: Why there was another one: retry | oom | node_lost | node_rebooted | gpu_fault | drained | preempted | …, as of JobRequeued.
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    #: The code of the GPU's fault that ended it.
    gpu_fault: str = ""
    message: str = ""


class Job(msgspec.Struct, kw_only=True):
    """Job, or element of an array."""

    id: str
    name: str
    kind: str
    queue: str
    user: str
    project: str
    state: str
    attempt: int
    priority: int
    reason: Reason | None
    nodes: list[str]
    gpus: dict[str, list[str]]
    exit_code: int | None
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    sequence: int
    spec: msgspec.Raw
    signal: int | None = None
    message: str = ""
    #: For an array: how many elements are in which state ("waiting": not offered yet).
    array: dict[str, int] | None = None
    #: RFC 3339 time by which it shall have ended, and whether that can no longer be.
    deadline: str | None = None
    deadline_missed: bool = False
    #: Least run time before it may be asked to yield (seconds).
    slice_seconds: int | None = None
    #: Run time so far, over the attempts that this one continues (after a failure or a loss: from 0 again), and
    #: the remainder of time.total.
    used_seconds: int = 0
    left_seconds: int | None = None
    #: What it waits for: {"job", "state"}.
    after: list[dict[str, str]] = []
    #: How often it has yielded to others; to whom the last time, or is asked to now: {"job", "rule"}.
    preempted: int = 0
    preempted_for: dict[str, str] | None = None
    #: Time of the last report that its work is saved, and the note in it. Then the run time that its attempts
    #: have lost so far: from that save, or from their start, to an end without success (seconds).
    saved_at: str | None = None
    saved_note: str = ""
    lost_seconds: int = 0
    #: Idle state of its run, and time until which no policy acts on it because a person extended it.
    idle: IdleStatus | None = None
    extended_until: str | None = None
    #: Attempts before this one, oldest first.
    attempts: list[Attempt] = []
    #: When the application of its newest run served for the first time; None: not yet, or it has none.
    ready_at: str | None = None


class HealthIssue(msgspec.Struct, kw_only=True):
    """Something about a node or one of its GPUs that is not well."""

    gpu: str  # its UUID; "": the node itself
    code: str  # of wire/health.py, or "xid" and its number
    severity: str  # note (nothing is done) | gpu (it gets no new work) | node (the same of the node)
    words: str  # what the code means
    evidence: str  # what its agent saw
    since: str
    returns: str  # what it takes until it is well again


class Node(msgspec.Struct, kw_only=True):
    """Node with its state, its free resources and its jobs."""

    id: str
    state: str  # ready | suspect | silent | cordoned | quarantined | draining | drained | lost
    reason: str
    runtime: str
    simulated: bool
    address: str
    hostname: str
    gpu_model: str
    gpus: int
    #: Those that anybody's job may be given now; `gpu_states` counts the others by state.
    gpus_free: int
    cpu_milli: int
    cpu_milli_free: int
    memory_mib: int
    memory_mib_free: int
    labels: dict[str, str]
    jobs: list[str]
    sequence: int
    #: Class that cordoned or drained it: person | maintenance | rollout ("": none).
    setter: str = ""
    #: {state of its GPUs, as of the cluster map: how many}, without states that none is in.
    gpu_states: dict[GpuState, int] = {}
    #: "key=value:Effect", and {UUID of a faulted GPU: its code}; such a GPU is not free.
    taints: list[str] = []
    faulted: dict[str, str] = {}
    #: Links, NUMA nodes and NICs in one line; "": not known.
    inside: str = ""
    #: MIG instances by GPU in one line, of those in MIG mode; "": none is.
    mig: str = ""
    #: What is not well, the oldest first; jobs that failed fast there, where it is suspect or in quarantine for that.
    health: list[HealthIssue] = []
    blamed_by: list[str] = []
    #: Seconds since the last heartbeat of its agent; 0: heartbeats arrive, or this gateway has not listened long
    #: enough.
    silent_seconds: int = 0


class Maintenance(msgspec.Struct, kw_only=True):
    """Maintenance window that is not over."""

    name: str
    state: str  # scheduled | started (its nodes get no new work)
    nodes: list[str]
    starts_at: str
    ends_at: str
    #: How long before the start its nodes get nothing new.
    notice_seconds: int
    by: str
    reason: str
    sequence: int


class Rollout(msgspec.Struct, kw_only=True):
    """Rolling upgrade of nodes."""

    name: str
    state: str  # running | paused | done | cancelled
    #: {waiting | draining | returned | skipped | left: nodes}
    nodes: dict[str, list[str]]
    budget_gpus: int
    #: GPUs of its nodes that take no work now, for any reason.
    gpus_away: int
    nodes_max: int
    #: Labels that say that a node is done.
    want: list[str]
    deadline_seconds: int
    stop_long: bool
    started_at: str
    by: str
    reason: str
    sequence: int


class Tripped(msgspec.Struct, kw_only=True):
    """Cause that stopped automatic action: `found` nodes of `of` were hit, up to `allowed` would have been acceptable."""

    kind: str  # nodes | loss
    found: int
    allowed: int
    of: int
    at: str


class Breaker(msgspec.Struct, kw_only=True):
    """State of the breaker: automatic action on nodes stops while anything has tripped it."""

    tripped: list[Tripped]
    sequence: int


class QueueBudget(msgspec.Struct, kw_only=True):
    """Budget of a queue, and its use in this period as last recorded by the queue service (at 80 and 100 %)."""

    gpu_hours: float
    period: str
    spent_gpu_hours: float | None = None
    percent_reached: int = 0


class QueueShare(msgspec.Struct, kw_only=True):
    """Share of a queue, with those below it, as the order of jobs counts it now. Amounts are as those of the queue."""

    #: milli-GPU of the pool that its guarantee and weight give it among the queues with jobs; 0 without jobs.
    fair_share_gpu_milli: int
    #: Idle amounts of its guarantee that it does not lend: nobody else may use them.
    kept: dict[str, int] = {}
    #: Decayed average use; null where the pool does not count past use.
    past_use: dict[str, int] | None = None
    #: Of its budget in this period, up to the newest placement, start or end of any run; null without a budget.
    spent_gpu_hours: float | None = None
    spent_percent: float | None = None


class QueueClosure(msgspec.Struct, kw_only=True):
    """Hold or drain of a queue by a person."""

    by: str
    reason: str
    since: str


class Queue(msgspec.Struct, kw_only=True):
    """Queue with its limits and its use.

    Amounts are {resource: amount}: "gpu" and "gpu:<model>" in milli-GPU, "cpu" in milli-CPU, "memory" in MiB.
    Counted and charged amounts include the queues below.
    """

    path: str
    #: The maximum of "gpu" (null: none) and what of it is charged.
    gpu_quota_milli: int | None
    gpu_milli_charged: int
    waiting: int
    running: int
    sequence: int
    pool: str = ""
    #: As a queue file says it.
    settings: dict[str, Any] = {}
    #: What it names, and of other resources what the queues below it are guaranteed together.
    guaranteed: dict[str, int] = {}
    maximum: dict[str, int] = {}
    #: Counted against its limits: by what has a place (`used`), and by open offers, which have none yet.
    charged: dict[str, int] = {}
    used: dict[str, int] = {}
    #: Used beyond the guarantee, for what is guaranteed.
    borrowed: dict[str, int] = {}
    #: {user: charged}, where the settings limit single users.
    users: dict[str, dict[str, int]] = {}
    #: Attempts that ended by yielding to others.
    preempted: int = 0
    budget: QueueBudget | None = None
    #: Where it is asked for (`shares=true`) and the explainer answers.
    share: QueueShare | None = None
    #: Held: nothing new of it and of the queues below it starts. Drained: they accept no further jobs. null: it is not.
    held: QueueClosure | None = None
    drained: QueueClosure | None = None


class Pool(msgspec.Struct, kw_only=True):
    """Pool of nodes and queues."""

    name: str
    #: As a queue file says it.
    settings: dict[str, Any]
    #: Its queues at the top; those below are in it, too.
    queues: list[str]
    nodes: int
    gpus: int
    sequence: int


class Price(msgspec.Struct, kw_only=True):
    """Price of an hour of one whole GPU of a model, from a moment on."""

    model: str
    per_gpu_hour: str
    currency: str
    valid_from: str
    by: str
    sequence: int


class QueueFileResult(msgspec.Struct, kw_only=True):
    """Result of an applied queue file; `items` are the queues that it names."""

    configured: int
    removed: int
    unchanged: int
    items: list[Queue]
    sequence: int


class ConcernedJob(msgspec.Struct, kw_only=True):
    """A job that a change of queues would concern at once."""

    id: str
    name: str
    user: str
    queue: str
    gpu_milli: int


class QueueFilePreview(msgspec.Struct, kw_only=True):
    """What a queue file would do if it were applied now, by the queue's own decisions on a copy of its state. Jobs that the caller may not
    see are counted only.
    """

    configured: int
    removed: int
    unchanged: int
    #: Runs that would be asked to yield (with `reclaim`), offers that would be taken back, and jobs that would be offered next.
    yields: list[ConcernedJob]
    withdrawn: list[ConcernedJob]
    offered: list[ConcernedJob]
    #: Jobs of all three lists that are left out.
    hidden: int
    sequence: int


class IdleScope(msgspec.Struct, kw_only=True):
    """The policies of one scope ("global", "project:<name>", "user:<name>"), in the words of a policy file."""

    scope: str
    policies: list[dict[str, Any]]
    by: str
    set_at: str | None
    sequence: int


class IdleFileResult(msgspec.Struct, kw_only=True):
    """Result of an applied policy file: the scopes that it names, in their present state."""

    items: list[IdleScope]
    sequence: int


class IdleRun(msgspec.Struct, kw_only=True):
    """Idle run, with its job and its policy's state."""

    job: str
    name: str
    kind: str
    queue: str
    user: str
    project: str
    gpu_milli: int
    nodes: list[str]
    idle: IdleStatus


class IdleSaving(msgspec.Struct, kw_only=True):
    """Saving of a policy in dry run: runs, and the GPU-hours that they held from then until they were used again or
    ended.
    """

    scope: str
    rule: str
    action: str
    runs: int
    gpu_hours: float
    #: Runs among them that were used again later: work that would have been lost.
    came_alive: int = 0


class IdleOverview(msgspec.Struct, kw_only=True):
    """Idle runs, the policies, and the savings of dry runs."""

    policies: list[IdleScope]
    items: list[IdleRun]
    savings: list[IdleSaving]
    sequence: int


class Cluster(msgspec.Struct, kw_only=True):
    """All nodes and queues, and the number of jobs in each state."""

    sequence: int
    #: Time of the commit `sequence`; null: the log is empty.
    at: str | None
    jobs: dict[str, int]
    #: GPUs of nodes that are not lost, and those that anybody's job may be given now.
    gpus: int
    gpus_free: int
    nodes: list[Node]
    queues: list[Queue]


class CommandOutcome(msgspec.Struct, kw_only=True):
    """Outcome of a command that was decided."""

    id: str
    outcome: Literal["done", "repeated", "rejected"]
    #: The job that it led to, and the code of a rejection.
    job: str | None
    code: str | None
    message: str
    #: Log sequence of the decision.
    decided_at: int
    sequence: int


class Page[T](msgspec.Struct, kw_only=True):
    """A list answer. `next` continues it; `sequence` is the log sequence it is true for."""

    items: list[T]
    next: str | None
    sequence: int


class SubmitResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The answer for one submitted job: its id and state, or (202) the command that will be decided."""

    id: str = ""
    state: str = ""
    command: str = ""
    sequence: int = 0
    reason: Reason | None = None
    errors: list[dict[str, str]] = []
    #: Words of the job file that will not count, each in a sentence.
    warnings: list[str] = []


class SuggestedChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Smallest change with which the job could start now, within the queue's knowledge."""

    #: wait | smaller | other_queue | quota | request (another one: waiting does not help)
    kind: str
    message: str
    queue: str = ""
    resource: str = ""
    amount: int = 0


class Yielding(msgspec.Struct, kw_only=True):
    """A run that is asked to yield to the job, in so many of the futures."""

    job: str
    rule: str
    futures: int


class Sooner(msgspec.Struct, kw_only=True):
    """A change with which the job would start earlier, and when."""

    #: smaller | other_queue | time_limit
    kind: str
    message: str
    start_at: str


class StartForecast(msgspec.Struct, kw_only=True):
    """When a job starts, from futures that are played by the scheduler's own code; an interval that holds 80 % of the time."""

    #: null: no interval can be given, `note` says why.
    from_at: str | None = None
    middle_at: str | None = None
    to_at: str | None = None
    #: It starts at once; and where.
    at_once: bool = False
    nodes: list[str] = []
    #: Nodes that the caller may not see; `nodes` leaves them out.
    nodes_hidden: int = 0
    displaces: list[Yielding] = []
    #: Number of such runs that the caller may not see; `displaces` leaves them out.
    displaces_hidden: int = 0
    #: How many futures say so, and how they were made.
    futures: int = 0
    basis: str = ""
    #: Earlier estimates of its queue of which it is known what came, and how many of their intervals held.
    like_it: int = 0
    held: int = 0
    #: Too few of them: the interval is wider than it need be.
    wide: bool = False
    #: Changes with which it would start earlier, each on its own.
    sooner: list[Sooner] = []
    note: str = ""
    sequence: int = 0


class QueueEstimates(msgspec.Struct, kw_only=True):
    """How right the estimates of a queue were. null: there is none yet."""

    queue: str
    #: Estimates with an interval whose jobs have started, and the part of them that held.
    estimates: int
    coverage: float | None
    #: Mean pinball loss in log seconds; and over that of simple ways of estimating: below 1 is better than they.
    pinball: float | None
    against: dict[str, float]
    #: Median length of the interval, in middles of it.
    width: float | None
    #: "Starts at once" that was said, and was true.
    at_once: int
    at_once_true: int
    #: Jobs of which no interval could be given, and jobs that wait still.
    unknown: int
    waiting: int


class EstimateGiven(msgspec.Struct, kw_only=True):
    """An estimate and what came."""

    job: str
    queue: str
    at: str
    from_at: str
    to_at: str
    started_at: str
    held: bool
    loss: float
    sequence: int


class Estimates(msgspec.Struct, kw_only=True):
    """The ledger of estimates."""

    queues: list[QueueEstimates]
    #: Those with the greatest loss, of jobs that the caller may see.
    worst: list[EstimateGiven]
    sequence: int


class Why(msgspec.Struct, kw_only=True):
    """Explanation of a job's state, as of a sequence."""

    id: str
    state: str
    attempt: int
    reason: Reason
    #: For a waiting job: the smallest changes with which it could start, each on its own, as the queue can
    #: determine.
    changes: list[SuggestedChange] = []
    #: For a waiting job that was asked about with `estimate`: when it starts.
    forecast: StartForecast | None = None
    #: What could not be found out, and why.
    note: str = ""
    #: For a failed job: the last lines printed by its deciding rank, 200 at most. For a job about to start: the
    #: reason that its node reports for the wait. Only output that still exists is shown.
    output: list[str] = []
    #: Attempts before this one, oldest first.
    attempts: list[Attempt] = []
    at: str
    changed_at: int
    sequence: int


class QuotaAfter(msgspec.Struct, kw_only=True):
    """Use of one resource of a queue on the way up, with the job included.

    Amounts have the form of `Queue`, and in `words` the form of a queue file.
    """

    queue: str
    resource: str
    used: int
    after: int
    guaranteed: int
    #: null: no limit.
    maximum: int | None
    words: dict[str, str | int | None]
    #: Whose part of the queue it is, where that limits single users; "": all of it.
    user: str = ""


class Displaced(msgspec.Struct, kw_only=True):
    """A run that might be asked to yield to the job; the placer asks as few as make room."""

    job: str
    rule: str
    message: str
    #: What it would lose: since its last checkpoint, or since it started.
    gpu_seconds: int = 0


class StartEstimate(msgspec.Struct, kw_only=True):
    """Estimate of the job's start, and its basis. null: no estimate is possible."""

    start_at: str | None
    wait_seconds: int | None
    basis: str


class DryRun(msgspec.Struct, kw_only=True):
    """Expected result of a job if it were submitted now; no command was sent."""

    #: False: it would be refused, `errors` say why.
    valid: bool = True
    #: "queue": by the file and by the queue as it is; "file": the queue could not be asked, and the rest is not known.
    checked: str = "queue"
    #: In one sentence.
    message: str
    #: The command that it would become, in integers; its `spec` is the job file with defaults left out.
    command: msgspec.Raw
    #: Of a refusal.
    code: str = ""
    errors: list[dict[str, str]] = []
    pool: str = ""
    #: Queues that limit or guarantee something that it needs, its own first, then those above.
    quota: list[QuotaAfter] = []
    #: What of it goes beyond its queue's guarantee, as amounts of `Queue` and as a queue file has them.
    borrows: dict[str, int] = {}
    borrows_words: dict[str, str | int] = {}
    #: What would hold it back; null: nothing, it would be offered at once.
    reason: Reason | None = None
    changes: list[SuggestedChange] = []
    #: Jobs that get their turn before it, and the first of them.
    ahead: int = 0
    first_ahead: list[str] = []
    displaces: list[Displaced] = []
    #: Number of such runs that the caller may not see; `displaces` leaves them out.
    displaces_hidden: int = 0
    #: By time limits alone.
    estimate: StartEstimate | None = None
    #: From what jobs like it took; null: it was not asked for (of a list only the first job has one).
    forecast: StartForecast | None = None
    sequence: int


class RunFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """File, link, directory or other thing in a run's own directory."""

    name: str
    kind: str  # file | link | directory | other
    size: int = 0
    modified_at: str | None = None
    executable: bool = False
    #: Of a link.
    target: str = ""


class RunDirectory(msgspec.Struct, kw_only=True):
    """What is at a path of a run's own directory; of a directory, its entries by their names."""

    job: str
    attempt: int
    rank: int
    node: str
    path: str
    entry: RunFile
    entries: list[RunFile]
    #: Name behind which the rest of the entries begins, as `after` takes it; null: these are all.
    next: str | None = None
    sequence: int


class MissingPieces(msgspec.Struct, kw_only=True):
    """Pieces of a directory that have to be sent, by their SHA-256."""

    missing: list[str]
    sequence: int


class PieceStored(msgspec.Struct, kw_only=True):
    """A piece that the cluster has taken."""

    digest: str
    bytes: int
    sequence: int


class WhatIf(msgspec.Struct, kw_only=True):
    """A what-if study: a part of the log played again under another policy, and how far that has come."""

    id: str
    state: Literal["queued", "reading", "playing", "done", "failed", "cancelled"]
    user: str
    created_at: str
    #: Studies that run before it.
    ahead: int = 0
    commits_read: int = 0
    plays_done: int = 0
    plays: int = 0
    #: Why it has failed, in words.
    message: str = ""
    #: Rises with every change of the above.
    revision: int = 0
    #: What was found, once it is done (docs/how-to/what-if.md): the control's grade first.
    study: dict[str, Any] | None = None


class MissingRight(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Facts of a refusal: the right that is missing, and who could grant it. Without a verb: the reason why the sender is not
    known, or not served.
    """

    verb: str = ""
    #: "job:812", "queue:research/vision", "pool:a100", or "the cluster".
    on: str = ""
    #: Roles that the sender holds, "group:vision is viewer in queue:research" each.
    roles: list[str] = []
    #: Subjects who hold the verb there and may grant roles.
    givers: list[str] = []
    #: True if the sender's principal has the right, and only the token is limited.
    token: bool = False
    #: "no_credential", "unknown", "token_revoked", "session_ended", "suspended", "expired", "behind_log".
    reason: str = ""


#: Version of the HTTP API: the first part of its paths.
API_VERSION = "v1"


class Version(msgspec.Struct, kw_only=True):
    """Version of a gateway, and of the API that it serves."""

    version: str
    api: str
    sequence: int


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An error, as RFC 9457 problem+json."""

    type: str
    title: str
    status: int
    detail: str = ""
    instance: str = ""
    errors: list[dict[str, str]] = []
    hint: str = ""
    #: Of a refusal for want of a right.
    why: MissingRight | None = None
    request_id: str = ""
