"""GET /v1/map/columns: the map as columns, or what has changed in it. GET /v1/ticks: that the log has gone on.

Both are what pages need to stay current, at a cost that hardly rises with their number: the map is looked at now and then, never
for each request, and a tick has no events in it. Who reads them asks again until the answer's sequence is the newest that it has
heard of. Start at `MapAnswers`.
"""

import asyncio
import gzip
import time
from collections.abc import AsyncGenerator, Callable
from typing import Annotated

from fastapi import Query, Request, Response

from fairlead_gateway.access.callers import Callers, caller_of
from fairlead_gateway.access.redaction import shown_map
from fairlead_gateway.access.streams import end_of, while_allowed
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError, bad_field
from fairlead_gateway.http_messages import JsonResponse, encode
from fairlead_gateway.routes.events import HEARTBEAT_S, WATCHED, WATCHES_MAX, WatchResponse, last_event
from fairlead_gateway.routes.query import At
from fairlead_gateway.routes.router import SIGNED_IN, Router, listed
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.views.cluster_map import cluster_map, pool_rooms
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.map_columns import HolderFacts, MapHistory, columns, job_facts
from fairlead_schemas.queries.cluster_map import ClusterMap, MapJob, MapNode
from fairlead_schemas.queries.map_columns import MapColumns, Tick

#: The map is looked at again after so many times what a look has cost, at least.
LOOK_FACTOR = 20
#: A tick comes at most so often, and less often where many read: a message for each costs time that submits need.
TICK_S, TICK_S_PER_READER = 0.5, 0.01
#: Readers are told to leave so much time between two requests for each page that is open.
PAUSE_MS_PER_READER, PAUSE_MS_LEAST = 20, 1000
#: Answers of one look that are kept encoded: readers have few different cursors.
KEPT_MAX = 64
CURSOR_CHARS_MAX = 64

Since = Annotated[
    str,
    Query(
        max_length=CURSOR_CHARS_MAX,
        description="The `cursor` of an answer before: only what has changed after it; everything where that is too old.",
    ),
]


