"""Record of access, read: one person's chain, checked, a page at a time; and its end when the person is forgotten.

A chain is checked from its beginning for every page, because a change anywhere must show. It is read as a stream: memory holds
one page, however long the chain is.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from fairlead_bus.port import Bus, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.access_records import AccessEntry, BrokenChain, ChainCheck, chain_of

#: Seconds without a message after which the bus counts as away.
PATIENCE_S = 10.0
#: Entries of a page.
ENTRIES_MAX = 1_000


class EntryPlace(NamedTuple):
    """Position of an entry in its chain: the record's number, and the entry's index in the record."""

    record: int
    entry: int


class PersonRecord(NamedTuple):
    """Entries of one person, the newest first. `broken`: the fault of the chain, "" where it is whole."""

    entries: list[AccessEntry]
    broken: str = ""
    #: Place of the oldest entry, where there are earlier ones.
    next: EntryPlace | None = None


class _Page:
    """The newest entries of a chain that is read from its beginning."""

    def __init__(self, entries_max: int) -> None:
        self._held: deque[tuple[EntryPlace, AccessEntry]] = deque(maxlen=entries_max)
        self._has_more = False

    def add(self, place: EntryPlace, entry: AccessEntry) -> None:
        """Add the next entry. The oldest leaves a page that is full."""
        self._has_more = self._has_more or len(self._held) == self._held.maxlen
        self._held.append((place, entry))

    def record(self, broken: str = "") -> PersonRecord:
        """Return the page."""
        place = self._held[0][0] if self._has_more else None
        return PersonRecord([entry for _, entry in reversed(self._held)], broken, place)


async def read_history(
    bus: Bus,
    person: str,
    *,
    since_ns: int = 0,
    until_ns: int = 2**63 - 1,
    before: EntryPlace | None = None,
    entries_max: int = ENTRIES_MAX,
) -> PersonRecord:
    """Return the newest entries of a person from one Unix time to another, and earlier than a place of the chain where one is given; of
    a name that is no principal's id nothing. Raises Unavailable.

    A chain that was changed is read as far as it is whole.
    """
    if chain_of(person) != person:
        return PersonRecord([])
    subject = subjects.audit(person)
    last = await bus.last(subjects.AUDIT, subject)
    if last is None:
        return PersonRecord([])
    check, page = ChainCheck(), _Page(entries_max)
    tail = await bus.tail(subjects.AUDIT, after=0, subject=subject)
    try:
        while True:
            async with asyncio.timeout(PATIENCE_S):
                batch = await tail.next()
            for message in batch:
                record = check.take(message.payload)
                for index, entry in enumerate(record.entries):
                    place = EntryPlace(record.n, index)
                    if since_ns <= entry.at_ns < until_ns and (before is None or place < before):
                        page.add(place, entry)
            if batch[-1].sequence >= last.sequence:
                return page.record()
    except BrokenChain as broken:
        return page.record(str(broken))
    except TimeoutError:
        raise Unavailable("the record of access is not answered by the bus") from None
    finally:
        await tail.close()


async def forget(bus: Bus, person: str) -> None:
    """Erase a person's chain. Entries about their access to others' things stay with the owners, by the opaque id.

    A name that is no principal's id has no chain: a wildcard in it would erase those of others.
    """
    if chain_of(person) != person:
        return
    await bus.erase(subjects.AUDIT, subjects.audit(person))
