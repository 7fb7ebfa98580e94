"""GET /v1/events: the log as CloudEvents, as pages or as a watch (server-sent events).

One feed serves every watch: the newest commits are kept in a ring, and a watch is nothing but a place in
the log. A watch that starts further back reads the log by a tail of its own until it meets the ring, so that
1,000 watches are not 1,000 consumers. A watch that falls out of the ring is too slow and is ended with a word.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from itertools import islice
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from fairlead_bus.log import Folded, LogReader
from fairlead_bus.port import Bus, LogDamaged, Unavailable
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import Callers, caller_of
from fairlead_gateway.access.event_sight import EventFilter, EventSubject, cloud_event, event_filter
from fairlead_gateway.access.streams import end_of, while_allowed
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError, bad_field
from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.monitoring.metrics import Metrics
from fairlead_gateway.routes import grammar
from fairlead_gateway.routes.event_filter import EVERY_EVENT, EventConditions, EventQuery, event_conditions
from fairlead_gateway.routes.grammar import OfJob, OfNodes, OfQueues, OfTypes, OfUsers
from fairlead_gateway.routes.query import LIMIT_MAX, Limit
from fairlead_gateway.routes.router import Router, listed
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import cloudevents as ce
from fairlead_schemas.http.api import Page
from fairlead_schemas.units.timestamps import MINUTE_NS, rfc3339
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import Envelope, decode_envelope

RING_COMMITS = 8192
RING_BYTES = 16 * 1024 * 1024
HEARTBEAT_S = 10.0
WATCHES_MAX = 4000
#: Tails of own (history of watches, pages) that may be open at once: each may have some MiB on the way.
TAILS_MAX = 16
#: The last events are sought in so many commits first, then in eight times as many.
TAIL_COMMITS = 256
#: A page waits so long for one of them.
TAIL_WAIT_S = 5.0
#: Commits are rendered and sent in steps of about so many bytes: a commit may have 256 KiB, a watch needs no more.
STEP_BYTES = 256 * 1024
#: A client that takes nothing for so long is cut off: it resumes where it stood.
SEND_S = 10.0
#: One event of a watch, field by field.
WATCHED = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}
#: A place as parameters have it; `parse_place` reads it. "": none.
PLACE_PATTERN = r"^([0-9]{1,18}(\.[0-9]{0,6})?)?$"
#: Commits that one page reads at most, so that a rare job's page ends.
PAGE_COMMITS_MAX = 20_000
#: Writers' clocks may differ by so much, and commits of different writers may be out of the order of their times by as much.
SKEW_NS = MINUTE_NS


class LogPosition(NamedTuple):
    """A place in the log: everything up to and including this event has been seen."""

    sequence: int
    #: Offset of the last event seen within commit `sequence`; -1: all of it.
    offset: int = -1


class RenderedEvent(NamedTuple):
    """Event that is ready to send."""

    offset: int
    job: str
    event: bytes
    about: EventSubject
    at_ns: int


_about = msgspec.json.Decoder(EventSubject)


def render(sequence: int, envelope: Envelope) -> list[RenderedEvent]:
    """A commit's events as CloudEvents, encoded."""
    time = rfc3339(envelope.at_ns)
    rendered: list[RenderedEvent] = []
    for index, raw in enumerate(envelope.events):
        about = _about.decode(raw)
        event = cloud_event(f"{sequence}.{index}", envelope.writer, time, about, raw)
        rendered.append(RenderedEvent(index, about.job, event, about, envelope.at_ns))
    return rendered


