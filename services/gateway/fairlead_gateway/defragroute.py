"""GET /v1/pools/{pool}/defrag: which runs would be moved so that big jobs start. Asked of the explainer; nothing is done."""

from fastapi import APIRouter, Response

from fairlead_gateway.explaining import Explaining
from fairlead_gateway.problems import Refused, not_found
from fairlead_gateway.reading import Json, answers_with
from fairlead_gateway.views.fold import Views
from fairlead_schemas.ask import AskDefrag


def routes(views: Views, explaining: Explaining) -> APIRouter:
    """The one route, for the app."""
    router = APIRouter()

    @router.get(
        "/v1/pools/{pool}/defrag", summary="Which runs would be moved so that big jobs start; nothing is done",
        responses=answers_with("Defrag"),
    )  # fmt: skip
    async def defrag(pool: str) -> Response:
        if all(row.name != pool for row in views.queues.pool_rows()):
            raise not_found("pool", pool, hint="GET /v1/pools lists them")
        answer = await explaining.ask(AskDefrag(pool=pool))
        if answer.defrag is None:
            raise Refused(503, answer.error, answer.message, hint="the explainer makes the plan", retry_after_s=1)
        return Json(answer.defrag)

    return router
