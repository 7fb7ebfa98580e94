"""GET /v1/jobs/{id}/metrics: what is asked of telemetry, and its picture as it stands."""

import msgspec
import pytest
from jsonschema import Draft202012Validator

from fairlead_schemas.queries.telemetry import GpuSeries, JobMetrics
from tests.gateway.gatehouse import Gatehouse

PICTURE = JobMetrics(
    job="812",
    attempt=1,
    sequence=7,
    from_ns=10**18,
    step_s=60,
    steps=2,
    source="minutes",
    measured_pct=50.0,
    simulated=True,
    gpus=[
        GpuSeries(
            node="n1",
            uuid="GPU-a",
            samples=[6, 0],
            utilization_pct=[50.5, None],
            utilization_pct_max=[90, None],
            memory_used_mib=[1024, None],
            power_mw=[300000, None],
        )
    ],
)


async def test_a_picture_is_passed_on_as_its_schema_says() -> None:
    """With what was asked for; without telemetry it is a 503."""
    async with Gatehouse() as house:
        assert (await house.http.get("/v1/jobs/812/metrics")).status_code == 503
        asked = await house.play_telemetry("metrics", lambda _: msgspec.json.encode(PICTURE))
        query = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00+01:00", "step": "5m", "attempt": "2"}
        got = await house.http.get("/v1/jobs/812/metrics", params=query)
        assert (got.status_code, got.json()) == (200, msgspec.to_builtins(PICTURE))
        await house.http.get("/v1/jobs/812_3/metrics")
        caller = {"user": "anonymous-admin", "role": "admin"}
        start_ns = 1_767_225_600 * 10**9
        assert asked == [
            {"caller": caller, "job": "812", "attempt": 2, "from_ns": start_ns, "to_ns": start_ns, "step_s": 300},
            {"caller": caller, "job": "812_3", "attempt": 0, "from_ns": 0, "to_ns": 0, "step_s": 0},
        ]
        document = (await house.http.get("/openapi.json")).json()
        schema = {"$ref": "#/components/schemas/JobMetrics", "components": document["components"]}
        Draft202012Validator(schema).validate(got.json())


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "yesterday"}, "from"),
        ({"to": "2026-01-01T00:00:00"}, "to"),
        ({"step": "soon"}, "step"),
        ({"step": "0"}, "step"),
        ({"step": "500ms"}, "step"),
        ({"attempt": "-1"}, "attempt"),
        ({"stpe": "1"}, "stpe"),
    ],
)
async def test_bad_parameters_are_named(query: dict[str, str], field: str) -> None:
    """A 422 that names the parameter."""
    async with Gatehouse() as house:
        got = await house.http.get("/v1/jobs/812/metrics", params=query)
        assert (got.status_code, got.json()["errors"][0]["field"]) == (422, field)


async def test_refusals_are_problems() -> None:
    """A step that cannot be is a 422 for the step, a job without a picture a 404."""
    told = {"code": "", "message": "", "hint": ""}

    async with Gatehouse() as house:
        await house.play_telemetry("metrics", lambda _: msgspec.json.encode({"error": told}))
        for code, message, status, field in (
            ("bad_request", "step: too many", 422, "step"),
            ("not_found", "no job", 404, ""),
            ("internal", "x", 503, ""),
        ):
            told |= {"code": code, "message": message}
            got = await house.http.get("/v1/jobs/812/metrics")
            fields = [error["field"] for error in got.json().get("errors", [])]
            assert (got.status_code, fields) == (status, [field] if field else [])
        assert (await house.http.get("/v1/jobs/8x/metrics")).status_code == 404
