"""GET /v1/jobs/{job}/why: the views' one dominant reason; for a job that waits, also what the explainer knows; and the
last lines that a run has printed, as part of why its job failed, or is not running yet.

Both are of one sequence. For the past, both are folded to it. For the present, the views follow until they have
what the explainer has seen. Without an explainer the views alone answer. Telemetry still knows jobs that have left
the views.

Output is no part of the log: it may hold content that its owner would not keep permanently. So its lines are looked
up on request, on the bus and in the agent's own file, and are available as long as the output is.
"""

import asyncio
import contextlib
from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response

from fairlead_bus.port import Bus, BusError
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.redaction import shown_explanation
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.routes.documents import attempts_of
from fairlead_gateway.routes.job_logs import OutputReader, failed_start, output_source
from fairlead_gateway.routes.query import At, retired_job, was_retired
from fairlead_gateway.routes.router import Router, on_job
from fairlead_gateway.sources.estimates_client import EstimatesClient
from fairlead_gateway.sources.historical_views import HistoricalViews, SeenMoment
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_gateway.why.dominant_reason import element_reason, no_such_element, reason_of, row_or_array
from fairlead_gateway.why.explanation import explained
from fairlead_schemas.http.api import Why
from fairlead_schemas.queries.explainer import AskWhy, ExplainerAnswer
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import rfc3339

#: Of a failed job; what Slurm and Kubernetes users look at first.
FAILED_LINES = 200
#: Of one that has its place: what its agent waits for.
PLACED_LINES = 3
BYTES_MAX = 64 * 1024
#: A reason comes soon, with the output or without.
WAIT_S = 3.0


async def log_tail(bus: Bus, views: Views, row: JobRow) -> list[str]:
    """The newest lines, both streams as they came, of the rank that decided the end; [] where they say nothing more."""
    count = {"failed": FAILED_LINES, "placed": PLACED_LINES}.get(row.state, 0)
    if not count or not row.parts or row.elements is not None:
        return []
    rank = row.end_rank if row.end_rank < len(row.parts) else 0
    source = output_source(row.id, row.attempt, tuple(part.node for part in row.parts), rank, "")
    source = source._replace(failed_start=failed_start(row, row.attempt))
    text = b""
    with contextlib.suppress(TimeoutError, BusError):
        async with asyncio.timeout(WAIT_S):
            async for chunk in OutputReader(bus, views, source).text(count):
                text += chunk
    return text[-BYTES_MAX:].decode(errors="replace").splitlines()


#: States in which a job may wait in the queue's line, or for a place.
WAITING = frozenset({"queued", "offered"})
#: Further states, in which it waits for a time, a job or a person.
MAY_START = WAITING | {"scheduled", "held"}
#: The views get so long to fold what the explainer has seen, and look so often.
FOLLOW_S = 1.0
LOOK_S = 0.005
#: Tries for a job that changes while its question is answered: it is asked about once more.
TRIES = 2


