"""GET /v1/usage: telemetry's statement unchanged, and its refusals as problems."""

import msgspec
from jsonschema import Draft202012Validator
from msgspec import structs

from fairlead_schemas.units.timestamps import DAY_NS, SECOND_NS, midnight
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.world import GatewayWorld
from tests.kit.usage_statement import LINE, STATEMENT


async def test_a_statement_is_passed_on_as_its_schema_says() -> None:
    """With the month and the word that were asked for; without telemetry it is a 503."""
    async with GatewayWorld() as world:
        assert (await world.http.get("/v1/usage")).status_code == 503
        asked = await world.play_telemetry("usage", lambda _: msgspec.json.encode(STATEMENT))
        got = await world.http.get("/v1/usage", params={"statement": "2026-11", "by": "queue"})
        assert (got.status_code, got.json()) == (200, msgspec.to_builtins(STATEMENT))
        assert asked == [{"month": "2026-11", "by": "queue"}]
        days = {"from": "2026-11-02", "to": "2026-11-09T00:00:00+01:00"}
        assert (await world.http.get("/v1/usage", params=days)).status_code == 200
        begin_ns = midnight("2026-11-02")
        assert asked[1:] == [
            {"month": "", "by": "user", "from_ns": begin_ns, "to_ns": begin_ns + 7 * DAY_NS - 3600 * SECOND_NS}
        ]
        document = (await world.http.get("/openapi.json")).json()
        schema = {"$ref": "#/components/schemas/UsageStatement", "components": document["components"]}
        Draft202012Validator(schema).validate(got.json())


async def test_refusals_name_the_parameter() -> None:
    """A word that is none is not passed on; what telemetry refuses is a 422, what it cannot do now a 503."""
    async with GatewayWorld() as world:
        bad = await world.http.get("/v1/usage", params={"by": "colour"})
        assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "by")
        for query, field in (
            ({"from": "2026-11-02", "statement": "2026-11"}, "from"),
            ({"to": "2026-11-02"}, "from"),
            ({"from": "2026-02-30"}, "from"),
            ({"from": "2026-11-02", "to": "Monday"}, "to"),
        ):
            bad = await world.http.get("/v1/usage", params=query)
            assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, field), query
        told = {"code": "bad_request", "message": "month: expected …", "hint": ""}
        await world.play_telemetry("usage", lambda _: msgspec.json.encode({"error": told}))
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
        told |= {"code": "bad_request", "message": "to: expected an end after the begin"}
        got = await world.http.get("/v1/usage", params={"from": "2026-11-09", "to": "2026-11-02"})
        assert got.json()["errors"][0]["field"] == "to"
        assert got.json()["detail"] == "to: expected an end after the begin", "the field once"


async def test_a_line_of_a_person_has_the_login_name() -> None:
    """Beside the id, which alone the warehouse has; a person who sees the own line alone gets it as well."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        _, session = await world.session(ann)
        lines = [structs.replace(LINE, key=key) for key in (ann, "pgone00000000")]
        statement = structs.replace(STATEMENT, by="user", lines=lines)
        await world.play_telemetry("usage", lambda _: msgspec.json.encode(statement))
        whole = await world.ask("GET", "/v1/usage?by=user")
        assert [(line["key"], line["name"]) for line in whole["lines"]] == [(ann, "ann"), ("pgone00000000",) * 2]
        assert whole["charged"] == STATEMENT.charged
        own = await world.ask("GET", "/v1/usage?by=user", token=session)
        assert [(line["key"], line["name"]) for line in own["lines"]] == [(ann, "ann")]
