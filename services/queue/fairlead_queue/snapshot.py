"""The queue's state as canonical bytes: equal states have equal bytes, whatever their history.

Only what cannot be derived is written: lines, open counts, charges and timers are rebuilt from the
jobs. Lists that have an order in the state (finished jobs, keys, what is owed) keep it; all else is
sorted. Rows are arrays for size: a snapshot of 100,000 jobs is a few tens of megabytes at most.
"""

from typing import Any

import msgspec

from fairlead_bus.snapshot_codec import SnapshotCodec, fill, row_of
from fairlead_queue.apply import queues, waiting_jobs
from fairlead_queue.apply.pool_tree import heir_of
from fairlead_queue.apply.services import settle_services
from fairlead_queue.fairness.past_use import PastUseRow
from fairlead_queue.fairness.waiting_line import OFFSET_MASK
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.attempts import AttemptEnd, IdleReclaim
from fairlead_queue.waiting.closures import QueueClosures
from fairlead_queue.waiting.nodes import NodeCapacity
from fairlead_queue.waiting.pending import Array, Deferral, Lane, LiveJob
from fairlead_queue.waiting.services import LiveReplica, LiveService, ServiceKey
from fairlead_schemas.policies.services import ServiceRules
from fairlead_schemas.queuefile.settings import PoolSettings, QueueSettings
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.events import ReplicaJob
from fairlead_schemas.wire.lifecycle import CHARGED_STATES
from fairlead_schemas.wire.resources import Request

#: Increase when the meaning of a field changes.
VERSION = 7


class SavedPool(msgspec.Struct, frozen=True, array_like=True):
    name: str
    settings: PoolSettings
    capacity_count: int
    freed_ns: int
    claimant: str
    past: tuple[int, list[PastUseRow]] | None
    changed_seq: int


class SavedQueue(msgspec.Struct, frozen=True, array_like=True):
    path: str
    settings: QueueSettings
    changed_seq: int


