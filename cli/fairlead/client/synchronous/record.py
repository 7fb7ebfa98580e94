# Made by docs/synchronous.py of asynchronous/record.py; `make docs` writes it again.
"""Requests about the record: events of the log, which are watched and resumed, SQL over the warehouse, what-if studies, and usage."""

from collections.abc import Iterator
from typing import Any

from fairlead.client.answers import Answer, decode, decode_page, query_of
from fairlead.client.sync_link import pause
from fairlead.client.synchronous.cluster import ClusterRequests
from fairlead.client.synchronous.transport import PAGE_ITEMS, RESENDS_MAX
from fairlead.errors import Unreachable
from fairlead_schemas.http.api import Page, Price, WhatIf
from fairlead_schemas.http.cloudevents import CloudEventOut
from fairlead_schemas.queries.studies import Users
from fairlead_schemas.queries.telemetry import SqlFormat, UsageStatement

#: A watch hears at least a comment every few seconds; longer silence is a broken connection.
WATCH_SILENCE_S = 60.0
#: A query waits its turn and works; the gateway gives up before.
SQL_TIMEOUT_S = 90.0


class RecordRequests(ClusterRequests):
    """Requests about events, SQL, studies and usage."""

    def events(
        self,
        *,
        start: int | None = 1,
        follow: bool = False,
        job: str = "",
        since: str = "",
        until: str = "",
        types: str = "",
        node: str = "",
        user: str = "",
        queue: str = "",
        tail: int | None = None,
    ) -> Iterator[CloudEventOut]:
        """Yield events of the log in order from sequence `start`; with `follow` without end (`start` None: from now on).

        A watch resumes automatically after a broken connection, behind the last event yielded: no event is lost or repeated.
        `job` keeps the events about one job (for an array: and its elements); `types`, `node`, `user` and `queue` are names joined by
        commas, of which one must fit. `since` and `until` are RFC 3339 times, or how long ago ("2h"). `tail` begins with the last so many.
        """
        wanted = {
            "job": job,
            "since": since,
            "until": until,
            "type": types,
            "node": node,
            "user": user,
            "queue": queue,
            "tail": tail,
        }
        if not follow:
            first = start if start != 1 else None
            for event in self._events_stored({**wanted, "from": first}):
                yield event
            return
        last, failures = "", 0
        while True:
            try:
                for event in self._watch({**wanted, "from": start}, last):
                    last, failures = event.id, 0
                    yield event
            except Unreachable as error:
                failures += 1
                if failures > RESENDS_MAX:
                    raise Unreachable(f"{self.url} cannot be reached: {error}", hint="fairlead doctor") from error
                self._turn_to_next()
            # The gateway also ends a watch that is too slow, or when it stops; both are resumed.
            pause(min(0.2 * 2**failures, 2.0))

    def changes(
        self,
        begin: str,
        to: str = "",
        *,
        job: str = "",
        types: str = "",
        node: str = "",
        user: str = "",
        queue: str = "",
        limit: int = 0,
    ) -> Page[CloudEventOut]:
        """Return the events that lead from the state at one moment to that at another ("": now), oldest first. Moments are log sequences,
        RFC 3339 times or ages ("2 hours ago"); the other words are those of `events`. `limit` 0: all of them.
        """
        named = {"from": begin, "to": to, "job": job, "type": types, "node": node, "user": user, "queue": queue}
        wanted = {name: value for name, value in named.items() if value}
        return self._pages("/v1/changes", wanted, CloudEventOut, limit)

    def _events_stored(self, wanted: dict[str, Any]) -> Iterator[CloudEventOut]:
        query = query_of({**wanted, "limit": PAGE_ITEMS})
        while True:
            page = decode_page((self._get("/v1/events", query)).content, CloudEventOut)
            yield from page.items
            if page.next is None:
                return
            query["continue"] = page.next

    def _watch(self, wanted: dict[str, Any], last: str) -> Iterator[CloudEventOut]:
        import httpx_sse

        # A watch without an event yet begins where it was to begin; one that goes on does so behind its last event.
        places = {"from": None, "tail": None} if last else {}
        query = query_of({**wanted, **places, "follow": "true"})
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        with self._stream("/v1/events", query, headers, WATCH_SILENCE_S) as answer:
            for message in httpx_sse.EventSource(answer).iter_sse():
                if message.data:
                    yield decode(message.data, CloudEventOut)

    def sql(self, query: str, *, limit: int | None = None, timeout_s: float | None = None) -> dict[str, Any]:
        """Rows of one SELECT over the warehouse: `{columns, rows, …}`, `truncated` and `cut` where they are not all, `left_out` where the
        tables lack some that are the caller's."""
        return decode((self._sql(query, "json", limit, timeout_s)).content, dict[str, Any])

    def sql_bytes(
        self, query: str, form: SqlFormat, *, limit: int | None = None, timeout_s: float | None = None
    ) -> tuple[bytes, dict[str, str]]:
        """The same as CSV, or as Arrow's IPC stream; and `cut` and `left_out` ("": it is whole)."""
        answer = self._sql(query, form, limit, timeout_s)
        heads = {"cut": "X-Fairlead-Truncated", "left_out": "X-Fairlead-Left-Out"}
        return answer.content, {word: answer.headers.get(head) or "" for word, head in heads.items()}

    def _sql(self, query: str, form: SqlFormat, limit: int | None, timeout_s: float | None) -> Answer:
        body = {"query": query, **query_of({"limit": limit, "timeout_s": timeout_s})}
        return self._send("POST", "/v1/sql", json=body, query={"format": form}, timeout_s=SQL_TIMEOUT_S)

    def start_whatif(
        self,
        change: dict[str, Any],
        *,
        begin: str = "",
        to: str = "",
        seeds: int = 5,
        users: Users = "open",
        grid: str = "",
    ) -> WhatIf:
        """Let the cluster play a part of its log (from `begin` to `to`, RFC 3339; "": all of it) again with a change; see
        docs/how-to/what-if.md.
        """
        body = {"change": change, "seeds": seeds, "users": users, **query_of({"from": begin, "to": to, "grid": grid})}
        return decode((self._post("/v1/whatif", body)).content, WhatIf)

    def whatif(self, study: str, *, even_so: bool = False) -> WhatIf:
        """Return how far a study is, and once it is done, what it found."""
        query = query_of({"even_so": "true" if even_so else None})
        return decode((self._get(f"/v1/whatif/{study}", query)).content, WhatIf)

    def whatif_progress(self, study: str) -> Iterator[WhatIf]:
        """Yield how far a study is, each time that this changes, until it is over."""
        import httpx_sse

        headers = {"Accept": "text/event-stream"}
        with self._stream(f"/v1/whatif/{study}/progress", {}, headers, WATCH_SILENCE_S) as answer:
            for message in httpx_sse.EventSource(answer).iter_sse():
                if message.event == "progress":
                    yield decode(message.data, WhatIf)

    def cancel_whatif(self, study: str) -> WhatIf:
        """End a study, or take it out of the line."""
        return decode((self._send("DELETE", f"/v1/whatif/{study}")).content, WhatIf)

    def prices(self) -> Page[Price]:
        """Prices of GPUs that were set."""
        return self._pages("/v1/prices", {}, Price, 0)

    def set_price(self, model: str, per_gpu_hour: str, currency: str, *, begin: str = "") -> Price:
        """Set what an hour of a GPU of a model ("*": of all others) costs from `begin` on ("": now)."""
        body = {"model": model, "per_gpu_hour": per_gpu_hour, "currency": currency, **query_of({"from": begin})}
        return decode((self._post("/v1/prices", body)).content, Price)

    def usage(self, month: str = "", by: str = "user", *, begin: str = "", end: str = "") -> UsageStatement:
        """GPU time and its cost of a month ("2026-11"; "": this one, so far), or from `begin` to `end` ("": now; days of UTC or RFC 3339), by
        one of `fairlead_schemas.queries.telemetry.BYS`.
        """
        query = {"statement": month, "by": by} | query_of({"from": begin, "to": end})
        return decode((self._get("/v1/usage", query)).content, UsageStatement)
