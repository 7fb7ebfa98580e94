"""The views as of a past sequence or time: a fresh fold of the log, bounded in number, newest kept."""

import asyncio
import time
from collections.abc import Callable

from fairlead_bus.log import LogReader
from fairlead_bus.port import Bus
from fairlead_gateway.errors import bad_field
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.timestamps import MINUTE_NS, parse_rfc3339, rfc3339

#: Folds of the past that may run at once, and results kept.
FOLDS_MAX = 2
#: A client's clock may be so far ahead of ours.
SKEW_NS = MINUTE_NS
KEPT_MAX = 4


class HistoricalViews:
    """Answers `at=`."""

    def __init__(self, bus: Bus, live: Views, clock: Callable[[], int] = time.time_ns) -> None:
        self._bus = bus
        self._live = live
        self._clock = clock
        self._turns = asyncio.Semaphore(FOLDS_MAX)
        #: {text of `at`: views}, for moments that can no longer change.
        self._kept: dict[str, Views] = {}

    async def views_at(self, at: str) -> Views:
        """Views folded up to and including sequence `at`, or all commits not later than time `at`.
        Raise HttpError for a moment that cannot be read or has not come."""
        sequence, at_ns = _moment(at)
        if sequence is not None and sequence > self._live.sequence:
            raise bad_field("at", f"the log is at sequence {self._live.sequence}, found {sequence}")
        if at_ns is not None and at_ns > max(self._clock() + SKEW_NS, self._live.at_ns):
            raise bad_field("at", f"it is {rfc3339(self._clock())}, found {at[:40]}")
        if at in self._kept:
            return self._kept[at]
        async with self._turns:
            views = await self._fold(self._live.sequence if sequence is None else sequence, at_ns)
        if at_ns is None or at_ns < self._live.at_ns:
            self._kept[at] = views
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        return views

    async def _fold(self, last: int, at_ns: int | None) -> Views:
        views = Views()
        views.name_of = self._live.name_of
        reader = LogReader(self._bus)
        try:
            while views.sequence < last:
                for folded in await reader.next():
                    if folded.seq > last or (at_ns is not None and folded.commit.at_ns > at_ns):
                        return views
                    views.fold(folded.seq, folded.commit)
                await asyncio.sleep(0)
        finally:
            await reader.close()
        return views


def _moment(at: str) -> tuple[int | None, int | None]:
    """(sequence, None) or (None, Unix ns)."""
    if at.isascii() and at.isdecimal() and len(at) <= 18:
        if not int(at):
            raise bad_field("at", "sequences start at 1")
        return int(at), None
    try:
        # The "+" of a zone arrives as a blank if the client did not escape it.
        return None, parse_rfc3339(at.replace(" ", "+"))
    except ValueError:
        raise bad_field("at", f'expected a log sequence or an RFC 3339 time with zone, found "{at[:40]}"') from None