class SavedAccount(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    begin_ns: int
    end_ns: int
    since_ns: int
    used: str  # a decimal number: it may take more than 64 bits
    reached: int


class SavedClass(msgspec.Struct, frozen=True, array_like=True):
    request: Request
    parked_at: int


class SavedLane(msgspec.Struct, frozen=True, array_like=True):
    """Lane of which a deferral has been emitted."""

    queue: str
    user: str
    request_class: int
    deferral: tuple[str, str, str, int, int]


class SavedArray(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    limit: int
    reported: bool
    ended: int
    failed: int
    cancelled: int


class SavedJob(msgspec.Struct, frozen=True, array_like=True):
    id: str
    order: str  # a decimal number: it takes more than 64 bits
    queue: str
    user: str
    request_class: int  # index into Document.classes
    cause: str
    state: str
    attempt: int
    retries: int
    failures: int
    losses: int
    starts: int
    total_ns: int
    used_ns: int
    started_ns: int
    slice_ns: int
    notice_ns: int
    every_ns: int
    saved_ns: int
    start_at_ns: int
    deadline_ns: int
    since_ns: int
    submitted_ns: int
    aged: int
    after: dict[str, str] | None
    wait: str
    timer_ns: int
    open: tuple[int, int] | None  # rank and time of the offer
    running: bool
    price: int
    missing: int
    nodes: list[str]
    withdrawal: str
    hold: bool
    hold_by: str
    stop: str
    stop_by: str
    stop_saves: bool
    yields_to: str
    yields_by: str
    yielders: int
    asked: str
    asked_ns: int
    asks: int
    idle: list[IdleReclaim]
    end: AttemptEnd | None
    array: SavedArray | None


class SavedService(msgspec.Struct, frozen=True, array_like=True):
    name: str
    queue: str
    user: str
    revision: int
    template: ReplicaJob
    rules: ServiceRules
    wanted: int
    is_stopped: bool
    stopped_by: str
    failures: int
    not_before_ns: int
    blocked: str
    needed_ns: int
    replicas: list[tuple[str, int, bool, int]]  # job, revision, ready, retired at
    keys: list[ServiceKey]
    loads: list[tuple[str, int, int]]


class QueueSnapshot(msgspec.Struct, frozen=True):
    """All of it."""

    v: int
    at_ns: int
    decided_ns: int
    heard_ns: int
    next_number: int
    next_place: int
    next_rank: int
    pools: list[SavedPool]
    queues: list[SavedQueue]
    accounts: list[SavedAccount]
    claims: list[tuple[str, str, str]]  # pool, node, job
    reclaims: list[tuple[str, str, str]]  # node, cause, by
    classes: list[SavedClass]
    lanes: list[SavedLane]
    jobs: list[SavedJob]
    owed: list[str]
    finished: list[tuple[str, str]]
    keys: list[tuple[str, str, str]]
    nodes: list[tuple[str, NodeCapacity]]
    removed_seq: int
    changed: list[tuple[str, int]]  # jobs that were changed since their submit: few
    #: Paths of queues that are held, and of those that are drained.
    held_queues: list[str] = []
    drained_queues: list[str] = []
    draining_nodes: list[str] = []
    services: list[SavedService] = []


_CODEC = SnapshotCodec(QueueSnapshot, VERSION)
SCHEMA = _CODEC.schema


def dump(state: QueueState) -> bytes:
    """Canonical bytes."""
    classes = sorted(state.classes.values(), key=lambda request_class: _fields(request_class.request))
    number_of = {request_class.request: number for number, request_class in enumerate(classes)}
    return _CODEC.encode(
        QueueSnapshot(
            v=VERSION,
            at_ns=state.at_ns,
            decided_ns=state.decided_ns,
            heard_ns=state.heard_ns,
            next_number=state.next_number,
            next_place=state.next_place,
            next_rank=state.next_rank,
            pools=[
                SavedPool(
                    name,
                    pool.settings,
                    pool.capacity_count,
                    pool.freed_ns,
                    pool.claimant,
                    pool.past.dump() if pool.past is not None else None,
                    pool.changed_seq,
                )
                for name, pool in sorted(state.pools.items())
            ],
            queues=[
                SavedQueue(path, queue.settings, queue.changed_seq) for path, queue in sorted(state.queues.items())
            ],
            accounts=[
                SavedAccount(path, each.begin_ns, each.end_ns, each.since_ns, str(each.used), each.reached)
                for path, each in sorted(state.accounts.items())
            ],
            claims=sorted(
                (name, node.path, node.claim.holder)
                for name, pool in state.pools.items()
                for node in pool.tree.nodes.values()
                if node.claim is not None
            ),
            reclaims=sorted((path, cause, by) for path, (cause, by) in state.reclaims.items()),
            # A class that is not parked any more is as one that never was.
            classes=[
                SavedClass(request_class.request, request_class.parked_at if request_class.parked else -1)
                for request_class in classes
            ],
            lanes=_lanes(state, number_of),
            jobs=[
                _row(job, number_of[job.lane.request_class.request]) for job in sorted(state.jobs.values(), key=_birth)
            ],
            owed=list(state.owed),
            finished=list(state.finished.items()),
            keys=[(key, job, digest) for key, (job, digest) in state.keys.items()],
            nodes=sorted(state.nodes.shapes.items()),
            removed_seq=state.removed_seq,
            changed=sorted((job.id, job.changed_seq) for job in state.jobs.values() if job.changed_seq),
            held_queues=sorted(state.closures.held),
            drained_queues=sorted(state.closures.drained),
            draining_nodes=sorted(state.nodes.draining),
            services=[_service_row(service) for _, service in sorted(state.services.items())],
        )
    )


def _service_row(service: LiveService) -> SavedService:
    return row_of(
        SavedService,
        service,
        replicas=[(each.job, each.revision, each.is_ready, each.retired_ns) for each in service.replicas.values()],
        keys=list(service.keys.values()),
        loads=sorted((proxy, count, at_ns) for proxy, (count, at_ns) in service.loads.items()),
    )


def _fields(request: Request) -> tuple[Any, ...]:
    """By which requests are in order: requests themselves are in none."""
    return tuple(msgspec.structs.astuple(msgspec.structs.replace(kind, also=())) for kind in request.kinds)


def _birth(job: LiveJob) -> tuple[int, bool, int]:
    """Submit order; an array before its elements, elements by index."""
    return int(array_of(job.id) or job.id), job.parent is not None, job.order & OFFSET_MASK


def _lanes(state: QueueState, number_of: dict[Request, int]) -> list[SavedLane]:
    rows: list[SavedLane] = []
    for path, queue in sorted(state.queues.items()):
        for user, leaf in sorted(queue.leaves.items()):
            for request, lane in leaf.lanes.items():
                last = lane.deferral
                if last is not None:
                    deferral = (last.reason, last.queue, last.resource, last.at_ns, last.times)
                    rows.append(SavedLane(path, user, number_of[request], deferral))
    rows.sort(key=lambda row: (row.queue, row.user, row.request_class))
    return rows


def _row(job: LiveJob, request_class: int) -> SavedJob:
    # By position: with keywords a row takes five times as long, and a snapshot of 100,000 jobs half a second more.
    array = None
    if isinstance(job, Array):
        array = SavedArray(job.first, job.last, job.limit, job.reported, job.ended, job.failed, job.cancelled)
    return SavedJob(
        job.id,
        str(job.order),
        job.lane.leaf.queue.path,
        job.user,
        request_class,
        job.cause,
        job.state,
        job.attempt,
        job.retries,
        job.failures,
        job.losses,
        job.starts,
        job.total_ns,
        job.used_ns,
        job.started_ns,
        job.slice_ns,
        job.notice_ns,
        job.every_ns,
        job.saved_ns,
        job.start_at_ns,
        job.deadline_ns,
        job.since_ns,
        job.submitted_ns,
        job.aged,
        dict(sorted(job.after.items())) if job.after else None,
        job.wait,
        job.timer_ns,
        (job.rank, job.offered_ns) if job.open else None,
        job.id in job.lane.running,
        job.price,
        job.missing,
        list(job.nodes),
        job.withdrawal,
        job.hold,
        job.hold_by,
        job.stop,
        job.stop_by,
        job.stop_saves,
        job.yields_to,
        job.yields_by,
        job.yielders,
        job.asked,
        job.asked_ns,
        job.asks,
        list(job.idle),
        job.end,
        array,
    )


def load(data: bytes) -> QueueState:
    """The state that was dumped. Raises msgspec.MsgspecError."""
    document = _CODEC.decode(data)
    if document.v != VERSION:
        raise msgspec.ValidationError(f"queue snapshot has version {document.v}, this reader knows {VERSION}")
    state = QueueState()
    state.at_ns, state.decided_ns, state.heard_ns = document.at_ns, document.decided_ns, document.heard_ns
    state.next_number, state.next_place = document.next_number, document.next_place
    state.next_rank, state.removed_seq = document.next_rank, document.removed_seq
    for node, shape in document.nodes:
        state.nodes.set(node, shape)
    _load_queues(state, document)
    state.closures = QueueClosures(document.held_queues, document.drained_queues)
    state.reclaims = {path: (cause, by) for path, cause, by in document.reclaims}
    state.finished = dict(document.finished)
    state.keys = {key: (job, digest) for key, job, digest in document.keys}
    for row in document.lanes:
        _load_lane(state, row, document.classes[row.request_class].request)
    for row in document.jobs:
        request_class = document.classes[row.request_class]
        lane = state.lane(row.queue, row.user, request_class.request)
        lane.request_class.parked_at = request_class.parked_at
        _restore(state, row, lane)
    for job, sequence in document.changed:
        state.jobs[job].changed_seq = sequence
    _derive(state, document)
    state.nodes.draining = set(document.draining_nodes)
    for row in document.services:
        _load_service(state, row)
    settle_services(state)
    return state


def _load_service(state: QueueState, row: SavedService) -> None:
    service = LiveService(row.name, row.queue, row.user, row.revision, row.template, row.rules, row.wanted)
    fill(service, row, without=("replicas", "keys", "loads"))
    service.replicas = {each[0]: LiveReplica(*each) for each in row.replicas}
    service.keys = {each.key: each for each in row.keys}
    service.loads = {proxy: (count, at_ns) for proxy, count, at_ns in row.loads}
    state.services[row.name] = service
    state.replicas |= dict.fromkeys(service.replicas, service)


def _load_queues(state: QueueState, document: QueueSnapshot) -> None:
    for row in document.pools:
        queues.set_pool(state, row.name, row.settings)
        pool = state.pools[row.name]
        pool.capacity_count, pool.freed_ns, pool.claimant = row.capacity_count, row.freed_ns, row.claimant
        pool.changed_seq = row.changed_seq
    for row in sorted(document.queues, key=lambda row: (row.path.count("/"), row.path)):
        queues.set_queue(state, row.path, row.settings)
        state.queues[row.path].changed_seq = row.changed_seq
    for row in document.accounts:
        account = state.accounts[row.queue]
        account.begin_ns, account.end_ns, account.since_ns = row.begin_ns, row.end_ns, row.since_ns
        account.used, account.reached = int(row.used), row.reached
        state.due.await_mark(account, state.at_ns)
        if row.reached:
            queues.limit_again(state, row.queue)


def _load_lane(state: QueueState, row: SavedLane, request: Request) -> None:
    lane = state.lane(row.queue, row.user, request)
    lane.deferral = Deferral(*row.deferral)


def _derive(state: QueueState, document: QueueSnapshot) -> None:
    for pool in state.pools.values():
        pool.parked_classes = sum(request_class.parked for request_class in pool.classes.values())
    for row in document.pools:
        past = state.pools[row.name].past
        if past is not None and row.past is not None:
            for each in row.past[1]:
                heir_of(state, state.pools[row.name], each.path)  # a user's part, where none of his jobs is left
            past.load(row.past)
    for pool, node, job in document.claims:
        waiting_jobs.put_claim(state, state.pools[pool].tree.nodes[node], state.jobs[job])
    for id_ in document.owed:
        state.owed[id_] = state.jobs[id_]
    for job in state.jobs.values():
        queues.count_use(state, job, job.price, 0)
        if isinstance(job, Array) and job.state == "stopping":
            job.unstopped = sum(1 for element in job.live.values() if element.awaits_cancel)
            if job.unstopped:
                state.stopping[job.id] = job


def _restore(state: QueueState, row: SavedJob, lane: Lane) -> None:
    job = _job(row, lane)
    state.add(job)
    state.set_idle_reclaims(job, tuple(row.idle))
    parent = state.jobs.get(array_of(row.id) or "")
    if isinstance(parent, Array):
        job.parent = parent
        parent.live[job.id] = job
    if row.open is not None:
        state.open_offer(job, row.open[0])
        job.offered_ns, job.withdrawal = row.open[1], row.withdrawal
    elif row.state in CHARGED_STATES and job.end is None and not isinstance(job, Array):
        lane.request_class.pool.charge(lane, 1)
        if job.missing:
            lane.request_class.pool.charge_missing(job, -1)
    if row.running:
        lane.running[job.id] = job
    if row.deadline_ns:
        state.due.set_deadline(job, row.deadline_ns)
    if row.wait == "line":
        state.wait_in_line(job)
    elif row.wait == "returned":
        state.wait_for_capacity(job)
    elif row.wait == "array" and isinstance(job, Array):
        state.wait_for_elements(job)
    else:
        job.wait = row.wait
    if row.timer_ns:
        state.due.set_timer(job, row.timer_ns)


#: Fields of a job's row that are no attributes, are encoded otherwise, or are set with what is derived from them.
_NOT_COPIED = frozenset(
    [
        "id",
        "order",
        "queue",
        "request_class",
        "cause",
        "deadline_ns",
        "wait",
        "timer_ns",
        "open",
        "running",
        "nodes",
        "withdrawal",
        "idle",
        "array",
    ]
)


def _job(row: SavedJob, lane: Lane) -> LiveJob:
    order = int(row.order)
    if row.array is None:
        job = LiveJob(row.id, order, lane, row.cause)
    else:
        job = Array(row.id, order, lane, row.cause, (row.array.first, row.array.last))
        job.limit, job.reported, job.ended = row.array.limit, row.array.reported, row.array.ended
        job.failed, job.cancelled = row.array.failed, row.array.cancelled
    fill(job, row, without=_NOT_COPIED)
    job.nodes = tuple(row.nodes)
    return job
