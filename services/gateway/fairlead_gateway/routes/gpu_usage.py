"""GET /v1/jobs/{id}/metrics: a job's GPUs over time, as the telemetry service has measured them.

Further parts:
- GET /v1/use: current use of running jobs' GPUs, as the telemetry service has received it;
- GET /v1/usage: statements of GPU time, as the telemetry service has them.
"""

import re
from typing import Annotated

import msgspec
from fastapi import Query, Request, Response

from fairlead_bus.port import Bus
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.callers import caller_of
from fairlead_gateway.access.statements import shown_statement
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError, bad_field, not_found
from fairlead_gateway.http_messages import JsonResponse, encode
from fairlead_gateway.routes import grammar
from fairlead_gateway.routes.query import At
from fairlead_gateway.routes.router import Router, listed, on_job
from fairlead_gateway.sources.historical_views import HistoricalViews
from fairlead_gateway.sources.service_queries import TelemetryFault, ask_telemetry
from fairlead_gateway.views.fold import Views
from fairlead_schemas.queries.telemetry import (
    ANONYMOUS_ADMIN,
    BYS,
    JOBS_MAX,
    JobMetrics,
    JobMetricsRequest,
    JobUseRequest,
    JobUses,
    UsageStatement,
)
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.timestamps import SECOND_NS, midnight, parse_rfc3339

From = Annotated[
    str,
    Query(
        alias="from",
        json_schema_extra=grammar.TIME,
        description="RFC 3339 with zone; none: when the attempt was placed.",
    ),
]
To = Annotated[
    str,
    Query(json_schema_extra=grammar.TIME, description="RFC 3339 with zone; none: when its devices came back, or now."),
]
Step = Annotated[
    str,
    Query(
        description='Length of a step: seconds up to 60, whole minutes, whole hours ("30s", "5m"); none: one that suits.'
    ),
]
Attempt = Annotated[int, Query(ge=0, description="Which attempt; none: the newest that was placed.")]


def job_metrics_routes(bus: Bus) -> Router:
    """Return the one route."""
    router = Router()

    @router.read(
        "/v1/jobs/{job}/metrics",
        "A job's GPUs over time, in equal steps; null where nothing was measured",
        JobMetrics,
        right=on_job("job:read"),
    )
    async def get_job_metrics(
        job: str, begin: From = "", to: To = "", step: Step = "", attempt: Attempt = 0
    ) -> Response:
        if not is_job_id(job):
            raise not_found("job", job[:80])
        wanted = JobMetricsRequest(
            caller=ANONYMOUS_ADMIN,  # the right to this job is checked already
            job=job,
            attempt=attempt,
            from_ns=_moment("from", begin),
            to_ns=_moment("to", to),
            step_s=_step(step),
        )
        try:
            return JsonResponse(msgspec.Raw(await ask_telemetry(bus, "metrics", encode(wanted))))
        except TelemetryFault as fault:
            if fault.code == "not_found":
                hint = "it never held a GPU"
                raise not_found("job", job, hint=hint) from None
            if fault.code == "bad_request":
                raise bad_field(fault.detail.partition(":")[0], fault.detail) from None
            raise

    return router


def _moment(name: str, text: str) -> int:
    try:
        return parse_rfc3339(text.replace(" ", "+")) if text else 0
    except ValueError:
        raise bad_field(name, f'expected an RFC 3339 time with zone, found "{text[:40]}"') from None


def _step(text: str) -> int:
    try:
        step_ns = parse_duration(int(text) if text.isascii() and text.isdecimal() else text) if text else 0
    except QuantityError as error:
        raise bad_field("step", str(error)) from None
    if step_ns % SECOND_NS or (text and not step_ns):
        raise bad_field("step", f'expected whole seconds, at least one, found "{text[:40]}"')
    return step_ns // SECOND_NS


#: Short, so that a client that polls every second soon learns that there is nothing to see.
TIMEOUT_S = 2.0

Jobs = Annotated[
    str, Query(min_length=1, json_schema_extra=grammar.JOBS, description=f"Ids joined by commas, {JOBS_MAX} at most.")
]


