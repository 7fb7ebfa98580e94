"""GET /v1/usage: telemetry's statement unchanged, and its refusals as problems."""

import msgspec
from jsonschema import Draft202012Validator

from fairlead_bus.port import Message
from fairlead_schemas.queries.telemetry import UsageLine, UsageStatement
from fairlead_schemas.wire import subjects
from tests.gateway.world import World

LINE = UsageLine(
    key="ada",
    model="a100",
    from_ns=0,
    runs=2,
    gpu_hours=1.5,
    charged=5400 * 10**12,
    held=5401 * 10**12,
    weighted=5400 * 10**15,
    per_gpu_hour="2.49",
    currency="EUR",
    amount="3.74",
)
STATEMENT = UsageStatement(
    month="2026-11",
    by="queue",
    sequence=7,
    as_of_ns=1,
    is_final=False,
    lines=[LINE],
    gpu_hours=1.5,
    charged=LINE.charged,
    held=LINE.held,
    totals={"EUR": "3.74"},
    unpriced=[],
)


async def test_a_statement_is_passed_on_as_its_schema_says() -> None:
    """With the month and the word that were asked for; without telemetry it is a 503."""
    async with World() as world:
        assert (await world.http.get("/v1/usage")).status_code == 503
        asked: list[dict[str, str]] = []

        async def answer(message: Message) -> bytes:
            asked.append(msgspec.json.decode(message.payload))
            return msgspec.json.encode(STATEMENT)

        await world.hub.connect().serve(subjects.rpc("telemetry", "usage"), answer)
        got = await world.http.get("/v1/usage", params={"statement": "2026-11", "by": "queue"})
        assert (got.status_code, got.json()) == (200, msgspec.to_builtins(STATEMENT))
        assert asked == [{"month": "2026-11", "by": "queue"}]
        document = (await world.http.get("/openapi.json")).json()
        schema = {"$ref": "#/components/schemas/UsageStatement", "components": document["components"]}
        Draft202012Validator(schema).validate(got.json())


async def test_refusals_name_the_parameter() -> None:
    """A word that is none is not passed on; what telemetry refuses is a 422, what it cannot do now a 503."""
    async with World() as world:
        bad = await world.http.get("/v1/usage", params={"by": "colour"})
        assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "by")
        told = {"code": "bad_request", "message": "month: expected …", "hint": ""}

        async def answer(message: Message) -> bytes:
            return msgspec.json.encode({"error": told})

        await world.hub.connect().serve(subjects.rpc("telemetry", "usage"), answer)
        for code, status in (
            ("bad_request", 422),
            ("too_many", 422),
            ("busy", 503),
            ("bad_prices", 503),
            ("internal", 503),
        ):
            told["code"] = code
            got = await world.http.get("/v1/usage", params={"statement": "2026-99"})
            assert (got.status_code, "expected" in str(got.json())) == (status, True), code
