"""GET /v1/jobs/{id}/metrics: a job's GPUs over time, as the telemetry service has measured them."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from fairlead_bus.port import Bus
from fairlead_gateway.answers import encode
from fairlead_gateway.asktelemetry import ask, document_of, fault_of
from fairlead_gateway.identities import Identities
from fairlead_gateway.moments import parse_rfc3339
from fairlead_gateway.problems import Refused, bad_parameter, not_found
from fairlead_gateway.reading import Json, answers_with
from fairlead_gateway.sqlroute import caller_of
from fairlead_schemas.queries.telemetry import JobMetricsRequest
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.quantities import SECOND_NS, QuantityError, parse_duration

From = Annotated[str, Query(alias="from", description="RFC 3339 with zone; none: when the attempt was placed.")]
To = Annotated[str, Query(description="RFC 3339 with zone; none: when its devices came back, or now.")]
Step = Annotated[
    str,
    Query(
        description='Length of a step: seconds up to 60, whole minutes, whole hours ("30s", "5m"); none: one that suits.'
    ),
]
Attempt = Annotated[int, Query(ge=0, description="Which attempt; none: the newest that was placed.")]


def routes(bus: Bus, identities: Identities) -> APIRouter:
    """All of them, for the app."""
    router = APIRouter()

    @router.get(
        "/v1/jobs/{job}/metrics", summary="A job's GPUs over time, in equal steps; null where nothing was measured",
        responses=answers_with("JobMetrics"),
    )  # fmt: skip
    async def get_job_metrics(
        job: str, request: Request, begin: From = "", to: To = "", step: Step = "", attempt: Attempt = 0
    ) -> Response:
        caller = caller_of(identities, request)
        if not is_job_id(job):
            raise not_found("job", job[:80])
        wish = JobMetricsRequest(
            caller=caller, job=job, attempt=attempt, from_ns=_moment("from", begin), to_ns=_moment("to", to), step_s=_step(step)
        )  # fmt: skip
        return Json(msgspec.Raw(_checked(job, await ask(bus, "metrics", encode(wish)))))

    return router


def _moment(name: str, text: str) -> int:
    try:
        return parse_rfc3339(text.replace(" ", "+")) if text else 0
    except ValueError:
        raise bad_parameter(name, f'expected an RFC 3339 time with zone, found "{text[:40]}"') from None


def _step(text: str) -> int:
    try:
        step_ns = parse_duration(int(text) if text.isascii() and text.isdecimal() else text) if text else 0
    except QuantityError as error:
        raise bad_parameter("step", str(error)) from None
    if step_ns % SECOND_NS or (text and not step_ns):
        raise bad_parameter("step", f'expected whole seconds, at least one, found "{text[:40]}"')
    return step_ns // SECOND_NS


def _checked(job: str, answer: bytes) -> bytes:
    """Return telemetry's answer. Raise the Refused that matches its fault."""
    fault = fault_of(document_of(answer))
    if fault is None:
        return answer
    if fault.code == "not_found":
        raise not_found("job", job, hint="it never held a GPU, or it is not one of yours")
    if fault.code == "bad_request":
        raise bad_parameter(fault.message.partition(":")[0], fault.message)
    raise Refused(503, fault.code, fault.message, hint=fault.hint, retry_after_s=1)
