"""Acceptance of lost commands: CMD continues behind all cursors, and unread commands that are still stored are kept.

The stream cannot be mended in place: its sequences below a cursor count as read. The remaining unread commands are
therefore set aside, the stream is emptied and advanced, and the commands are stored again. The commands set aside are
first written to the object store, so that the next acceptance finishes one that was interrupted.
"""

import asyncio
from typing import NamedTuple

import msgspec

from fairlead_bus.command_stream import STALL_S, Report, inspect
from fairlead_bus.port import Bus, LogDamaged
from fairlead_schemas.wire import subjects

#: Name of the object that holds what was set aside.
ASIDE = "commands-aside"


class _Command(msgspec.Struct, frozen=True):
    subject: str
    payload: bytes


class _Aside(msgspec.Struct, frozen=True):
    """State of a begun acceptance: the stream's next sequence comes after `through`."""

    through: int
    commands: list[_Command]


class Accepted(NamedTuple):
    """An acceptance that is done. Without `changed` nothing was lost and nothing was touched."""

    report: Report
    changed: bool
    #: CMD's last sequence before the messages that were kept.
    through: int
    kept: int


async def accept_loss(bus: Bus, *, through: int = 0) -> Accepted:
    """Advance CMD behind every cursor and behind `through`, keeping unread commands. Does nothing where nothing is lost.

    Raises Unavailable, OutcomeUnknown (run it again), LogDamaged.
    """
    report = await inspect(bus, deep=True)
    aside = await _unfinished(bus)
    if aside is None:
        if not report.is_lost and through <= report.last:
            return Accepted(report, False, report.last, 0)
        target = max(report.last, report.read_up_to, through)
        aside = _Aside(target, await _unread(bus, report))
        await bus.put_object(subjects.SNAPSHOT, ASIDE, msgspec.json.encode(aside))
    await bus.advance(subjects.CMD, aside.through, discard=True)
    await _store_again(bus, aside)
    await bus.put_object(subjects.SNAPSHOT, ASIDE, b"")
    return Accepted(report, True, aside.through, len(aside.commands))


async def _unfinished(bus: Bus) -> _Aside | None:
    data = await bus.get_object(subjects.SNAPSHOT, ASIDE)
    return msgspec.json.decode(data, type=_Aside) if data else None


async def _unread(bus: Bus, report: Report) -> list[_Command]:
    """Messages that their service has not read, in the stream's order."""
    found: list[tuple[int, _Command]] = []
    for service, cursor in report.read.items():
        messages = await _readable(bus, subjects.cmd(service), cursor, report.last)
        found += [(sequence, _Command(subjects.cmd(service), payload)) for sequence, payload in messages]
    return [command for _, command in sorted(found, key=lambda one: one[0])]


async def _readable(bus: Bus, subject: str, after: int, last: int) -> list[tuple[int, bytes]]:
    """Return the messages of a subject up to `last` that the server can still read."""
    found: list[tuple[int, bytes]] = []
    if after >= last:
        return found
    newest = await bus.last(subjects.CMD, subject)
    last = min(last, newest.sequence if newest is not None else 0)
    tail = await bus.tail(subjects.CMD, after=after, subject=subject)
    try:
        while after < last:
            for stored in await asyncio.wait_for(tail.next(), STALL_S):
                found += [(stored.sequence, stored.payload)] if stored.sequence <= last else []
                after = stored.sequence
    except (TimeoutError, LogDamaged):
        await bus.state(subjects.CMD)  # raises Unavailable where the bus is away; else the rest is gone
    finally:
        await tail.close()
    return found


async def _store_again(bus: Bus, aside: _Aside) -> None:
    """Store what was set aside, unless an earlier attempt has: each message's bytes name their own command."""
    state = await bus.state(subjects.CMD)
    there: set[tuple[str, bytes]] = set()
    for sequence in range(aside.through + 1, state.last + 1):
        stored = await bus.read(subjects.CMD, sequence)
        if stored is not None:
            there.add((stored.subject, stored.payload))
    for command in aside.commands:
        if (command.subject, command.payload) not in there:
            await bus.append(subjects.CMD, command.subject, command.payload)
