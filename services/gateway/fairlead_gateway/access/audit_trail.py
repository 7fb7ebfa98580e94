"""Record of access, written: entries are merged for a while, then appended to the chains of those whom they concern.

Requests never wait for it: `note` keeps an entry in memory, and `run` writes once a second. A chain has one order over all
gateways, because an append names the chain's last message. What cannot be written while the bus is away is kept, up to a
bound; beyond it entries are counted and logged as lost. Reading is in `audit_reader.py`. Start at `AuditTrail.note`.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec
import structlog

from fairlead_bus.port import Bus, BusError, OutcomeUnknown, StaleWriter
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.access_records import (
    ENTRIES_MAX,
    UNKNOWN,
    AccessEntry,
    AccessKind,
    encode_record,
    next_record,
)

log = structlog.get_logger()

FLUSH_S = 1.0
#: Entries that wait for the bus.
WAITING_MAX = 10_000
#: For so long equal accesses of one caller become one entry. A sign-in is always its own.
MERGED_NS: dict[AccessKind, int] = {
    "read": HOUR_NS,
    "entered": HOUR_NS,
    "denied": MINUTE_NS,
    "sign_in_failed": MINUTE_NS,
}
#: Accesses that are remembered for this.
MERGED_MAX = 20_000
APPENDS_MAX = 5

#: What makes two accesses equal.
type _Likeness = tuple[str, str, str, str, str, str, str]


class AuditTrail:
    """Writer of the record of access. `clock` is wall time in Unix ns."""

    def __init__(self, bus: Bus, clock: Callable[[], int] = time.time_ns) -> None:
        self._bus = bus
        self._clock = clock
        self._waiting: dict[_Likeness, AccessEntry] = {}
        #: {likeness: time until which equal accesses are part of an entry that is written}
        self._written: OrderedDict[_Likeness, int] = OrderedDict()
        self.lost = 0

    def note(self, entry: AccessEntry) -> None:
        """Keep an access for the next write. Its `at_ns` is set here; equal ones within MERGED_NS are one entry."""
        now_ns = self._clock()
        likeness = (entry.kind, entry.principal, entry.via, entry.verb, entry.target, entry.owner, entry.address)
        waiting = self._waiting.get(likeness)
        if waiting is not None:
            self._waiting[likeness] = msgspec.structs.replace(waiting, count=waiting.count + 1)
            return
        if self._written.get(likeness, 0) > now_ns:
            return
        if len(self._waiting) >= WAITING_MAX:
            self.lost += 1
            return
        self._waiting[likeness] = msgspec.structs.replace(entry, at_ns=now_ns)

    async def run(self) -> None:
        """Write what waits, once a second, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            if self._waiting:
                await self.flush()

    async def flush(self) -> None:
        """Write what waits. What the bus does not take waits for the next time."""
        taken, self._waiting = self._waiting, {}
        chains: dict[str, dict[_Likeness, AccessEntry]] = {}
        for likeness, entry in taken.items():
            chains.setdefault(entry.principal or UNKNOWN, {})[likeness] = entry
            if entry.owner and entry.owner != entry.principal:
                chains.setdefault(entry.owner, {})[likeness] = msgspec.structs.replace(entry, address="")
        failed: set[str] = set()
        for person, entries in chains.items():
            if not await self._append(person, list(entries.values())):
                failed.add(person)
        for likeness, entry in taken.items():
            if (entry.principal or UNKNOWN) in failed or entry.owner in failed:
                self._keep(likeness, entry)
            else:
                self._remember(likeness, entry)
        if self.lost:
            log.error("entries of the record of access lost: the bus takes none", lost=self.lost)
            self.lost = 0

    def _keep(self, likeness: _Likeness, entry: AccessEntry) -> None:
        """Let an entry wait again. Of two chains the one that took it has it twice then, which its time and count show."""
        since = self._waiting.get(likeness)
        count = entry.count + (since.count if since else 0)
        self._waiting[likeness] = msgspec.structs.replace(entry, count=count)

    def _remember(self, likeness: _Likeness, entry: AccessEntry) -> None:
        merged_ns = MERGED_NS.get(entry.kind)
        if merged_ns is None:
            return
        self._written[likeness] = entry.at_ns + merged_ns
        self._written.move_to_end(likeness)
        while len(self._written) > MERGED_MAX:
            self._written.popitem(last=False)

    async def _append(self, person: str, entries: list[AccessEntry]) -> bool:
        """Continue a person's chain. Return False if the bus did not take all of it."""
        try:
            for part in _parts(entries):
                if not await self._append_part(subjects.audit(person), part):
                    return False
        except (BusError, msgspec.MsgspecError) as error:
            log.warning("record of access not written; it is kept and tried again", reason=str(error))
            return False
        return True

    async def _append_part(self, subject: str, entries: list[AccessEntry]) -> bool:
        for _ in range(APPENDS_MAX):
            last = await self._bus.last(subjects.AUDIT, subject)
            payload = encode_record(next_record(last.payload if last else None, entries))
            try:
                await self._bus.append(subjects.AUDIT, subject, payload, expected=last.sequence if last else 0)
            except StaleWriter:
                continue  # another gateway was first
            except OutcomeUnknown:
                stored = await self._bus.last(subjects.AUDIT, subject)
                if stored is None or stored.payload != payload:
                    continue
            return True
        return False


def _parts(entries: list[AccessEntry]) -> Iterable[list[AccessEntry]]:
    return (entries[at : at + ENTRIES_MAX] for at in range(0, len(entries), ENTRIES_MAX))
