"""GET /v1/estimates: how right the estimates of starts were, by queue, and the worst of them."""

from fastapi import Request, Response

from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.routes.router import Router, listed
from fairlead_gateway.sources.estimates_client import EstimatesClient
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http import api
from fairlead_schemas.queries import estimates as q
from fairlead_schemas.units.timestamps import rfc3339


def routes(views: Views, client: EstimatesClient) -> Router:
    """Return the one route."""
    router = Router()

    @router.read(
        "/v1/estimates",
        "How right the estimates of starts were: by queue, and the worst of them",
        api.Estimates,
        right=listed("queue:read"),
    )
    async def get_estimates(request: Request) -> Response:
        sight, answer = Sight(views, caller_of(request)), await client.ledger()
        ledger = answer.ledger or q.LedgerAnswer()
        seen = [each for each in ledger.worst if sight.job_id(each.job)]
        queues = [_queue(each) for each in ledger.queues if sight.queue(each.queue)]
        found = api.Estimates(queues=queues, worst=[_entry(each) for each in seen], sequence=answer.sequence)
        return JsonResponse(found)

    return router


def _queue(found: q.QueueCalibration) -> api.QueueEstimates:
    return api.QueueEstimates(
        queue=found.queue,
        estimates=found.estimates,
        coverage=round(found.coverage, 4) if found.estimates else None,
        pinball=round(found.pinball, 4) if found.estimates else None,
        width=round(found.width, 4) if found.estimates else None,
        against={way: round(value, 4) for way, value in found.against.items()},
        at_once=found.at_once,
        at_once_true=found.at_once_true,
        unknown=found.unknown,
        waiting=found.waiting,
    )


def _entry(found: q.LedgerEntry) -> api.EstimateGiven:
    return api.EstimateGiven(
        job=found.job,
        queue=found.queue,
        at=rfc3339(found.at_ns),
        from_at=rfc3339(found.low_ns),
        to_at=rfc3339(found.high_ns),
        started_at=rfc3339(found.over_ns),
        held=bool(found.held),
        loss=round(found.loss or 0.0, 4),
        sequence=found.sequence,
    )
