"""The views as of a past sequence or time: a fold of the log from the nearest state that is kept, bounded in number and length,
newest kept.

A gateway alone keeps its two snapshots and folds at most EVENTS_MAX events from there. The process `fairlead_replay.past` keeps a
state for every stretch of the log, and overrides `_nearest`. Start at `HistoricalViews.moment`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from fairlead_bus import snapshots
from fairlead_bus.log import LogHead, LogReader, identity
from fairlead_bus.port import Bus, LogDamaged, Unavailable
from fairlead_gateway.errors import HttpError
from fairlead_gateway.views.fold import SCHEMA, Views
from fairlead_schemas.units.moments import At, parse_at
from fairlead_schemas.units.timestamps import MINUTE_NS, rfc3339
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_envelope

#: Folds of the past that may run at once, and results kept.
FOLDS_MAX = 2
KEPT_MAX = 4
#: Events that a gateway folds for one answer.
EVENTS_MAX = 200_000
#: Commits from the log's start that are folded without a look at the stored snapshots.
NEAR_START = 2_000
#: Commits whose clocks are looked at for the time of a place: writers' clocks cross.
PLACE_COMMITS = 64
#: A client's clock may be so far ahead of ours.
SKEW_NS = MINUTE_NS
#: Header with the moment that an answer is about: its sequence, and the time of the log then.
AT_HEADER = "X-Fairlead-At"


class SeenMoment(NamedTuple):
    """Views, and the time that counts as now for their documents (Unix ns)."""

    views: Views
    now_ns: int
    #: False for the live views.
    is_past: bool = False

    @property
    def of_past(self) -> int:
        """Sequence of a past moment; 0 for the present."""
        return self.views.sequence if self.is_past else 0

    @property
    def headers(self) -> dict[str, str]:
        """Headers of an answer about the past; none about the present, whose sequence every answer has."""
        return moment_headers(self.views.sequence, self.views.at_ns) if self.is_past else {}


class Base(NamedTuple):
    """State from which a fold begins."""

    views: Views
    heads: dict[str, LogHead]


class LogPlace(NamedTuple):
    """Place in the log that a moment means; 0: the present."""

    sequence: int = 0
    at_ns: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """Headers of an answer about it, as `SeenMoment` has them."""
        return moment_headers(self.sequence, self.at_ns) if self.sequence else {}


def moment_headers(sequence: int, at_ns: int) -> dict[str, str]:
    """Return the headers of an answer about a past moment."""
    return {AT_HEADER: f"{sequence} {rfc3339(at_ns)}", "X-Fairlead-Sequence": str(sequence)}


def bad_moment(message: str, field: str = "at") -> HttpError:
    """Return the 400 for a moment that cannot be. `field`: the parameter that names it."""
    errors = [FieldError(field=field, message=message)]
    hint = "docs/how-to/past.md has examples"
    return HttpError(400, "invalid_moment", f"{field}: {message}", errors=errors, hint=hint)


def _damaged(error: LogDamaged) -> HttpError:
    return HttpError(503, "log_damaged", str(error), hint="docs/how-to/damage.md has the repair")


class HistoricalViews:
    """Answers `at=`. `clock`: Unix ns."""

    def __init__(
        self, bus: Bus, live: Views, clock: Callable[[], int] = time.time_ns, *, events_max: int = EVENTS_MAX
    ) -> None:
        self._bus = bus
        self._live = live
        self.clock = clock
        self._events_max = events_max
        self._turns = asyncio.Semaphore(FOLDS_MAX)
        #: {moment: state}, for moments that can no longer change.
        self.kept: dict[At, Base] = {}

    async def moment(self, at: str) -> SeenMoment:
        """Return the views of a moment; "": the live ones. Raise HttpError for a moment that cannot be read or has not come."""
        if not at:
            return SeenMoment(self._live, self.clock())
        views = await self.views_at(at)
        return SeenMoment(views, views.at_ns, is_past=True)

    async def views_at(self, at: str) -> Views:
        """Return the views folded up to and including sequence `at`, or up to the last commit before the first one that is later than
        time `at`. Raise HttpError: 400 for a moment that cannot be or has not come, 410 for one before what the log holds, 503 for
        one that is too far to fold here.
        """
        wanted = self._wanted(at, "at")
        if (kept := self.kept.get(wanted)) is not None:
            return kept.views
        async with self._turns:
            if (kept := self.kept.get(wanted)) is not None:  # somebody else waited for the same moment
                return kept.views
            made = await self._fold(wanted)
        if wanted.sequence or wanted.at_ns < self._live.at_ns:
            self._keep(wanted, made)
        return made.views

    @property
    def last(self) -> int:
        """Sequence of the newest commit that is folded."""
        return self._live.sequence

    async def sequence_at(self, text: str, field: str) -> int:
        """Return the sequence that a moment means, without a fold. `field`: the parameter that names it. Raise HttpError as `views_at`
        does.
        """
        wanted = self._wanted(text, field)
        first = (await self._bus.state(subjects.LOG)).first
        found = wanted.sequence or await self._sequence_of(wanted.at_ns, first)
        if found < first:
            raise await self._gone(first)
        return found

    async def place(self, at: str) -> LogPlace:
        """Return the place in the log that a moment means, without a fold; "": the present. Raise HttpError as `views_at` does."""
        if not at:
            return LogPlace()
        sequence, first = await self.sequence_at(at, "at"), (await self._bus.state(subjects.LOG)).first
        after, at_ns = max(0, first - 1, sequence - PLACE_COMMITS), 0
        reader = LogReader(self._bus, after=after, anchored=False)
        try:
            while reader.chain.last < sequence:
                for commit in await reader.next_checked():
                    if commit.seq <= sequence:
                        at_ns = max(at_ns, commit.envelope.at_ns)
        except LogDamaged as error:
            raise _damaged(error) from None
        finally:
            await reader.close()
        return LogPlace(sequence, at_ns)

    async def _sequence_of(self, at_ns: int, first: int) -> int:
        """Return the last sequence before the first commit that is later than a time. Clocks of writers differ by SKEW_NS at most, so
        what is older by more than that is passed over by halves.
        """
        low, end = first, self.last + 1
        while low < end:
            middle = (low + end) // 2
            stored = await self._bus.read(subjects.LOG, middle)
            if stored is None or decode_envelope(stored.payload).at_ns < at_ns - SKEW_NS:
                low = middle + 1
            else:
                end = middle
        if low > self.last:
            return self.last
        reader = LogReader(self._bus, after=low - 1, anchored=False)
        try:
            while reader.chain.last < self.last:
                for commit in await reader.next_checked():
                    if commit.envelope.at_ns > at_ns:
                        return commit.seq - 1
                await asyncio.sleep(0)
        finally:
            await reader.close()
        return self.last

    def _wanted(self, text: str, field: str) -> At:
        """Return the moment that a text names. Raise HttpError (400) for one that cannot be or has not come."""
        now_ns = self.clock()
        try:
            wanted = parse_at(text, now_ns)
        except ValueError as error:
            raise bad_moment(str(error), field) from None
        if not self._live.sequence:
            raise bad_moment("the log is empty, so it has no past yet", field)
        if wanted.sequence > self._live.sequence:
            raise bad_moment(f"the log is at sequence {self._live.sequence}, found {wanted.sequence}", field)
        if wanted.at_ns > max(now_ns + SKEW_NS, self._live.at_ns):
            raise bad_moment(f'this is in the future: it is {rfc3339(now_ns)}, found "{text[:40]}"', field)
        return wanted

    def _keep(self, wanted: At, made: Base) -> None:
        for key in {wanted, At(made.views.sequence)}:
            self.kept[key] = made
        while len(self.kept) > 2 * KEPT_MAX:
            del self.kept[next(iter(self.kept))]

    async def _fold(self, wanted: At) -> Base:
        """Return the state folded to a moment that has come."""
        last = wanted.sequence or self._live.sequence
        first = (await self._bus.state(subjects.LOG)).first
        if last < first:
            raise await self._gone(first)
        base = await self._nearest(wanted, last) or Base(Views(), {})
        if base.views.sequence + 1 < first:
            raise await self._gone(first)
        try:
            made = await self._fold_from(base, wanted, last)
        except LogDamaged as error:
            raise _damaged(error) from None
        if not made.views.sequence:
            raise await self._gone(first)
        return made

    async def _fold_from(self, base: Base, wanted: At, last: int) -> Base:
        views, heads, events = base.views, dict(base.heads), 0
        views.name_of = self._live.name_of
        reader = LogReader(self._bus, after=views.sequence, heads=base.heads)
        try:
            while views.sequence < last:
                for folded in await reader.next():
                    if folded.seq > last or (wanted.at_ns and folded.commit.at_ns > wanted.at_ns):
                        return Base(views, heads)
                    events += len(folded.commit.events)
                    if events > self._events_max:
                        raise self._too_far()
                    views.fold(folded.seq, folded.commit)
                    heads[folded.writer] = folded.head
                await asyncio.sleep(0)
        finally:
            await reader.close()
        return Base(views, heads)

    async def _nearest(self, wanted: At, last: int) -> Base | None:
        """Return the newest kept state that is not later than a moment; None: the log's start. `last`: highest sequence that counts."""
        if last <= NEAR_START:
            return None
        try:
            log_id = await identity(self._bus)
            found = await snapshots.load_all(self._bus, "gateway", log_id=log_id, schema=f"views-{SCHEMA}")
        except (Unavailable, LogDamaged):  # damage is reported by the fold, which meets it where it is
            return None
        for each in found:
            if each.sequence > last:
                continue
            views = await asyncio.to_thread(Views.restore, each.state)
            if views is not None and not (wanted.at_ns and views.at_ns > wanted.at_ns):
                return Base(views, each.heads)
        return None

    def _too_far(self) -> HttpError:
        return HttpError(
            503,
            "past_too_far",
            f"this moment is more than {self._events_max} events from what the gateway keeps, and no process for the past answers",
            hint="start `python -m fairlead_replay.past`, which keeps states of the past (docs/how-to/past.md)",
        )

    async def _gone(self, first: int) -> HttpError:
        """Return the 410 for a moment before the first commit that the log holds."""
        oldest = await self._bus.read(subjects.LOG, first)
        at = f" ({rfc3339(decode_envelope(oldest.payload).at_ns)})" if oldest is not None else ""
        return HttpError(
            410,
            "before_log",
            f"the log begins later than this moment: the earliest is sequence {first}{at}",
            hint=f"ask with at={first}",
        )
