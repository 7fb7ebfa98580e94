"""The queue's state as canonical bytes: equal states have equal bytes, whatever their history.

Only what cannot be derived is written: lines, open counts, charges and timers are rebuilt from the
jobs. Lists that have an order in the state (finished jobs, keys, what is owed) keep it; all else is
sorted. Rows are arrays for size: a snapshot of 100,000 jobs is a few tens of megabytes at most.
"""

from bisect import insort

import msgspec

from fairlead_queue.jobs import Array, End, Job
from fairlead_queue.lanes import Lane, Queue
from fairlead_queue.ranks import NUMBER_MASK, OFFSET_BITS, OFFSET_MASK
from fairlead_queue.state import Shape, State
from fairlead_schemas.ids import array_of
from fairlead_schemas.lifecycle import CHARGED_STATES
from fairlead_schemas.resources import Request


class QueueRow(msgspec.Struct, frozen=True, array_like=True):
    path: str
    quota: int | None
    first_rank: int
    passed: int


class ClassRow(msgspec.Struct, frozen=True, array_like=True):
    request: Request
    parked_at: int


class ArrayRow(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    ended: int
    failed: int
    cancelled: int


class JobRow(msgspec.Struct, frozen=True, array_like=True):
    id: str
    rank: int
    queue: str
    klass: int  # index into Document.classes
    cause: str
    state: str
    attempt: int
    retries: int
    failures: int
    losses: int
    starts: int
    total_ns: int
    start_at_ns: int
    wait: str
    timer_ns: int
    open: bool
    recall: str
    hold: bool
    hold_by: str
    stop: str
    stop_by: str
    end: End | None
    array: ArrayRow | None


class Document(msgspec.Struct, frozen=True):
    """All of it."""

    v: int
    next_number: int
    capacity: int
    queues: list[QueueRow]
    classes: list[ClassRow]
    jobs: list[JobRow]
    owed: list[str]
    finished: list[tuple[str, str]]
    keys: list[tuple[str, str, str]]
    nodes: list[tuple[str, Shape]]


VERSION = 1
_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Document)


def dump(state: State) -> bytes:
    """Canonical bytes."""
    classes = sorted(state.classes.values(), key=lambda klass: msgspec.structs.astuple(klass.request))
    number_of = {klass.request: number for number, klass in enumerate(classes)}
    return _encoder.encode(
        Document(
            v=VERSION,
            next_number=state.next_number,
            capacity=state.capacity,
            queues=[QueueRow(q.path, q.quota, q.first_rank, q.passed) for _, q in sorted(state.queues.items())],
            # A class that is not parked any more is as one that never was.
            classes=[ClassRow(k.request, k.parked_at if state.parked(k) else -1) for k in classes],
            jobs=[_row(job, number_of[job.lane.klass.request]) for job in sorted(state.jobs.values(), key=_birth)],
            owed=list(state.owed),
            finished=list(state.finished.items()),
            keys=[(key, job, digest) for key, (job, digest) in state.keys.items()],
            nodes=sorted(state.nodes.items()),
        )
    )


def _birth(job: Job) -> tuple[int, bool, int]:
    """Submit order; an array before its elements, elements by index."""
    return (job.rank >> OFFSET_BITS) & NUMBER_MASK, job.parent is not None, job.rank & OFFSET_MASK


def _row(job: Job, klass: int) -> JobRow:
    array = ArrayRow(job.first, job.last, job.ended, job.failed, job.cancelled) if isinstance(job, Array) else None
    return JobRow(
        job.id, job.rank, job.lane.queue.path, klass, job.cause, job.state, job.attempt, job.retries, job.failures,
        job.losses, job.starts, job.total_ns, job.start_at_ns, job.wait, job.timer_ns, job.open, job.recall,
        job.hold, job.hold_by, job.stop, job.stop_by, job.end, array,
    )  # fmt: skip


def load(data: bytes) -> State:
    """The state that was dumped. Raises msgspec.MsgspecError."""
    document = _decoder.decode(data)
    if document.v != VERSION:
        raise msgspec.ValidationError(f"queue snapshot has version {document.v}, this reader knows {VERSION}")
    state = State()
    state.next_number, state.capacity = document.next_number, document.capacity
    for row in document.queues:
        queue = state.queues[row.path] = Queue(row.path, row.quota)
        queue.first_rank, queue.passed = row.first_rank, row.passed
    state.nodes = dict(document.nodes)
    state.shapes = sorted(set(state.nodes.values()), reverse=True)
    state.finished = dict(document.finished)
    state.keys = {key: (job, digest) for key, job, digest in document.keys}
    for row in document.jobs:
        klass = document.classes[row.klass]
        lane = state.lane(row.queue, klass.request)
        lane.klass.parked_at = klass.parked_at
        _restore(state, row, lane)
    state.parked_classes = sum(state.parked(klass) for klass in state.classes.values())
    for id_ in document.owed:
        state.owed[id_] = state.jobs[id_]
    for job in state.jobs.values():
        if isinstance(job, Array) and job.state == "stopping":
            job.unstopped = sum(1 for element in job.live.values() if element.state != "stopping")
            if job.unstopped:
                state.stopping[job.id] = job
    return state


def _restore(state: State, row: JobRow, lane: Lane) -> None:
    job = _job(row, lane)
    state.add(job)
    parent = state.jobs.get(array_of(row.id) or "")
    if isinstance(parent, Array):
        job.parent = parent
        parent.live[job.id] = job
    if row.open:
        state.open_offer(job)
        job.recall = row.recall
    elif row.state in CHARGED_STATES and job.end is None and not isinstance(job, Array):
        lane.queue.charged += lane.klass.need
    if row.wait == "line":
        state.wait_in_line(job)
    elif row.wait == "returned":
        state.wait_for_capacity(job)
    else:
        job.wait = row.wait
    if row.timer_ns:
        job.timer_ns = row.timer_ns
        insort(state.timers, (row.timer_ns, job.id))


def _job(row: JobRow, lane: Lane) -> Job:
    if row.array is None:
        job = Job(row.id, row.rank, lane, row.cause)
    else:
        job = Array(row.id, row.rank, lane, row.cause, (row.array.first, row.array.last))
        job.ended, job.failed, job.cancelled = row.array.ended, row.array.failed, row.array.cancelled
    job.state, job.attempt, job.retries, job.failures = row.state, row.attempt, row.retries, row.failures
    job.losses, job.starts, job.total_ns, job.start_at_ns = row.losses, row.starts, row.total_ns, row.start_at_ns
    job.hold, job.hold_by, job.stop, job.stop_by = row.hold, row.hold_by, row.stop, row.stop_by
    job.end = row.end
    return job
