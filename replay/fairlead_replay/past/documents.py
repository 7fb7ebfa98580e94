"""Answers about past moments: the gateway's own routes, over views folded from the nearest keyframe.

The gateway's application answers here as it does there, so a document of the past cannot differ from that of the gateway. One
question is answered at a time, so that a state that was made for one moment can be folded on for the next. Start at `PastDocuments`.
"""

from collections.abc import Callable
from typing import Any

from fairlead_bus.port import Bus
from fairlead_gateway.access.caller import OPEN_CALLER, Caller
from fairlead_gateway.access.callers import CALLER
from fairlead_gateway.server.fast_path import REQUEST_ID
from fairlead_gateway.service import Gateway, GatewaySettings
from fairlead_gateway.sources.historical_views import Base, HistoricalViews
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_gateway.views.fold import Views
from fairlead_replay.past.keyframes import KeyframeStore
from fairlead_schemas.queries.past import PastCaller, PastQuestion
from fairlead_schemas.units.moments import At

#: Events that one answer may fold: keyframes may be missing for a stretch.
EVENTS_MAX = 5_000_000


class PastViews(HistoricalViews):
    """Views of the past from keyframes, or from a state that was made for an earlier moment; for one caller at a time."""

    def __init__(self, bus: Bus, live: Views, store: Callable[[], KeyframeStore | None]) -> None:
        super().__init__(bus, live, events_max=EVENTS_MAX)
        self._store = store

    async def _nearest(self, wanted: At, last: int) -> Base | None:
        made = self._take_made(wanted, last)
        store = self._store()
        after = made.views.sequence if made is not None else 0
        if store is None or (made is not None and not store.is_nearer(after, last, wanted.at_ns)):
            return made
        found = await store.nearest_of_log(self._bus, last, wanted.at_ns)
        if found is None or found.sequence <= after:
            return made
        return Base(found.views, found.heads)

    def _take_made(self, wanted: At, last: int) -> Base | None:
        """Return the newest state in memory that is not later than a moment, to be folded on: it is not kept any more."""
        fitting = [
            base
            for base in self.kept.values()
            if base.views.sequence <= last and not (wanted.at_ns and base.views.at_ns > wanted.at_ns)
        ]
        if not fitting:
            return None
        base = max(fitting, key=lambda each: each.views.sequence)
        self.kept = {moment: each for moment, each in self.kept.items() if each.views is not base.views}
        return base


class PastDocuments:
    """The gateway's application over the past. `live`: views at the log's end, by whose rights documents are shown."""

    def __init__(self, bus: Bus, live: LiveViews, store: Callable[[], KeyframeStore | None]) -> None:
        self._live = live
        self.gateway = Gateway(bus, GatewaySettings(), live, past=lambda bus, views: PastViews(bus, views, store))

    async def answer(self, question: PastQuestion) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return status, headers and body of the answer to a GET."""
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": question.path,
            "root_path": "",
            "query_string": question.query.encode("latin-1"),
            "headers": [(b"if-none-match", question.seen.encode("latin-1"))] if question.seen else [],
            "server": ("past", 80),
            "client": None,
            CALLER: self.caller(question.caller),
            REQUEST_ID: question.request_id,
        }
        status, headers, parts = 500, list[tuple[str, str]](), list[bytes]()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.extend((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await self.gateway.api(scope, receive, send)
        return status, headers, b"".join(parts)

    def caller(self, caller: PastCaller) -> Caller:
        """Return the sender of a question, whose rights are those of now."""
        if caller.is_open:
            return OPEN_CALLER
        return Caller(
            self._live.views,
            principal=caller.principal,
            credential=caller.credential,
            is_token=caller.is_token,
            act_as=caller.act_as,
            expires_ns=caller.expires_ns,
        )
