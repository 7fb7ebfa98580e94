"""Record of access, written: entries are merged for a while, then appended to the chains of those whom they concern.

Requests never wait for it: `note` keeps an entry in memory, and `run` writes once a second. A chain has one order over all
gateways, because an append names the chain's last message. What cannot be written while the bus is away is kept, up to a
bound; beyond it entries are counted and logged as lost. Reading is in `audit_reader.py`. Start at `AuditTrail.note`.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import structlog

from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.port import Bus, BusError, OutcomeUnknown, StaleWriter, Unavailable
from fairlead_gateway.access.audit_reader import forget
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.access_records import (
    ENTRIES_MAX,
    AccessEntry,
    AccessKind,
    bounded,
    chain_of,
    continues,
    encode_record,
    next_record,
)

log = structlog.get_logger()

FLUSH_S = 1.0
#: Entries that wait for the bus, of all chains.
WAITING_MAX = 10_000
#: For so long equal accesses of one caller become one entry. A sign-in is always its own.
MERGED_NS: dict[AccessKind, int] = {
    "read": HOUR_NS,
    "entered": HOUR_NS,
    "denied": MINUTE_NS,
    "sign_in_failed": MINUTE_NS,
    "token_refused": MINUTE_NS,
}
#: Accesses that are remembered for this.
MERGED_MAX = 20_000
#: Different denials, failed sign-ins and refused tokens of one person within a minute; further ones are one entry without target and address. Anybody can
#: make up any number of targets, and must not push out what others do.
DENIED_MAX = 100
APPENDS_MAX = 5
#: Forgotten persons that are remembered; entries of earlier ones go at the next look at all records (`upkeep.py`).
FORGOTTEN_MAX = 10_000


class _Likeness(NamedTuple):
    """Chain of an entry, and what makes two entries of it equal."""

    person: str
    kind: AccessKind
    principal: str
    via: str
    verb: str
    target: str
    owner: str
    address: str


class AuditTrail:
    """Writer of the record of access. `clock` is wall time in Unix ns."""

    def __init__(self, bus: Bus, clock: Callable[[], int] = time.time_ns) -> None:
        self._bus = bus
        self._clock = clock
        self._waiting: dict[_Likeness, AccessEntry] = {}
        #: Held while what waits is written, so that a second flush ends after the first has.
        self._flushing = asyncio.Lock()
        #: Times until which equal accesses wait for one entry, after one that is written.
        self._written: OrderedDict[_Likeness, int] = OrderedDict()
        #: Those that wait for these times: a flood is two entries in its first minute or hour, and one in each later one.
        self._later: dict[_Likeness, AccessEntry] = {}
        #: {chain, principal: different denials and failed sign-ins since a time, that time}
        self._denials: dict[tuple[str, str], tuple[int, int]] = {}
        #: Those who were forgotten lately: nothing is noted of them any more.
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self.lost = 0

    def note(self, entry: AccessEntry) -> None:
        """Keep an access for the next write, in the chain of each whom it concerns. Its `at_ns` is set here; equal ones within
        MERGED_NS of a written one are one entry, which has their number. Long texts are cut."""
        entry = msgspec.structs.replace(bounded(entry), at_ns=self._clock())
        person, owner = chain_of(entry.principal), chain_of(entry.owner)
        if person not in self._forgotten:
            self._note(person, entry)
        if entry.owner and owner != person and owner not in self._forgotten:
            self._note(owner, msgspec.structs.replace(entry, address=""))

    def _note(self, person: str, entry: AccessEntry) -> None:
        likeness = _Likeness(
            person, entry.kind, entry.principal, entry.via, entry.verb, entry.target, entry.owner, entry.address
        )
        is_due = likeness in self._waiting or not self._is_written(likeness, entry.at_ns)
        held = self._waiting if is_due else self._later
        found = held.get(likeness)
        if found is not None:
            held[likeness] = msgspec.structs.replace(found, count=found.count + 1)
        elif is_due and self._is_flood(person, entry):
            self._note(person, msgspec.structs.replace(entry, verb="", target="", owner="", address="", via=""))
        elif len(held) >= WAITING_MAX:
            self.lost += 1
        else:
            held[likeness] = entry

    def _is_flood(self, person: str, entry: AccessEntry) -> bool:
        """Return True for one more different denial of a person who has had DENIED_MAX of them within a minute. Counts it."""
        if entry.kind not in ("denied", "sign_in_failed", "token_refused") or not (
            entry.target or entry.address or entry.via
        ):
            return False
        key = person, entry.principal
        count, since_ns = self._denials.get(key, (0, 0))
        if not since_ns <= entry.at_ns < since_ns + MINUTE_NS:
            if len(self._denials) >= WAITING_MAX:
                self._denials.clear()
            count, since_ns = 0, entry.at_ns
        self._denials[key] = count + 1, since_ns
        return count >= DENIED_MAX

    def drop(self, person: str) -> None:
        """Forget what waits for one person's chain, which is about to be erased, and note nothing of the person any more."""
        self._forgotten[person] = None
        while len(self._forgotten) > FORGOTTEN_MAX:
            self._forgotten.popitem(last=False)
        for held in (self._waiting, self._later):
            for likeness in [each for each in held if each.person == person]:
                del held[likeness]

    def _is_written(self, likeness: _Likeness, now_ns: int) -> bool:
        """Return True if an entry that is written stands for an access of now. After a clock that was set back none does."""
        until_ns = self._written.get(likeness, 0)
        return now_ns < until_ns <= now_ns + MERGED_NS.get(likeness.kind, 0)

    async def run(self) -> None:
        """Write what waits, once a second, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_S)
            if self._waiting or self._later:
                await self.flush()

    async def flush(self, *, all_of_it: bool = False) -> None:
        """Write what waits. What the bus does not take waits for the next time. `all_of_it`: also what waits for equal ones, at the end
        of the process.
        """
        async with self._flushing:
            await self._flush(all_of_it=all_of_it)

    async def _flush(self, *, all_of_it: bool) -> None:
        now_ns = self._clock()
        for likeness in [each for each in self._later if all_of_it or not self._is_written(each, now_ns)]:
            self._keep(likeness, self._later.pop(likeness))
        chains: dict[str, list[_Likeness]] = {}
        for likeness in self._waiting:
            chains.setdefault(likeness.person, []).append(likeness)
        for person, likenesses in chains.items():
            try:
                for part in _parts(likenesses):
                    await self._write(person, part)
                if person in self._forgotten:  # it was written while the chain was erased
                    await forget(self._bus, person)
            except BusError as error:  # what is wrong with one chain must not keep the others from theirs
                log.warning("record of access not written; it is kept and tried again", reason=str(error))
                if type(error) is Unavailable:
                    break  # it would be the same for every other chain, after a wait each
        if self.lost:
            log.error("entries of the record of access lost: the bus takes none", lost=self.lost)
            self.lost = 0

    async def _write(self, person: str, likenesses: list[_Likeness]) -> None:
        """Write entries of one chain in one message, but for those that were dropped. They wait again where that fails. Raises BusError."""
        entries = {likeness: self._waiting.pop(likeness) for likeness in likenesses if likeness in self._waiting}
        if not entries:
            return
        for likeness in entries:
            self._remember(likeness)  # before the append: equal ones that come meanwhile are of the next entry
        is_written = False
        try:
            await self._append(subjects.audit(person), list(entries.values()))
            is_written = True
        finally:
            for likeness, entry in entries.items() if not is_written else ():
                self._written.pop(likeness, None)
                self._keep(likeness, entry)

    def _keep(self, likeness: _Likeness, entry: AccessEntry) -> None:
        """Let an entry wait again, with what was noted meanwhile."""
        since = (self._waiting.get(likeness), self._later.pop(likeness, None))
        count = entry.count + sum(each.count for each in since if each is not None)
        self._waiting[likeness] = msgspec.structs.replace(entry, count=count)

    def _remember(self, likeness: _Likeness) -> None:
        merged_ns = MERGED_NS.get(likeness.kind)
        if merged_ns is None:
            return
        self._written[likeness] = self._clock() + merged_ns
        self._written.move_to_end(likeness)
        while len(self._written) > MERGED_MAX:
            self._written.popitem(last=False)

    async def _append(self, subject: str, entries: list[AccessEntry]) -> None:
        """Continue a chain by one message. Raises BusError.

        An append without an answer is read back as soon as the bus answers. Entries are there twice only if two other gateways
        have continued the chain before that.
        """
        for _ in range(APPENDS_MAX):
            last = await self._bus.last(subjects.AUDIT, subject)
            payload = encode_record(next_record(last.payload if last else None, entries))
            try:
                await self._bus.append(subjects.AUDIT, subject, payload, expected=last.sequence if last else 0)
                return
            except StaleWriter:
                continue  # another gateway was first
            except OutcomeUnknown:
                stored = await retry_until_available(lambda: self._bus.last(subjects.AUDIT, subject))
                if stored is not None and (stored.payload == payload or continues(stored.payload, payload)):
                    return
        raise StaleWriter(f"{subject}: other gateways were first {APPENDS_MAX} times")


def _parts(likenesses: list[_Likeness]) -> Iterable[list[_Likeness]]:
    return (likenesses[at : at + ENTRIES_MAX] for at in range(0, len(likenesses), ENTRIES_MAX))
