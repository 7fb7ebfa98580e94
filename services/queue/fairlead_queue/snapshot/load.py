"""State loaded from its rows; derived parts are built again."""

import msgspec

from fairlead_queue.apply import claims, queue_config
from fairlead_queue.apply.pool_rebuild import heir
from fairlead_queue.snapshot.rows import (
    VERSION,
    Document,
    JobRow,
    LaneRow,
)
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Array, Job
from fairlead_queue.waiting.lanes import Deferral, Lane
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.lifecycle import CHARGED_STATES
from fairlead_schemas.wire.resources import Request

_decoder = msgspec.json.Decoder(Document)


def load(data: bytes) -> State:
    """The state that was dumped. Raises msgspec.MsgspecError."""
    document = _decoder.decode(data)
    if document.v != VERSION:
        raise msgspec.ValidationError(f"queue snapshot has version {document.v}, this reader knows {VERSION}")
    state = State()
    state.at_ns, state.decided_ns, state.heard_ns = document.at_ns, document.decided_ns, document.heard_ns
    state.next_number, state.next_place = document.next_number, document.next_place
    state.next_rank = document.next_rank
    for node, shape in document.nodes:
        state.nodes.set(node, shape)
    _load_queues(state, document)
    state.reclaims = {path: (cause, by) for path, cause, by in document.reclaims}
    state.finished = dict(document.finished)
    state.keys = {key: (job, digest) for key, job, digest in document.keys}
    for row in document.lanes:
        _load_lane(state, row, document.classes[row.klass].request)
    for row in document.jobs:
        klass = document.classes[row.klass]
        lane = state.lane(row.queue, row.user, klass.request)
        lane.klass.parked_at = klass.parked_at
        _restore(state, row, lane)
    _derive(state, document)
    return state


def _load_queues(state: State, document: Document) -> None:
    for row in document.pools:
        queue_config.set_pool(state, row.name, row.settings)
        pool = state.pools[row.name]
        pool.capacity_count, pool.freed_ns, pool.claimant = row.capacity_count, row.freed_ns, row.claimant
    for row in sorted(document.queues, key=lambda row: (row.path.count("/"), row.path)):
        queue_config.set_queue(state, row.path, row.settings)
    for row in document.accounts:
        account = state.accounts[row.queue]
        account.begin_ns, account.end_ns, account.since_ns = row.begin_ns, row.end_ns, row.since_ns
        account.used, account.reached = int(row.used), row.reached
        state.due.await_mark(account, state.at_ns)
        if row.reached:
            queue_config.limit_again(state, row.queue)


def _load_lane(state: State, row: LaneRow, request: Request) -> None:
    lane = state.lane(row.queue, row.user, request)
    lane.deferral = Deferral(*row.deferral)


def _derive(state: State, document: Document) -> None:
    for pool in state.pools.values():
        pool.parked_classes = sum(klass.parked for klass in pool.classes.values())
    for row in document.pools:
        past = state.pools[row.name].past
        if past is not None and row.past is not None:
            for each in row.past[1]:
                heir(state, state.pools[row.name], each.path)  # a user's part, where none of his jobs is left
            past.load(row.past)
    for pool, node, job in document.claims:
        claims.put(state, state.pools[pool].tree.nodes[node], state.jobs[job])
    for id_ in document.owed:
        state.owed[id_] = state.jobs[id_]
    for job in state.jobs.values():
        queue_config.count(state, job, job.price, 0)
        if isinstance(job, Array) and job.state == "stopping":
            job.unstopped = sum(1 for element in job.live.values() if element.awaits_cancel)
            if job.unstopped:
                state.stopping[job.id] = job


def _restore(state: State, row: JobRow, lane: Lane) -> None:
    job = _job(row, lane)
    state.add(job)
    state.lies_idle(job, tuple(row.idle))
    parent = state.jobs.get(array_of(row.id) or "")
    if isinstance(parent, Array):
        job.parent = parent
        parent.live[job.id] = job
    if row.open is not None:
        state.open_offer(job, row.open[0])
        job.offered_ns, job.withdrawal = row.open[1], row.withdrawal
    elif row.state in CHARGED_STATES and job.end is None and not isinstance(job, Array):
        lane.klass.pool.charge(lane, 1)
        if job.missing:
            lane.klass.pool.charge_missing(job, -1)
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


def _job(row: JobRow, lane: Lane) -> Job:
    order = int(row.order)
    if row.array is None:
        job = Job(row.id, order, lane, row.cause)
    else:
        job = Array(row.id, order, lane, row.cause, (row.array.first, row.array.last))
        job.limit, job.told, job.ended = row.array.limit, row.array.told, row.array.ended
        job.failed, job.cancelled = row.array.failed, row.array.cancelled
    job.user, job.state, job.attempt = row.user, row.state, row.attempt
    job.retries, job.failures, job.losses, job.starts = row.retries, row.failures, row.losses, row.starts
    job.total_ns, job.used_ns = row.total_ns, row.used_ns
    job.started_ns = row.started_ns
    job.slice_ns, job.start_at_ns, job.since_ns, job.aged = row.slice_ns, row.start_at_ns, row.since_ns, row.aged
    job.notice_ns, job.every_ns, job.saved_ns, job.stop_saves = (
        row.notice_ns,
        row.every_ns,
        row.saved_ns,
        row.stop_saves,
    )
    job.submitted_ns, job.after, job.price = row.submitted_ns, row.after, row.price
    job.missing, job.nodes = row.missing, tuple(row.nodes)
    job.hold, job.hold_by, job.stop, job.stop_by = row.hold, row.hold_by, row.stop, row.stop_by
    job.yields_to, job.yields_by, job.yielders = row.yields_to, row.yields_by, row.yielders
    job.asked, job.asked_ns, job.asks = row.asked, row.asked_ns, row.asks
    job.end = row.end
    return job
