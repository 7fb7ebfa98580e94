"""Record of access, read: one person's chain, checked; and its end when the person is forgotten."""

import asyncio
from typing import NamedTuple

from fairlead_bus.port import Bus, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.access_records import AccessEntry, BrokenChain, ChainCheck, chain_of

#: Seconds without a message after which the bus counts as away.
PATIENCE_S = 10.0


class PersonRecord(NamedTuple):
    """Entries of one person, the newest first. `broken`: the fault of the chain, "" where it is whole."""

    entries: list[AccessEntry]
    broken: str = ""


async def read_history(bus: Bus, person: str, *, since_ns: int = 0, until_ns: int = 2**63 - 1) -> PersonRecord:
    """Return what was noted of a person from one Unix time to another; of a name that is no principal's id nothing. Raises
    Unavailable.

    A chain that was changed is read as far as it is whole.
    """
    if chain_of(person) != person:
        return PersonRecord([])
    subject = subjects.audit(person)
    last = await bus.last(subjects.AUDIT, subject)
    if last is None:
        return PersonRecord([])
    check, entries = ChainCheck(), list[AccessEntry]()
    tail = await bus.tail(subjects.AUDIT, after=0, subject=subject)
    try:
        while True:
            async with asyncio.timeout(PATIENCE_S):
                batch = await tail.next()
            for message in batch:
                record = check.take(message.payload)
                entries += (entry for entry in record.entries if since_ns <= entry.at_ns < until_ns)
            if batch[-1].sequence >= last.sequence:
                return PersonRecord(entries[::-1])
    except BrokenChain as broken:
        return PersonRecord(entries[::-1], str(broken))
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
