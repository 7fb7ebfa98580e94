"""GET /v1/changes: the events between two moments of the log, as pages.

The first moment's own commit is not among them: they lead from the state at `from` to the state at `to`, as `at` shows both. All pages
are of the same two moments, whichever words name them.
"""

from typing import Annotated, Any

from fastapi import Query, Request, Response

from fairlead_bus.port import LogDamaged
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.event_sight import event_filter
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError, bad_field
from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.routes import grammar
from fairlead_gateway.routes.event_filter import EventQuery, event_conditions
from fairlead_gateway.routes.events import EventFeed, LogPosition, parse_place
from fairlead_gateway.routes.grammar import OfJob, OfNodes, OfQueues, OfTypes, OfUsers
from fairlead_gateway.routes.query import AT_WORDS, Limit
from fairlead_gateway.routes.router import Router, listed
from fairlead_gateway.sources.historical_views import HistoricalViews, bad_moment
from fairlead_schemas.http import cloudevents as ce
from fairlead_schemas.http.api import Page

_MOMENT = AT_WORDS.partition(": ")[2]
_TOKEN = r"^([0-9]{1,18}(\.[0-9]{1,6})?-[0-9]{1,18})?$"  # noqa: S105  # a pattern of places


def routes(feed: EventFeed, past: HistoricalViews) -> Router:
    """Return the one route."""
    router = Router()

    @router.read(
        "/v1/changes",
        "Events between two moments, oldest first, as CloudEvents",
        Page[ce.CloudEventOut],
        right=listed("job:read"),
    )
    async def list_changes(
        request: Request,
        begin: Annotated[
            str,
            Query(
                alias="from",
                min_length=1,
                json_schema_extra=grammar.MOMENT,
                description=f"The moment before the first change: {_MOMENT}",
            ),
        ],
        to: Annotated[
            str,
            Query(
                json_schema_extra=grammar.MOMENT, description=f"The moment of the last change (default: now): {_MOMENT}"
            ),
        ] = "",
        job: OfJob = "",
        type: OfTypes = "",
        node: OfNodes = "",
        user: OfUsers = "",
        queue: OfQueues = "",
        limit: Limit = 100,
        next: Annotated[
            str,
            Query(
                alias="continue",
                json_schema_extra={"pattern": _TOKEN},
                description="The `next` of the page before.",
            ),
        ] = "",
    ) -> Response:
        wanted = event_conditions(EventQuery(job, "", "", type, node, user, queue), past.clock())
        place, end = _continued(next, feed.last) if next else await _between(past, begin, to)
        caller = caller_of(request)
        shown = None if caller.is_open else lambda: event_filter(Sight(feed.views, caller))
        try:
            items, rest = await feed.page(place, wanted, limit, shown, end=end)
        except LogDamaged as error:
            raise HttpError(503, "log_damaged", str(error), hint="fairlead audit verify") from error
        document: dict[str, Any] = {"items": items, "next": _token(rest, end), "sequence": end}
        return JsonResponse(document)

    return router


async def _between(past: HistoricalViews, begin: str, to: str) -> tuple[LogPosition, int]:
    """Return the place behind the first moment, and the sequence of the last. Raise HttpError (400, 410)."""
    first = await past.sequence_at(begin, "from")
    end = await past.sequence_at(to, "to") if to else past.last
    if first > end:
        raise bad_moment(f"expected a moment that is not after `to` (sequence {end}), found sequence {first}", "from")
    return LogPosition(first), end


def _continued(token: str, last: int) -> tuple[LogPosition, int]:
    place, _, end = token.partition("-")
    if not (end.isascii() and end.isdecimal() and len(end) <= 18 and int(end) <= last):
        raise bad_field("continue", "expected the unchanged `next` of the previous page")
    return parse_place(place, "continue"), int(end)


def _token(rest: LogPosition | None, end: int) -> str | None:
    """Return the `next` of a page, with the last moment of all of them; None for the last page."""
    if rest is None or (rest.sequence >= end and rest.offset < 0):
        return None
    place = f"{rest.sequence}.{rest.offset}" if rest.offset >= 0 else str(rest.sequence)
    return f"{place}-{end}"
