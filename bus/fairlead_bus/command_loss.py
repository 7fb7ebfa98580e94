"""Check of the stream of commands against the log: no unread command may be missing. Also the acceptance of lost
commands: CMD then continues behind all cursors, and unread commands that are still stored are kept.

Commits say how far each service has read CMD (`cursors`). A server that lost the end of the stream gives its sequences
out again, below those cursors: new commands would be stored and never read. A server that lost messages in the middle
skips them. Both are found here and nowhere else, so that services, gateway and `fairlead audit commands` agree.

`judge` is pure; `inspect` asks the bus; `Inspector` does so again only when there is a reason. What a person can do
about a loss is `accept_loss` below.

The stream cannot be mended in place: its sequences below a cursor count as read. The remaining unread commands are
therefore set aside, the stream is emptied and advanced, and the commands are stored again. The commands set aside are
first written to the object store, so that the next acceptance finishes one that was interrupted.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from fairlead_bus.bus_faults import state_reaching
from fairlead_bus.port import Bus, CommandsLost, LogDamaged, StreamState
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import CommitUndecodable, decode_envelope

#: A stream that delivers nothing for so long, although it holds more, is asked for the next message by itself.
STALL_S = 2.0


class Gap(NamedTuple):
    """Sequences that are gone, first and last included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"sequences {self.first} to {self.last}" if self.last > self.first else f"sequence {self.first}"


class CommandStreamReport(NamedTuple):
    """CMD and its readers at one moment."""

    first: int
    last: int
    #: {service: the sequence up to which it has read CMD}.
    read: dict[str, int]
    #: Sequences that are gone and that some service had not read, in order.
    gaps: tuple[Gap, ...]

    @property
    def read_up_to(self) -> int:
        """The highest sequence that any service has read."""
        return max(self.read.values(), default=0)

    @property
    def messages_lost(self) -> int:
        """Messages that are gone."""
        return sum(gap.last - gap.first + 1 for gap in self.gaps)

    @property
    def is_lost(self) -> bool:
        """True when commands cannot be taken until a person has accepted a loss."""
        return bool(self.gaps)

    def unread_by(self, gap: Gap) -> list[str]:
        """Return the services that had not read all of a gap: commands to them within it were never decided."""
        return sorted(service for service, read in self.read.items() if read < gap.last)

    def message(self) -> str:
        """Return what is lost, in a sentence for people; "" where nothing is."""
        if not self.gaps:
            return ""
        parts = [f"{gap} ({gap.last - gap.first + 1})" for gap in self.gaps]
        unread = sorted({service for gap in self.gaps for service in self.unread_by(gap)})
        message = f"stream {subjects.CMD} has lost {', '.join(parts)}"
        if self.last < self.read_up_to:
            reader = max(self.read, key=lambda service: self.read[service])
            message += f": it ends at {self.last}, expected at least {self.read_up_to}, which {reader} has read"
            message += f"; commands stored behind {self.read_up_to} are gone, too"
        if unread:
            message += f"; commands among them to {', '.join(unread)} were never decided"
        return message


def judge(state: StreamState, read: Mapping[str, int], missing: Iterable[Gap]) -> CommandStreamReport:
    """Return what is lost. `missing`: gaps that were found in the stream behind what is read and up to its end.

    Messages that are gone in front of the stream's first have reached their age, which is no loss. Those that every
    service has read do not matter. A stream that ends before what a service has read has gone back.
    """
    gaps = [gap for gap in missing if any(cursor < gap.last for cursor in read.values())]
    read_up_to = max(read.values(), default=0)
    if read_up_to > state.last:
        gaps.append(Gap(state.last + 1, read_up_to))
    return CommandStreamReport(state.first, state.last, dict(read), tuple(gaps))


async def cursors(bus: Bus) -> dict[str, int]:
    """Return how far each service has read CMD, by its newest commit. Raises Unavailable, LogDamaged."""
    found: dict[str, int] = {}
    for writer in subjects.WRITERS:
        newest = await bus.last(subjects.LOG, subjects.log(writer))
        try:
            found[writer] = decode_envelope(newest.payload).cursors.get(subjects.CMD, 0) if newest is not None else 0
        except CommitUndecodable as error:
            raise LogDamaged(newest.sequence if newest else 0, str(error)) from error
    return found


