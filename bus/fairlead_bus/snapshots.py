"""Snapshots: folded state at a sequence, so that a restart folds only the tail.

A snapshot that does not verify, or belongs to another code's state, is ignored: state is disposable and the log has it
all. One of another log, or of an end that the log does not have, means that the log was cut, lost or replaced (`check`).
Two are kept, written in turn. `SnapshotWriter` says when.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import structlog

from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.log import LogHead, identity
from fairlead_bus.port import Bus, BusError, LogDamaged, Unavailable
from fairlead_schemas.wire import subjects

KEPT = 2
#: A snapshot is due after so many events, and after so long if there were any.
SNAPSHOT_EVENTS = 200_000
SNAPSHOT_AGE_S = 300.0
#: And after no fewer than one event for so many bytes of the last one: a large state is stored less often, so that
#: storing it takes a small part of the time that folding takes.
BYTES_PER_EVENT = 200
#: A start waits this long for the store to answer; then it folds the log.
LOAD_S = 5.0

log = structlog.get_logger()


class Snapshot(NamedTuple):
    """Folded state and its position in the log."""

    sequence: int
    heads: dict[str, LogHead]
    state: bytes
    #: For a loaded snapshot: the turn in which it was saved. The next snapshot is saved in the turn after the
    #: newest, so that no save overwrites the newest one, however often a process restarts.
    turn: int = 0
    #: Of one that was loaded: the shape of its state.
    schema: str = ""
    #: Of one that was loaded: the log that it belongs to (`log.identity`); "" where that was empty.
    log_id: str = ""

    def is_of(self, log_id: str) -> bool:
        """True unless the snapshot names another log."""
        return self.log_id in ("", log_id)


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    sequence: int
    heads: dict[str, LogHead]
    schema: str
    sha256: str
    log_id: str = ""


async def save(bus: Bus, name: str, snapshot: Snapshot, *, log_id: str, schema: str, turn: int) -> None:
    """Store a snapshot; `log_id` names the log it belongs to, `schema` the shape of the state."""
    header = _Header(
        sequence=snapshot.sequence,
        heads=snapshot.heads,
        log_id=log_id,
        schema=schema,
        sha256=hashlib.sha256(snapshot.state).hexdigest(),
    )
    data = msgspec.json.encode(header) + b"\n" + snapshot.state
    await bus.put_object(subjects.SNAPSHOT, f"{name}-{turn % KEPT}", data)


async def load_all(bus: Bus, name: str, *, log_id: str, schema: str) -> list[Snapshot]:
    """Snapshots of one schema that verify and belong to this log, newest first. One may stand beyond the log's end, which
    means that the log went back."""
    found = await stored(bus, name)
    return [snapshot for snapshot in found if snapshot.schema == schema and snapshot.is_of(log_id)]


async def stored(bus: Bus, name: str) -> list[Snapshot]:
    """Snapshots of any schema and any log that verify, newest first."""
    found: list[Snapshot] = []
    for turn in range(KEPT):
        data = await bus.get_object(subjects.SNAPSHOT, f"{name}-{turn}")
        snapshot = _verified(data, turn) if data else None
        if snapshot is not None:
            found.append(snapshot)
    return sorted(found, key=lambda snapshot: snapshot.sequence, reverse=True)


async def load_or_fold(bus: Bus, name: str, *, schema: str) -> list[Snapshot]:
    """Snapshots of one schema and any log, for a start, to be held against the log by `check`: none after LOAD_S without
    an answer. The log has it all; its server may be gone for good with the only copy of the snapshots."""
    try:
        found = await retry_until_available(lambda: stored(bus, name), limit_s=LOAD_S)
    except Unavailable as error:
        log.warning("snapshots cannot be read, the log is folded from its start", service=name, reason=str(error))
        return []
    for each in found:
        if each.schema != schema:
            log.info(
                "snapshot of another version is not used",
                service=name,
                sequence=each.sequence,
                found=each.schema,
                expected=schema,
            )
    return [each for each in found if each.schema == schema]


def check(found: Iterable[Snapshot], *, log_id: str, last: int) -> None:
    """Raise LogDamaged if a snapshot is beyond the log's end or belongs to another log. The log was then cut, lost or
    replaced, and a service that started from an empty state would hide it.
    """
    for snapshot in found:
        if snapshot.sequence > last:
            raise LogDamaged(last, f"log went backwards: a snapshot is at {snapshot.sequence}")
        if not snapshot.is_of(log_id):
            raise LogDamaged(
                1, f"expected the log that the snapshot at {snapshot.sequence} belongs to, found another first commit"
            )


async def forget(bus: Bus, names: Iterable[str]) -> None:
    """Remove the snapshots of these services: a restored log need not reach as far. Raises Unavailable."""
    for name in names:
        for turn in range(KEPT):
            if await bus.get_object(subjects.SNAPSHOT, f"{name}-{turn}"):
                await bus.put_object(subjects.SNAPSHOT, f"{name}-{turn}", b"")


def _verified(data: bytes, turn: int) -> Snapshot | None:
    head, _, state = data.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if hashlib.sha256(state).hexdigest() != header.sha256:
        return None
    return Snapshot(header.sequence, header.heads, state, turn, header.schema, header.log_id)


class SnapshotWriter:
    """Stores a service's state when it is due, one at a time. `take` gives the state as it is at that moment."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        schema: str,
        take: Callable[[], Snapshot],
        *,
        events_max: int = SNAPSHOT_EVENTS,
        age_s: float = SNAPSHOT_AGE_S,
    ) -> None:
        self._bus, self._name, self._schema, self._take = bus, name, schema, take
        self._events_max, self._age_s = events_max, age_s
        self._bytes = 0
        self._log_id = ""
        self._turn = 0
        self._is_turn_known = True
        self._events = 0
        self._due = 0.0
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> list[Snapshot]:
        """Snapshots of any log, newest first, to be held against the log by `check`; none where the store does not
        answer."""
        found = await load_or_fold(self._bus, self._name, schema=self._schema)
        self._turn = found[0].turn if found else 0
        self._due = asyncio.get_running_loop().time() + self._age_s
        return found

    def others_saved(self) -> None:
        """Another process may have saved since `load`: the next save finds out whose turn it is."""
        self._is_turn_known = False

    def count(self, events: int) -> None:
        """Count folded events."""
        self._events += events

    def save_when_due(self) -> None:
        """Begin to store the state, if it is time and none is being stored."""
        overdue = asyncio.get_running_loop().time() >= self._due and self._events
        many = self._events >= max(self._events_max, self._bytes // BYTES_PER_EVENT)
        if (self._task is None or self._task.done()) and (overdue or many):
            self._task = asyncio.create_task(self.save(), name=f"{self._name}-snapshot")

    async def save(self) -> None:
        """Store the state as it is now; a failure costs only the next restart time."""
        self._events = 0
        self._due = asyncio.get_running_loop().time() + self._age_s
        snapshot = self._take()
        self._bytes = len(snapshot.state)
        try:
            if not self._is_turn_known:
                found = await stored(self._bus, self._name)
                self._turn, self._is_turn_known = found[0].turn if found else 0, True
            self._turn += 1
            self._log_id = self._log_id or await identity(self._bus)
            await save(self._bus, self._name, snapshot, log_id=self._log_id, schema=self._schema, turn=self._turn)
        except BusError as error:
            log.warning("snapshot not stored", service=self._name, reason=str(error))

    def close(self) -> None:
        """Give up one that is being stored."""
        if self._task is not None:
            self._task.cancel()
