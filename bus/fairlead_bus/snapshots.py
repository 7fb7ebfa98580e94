"""Snapshots: folded state at a sequence, so that a restart folds only the tail.

A snapshot that does not verify, or belongs to another log or another code's state, is ignored:
state is disposable and the log has it all. Two are kept, written in turn. `Keeper` says when.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import structlog

from fairlead_bus.log import Head
from fairlead_bus.patience import patiently
from fairlead_bus.port import Bus, BusError, Unavailable
from fairlead_schemas import subjects

KEPT = 2
#: A snapshot is due after so many events, and after so long if there were any.
SNAPSHOT_EVENTS = 50_000
SNAPSHOT_AGE_S = 300.0
#: And after no fewer than one event for so many bytes of the last one: a large state is stored less often, so that
#: storing it takes a small part of the time that folding takes.
BYTES_PER_EVENT = 200
#: A start waits this long for the store to answer, which covers an election among its servers; then it folds the log.
LOAD_S = 10.0

log = structlog.get_logger()


class Snapshot(NamedTuple):
    """Folded state and where it stands."""

    sequence: int
    heads: dict[str, Head]
    state: bytes
    #: Of one that was loaded: the turn that it was saved in. The next one is saved in the turn after the newest's, so
    #: that what is overwritten is never the newest, however often a process starts anew.
    turn: int = 0
    #: Of one that was loaded: the shape of its state.
    schema: str = ""


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    sequence: int
    heads: dict[str, Head]
    created: str
    schema: str
    sha256: str


async def save(bus: Bus, name: str, snapshot: Snapshot, *, created: str, schema: str, turn: int) -> None:
    """Store a snapshot; `created` names the log it belongs to, `schema` the shape of the state."""
    header = _Header(
        sequence=snapshot.sequence, heads=snapshot.heads,
        created=created, schema=schema, sha256=hashlib.sha256(snapshot.state).hexdigest(),
    )  # fmt: skip
    data = msgspec.json.encode(header) + b"\n" + snapshot.state
    await bus.put_object(subjects.SNAPSHOT, f"{name}-{turn % KEPT}", data)


async def load(bus: Bus, name: str, *, created: str, schema: str, last: int) -> Snapshot | None:
    """The newest snapshot that verifies and belongs to this log, or None. `last` is the log's last sequence: one
    beyond it means that the log went back, which the caller must treat as damage, so it is returned all the same."""
    return next(iter(await load_all(bus, name, created=created, schema=schema)), None)


async def load_all(bus: Bus, name: str, *, created: str, schema: str) -> list[Snapshot]:
    """Snapshots of one schema that verify and belong to this log, newest first; as for `load`, one may stand beyond the
    log's end."""
    return [found for found in await stored(bus, name, created=created) if found.schema == schema]


async def stored(bus: Bus, name: str, *, created: str) -> list[Snapshot]:
    """Snapshots of any schema that verify and belong to this log, newest first."""
    found: list[Snapshot] = []
    for turn in range(KEPT):
        data = await bus.get_object(subjects.SNAPSHOT, f"{name}-{turn}")
        snapshot = _verified(data, turn, created) if data else None
        if snapshot is not None:
            found.append(snapshot)
    return sorted(found, key=lambda snapshot: snapshot.sequence, reverse=True)


async def load_or_fold(bus: Bus, name: str, *, created: str, schema: str) -> list[Snapshot]:
    """As `load_all`, for a start: none after LOAD_S without an answer. The log has it all; its server may be gone for
    good with the only copy of the snapshots."""
    try:
        found = await patiently(lambda: stored(bus, name, created=created), limit_s=LOAD_S)
    except Unavailable as error:
        log.warning("snapshots cannot be read, the log is folded from its start", service=name, reason=str(error))
        return []
    for each in found:
        if each.schema != schema:
            log.info(
                "snapshot of another version is not used", service=name, sequence=each.sequence, found=each.schema,
                expected=schema,
            )  # fmt: skip
    return [each for each in found if each.schema == schema]


def _verified(data: bytes, turn: int, created: str) -> Snapshot | None:
    head, _, state = data.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if header.created != created:
        return None
    if hashlib.sha256(state).hexdigest() != header.sha256:
        return None
    return Snapshot(header.sequence, header.heads, state, turn, header.schema)


class Keeper:
    """Stores a service's state when it is due, one at a time. `take` gives the state as it is at that moment."""

    def __init__(
        self, bus: Bus, name: str, schema: str, take: Callable[[], Snapshot],
        *, events_max: int = SNAPSHOT_EVENTS, age_s: float = SNAPSHOT_AGE_S,
    ) -> None:  # fmt: skip
        self._bus, self._name, self._schema, self._take = bus, name, schema, take
        self._events_max, self._age_s = events_max, age_s
        self._bytes = 0
        self._created = ""
        self._turn = 0
        self._events = 0
        self._due = 0.0
        self._task: asyncio.Task[None] | None = None

    async def load(self, created: str) -> list[Snapshot]:
        """Snapshots of the log that was `created` then, newest first; none where the store does not answer."""
        self._created = created
        found = await load_or_fold(self._bus, self._name, created=created, schema=self._schema)
        self._turn = found[0].turn if found else 0
        self._due = asyncio.get_running_loop().time() + self._age_s
        return found

    def count(self, events: int) -> None:
        """So many events were folded."""
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
        self._turn += 1
        snapshot = self._take()
        self._bytes = len(snapshot.state)
        try:
            await save(self._bus, self._name, snapshot, created=self._created, schema=self._schema, turn=self._turn)
        except BusError as error:
            log.warning("snapshot not stored", service=self._name, reason=str(error))

    def close(self) -> None:
        """Give up one that is being stored."""
        if self._task is not None:
            self._task.cancel()