async def inspect(bus: Bus, *, deep: bool = False) -> CommandStreamReport:
    """Compare the stream CMD with the cursors in the log, and report commands that are missing.

    By default only commands that no service has read are read; with `deep`, those that some service has not read,
    which can be the whole stream. Raises Unavailable, LogDamaged.
    """
    read = await cursors(bus)
    state = await state_reaching(bus, subjects.CMD, max(read.values()))
    after = min(read.values()) if deep or state.missing else max(read.values())
    missing = await _gaps(bus, max(after, state.first - 1), state.last)
    now = await bus.state(subjects.CMD)  # reading can make the server notice that it has lost the stream's end
    aged = [gap for gap in missing if gap.last < now.first]
    return judge(now, read, [gap for gap in missing if gap not in aged])


async def _gaps(bus: Bus, after: int, last: int) -> list[Gap]:
    """Read CMD up to `last`, and return the sequences that are not there."""
    if after >= last:
        return []
    tail, found = await bus.tail(subjects.CMD, after=after), list[Gap]()
    try:
        while after < last:
            try:
                messages = await asyncio.wait_for(tail.next(), STALL_S)
            except TimeoutError:
                if await bus.read(subjects.CMD, after + 1) is not None:
                    continue  # slow, not gone
                found.append(Gap(after + 1, last))
                return found
            for stored in messages:
                if stored.sequence > after + 1 and after < last:
                    found.append(Gap(after + 1, min(stored.sequence - 1, last)))
                after = stored.sequence
    except LogDamaged:  # the stream went back while it was read
        found.append(Gap(after + 1, last))
    finally:
        await tail.close()
    return found


class Inspector:
    """Looks at CMD as often as anybody likes, and reads it only where something has changed for the worse, or for the
    better after a loss."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._report: CommandStreamReport | None = None
        self._state: StreamState | None = None

    @property
    def last(self) -> int:
        """Last sequence of the stream at the newest look, 0 before the first."""
        return self._state.last if self._state is not None else 0

    async def look(self, *, again: bool = False) -> CommandStreamReport:
        """Return the newest report; `again` after a reconnect, when the server may have restarted. Raises Unavailable,
        LogDamaged."""
        state = await self._bus.state(subjects.CMD)
        if again or self._report is None or self._has_reason(self._report, state):
            self._report = await inspect(self._bus)
        self._state = state
        return self._report

    def _has_reason(self, report: CommandStreamReport, state: StreamState) -> bool:
        before = self._state
        if before is None or state.missing > before.missing or state.last < before.last:
            return True
        return report.is_lost and (state.first, state.last) != (before.first, before.last)

    async def require(self, *, again: bool = False) -> None:
        """Raise CommandsLost where commands are lost. Raises Unavailable and LogDamaged, too."""
        report = await self.look(again=again)
        if report.is_lost:
            raise CommandsLost(report.message())


#: Name of the object that holds what was set aside.
ASIDE = "commands-aside"


class _Command(msgspec.Struct, frozen=True):
    subject: str
    payload: bytes


class _Aside(msgspec.Struct, frozen=True):
    """State of a begun acceptance: the stream's next sequence comes after `through`."""

    through: int
    commands: list[_Command]


class AcceptedLoss(NamedTuple):
    """An acceptance that is done. Without `changed` nothing was lost and nothing was touched."""

    report: CommandStreamReport
    changed: bool
    #: CMD's last sequence before the messages that were kept.
    through: int
    kept: int


async def accept_loss(bus: Bus, *, through: int = 0) -> AcceptedLoss:
    """Advance CMD behind every cursor and behind `through`, keeping unread commands. Does nothing where nothing is lost.

    Raises Unavailable, OutcomeUnknown (run it again), LogDamaged.
    """
    report = await inspect(bus, deep=True)
    aside = await _unfinished(bus)
    if aside is None:
        if not report.is_lost and through <= report.last:
            return AcceptedLoss(report, False, report.last, 0)
        target = max(report.last, report.read_up_to, through)
        aside = _Aside(target, await _unread(bus, report))
        await bus.put_object(subjects.SNAPSHOT, ASIDE, msgspec.json.encode(aside))
    await bus.advance(subjects.CMD, aside.through, discard=True)
    await _store_again(bus, aside)
    await bus.put_object(subjects.SNAPSHOT, ASIDE, b"")
    return AcceptedLoss(report, True, aside.through, len(aside.commands))


async def _unfinished(bus: Bus) -> _Aside | None:
    data = await bus.get_object(subjects.SNAPSHOT, ASIDE)
    return msgspec.json.decode(data, type=_Aside) if data else None


async def _unread(bus: Bus, report: CommandStreamReport) -> list[_Command]:
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
