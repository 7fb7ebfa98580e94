"""Requests about the record: events of the log, which are watched and resumed, SQL over the warehouse, and usage."""

from collections.abc import AsyncIterator
from typing import Any

from fairlead.client.answers import Answer, decode, decode_page, query_of
from fairlead.client.async_link import pause
from fairlead.client.asynchronous.cluster import AsyncClusterRequests
from fairlead.client.asynchronous.transport import PAGE_ITEMS, RESENDS_MAX
from fairlead.errors import Unreachable
from fairlead_schemas.http.cloudevents import CloudEventOut
from fairlead_schemas.queries.telemetry import SqlFormat, UsageStatement

#: A watch hears at least a comment every few seconds; longer silence is a broken connection.
WATCH_SILENCE_S = 60.0
#: A query waits its turn and works; the gateway gives up before.
SQL_TIMEOUT_S = 90.0


class AsyncRecordRequests(AsyncClusterRequests):
    """Requests about events, SQL and usage."""

    async def events(
        self, *, start: int | None = 1, follow: bool = False, job: str = ""
    ) -> AsyncIterator[CloudEventOut]:
        """Yield events of the log in order from sequence `start`; with `follow` without end (`start` None: from now on).

        A watch resumes automatically after a broken connection, behind the last event yielded: no event is lost or repeated.
        `job` keeps the events about one job (for an array: and its elements).
        """
        if not follow:
            async for event in self._events_stored(start, job):
                yield event
            return
        last, failures = "", 0
        while True:
            try:
                async for event in self._watch(start, last, job):
                    last, failures = event.id, 0
                    yield event
            except Unreachable as error:
                failures += 1
                if failures > RESENDS_MAX:
                    raise Unreachable(f"{self.url} cannot be reached: {error}", hint="fairlead doctor") from error
                self._turn_to_next()
            # The gateway also ends a watch that is too slow, or when it stops; both are resumed.
            await pause(min(0.2 * 2**failures, 2.0))

    async def _events_stored(self, start: int | None, job: str) -> AsyncIterator[CloudEventOut]:
        query = query_of({"from": start or 1, "job": job, "limit": PAGE_ITEMS})
        while True:
            page = decode_page((await self._get("/v1/events", query)).content, CloudEventOut)
            for event in page.items:
                yield event
            if page.next is None:
                return
            query["continue"] = page.next

    async def _watch(self, start: int | None, last: str, job: str) -> AsyncIterator[CloudEventOut]:
        import httpx_sse

        query = query_of({"from": None if last else start, "follow": "true", "job": job})
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        async with self._stream("/v1/events", query, headers, WATCH_SILENCE_S) as answer:
            async for message in httpx_sse.EventSource(answer).aiter_sse():
                if message.data:
                    yield decode(message.data, CloudEventOut)

    async def sql(self, query: str, *, limit: int | None = None, timeout_s: float | None = None) -> dict[str, Any]:
        """Rows of one SELECT over the warehouse: `{columns, rows, …}`, `truncated` and `cut` where they are not all, `left_out` where the
        tables lack some that are the caller's."""
        return decode((await self._sql(query, "json", limit, timeout_s)).content, dict[str, Any])

    async def sql_bytes(
        self, query: str, form: SqlFormat, *, limit: int | None = None, timeout_s: float | None = None
    ) -> tuple[bytes, dict[str, str]]:
        """The same as CSV, or as Arrow's IPC stream; and `cut` and `left_out` ("": it is whole)."""
        answer = await self._sql(query, form, limit, timeout_s)
        heads = {"cut": "X-Fairlead-Truncated", "left_out": "X-Fairlead-Left-Out"}
        return answer.content, {word: answer.headers.get(head) or "" for word, head in heads.items()}

    async def _sql(self, query: str, form: SqlFormat, limit: int | None, timeout_s: float | None) -> Answer:
        body = {"query": query, **query_of({"limit": limit, "timeout_s": timeout_s})}
        return await self._send("POST", "/v1/sql", json=body, query={"format": form}, timeout_s=SQL_TIMEOUT_S)

    async def usage(self, month: str = "", by: str = "user") -> UsageStatement:
        """A month's ("2026-11"; "": this one, so far) GPU time and its cost, by one of `fairlead_schemas.queries.telemetry.BYS`."""
        return decode((await self._get("/v1/usage", {"statement": month, "by": by})).content, UsageStatement)