def current_use_routes(views: Views, bus: Bus, past: HistoricalViews) -> Router:
    """Return the one route."""
    router = Router()

    @router.read(
        "/v1/use",
        "Use of running jobs' GPUs, by the newest samples, now or at a past moment; null where unknown",
        JobUses,
        right=listed("job:read"),
        by_sequence=True,
    )
    async def get_use(request: Request, jobs: Jobs, at: At = "") -> Response:
        sight, then = Sight(views, caller_of(request)), await past.place(at)
        seen = [job for job in _ids(jobs) if sight.job_id(job)]
        asked = encode(JobUseRequest(caller=ANONYMOUS_ADMIN, jobs=seen, at=then.sequence))
        return JsonResponse(msgspec.Raw(await ask_telemetry(bus, "use", asked, TIMEOUT_S)), headers=then.headers)

    return router


def _ids(text: str) -> list[str]:
    ids = list(dict.fromkeys(text.split(",")))
    for job in ids:
        if not is_job_id(job):
            raise bad_field("jobs", f'expected ids of jobs joined by commas, found "{job[:40]}"')
    if len(ids) > JOBS_MAX:
        raise bad_field("jobs", f"expected {JOBS_MAX} jobs at most, found {len(ids)}; ask in several requests")
    return ids


Month = Annotated[
    str,
    Query(
        alias="statement",
        json_schema_extra={"pattern": "^([0-9]{4}-(0[1-9]|1[0-2]))?$"},
        description='A month of UTC, "2026-11"; none: the one that it is.',
    ),
]
By = Annotated[str, Query(json_schema_extra={"enum": list(BYS)}, description=f"One of {', '.join(BYS)}.")]


_DAY = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
Since = Annotated[
    str, Query(alias="from", description="A day of UTC (its begin) or an RFC 3339 time with zone, instead of a month.")
]
Before = Annotated[str, Query(description="With `from`: the end, which is not included; none: now.")]


def _day_or_moment(name: str, text: str) -> int:
    """Unix ns of a day's begin in UTC, or of an RFC 3339 time; 0 for none. Raise HttpError."""
    if not _DAY.match(text):
        return _moment(name, text)
    try:
        return midnight(text)
    except ValueError:
        raise bad_field(name, f'expected a day such as "2026-11-02", found "{text}"') from None


def usage_routes(views: Views, bus: Bus, accounts: Accounts, past: HistoricalViews) -> Router:
    """Return the one route."""
    router = Router()

    @router.read(
        "/v1/usage",
        "Who had how many GPU-hours of which model in a month, or between two times, and what they cost; as known now or at a past "
        "moment",
        UsageStatement,
        right=listed("job:read"),
        by_sequence=True,
    )
    async def get_usage(
        request: Request, month: Month = "", by: By = "user", begin: Since = "", to: Before = "", at: At = ""
    ) -> Response:
        if by not in BYS:
            raise bad_field("by", f'expected one of {", ".join(BYS)}, found "{by[:40]}"')
        if month and (begin or to):
            raise bad_field("from", "expected a month (statement) or two times (from, to), found both")
        if to and not begin:
            raise bad_field("from", "expected a begin with the end")
        times = {"from_ns": _day_or_moment("from", begin), "to_ns": _day_or_moment("to", to)}
        then = await past.place(at)
        times["at"] = then.sequence
        asked = encode({"month": month[:80], "by": by} | {name: ns for name, ns in times.items() if ns})
        try:
            answer = await ask_telemetry(bus, "usage", asked)
            sight = Sight(views, caller_of(request))
            if sight.all_jobs and (by != "user" or sight.caller.is_open):
                return JsonResponse(msgspec.Raw(answer), headers=then.headers)
            shown = shown_statement(sight, answer, by)
            for line in shown.lines if by == "user" else ():
                line.name = await accounts.people.name_of(line.key)
            return JsonResponse(shown, headers=then.headers)
        except TelemetryFault as fault:
            if fault.code == "bad_request":
                name, _, rest = fault.detail.partition(": ")
                raise bad_field(name if name in ("from", "to") else "statement", rest or fault.detail) from None
            if fault.code == "too_many":
                raise HttpError(422, fault.code, fault.detail, hint=fault.hint) from None
            raise

    return router