class MapAnswers:
    """Answers with the map of now, encoded once for all readers who see everything. `least_s`: returns how long to leave between two
    looks at least; `monotonic`: seconds.
    """

    def __init__(
        self, views: Views, name: str, least_s: Callable[[], float], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._views = views
        self._history = MapHistory(views, name)
        self._monotonic = monotonic
        self._least_s = least_s
        self._next = 0.0
        #: {look of the reader: its answer, compressed}
        self._kept: dict[int, bytes] = {}

    def answer(self, sight: Sight, since: str) -> bytes:
        """Return the document for a reader, compressed by gzip."""
        began = self._monotonic()
        if began >= self._next:
            if self._history.look():
                self._kept.clear()
            now = self._monotonic()
            self._next = now + max(self._least_s(), LOOK_FACTOR * (now - began))
        look = self._history.parse_cursor(since, whole=sight.is_whole)
        if not sight.is_whole:
            return _compressed(self._shown(sight, look))
        found = self._kept.get(look)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            nodes = self._history.changed_since(look)
            document = self._document(
                ClusterMap(sequence=0, at=None, pools=self._history.pools, nodes=nodes, jobs=[]), look
            )
            found = self._kept[look] = _compressed(document)
        return found

    def _shown(self, sight: Sight, look: int) -> MapColumns:
        """Return the document of a reader who does not see everything."""
        rows, history = self._views.nodes.rows, self._history

        def sees(node: str) -> bool:
            return node in rows and sight.node(rows[node])

        nodes = [node for node in history.changed_since(look) if sees(node.id)]
        pools = history.pools
        if not sight.all_nodes:
            pools = pool_rooms(node for node in history.changed_since(0) if sees(node.id))
        found = ClusterMap(sequence=0, at=None, pools=pools, nodes=nodes, jobs=self._jobs_of(nodes))
        return self._document(shown_map(sight, found), look)

    def _jobs_of(self, nodes: list[MapNode]) -> list[MapJob]:
        ids = dict.fromkeys(one.job for node in nodes for gpu in node.gpus for one in gpu.holders)
        return [MapJob(id=job, name="", user="", queue="", state="", gpu_milli=0) for job in ids]

    def _document(self, found: ClusterMap, look: int) -> MapColumns:
        history = self._history
        head = {"sequence": history.sequence, "at_ns": history.at_ns}
        return columns(found.nodes, found.pools, history.facts, **head, cursor=history.cursor(), whole=look == 0)


class Ticks:
    """Tells every reader that the log has gone on, now and then, by one timer for all."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._moved = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None
        self._closed = False
        self.readers = 0

    def close(self) -> None:
        """End every stream."""
        self._closed = True
        self._moved.set()

    async def watch(self) -> AsyncGenerator[bytes]:
        """Yield server-sent events without end: the newest sequence, and how long to wait between two requests."""
        self.readers += 1
        if self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._run())
        try:
            yield b"retry: 1000\n" + self._tick()
            while not self._closed:
                moved = self._moved
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await moved.wait()
                    yield self._tick()
                except TimeoutError:
                    yield b": nothing new\n\n"
        finally:
            self.readers -= 1

    def spread_s(self) -> float:
        """Return for how much longer than without others a reader waits for news: looking for it more often is of no use."""
        return max(0.0, TICK_S_PER_READER * self.readers - TICK_S)

    def now(self) -> Tick:
        """Return the tick of now."""
        return Tick(sequence=self._views.sequence, pause_ms=max(PAUSE_MS_LEAST, PAUSE_MS_PER_READER * self.readers))

    def _tick(self) -> bytes:
        now = self.now()
        return b"id: %d\nevent: tick\ndata: %b\n\n" % (now.sequence, encode(now))

    async def _run(self) -> None:
        """Wake the readers when there is something new, until there are none."""
        told = self._views.sequence
        while self.readers:
            await asyncio.sleep(TICK_S + self.spread_s())
            if self._views.sequence != told:
                told = self._views.sequence
                moved, self._moved = self._moved, asyncio.Event()
                moved.set()


def routes(views: Views, past: HistoricalViews, callers: Callers, ticks: Ticks, name: str) -> Router:
    """Return both routes. `name`: of this process, in the cursors of its answers, without "-"."""
    router = Router()
    answers = MapAnswers(views, name, ticks.spread_s)

    @router.read(
        "/v1/map/columns",
        "The map as columns, now or at a past moment; or what has changed in it since an answer before",
        MapColumns,
        right=listed("node:read"),
    )
    async def get_map_columns(request: Request, since: Since = "", at: At = "") -> Response:
        if since and at:
            raise bad_field("since", "expected no `since` with `at`: nothing changes in the past")
        if at:
            seen = await past.moment(at)
            sight = Sight(views, caller_of(request), seen.views)
            headers, body = seen.headers, _compressed(_of_the_past(sight))
        else:
            headers, body = dict[str, str](), answers.answer(Sight(views, caller_of(request)), since)
        headers = {**headers, "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
        else:
            body = gzip.decompress(body)
        return Response(body, headers=headers, media_type="application/json")

    @router.read(
        "/v1/ticks",
        "The newest sequence; with follow=1 again whenever the log goes on, as server-sent events without events of the log",
        right=SIGNED_IN,
        responses={
            200: {
                "description": "`pause_ms` is how long to wait between two requests for one document",
                "content": {
                    "application/json": {"schema": router.ref(Tick)},
                    "text/event-stream": {"schema": WATCHED},
                },
            }
        },
    )
    async def get_ticks(request: Request, follow: bool = False) -> Response:
        if not follow:
            return JsonResponse(ticks.now())
        if ticks.readers >= WATCHES_MAX:
            raise HttpError(503, "busy", f"{ticks.readers} pages are open already", retry_after_s=5)
        caller, stream = caller_of(request), ticks.watch()
        if not caller.is_open:
            stream = while_allowed(stream, end_of(callers, caller, lambda: True), last_event)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return WatchResponse(stream, media_type="text/event-stream", headers=headers)

    return router


def _of_the_past(sight: Sight) -> MapColumns:
    then = sight.then
    found = shown_map(sight, cluster_map(then, sees=sight.node))

    def facts(job: str) -> HolderFacts:
        return job_facts(then, job)

    return columns(found.nodes, found.pools, facts, sequence=then.sequence, at_ns=then.at_ns)


def _compressed(document: MapColumns) -> bytes:
    return gzip.compress(encode(document), 5, mtime=0)
