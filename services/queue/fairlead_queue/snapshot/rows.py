"""Rows of plain data that make up a snapshot of the queue."""

import msgspec

from fairlead_bus.core import schema_of
from fairlead_queue.fairness.past_use import Row
from fairlead_queue.waiting.idle import Idle
from fairlead_queue.waiting.jobs import End
from fairlead_queue.waiting.nodes import Shape
from fairlead_schemas.queuefile.settings import PoolSettings, QueueSettings
from fairlead_schemas.wire.resources import Request

#: Increase when the meaning of a field changes.
VERSION = 7


class PoolRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    settings: PoolSettings
    capacity_count: int
    freed_ns: int
    claimant: str
    past: tuple[int, list[Row]] | None


class QueueRow(msgspec.Struct, frozen=True, array_like=True):
    path: str
    settings: QueueSettings


class AccountRow(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    begin_ns: int
    end_ns: int
    since_ns: int
    used: str  # a decimal number: it may take more than 64 bits
    reached: int


class ClassRow(msgspec.Struct, frozen=True, array_like=True):
    request: Request
    parked_at: int


class LaneRow(msgspec.Struct, frozen=True, array_like=True):
    """Lane of which a deferral has been emitted."""

    queue: str
    user: str
    klass: int
    deferral: tuple[str, str, str, int, int]


class ArrayRow(msgspec.Struct, frozen=True, array_like=True):
    first: int
    last: int
    limit: int
    told: bool
    ended: int
    failed: int
    cancelled: int


class JobRow(msgspec.Struct, frozen=True, array_like=True):
    id: str
    order: str  # a decimal number: it takes more than 64 bits
    queue: str
    user: str
    klass: int  # index into Document.classes
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
    idle: list[Idle]
    end: End | None
    array: ArrayRow | None


class Document(msgspec.Struct, frozen=True):
    """All of it."""

    v: int
    at_ns: int
    decided_ns: int
    heard_ns: int
    next_number: int
    next_place: int
    next_rank: int
    pools: list[PoolRow]
    queues: list[QueueRow]
    accounts: list[AccountRow]
    claims: list[tuple[str, str, str]]  # pool, node, job
    reclaims: list[tuple[str, str, str]]  # node, cause, by
    classes: list[ClassRow]
    lanes: list[LaneRow]
    jobs: list[JobRow]
    owed: list[str]
    finished: list[tuple[str, str]]
    keys: list[tuple[str, str, str]]
    nodes: list[tuple[str, Shape]]


#: The name of the document's shape.
SCHEMA = schema_of(Document, VERSION)
