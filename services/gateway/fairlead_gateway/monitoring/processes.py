"""Processes of services by their signs of presence, and the bus's servers by what the leaders of streams know of them.

For people to see, and for the one decision that needs it: the level of the log is not raised while a process runs that does
not know the level. A gateway that has just started knows no process yet, so it waits before it judges.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from fairlead_bus.permissions import COPIED
from fairlead_bus.port import Bus, Message, StreamCopies, Unavailable
from fairlead_schemas.http.status import ProcessInfo, ServerInfo, StreamInfo
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import PRESENCE_LOST_S, PRESENCE_S, Alive, ProcessPresence, decode_presence
from fairlead_schemas.wire.levels import FIRST

#: Processes that are remembered; a service's key could state any number.
PROCESSES_MAX = 1000
#: After so long every process has stated its presence, whatever got lost.
SETTLED_S = 2.5 * PRESENCE_S
UNSTATED = "a version before levels"


class ProcessTable:
    """Newest presence of each process. `leaders`: returns {service: its leader's newest sign of life}."""

    def __init__(self, leaders: Callable[[], Mapping[str, Alive]]) -> None:
        self._leaders = leaders
        self.monotonic = time.monotonic
        #: {(service, name, random word): (presence, when)}
        self._heard: dict[tuple[str, str, str], tuple[ProcessPresence, float]] = {}
        self._listening_since: float | None = None

    async def listen(self, bus: Bus) -> None:
        """Receive presences from now on."""
        bus.on_reconnect(self._restart)
        await bus.subscribe(subjects.PRESENCES, self._on_presence)
        self._restart()

    @property
    def is_settled(self) -> bool:
        """True once every process that runs has had the time to state it."""
        return self._listening_since is not None and self.monotonic() - self._listening_since >= SETTLED_S

    def rows(self) -> list[ProcessInfo]:
        """Return the processes that run, by service and name. A leader of a version that states no presence is one of them."""
        now, leaders = self.monotonic(), self._leaders()
        found = [
            self._row(presence, now - heard, leaders)
            for presence, heard in self._heard.values()
            if now - heard < PRESENCE_LOST_S
        ]
        stated = {row.service for row in found}
        found += [
            ProcessInfo(service=service, name=UNSTATED, role="leads", version="", level=FIRST, heard_s=0.0)
            for service, alive in leaders.items()
            if service not in stated or (service in subjects.WRITERS and not alive.word)
        ]
        return sorted(found, key=lambda row: (row.service, row.role != "leads", row.name))

    def hindrances(self, level: int) -> list[str]:
        """Return why the log must not be raised to a level: processes that do not know it, and writers without a sign of presence."""
        if not self.is_settled:
            return [f"this gateway listens for less than {SETTLED_S:g} s: ask again"]
        rows = self.rows()
        old = [
            f"{row.service} {row.name}{f' (version {row.version})' if row.version else ''} knows levels up to {row.level}"
            for row in rows
            if row.level < level
        ]
        heard = {row.service for row in rows}
        return old + [
            f"no {service} is heard: it may be of an older version"
            for service in subjects.WRITERS
            if service not in heard
        ]

    def raisable(self) -> int:
        """Return the highest level that every process knows which runs."""
        return min((row.level for row in self.rows()), default=FIRST)

    @staticmethod
    def _row(presence: ProcessPresence, silence_s: float, leaders: Mapping[str, Alive]) -> ProcessInfo:
        role = "serves"
        if presence.service in subjects.WRITERS:
            alive = leaders.get(presence.service)
            role = "leads" if alive is not None and alive.word == presence.word else "stands_by"
        return ProcessInfo(
            service=presence.service,
            name=presence.instance,
            role=role,
            version=presence.version,
            level=presence.level,
            heard_s=round(silence_s, 1),
        )

    def _restart(self) -> None:
        self._heard.clear()
        self._listening_since = self.monotonic()

    def _on_presence(self, message: Message) -> None:
        try:
            presence = decode_presence(message.payload)
        except msgspec.MsgspecError:
            return
        if subjects.presence(presence.service) != message.subject:
            return  # the subject is what its key allows
        key = presence.service, presence.instance, presence.word
        if presence.leaves:
            self._heard.pop(key, None)
            return
        if key not in self._heard and len(self._heard) >= PROCESSES_MAX:
            now = self.monotonic()
            self._heard = {each: row for each, row in self._heard.items() if now - row[1] < PRESENCE_LOST_S}
            if len(self._heard) >= PROCESSES_MAX:
                return
        self._heard[key] = presence, self.monotonic()


async def copies_of_streams(bus: Bus) -> dict[str, StreamCopies | None]:
    """Return {stream: its copies}; None for a stream without a leader or an answer."""

    async def ask(name: str) -> StreamCopies | None:
        try:
            return await bus.copies(name)
        except Unavailable:
            return None

    return dict(zip(COPIED, await asyncio.gather(*map(ask, COPIED)), strict=True))


def stream_rows(copies: Mapping[str, StreamCopies | None]) -> list[StreamInfo]:
    """Return the streams with the number of their copies."""
    return [
        StreamInfo(name=name, copies=0, current=0, leader="")
        if found is None
        else StreamInfo(
            name=name,
            copies=found.wanted,
            current=sum(each.is_current and not each.is_offline for each in found.copies),
            leader=found.copies[0].server,
        )
        for name, found in copies.items()
    ]


def server_rows(copies: Mapping[str, StreamCopies | None]) -> list[ServerInfo]:
    """Return the servers that hold copies, by name; none where one server is alone."""
    leads: dict[str, list[str]] = defaultdict(list)
    held = defaultdict[str, list[tuple[bool, bool, int]]](list)
    for name, found in copies.items():
        for index, each in enumerate(found.copies if found is not None else ()):
            if each.server:
                held[each.server].append((each.is_current, each.is_offline, each.lag))
                if index == 0:
                    leads[each.server].append(name)
    return [
        ServerInfo(name=name, state=_worst(rows), leads=leads[name], lag=max(lag for _, _, lag in rows))
        for name, rows in sorted(held.items())
    ]


def _worst(rows: Iterable[tuple[bool, bool, int]]) -> Literal["current", "behind", "offline"]:
    found = list(rows)
    if any(offline for _, offline, _ in found):
        return "offline"
    return "current" if all(current for current, _, _ in found) else "behind"
