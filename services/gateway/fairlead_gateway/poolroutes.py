"""What the explainer knows of a pool: which runs would be moved so that big jobs start, and how the pool is packed. Nothing
is done."""

from fastapi import APIRouter, Response

from fairlead_gateway.explaining import Explaining
from fairlead_gateway.problems import Refused, not_found
from fairlead_gateway.reading import Json, answers_with
from fairlead_gateway.views.fold import Views
from fairlead_schemas.ask import Answer, Ask, AskDefrag, AskPacking


def routes(views: Views, explaining: Explaining) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    async def ask(pool: str, question: Ask) -> Answer:
        if all(row.name != pool for row in views.queues.pool_rows()):
            raise not_found("pool", pool, hint="GET /v1/pools lists them")
        answer = await explaining.ask(question)
        if answer.error:
            raise Refused(503, answer.error, answer.message, hint="the explainer answers this", retry_after_s=1)
        return answer

    @router.get(
        "/v1/pools/{pool}/defrag", summary="Which runs would be moved so that big jobs start; nothing is done",
        responses=answers_with("Defrag"),
    )  # fmt: skip
    async def defrag(pool: str) -> Response:
        return Json((await ask(pool, AskDefrag(pool=pool))).defrag)

    @router.get(
        "/v1/pools/{pool}/packing",
        summary="By which policy nodes are chosen, what is free and of use, and the largest jobs that could start now",
        responses=answers_with("PoolPacking"),
    )  # fmt: skip
    async def packing(pool: str) -> Response:
        return Json((await ask(pool, AskPacking(pool=pool))).packing)

    return router