class WhyRoutes:
    """Answers why. The clock of the past is also that of the present: start and retry times are compared with it."""

    def __init__(
        self,
        views: Views,
        bus: Bus,
        past: HistoricalViews,
        explaining: ExplainerClient,
        estimates: EstimatesClient | None = None,
    ) -> None:
        self._views = views
        self._bus = bus
        self.past = past
        self._explaining = explaining
        self._estimates = estimates

    async def now(self, job: str) -> Any:
        """Return the reason as it is now. Raise Refused (404)."""
        views = self._views
        answer = ExplainerAnswer()
        for _ in range(TRIES):
            row = row_or_array(views, job)
            if row is None or row.state not in WAITING:
                break
            answer = await self._explaining.ask(AskWhy(job=row.id))
            if answer.error not in ("", "not_found"):
                break
            if not await self._follow(answer.sequence):
                answer = ExplainerAnswer(error="behind", message="the gateway is behind the log")
                break
            row = row_or_array(views, job)
            if not answer.error and row is not None and row.changed_seq <= answer.sequence:
                break
            answer = ExplainerAnswer()  # the answer describes another moment than the views
        row = row_or_array(views, job)
        if row is None:
            if (refused := no_such_element(views, job)) is not None:
                raise refused
            return _retired(await retired_job(self._bus, job))
        why = _why(views, job, row, self.past.clock(), answer)
        why.output = await log_tail(self._bus, views, row) if job == row.id else []
        return why

    async def forecast(self, caller: Caller, found: Any) -> None:
        """Add when a waiting job starts."""
        if self._estimates is not None and isinstance(found, Why) and found.state in MAY_START:
            sight, now_ns = Sight(self._views, caller), self.past.clock()
            found.forecast = await self._estimates.start(sight, now_ns, job=found.id)

    def shown(self, job: str, caller: Caller, found: Any, then: Views | None = None) -> Any:
        """Return an answer without the names that the caller may not see. `then`: the views that it is about."""
        row = row_or_array(then or self._views, job)
        nodes = tuple(part.node for part in row.parts) if row is not None else ()
        return shown_explanation(Sight(self._views, caller, then), found, nodes)

    async def _follow(self, sequence: int) -> bool:
        """Return True if the views have folded the sequence, or do so soon."""
        deadline = asyncio.get_running_loop().time() + FOLLOW_S
        # A wait is rare, and folding notifies no one of a sequence.
        while self._views.sequence < sequence and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        return self._views.sequence >= sequence

    async def then(self, job: str, seen: SeenMoment) -> Any:
        """Return the reason as it was at a past moment. Raise HttpError."""
        views = seen.views
        row = row_or_array(views, job)
        if row is None:
            array = array_of(job)
            hint = f"ask for its array {array}" if array else "it was submitted later"
            unknown = HttpError(404, "unknown_job", f"there was no job {job!r} at sequence {views.sequence}", hint=hint)
            if array:
                raise unknown
            found = await retired_job(self._bus, job)
            if not was_retired(found, views):
                raise unknown
            return _retired(found)
        answer = ExplainerAnswer()
        if row.state in WAITING:
            answer = await self._explaining.ask(AskWhy(job=row.id, at=views.sequence))
        return _why(views, job, row, views.at_ns, answer)


def _why(views: Views, job: str, row: JobRow, now_ns: int, answer: ExplainerAnswer) -> Why:
    """`row`: the job's, or that of the array by which it has yet to come into being."""
    told = answer.why if row.state in WAITING and answer.why is not None and answer.why.reason else None
    reason, changes = explained(views, row, now_ns, told) if told is not None else (reason_of(views, row, now_ns), [])
    return Why(
        id=job,
        state=row.state,
        attempt=row.attempt,
        reason=reason if job == row.id else element_reason(row, reason),
        changes=changes,
        note=f"what would change it is not known: {answer.message}" if answer.error and row.state in WAITING else "",
        attempts=attempts_of(row),
        at=rfc3339(views.at_ns),
        changed_at=row.changed_seq,
        sequence=views.sequence if told is None else answer.sequence,
    )


def _retired(found: bytes) -> dict[str, Any]:
    job = msgspec.json.decode(found)
    return {key: job.get(key) for key in ("id", "state", "attempt", "reason", "attempts", "sequence")}


def routes(whys: WhyRoutes) -> Router:
    """The one route, for the app."""
    router = Router()

    @router.read("/v1/jobs/{job}/why", "Why a job is where it is", Why, right=on_job("job:read"))
    async def why_job(
        job: str,
        request: Request,
        at: At = "",
        estimate: Annotated[
            bool, Query(description="Add when a waiting job starts, which takes up to some seconds (`forecast`).")
        ] = False,
    ) -> Response:
        caller = caller_of(request)
        if not at:
            found = await whys.now(job)
            if estimate:
                await whys.forecast(caller, found)
            return JsonResponse(whys.shown(job, caller, found))
        seen = await whys.past.moment(at)
        return JsonResponse(whys.shown(job, caller, await whys.then(job, seen), seen.views), headers=seen.headers)

    return router
