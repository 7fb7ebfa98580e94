"""GET /v1/use: current use of running jobs' GPUs, as the telemetry service has received it."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from fairlead_bus.port import Bus
from fairlead_gateway.answers import encode
from fairlead_gateway.asktelemetry import ask, document_of, fault_of
from fairlead_gateway.identities import Identities
from fairlead_gateway.problems import Refused, bad_parameter
from fairlead_gateway.reading import Json, answers_with
from fairlead_gateway.sqlroute import caller_of
from fairlead_schemas.queries.telemetry import JOBS_MAX, JobUseRequest
from fairlead_schemas.units.ids import is_job_id

#: Short, so that a client that polls every second soon learns that there is nothing to see.
TIMEOUT_S = 2.0

Jobs = Annotated[str, Query(min_length=1, description=f"Ids joined by commas, {JOBS_MAX} at most.")]


def routes(bus: Bus, identities: Identities) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    @router.get(
        "/v1/use", summary="What running jobs' GPUs do now, by the newest samples; null where nobody knows",
        responses=answers_with("JobUses"),
    )  # fmt: skip
    async def get_use(request: Request, jobs: Jobs) -> Response:
        caller = caller_of(identities, request)
        asked = encode(JobUseRequest(caller=caller, jobs=_ids(jobs)))
        answer = await ask(bus, "use", asked, TIMEOUT_S)
        fault = fault_of(document_of(answer))
        if fault is not None:
            raise Refused(503, fault.code, fault.message, hint=fault.hint, retry_after_s=1)
        return Json(msgspec.Raw(answer))

    return router


def _ids(text: str) -> list[str]:
    ids = list(dict.fromkeys(text.split(",")))
    for job in ids:
        if not is_job_id(job):
            raise bad_parameter("jobs", f'expected ids of jobs joined by commas, found "{job[:40]}"')
    if len(ids) > JOBS_MAX:
        raise bad_parameter("jobs", f"expected {JOBS_MAX} jobs at most, found {len(ids)}; ask in several requests")
    return ids
