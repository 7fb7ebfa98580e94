"""The explainer's answers on a pool: which runs would be moved so that big jobs start, and how the pool is packed, now
or at a past moment. Read-only.
"""

import msgspec
from fastapi import APIRouter, Response

from fairlead_gateway.explaining import Explaining
from fairlead_gateway.moments import rfc3339
from fairlead_gateway.past import Past
from fairlead_gateway.problems import Refused, bad_parameter, not_found
from fairlead_gateway.reading import At, Json, answers_with
from fairlead_gateway.views.fold import Views
from fairlead_schemas.queries.explainer import Ask, AskDefrag, AskPacking, ExplainerAnswer


def routes(live: Views, past: Past, explaining: Explaining) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    async def ask(views: Views, pool: str, question: Ask) -> ExplainerAnswer:
        """`views`: of the moment that is asked about."""
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
    async def get_pool_defrag(pool: str) -> Response:
        return Json((await ask(live, pool, AskDefrag(pool=pool))).defrag)

    @router.get(
        "/v1/pools/{pool}/packing",
        summary="By which policy nodes are chosen, what is free and of use, and the largest jobs that could start; "
        "now or at a past moment",
        responses=answers_with("PoolPacking"),
    )  # fmt: skip
    async def get_pool_packing(pool: str, at: At = "") -> Response:
        if not at:
            silent = tuple(node for node in live.nodes.rows if live.silent_s(node))
            return Json((await ask(live, pool, AskPacking(pool=pool, away=silent))).packing)
        then = await past.views_at(at)
        if not then.sequence:
            raise bad_parameter("at", f"the log begins later than {at[:40]}")
        found = (await ask(then, pool, AskPacking(pool=pool, at=then.sequence))).packing
        assert found is not None, "an answer without an error has what was asked for"
        return Json(msgspec.structs.replace(found, at=rfc3339(then.at_ns)))

    return router
