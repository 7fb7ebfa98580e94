"""The state as rows, and these as bytes."""

from typing import Any

import msgspec

from fairlead_queue.snapshot.rows import (
    VERSION,
    AccountRow,
    ArrayRow,
    ClassRow,
    Document,
    JobRow,
    LaneRow,
    PoolRow,
    QueueRow,
)
from fairlead_queue.state import State
from fairlead_queue.waiting.jobs import Array, Job
from fairlead_queue.waiting.order import OFFSET_MASK
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.resources import Request

_encoder = msgspec.json.Encoder(order="deterministic")


def dump(state: State) -> bytes:
    """Canonical bytes."""
    classes = sorted(state.classes.values(), key=lambda klass: _fields(klass.request))
    number_of = {klass.request: number for number, klass in enumerate(classes)}
    return _encoder.encode(
        Document(
            v=VERSION,
            at_ns=state.at_ns,
            decided_ns=state.decided_ns,
            heard_ns=state.heard_ns,
            next_number=state.next_number,
            next_place=state.next_place,
            next_rank=state.next_rank,
            pools=[
                PoolRow(
                    name, pool.settings, pool.capacity_count, pool.freed_ns, pool.claimant,
                    pool.past.dump() if pool.past is not None else None,
                )
                for name, pool in sorted(state.pools.items())
            ],
            queues=[QueueRow(path, queue.settings) for path, queue in sorted(state.queues.items())],
            accounts=[
                AccountRow(path, each.begin_ns, each.end_ns, each.since_ns, str(each.used), each.reached)
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
            classes=[ClassRow(klass.request, klass.parked_at if klass.parked else -1) for klass in classes],
            lanes=_lanes(state, number_of),
            jobs=[_row(job, number_of[job.lane.klass.request]) for job in sorted(state.jobs.values(), key=_birth)],
            owed=list(state.owed),
            finished=list(state.finished.items()),
            keys=[(key, job, digest) for key, (job, digest) in state.keys.items()],
            nodes=sorted(state.nodes.shapes.items()),
        )
    )  # fmt: skip


def _fields(request: Request) -> tuple[Any, ...]:
    """By which requests are in order: requests themselves are in none."""
    return tuple(msgspec.structs.astuple(msgspec.structs.replace(kind, also=())) for kind in request.kinds)


def _birth(job: Job) -> tuple[int, bool, int]:
    """Submit order; an array before its elements, elements by index."""
    return int(array_of(job.id) or job.id), job.parent is not None, job.order & OFFSET_MASK


def _lanes(state: State, number_of: dict[Request, int]) -> list[LaneRow]:
    rows: list[LaneRow] = []
    for path, queue in sorted(state.queues.items()):
        for user, leaf in sorted(queue.leaves.items()):
            for request, lane in leaf.lanes.items():
                said = lane.deferral
                if said is not None:
                    deferral = (said.reason, said.queue, said.resource, said.at_ns, said.times)
                    rows.append(LaneRow(path, user, number_of[request], deferral))
    rows.sort(key=lambda row: (row.queue, row.user, row.klass))
    return rows


def _row(job: Job, klass: int) -> JobRow:
    array = None
    if isinstance(job, Array):
        array = ArrayRow(job.first, job.last, job.limit, job.told, job.ended, job.failed, job.cancelled)
    return JobRow(
        job.id, str(job.order), job.lane.leaf.queue.path, job.user, klass, job.cause, job.state, job.attempt,
        job.retries, job.failures, job.losses, job.starts, job.total_ns, job.used_ns, job.started_ns, job.slice_ns,
        job.notice_ns, job.every_ns, job.saved_ns,
        job.start_at_ns, job.deadline_ns, job.since_ns, job.submitted_ns, job.aged,
        dict(sorted(job.after.items())) if job.after else None, job.wait, job.timer_ns,
        (job.rank, job.offered_ns) if job.open else None, job.id in job.lane.running, job.price, job.missing, list(job.nodes), job.withdrawal,
        job.hold, job.hold_by, job.stop, job.stop_by, job.stop_saves, job.yields_to, job.yields_by, job.yielders, job.asked, job.asked_ns, job.asks, list(job.idle), job.end, array,
    )  # fmt: skip