class EventFeed:
    """The newest commits, and who watches."""

    def __init__(self, bus: Bus, views: Views, metrics: Metrics) -> None:
        self.bus = bus
        self.views = views
        self._metrics = metrics
        self._ring: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._tails = asyncio.Semaphore(TAILS_MAX)
        self._closed = False
        self.watches = 0
        self._rendered: dict[int, list[RenderedEvent]] = {}

    @property
    def first(self) -> int:
        """The oldest sequence in the ring; one past the views' where it is empty."""
        return self._ring[0][0] if self._ring else self.views.sequence + 1

    @property
    def last(self) -> int:
        """The newest sequence that a watch can have seen."""
        return self.views.sequence

    def extend(self, batch: list[Folded]) -> None:
        """Take up commits just folded."""
        for folded in batch:
            self._ring.append((folded.seq, folded.payload))
            self._bytes += len(folded.payload)
        while len(self._ring) > RING_COMMITS or self._bytes > RING_BYTES:
            sequence, payload = self._ring.popleft()
            self._bytes -= len(payload)
            self._rendered.pop(sequence, None)
        if self.watches:
            arrived, self._arrived = self._arrived, asyncio.Event()
            arrived.set()

    def close(self) -> None:
        """End every watch, once it has sent what is there."""
        self._closed = True
        self._arrived.set()

    def _render(self, sequence: int, payload: bytes) -> list[RenderedEvent]:
        """Return the events of a commit, rendered. They are rendered once, on first request, and kept until the last watch
        ends.
        """
        found = self._rendered.get(sequence)
        if found is None:
            found = self._rendered[sequence] = render(sequence, decode_envelope(payload))
        return found

    def since(self, place: LogPosition) -> list[tuple[int, list[RenderedEvent]]]:
        """Return one step of the ring's commits with events behind a place; the place must not be before the ring."""
        start = max(0, place.sequence + (1 if place.offset < 0 else 0) - self.first)
        found: list[tuple[int, list[RenderedEvent]]] = []
        size = 0
        for sequence, payload in islice(self._ring, start, None):
            size += len(payload)
            if found and size > STEP_BYTES:
                break
            found.append((sequence, self._render(sequence, payload)))
        return found

    async def history(self, place: LogPosition) -> AsyncGenerator[list[tuple[int, list[RenderedEvent]]]]:
        """Commits behind a place up to the ring or the views' end, by a tail of its own, a step at a time; checked
        like every reading of the log, from the first commit of each writer on. Raises LogDamaged."""
        async with self._tails:
            after = place.sequence - (0 if place.offset < 0 else 1)
            reader = LogReader(self.bus, after=after, anchored=False)
            try:
                reached, step, size = place.sequence, list[tuple[int, list[RenderedEvent]]](), 0
                while reached < self.last and reached + 1 < self.first:
                    for one in await reader.next_checked():
                        if step and size + len(one.payload) > STEP_BYTES:
                            yield step
                            step, size = [], 0
                            await asyncio.sleep(0)
                        step.append((one.seq, render(one.seq, one.envelope)))
                        size += len(one.payload)
                        reached = one.seq
                    yield step
                    step, size = [], 0
            finally:
                await reader.close()

    async def place_at(self, at_ns: int) -> LogPosition:
        """Return a place behind which every commit of a time (Unix ns) or later is, and few older ones. Raises HttpError (503)."""
        low, end = 1, self.last + 1
        while low < end:
            middle = (low + end) // 2
            try:
                stored = await self.bus.read(subjects.LOG, middle)
            except Unavailable:
                raise HttpError(503, "bus_unavailable", "the log cannot be read now", retry_after_s=5) from None
            if stored is None or decode_envelope(stored.payload).at_ns < at_ns - SKEW_NS:
                low = middle + 1
            else:
                end = middle
        return LogPosition(low - 1)

    async def place_of_last(
        self, count: int, first: LogPosition, wanted: EventConditions, shown: EventFilter | None = None
    ) -> LogPosition:
        """Return the place before the last `count` wanted events behind `first`, of the newest PAGE_COMMITS_MAX commits."""
        end, span = self.last, max(count, TAIL_COMMITS)
        while True:
            begin = max(first, LogPosition(end - min(span, PAGE_COMMITS_MAX)))
            places = deque[LogPosition](maxlen=count + 1)
            async with aclosing(self._commits(begin, end)) as steps:
                async for commits in steps:
                    found = _wanted(commits, begin, wanted, shown, self.views)
                    places.extend(LogPosition(sequence, one.offset) for sequence, one in found if sequence <= end)
            if len(places) > count:
                return places[0]
            if begin.sequence <= max(first.sequence, end - PAGE_COMMITS_MAX):
                return begin
            span *= 8

    async def watch(
        self, place: LogPosition, wanted: EventConditions = EVERY_EVENT, shown: EventFilter | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield server-sent events behind a place, without end. `shown`: makes the filter of what the caller may see then;
        None: everything."""
        self.watches += 1
        self._metrics.watchers.set(self.watches)
        try:
            yield b"retry: 1000\n: fairlead events behind %d\n\n" % place.sequence
            async with aclosing(self._follow(place, wanted, shown)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self.watches -= 1
            self._metrics.watchers.set(self.watches)
            if not self.watches:
                self._rendered.clear()

    async def _follow(
        self, place: LogPosition, wanted: EventConditions, shown: EventFilter | None
    ) -> AsyncGenerator[bytes]:
        if place.sequence + 1 < self.first:
            try:
                async with aclosing(self.history(place)) as steps:
                    async for commits in steps:
                        chunk, place = _chunk(commits, place, wanted, shown, self.views)
                        if chunk:
                            yield chunk
            except LogDamaged as error:
                yield b": the log is damaged: %b\n\n" % str(error).encode()
                return
        while True:
            if place.sequence + 1 < self.first and place.sequence < self.last:
                yield b": too slow: events behind %d have left the feed; resume with Last-Event-ID\n\n" % place.sequence
                return
            arrived = self._arrived
            commits = self.since(place)
            chunk, place = _chunk(commits, place, wanted, shown, self.views)
            if chunk:
                yield chunk
            if commits:
                continue
            if self._closed:
                return
            try:
                await asyncio.wait_for(arrived.wait(), HEARTBEAT_S)
            except TimeoutError:
                yield b": at %d\n\n" % self.last

    async def page(
        self,
        place: LogPosition,
        wanted: EventConditions,
        limit: int,
        shown: EventFilter | None = None,
        *,
        end: int | None = None,
    ) -> tuple[list[msgspec.Raw], LogPosition | None]:
        """Return up to `limit` events behind a place, and the place to continue from (None: the end was reached). `end`: the last
        sequence that counts; None: the newest.
        """
        items: list[msgspec.Raw] = []
        end, budget = self.last if end is None else end, place.sequence + PAGE_COMMITS_MAX
        if wanted.until_ns:
            end = min(end, (await self.place_at(wanted.until_ns + 2 * SKEW_NS + 1)).sequence)
        async with aclosing(self._commits(place, end)) as steps:
            async for commits in steps:
                for sequence, one in _wanted(commits, place, wanted, shown, self.views):
                    if sequence > end:
                        return items, None
                    if len(items) == limit:
                        return items, place
                    items.append(msgspec.Raw(one.event))
                    place = LogPosition(sequence, one.offset)
                if commits and commits[-1][0] >= end:
                    return items, None
                if commits and commits[-1][0] >= budget:
                    return items, LogPosition(commits[-1][0])
        return items, None

    async def _turn(self) -> None:
        """Wait for a tail to come free. Raise HttpError (503) when none does."""
        try:
            async with asyncio.timeout(TAIL_WAIT_S), self._tails:
                return
        except TimeoutError:
            raise HttpError(503, "busy", "too many read the history of the log at once", retry_after_s=5) from None

    async def _commits(self, place: LogPosition, end: int) -> AsyncGenerator[list[tuple[int, list[RenderedEvent]]]]:
        reached = place.sequence
        if reached + 1 < self.first and reached < end:
            if self._tails.locked():
                await self._turn()
            async with aclosing(self.history(place)) as steps:
                async for commits in steps:
                    yield commits
                    reached = commits[-1][0]
                    place = LogPosition(reached)
        while reached < end or place.offset >= 0:
            if not (commits := self.since(place)):
                return
            yield commits
            reached = commits[-1][0]
            place = LogPosition(reached)


class WatchResponse(StreamingResponse):
    """A stream that ends when its client takes nothing any more: what it holds is others', too."""

    async def stream_response(self, send: Send) -> None:
        """Send the response like the base class, with a time limit on each send."""

        async def limited(message: Message) -> None:
            async with asyncio.timeout(SEND_S):
                await send(message)

        async with aclosing(self.body_iterator):  # type: ignore[type-var] -- it is the generator of `Feed.watch`
            with suppress(TimeoutError):
                await super().stream_response(limited)


def _wanted(
    commits: list[tuple[int, list[RenderedEvent]]],
    place: LogPosition,
    wanted: EventConditions,
    shown: EventFilter | None,
    views: Views,
) -> Iterator[tuple[int, RenderedEvent]]:
    show = None if shown is None else shown()
    for sequence, events in commits:
        for one in events:
            seen = sequence < place.sequence or (
                sequence == place.sequence and (place.offset < 0 or one.offset <= place.offset)
            )
            if seen or not wanted.may_match(one.about.type, one.job, one.at_ns):
                continue
            event = one.event if show is None else show(one.about, one.event)
            if event is not None and wanted.matches(event, views):
                yield sequence, one if event is one.event else one._replace(event=event)


def _chunk(
    commits: list[tuple[int, list[RenderedEvent]]],
    place: LogPosition,
    wanted: EventConditions,
    shown: EventFilter | None,
    views: Views,
) -> tuple[bytes, LogPosition]:
    """Server-sent events of what is wanted, and the new place."""
    lines = [
        b"id: %d.%d\nevent: fairlead\ndata: %b\n\n" % (sequence, one.offset, one.event)
        for sequence, one in _wanted(commits, place, wanted, shown, views)
    ]
    return b"".join(lines), LogPosition(commits[-1][0]) if commits else place


def parse_place(text: str, field: str) -> LogPosition:
    """Return the place of an event id ("12.3") or of a whole commit ("12"). Raise HttpError."""
    sequence, _, index = text.partition(".")
    if not (sequence.isdecimal() and len(sequence) <= 18 and (not index or (index.isdecimal() and len(index) <= 6))):
        raise bad_field(field, f'expected a log sequence or an event id such as "812.0", found "{text[:40]}"')
    return LogPosition(int(sequence), int(index) if index else -1)


First = Annotated[
    str,
    Query(
        alias="from",
        json_schema_extra={"pattern": PLACE_PATTERN},
        description="First sequence (page: default 1; watch: default now).",
    ),
]
Since = Annotated[
    str,
    Query(
        json_schema_extra=grammar.SINCE,
        description="Only events since: an RFC 3339 time with zone, or how long ago (2h).",
    ),
]
Until = Annotated[
    str,
    Query(json_schema_extra=grammar.SINCE, description="Only events until then, in the same words; not with follow."),
]
Tail = Annotated[
    int | None,
    Query(ge=1, le=LIMIT_MAX, description=f"Begin with the last so many, of the newest {PAGE_COMMITS_MAX} commits."),
]
After = Annotated[
    str,
    Query(alias="continue", json_schema_extra={"pattern": PLACE_PATTERN}, description="The `next` of the page before."),
]


def routes(feed: EventFeed, callers: Callers) -> Router:
    """GET /v1/events."""
    router = Router()

    @router.read(
        "/v1/events",
        "Events of the log as CloudEvents: a page, or with follow=1 a watch",
        right=listed("job:read"),
        responses={
            200: {
                "description": "A page of CloudEvents; with follow=1 server-sent events, one CloudEvent in the data of each",
                "content": {
                    "application/json": {"schema": router.ref(Page[ce.CloudEventOut])},
                    "text/event-stream": {"schema": WATCHED},
                },
            }
        },
    )
    async def list_events(
        request: Request,
        start: First = "",
        follow: bool = False,
        job: OfJob = "",
        since: Since = "",
        until: Until = "",
        type: OfTypes = "",
        node: OfNodes = "",
        user: OfUsers = "",
        queue: OfQueues = "",
        tail: Tail = None,
        limit: Limit = 100,
        next: After = "",
    ) -> Response:
        wanted = event_conditions(EventQuery(job, since, until, type, node, user, queue), time.time_ns())
        if follow and until:
            raise bad_field("until", "expected no until with follow: a watch has no end")
        resumed = request.headers.get("last-event-id", "") or next
        place = _start(feed, start, resumed, "Last-Event-ID" if not next else "continue", follow)
        caller = caller_of(request)
        shown = None if caller.is_open else lambda: event_filter(Sight(feed.views, caller))
        if not resumed:
            place = await _begin(feed, place if start else None, place, wanted, tail, shown)
        if follow:
            return _watch(feed, callers, caller, feed.watch(place, wanted, shown), job)
        try:
            items, rest = await feed.page(place, wanted, limit, shown)
        except LogDamaged as error:
            raise HttpError(503, "log_damaged", str(error), hint="fairlead audit verify") from error
        document: dict[str, Any] = {"items": items, "next": _token(rest), "sequence": feed.last}
        return JsonResponse(document)

    return router


def _watch(feed: EventFeed, callers: Callers, caller: Caller, stream: AsyncGenerator[bytes], job: str) -> Response:
    """Return server-sent events that end when the caller may not have them any more. Raise HttpError (503) for too many watches."""
    if feed.watches >= WATCHES_MAX:
        raise HttpError(503, "busy", f"{feed.watches} watches are open already", retry_after_s=5)
    if not caller.is_open:
        stream = while_allowed(stream, end_of(callers, caller, _still_shown(feed.views, caller, job)), last_event)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return WatchResponse(stream, media_type="text/event-stream", headers=headers)


def _token(rest: LogPosition | None) -> str | None:
    """Return the `next` of a page; None for the last one."""
    if rest is None:
        return None
    return f"{rest.sequence}.{rest.offset}" if rest.offset >= 0 else str(rest.sequence)


def _still_shown(views: Views, caller: Caller, job: str) -> Callable[[], bool]:
    """Return a function that returns False once a caller who could see the watched job cannot any more. A watch of a job that it
    never could see shows nothing, like that of a job that does not exist.
    """
    if not job or not Sight(views, caller).job_id(job):
        return lambda: caller.may_anywhere("job:read")
    return lambda: job not in views.jobs.rows or Sight(views, caller).job_id(job)


def last_event(reason: str) -> bytes:
    """Return the event that ends a watch."""
    return b'event: end\ndata: {"reason":"%b"}\n\n' % reason.encode()


async def _begin(
    feed: EventFeed,
    named: LogPosition | None,
    usual: LogPosition,
    wanted: EventConditions,
    tail: int | None,
    shown: EventFilter | None,
) -> LogPosition:
    """Return the place where a page or watch begins: not before the place that the client named (None: it named none) and the begin of
    its time, and where it asked for the last events, there. Without any of the three: the usual place. Raises HttpError.
    """
    first = named
    if wanted.since_ns:
        first = max(named or LogPosition(0), await feed.place_at(wanted.since_ns))
    if tail is not None:
        return await feed.place_of_last(tail, first or LogPosition(0), wanted, shown)
    return first or usual


def _start(feed: EventFeed, start: str, resumed: str, field: str, follow: bool) -> LogPosition:
    if resumed:
        place = parse_place(resumed, field)
    elif start:
        first = parse_place(start, "from")
        place = LogPosition(max(0, first.sequence - 1))
    else:
        place = LogPosition(feed.last if follow else 0)
    if place.sequence > feed.last:
        found = place.sequence if resumed else place.sequence + 1
        raise bad_field(field if resumed else "from", f"the log is at sequence {feed.last}, found {found}")
    return place
