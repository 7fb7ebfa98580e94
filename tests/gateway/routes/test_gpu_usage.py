"""GET /v1/use: the jobs in the query to telemetry, and its answer unchanged."""

import msgspec
import pytest
from jsonschema import Draft202012Validator

from fairlead_schemas.queries.telemetry import JOBS_MAX, JobUse, JobUses
from tests.gateway.gatehouse import Gatehouse

USES = JobUses(
    sequence=7,
    items=[
        JobUse(
            job="812",
            attempt=1,
            gpus=8,
            measured=8,
            utilization_pct=87.5,
            memory_used_mib=4096,
            power_mw=2_000_000,
            at_ns=10**18,
            simulated=True,
        ),
        JobUse(
            job="813",
            attempt=2,
            gpus=1,
            measured=0,
            utilization_pct=None,
            memory_used_mib=None,
            power_mw=None,
            at_ns=None,
            simulated=False,
        ),
    ],
)


async def test_it_is_passed_on_as_its_schema_says() -> None:
    """For who asks, each job once; without telemetry it is a 503."""
    async with Gatehouse() as house:
        away = await house.http.get("/v1/use", params={"jobs": "812"})
        assert (away.status_code, away.json()["detail"]) == (503, "the telemetry service does not answer")
        asked = await house.play_telemetry("use", lambda _: msgspec.json.encode(USES))
        got = await house.http.get("/v1/use", params={"jobs": "812,813_2,812"})
        assert (got.status_code, got.json()) == (200, msgspec.to_builtins(USES))
        caller = {"user": "anonymous-admin", "role": "admin"}
        assert asked == [{"caller": caller, "jobs": ["812", "813_2"], "at": 0}]
        document = (await house.http.get("/openapi.json")).json()
        schema = {"$ref": "#/components/schemas/JobUses", "components": document["components"]}
        Draft202012Validator(schema).validate(got.json())


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"jobs": ""},
        {"jobs": "812,"},
        {"jobs": "812,x"},
        {"jobs": ",".join(map(str, range(1, JOBS_MAX + 2)))},
        {"jobs": "1", "job": "2"},
    ],
)
async def test_bad_parameters_are_named(query: dict[str, str]) -> None:
    """A 422 that names the parameter."""
    async with Gatehouse() as house:
        got = await house.http.get("/v1/use", params=query)
        assert (got.status_code, got.json()["errors"][0]["field"]) == (422, "job" if "job" in query else "jobs")


async def test_a_fault_of_telemetry_is_a_problem() -> None:
    async with Gatehouse() as house:
        error = {"error": {"code": "internal", "message": "no", "hint": "try again"}}
        await house.play_telemetry("use", lambda _: msgspec.json.encode(error))
        got = await house.http.get("/v1/use", params={"jobs": "812"})
        assert (got.status_code, got.json()["detail"]) == (503, "no")
