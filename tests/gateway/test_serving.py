"""The documents about the gateway itself, its health, its restarts, and one real web server."""

import asyncio
import socket
from importlib.metadata import version
from typing import Any

import httpx
import msgspec
import pytest
from jsonschema import Draft202012Validator

from fairlead_bus import snapshots
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.log import identity
from fairlead_bus.memory import MemoryHub
from fairlead_gateway.routes import job_translator
from fairlead_gateway.routes.job_translator import JobTranslator
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_gateway.service import EXIT_OK, GatewaySettings, build
from fairlead_gateway.views.fold import SCHEMA
from fairlead_schemas.jobfile.job_spec import JobSpec, decode_job
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import EXIT_DAMAGED
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.eventually import eventually_async


async def test_the_version_is_public_and_that_of_every_answer() -> None:
    """Also without a credential."""
    async with GatewayWorld(sign_on="local", queue=False) as world:
        answer = await world.http.get("/version")
        assert (answer.status_code, answer.json()["api"]) == (200, "v1")
        assert answer.json()["version"] == answer.headers["x-fairlead-version"] == version("fairlead-cluster")


async def test_the_openapi_document_holds_together() -> None:
    """Every path of the interface, every reference resolves, every schema is a JSON Schema, problems everywhere."""
    async with GatewayWorld() as world:
        document = (await world.http.get("/openapi.json")).json()
    paths = document["paths"]
    for method, path in (
        ("post", "/v1/jobs"),
        ("get", "/v1/jobs"),
        ("get", "/v1/jobs/{job}"),
        ("post", "/v1/jobs/{job}:cancel"),
        ("post", "/v1/jobs/{job}:hold"),
        ("post", "/v1/jobs/{job}:release"),
        ("get", "/v1/jobs/{job}/why"),
        ("get", "/v1/jobs/{job}/logs"),
        ("post", "/v1/jobs:dryrun"),
        ("post", "/v1/events"),
        ("get", "/v1/events"),
        ("get", "/v1/nodes"),
        ("get", "/v1/nodes/{node}"),
        ("post", "/v1/nodes/{node}:drain"),
        ("get", "/v1/queues"),
        ("put", "/v1/queues/{path}"),
        ("get", "/v1/cluster"),
        ("post", "/v1/sql"),
        ("get", "/v1/commands/{command}"),
    ):
        operation = paths[path][method]
        assert operation["responses"]["default"]["content"].keys() == {"application/problem+json"}
    schemas = document["components"]["schemas"]

    def check(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(reference := value.get("$ref"), str):
                kind, _, name = reference.removeprefix("#/components/").partition("/")
                assert name in document["components"][kind], reference
            for inner in value.values():
                check(inner)
        elif isinstance(value, list):
            for inner in value:
                check(inner)

    check(document)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    operations = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
    assert len(operations) == len(set(operations))


async def test_answers_match_their_published_schemas() -> None:
    """Real answers of jobs, nodes, queues and why are valid by the OpenAPI document's schemas."""
    async with GatewayWorld() as world:
        await world.node("n1")
        job = await world.submit(resources=gpus(1))
        document = (await world.http.get("/openapi.json")).json()
        for path, name in (
            ("/v1/jobs", "JobPage"),
            (f"/v1/jobs/{job}", "Job"),
            ("/v1/nodes", "NodePage"),
            ("/v1/nodes/n1", "Node"),
            ("/v1/queues", "QueuePage"),
            ("/v1/queues/default", "Queue"),
            (f"/v1/jobs/{job}/why", "Why"),
            ("/v1/map", "ClusterMap"),
        ):
            schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
            Draft202012Validator(schema).validate((await world.http.get(path)).json())
        await world.start_explainer()
        await world.configure(small={"guaranteed": {"nvidia.com/gpu": 1}, "maximum": {"nvidia.com/gpu": 1}})
        found = await world.http.post(
            "/v1/jobs:dryrun", json={"command": ["x"], "queue": "small", "resources": gpus(2)}
        )
        schema = {"$ref": "#/components/schemas/DryRun", "components": document["components"]}
        Draft202012Validator(schema).validate(found.json())
        assert found.json()["changes"]
        schema = (await world.http.get("/v1/schemas/job")).json()
        Draft202012Validator(schema).validate({"command": ["true"], "resources": {"cpu": "1"}})


async def test_the_log_has_an_asyncapi_document() -> None:
    """It names the log's channels."""
    async with GatewayWorld() as world:
        document = (await world.http.get("/asyncapi.json")).json()
        assert document["asyncapi"].startswith("3.")
        assert "fairlead.log.queue" in str(document)


async def test_a_misspelt_parameter_is_refused() -> None:
    """Ignored, a filter that is not there would answer with everything."""
    async with GatewayWorld() as world:
        for path, name, hint in (
            (
                "/v1/jobs?stat=running",
                "stat",
                "state, queue, user, name, label, project, since, elements, limit, continue, at",
            ),
            ("/v1/cluster?limit=3", "limit", "at"),
            ("/v1/schemas/job?limit=3", "limit", "this path takes none"),
            ("/v1/jobs?state=running&queu=a", "queu", "queue"),
        ):
            answer = await world.http.get(path)
            assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == name
            assert hint in answer.json()["detail"]
        assert (await world.http.get("/v1/jobs?state=running&limit=3")).status_code == 200
        before = world.commands_stored()
        answer = await world.http.post("/v1/jobs?dryrun=1", json={"command": ["true"]})
        assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == "dryrun"
        assert world.commands_stored() == before


async def test_head_is_get_without_a_body() -> None:
    """Probes ask so; a path that takes neither says what it takes."""
    async with GatewayWorld() as world:
        assert (await world.http.head("/healthz")).status_code == 200
        assert (await world.http.head("/v1/nodes")).status_code == 200
        assert "POST" in (await world.http.head("/v1/sql")).headers["allow"]
        assert (await world.http.post("/openapi.json")).headers["allow"] == "GET"


async def test_metrics_fall_to_zero_again() -> None:
    """A state that no job is in any more is 0, not what it was."""
    async with GatewayWorld() as world:
        job = await world.submit()
        assert 'fairlead_jobs{state="cancelled"} 0.0' in (await world.http.get("/metrics")).text
        waits = world.gateway.views.jobs.rows[job].state
        assert f'fairlead_jobs{{state="{waits}"}} 1.0' in (await world.http.get("/metrics")).text
        await world.http.post(f"/v1/jobs/{job}:cancel")
        await world.in_state(job, "cancelled")
        assert f'fairlead_jobs{{state="{waits}"}} 0.0' in (await world.http.get("/metrics")).text


async def test_two_snapshots_are_kept_over_restarts() -> None:
    """Each gateway's snapshot goes into the slot that does not hold the newest one."""
    async with GatewayWorld() as world:
        for _ in range(2):
            await world.submit()
            await world.gateway.folding.save()
            await world.stop_gateway()
            await world.start_gateway()
            await eventually_async(lambda: world.gateway.folding.caught_up)
        found = await snapshots.load_all(
            world.bus, "gateway", log_id=await identity(world.bus), schema=f"views-{SCHEMA}"
        )
        assert len(found) == 2 and found[0].sequence > found[1].sequence


async def test_a_gateway_starts_without_the_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that has them may be away: the log is folded from its start."""
    monkeypatch.setattr(snapshots, "LOAD_S", 0.1)
    async with GatewayWorld() as world:
        job = await world.submit()
        await world.gateway.folding.save()
        await world.stop_gateway()
        world.hub.stores_up = False
        async with asyncio.timeout(60):
            await world.start_gateway()
        await eventually_async(lambda: world.gateway.folding.caught_up)
        assert (await world.http.get(f"/v1/jobs/{job}")).status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [("FAIRLEAD_HTTP_PORT", "http"), ("FAIRLEAD_HTTP_PORT", "70000"), ("FAIRLEAD_DECISION_WAIT_S", "-1")],
)
def test_a_setting_that_cannot_be_is_named(name: str, value: str) -> None:
    """With what was expected and what was found."""
    with pytest.raises(BadSetting, match=f"{name}: expected .*{value}"):
        GatewaySettings.from_environment({name: value})


async def test_a_taken_port_is_reported_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a traceback, and not after the line that it listens."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gateway = await build(bus, GatewaySettings(http=HttpSettings(port=taken.getsockname()[1])))
        assert await gateway.run() == 1
    told = capsys.readouterr().out
    assert "cannot listen" in told and "listening" not in told


async def test_an_interrupted_request_is_no_request() -> None:
    """The received part may be a whole document by chance; the client never finished it."""
    async with GatewayWorld() as world:
        before, sent = world.commands_stored(), []

        async def send(message: object) -> None:
            sent.append(message)

        for method, path in (("POST", "/v1/jobs"), ("PUT", "/v1/queues/q")):
            pieces = iter(
                [
                    {"type": "http.request", "body": b'{"command":["true"]}', "more_body": True},
                    {"type": "http.disconnect"},
                ]
            )

            async def receive(pieces: Any = pieces) -> Any:
                return next(pieces)

            scope = {
                "type": "http",
                "method": method,
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
                "headers": [(b"content-type", b"application/json"), (b"content-length", b"100")],
                "http_version": "1.1",
                "scheme": "http",
                "server": ("gateway", 80),
                "client": ("c", 1),
                "root_path": "",
            }
            await world.gateway.app(scope, receive, send)
        assert world.commands_stored() == before
        assert not [message for message in sent if isinstance(message, dict) and message.get("status") == 500]


async def test_every_answer_states_its_sequence_and_request() -> None:
    """Header on good and bad answers alike, on the fast path or not; errors are problems with the same request id."""
    async with GatewayWorld() as world:
        await world.submit()
        for path, status in (
            ("/v1/jobs", 200),
            ("/v1/jobs/77", 404),
            ("/nope", 404),
            ("/healthz", 200),
            ("/", 200),
            ("/metrics", 200),
        ):
            answer = await world.http.get(path)
            assert answer.status_code == status
            assert answer.headers["x-fairlead-sequence"] == str(world.gateway.views.sequence)
            assert answer.headers["x-request-id"]
            if status == 404:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["request_id"] == answer.headers["x-request-id"]
        wrong = await world.http.delete("/v1/jobs")
        assert (wrong.status_code, set(wrong.headers["allow"].split(", "))) == (405, {"GET", "POST"})
        assert (await world.http.post("/v1/queues/a/b")).headers["allow"] == "DELETE, GET, PUT"
        bad_user = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers={"x-fairlead-user": "Ada L"})
        assert (bad_user.status_code, bad_user.json()["errors"][0]["field"]) == (422, "X-Fairlead-User")


async def test_an_etag_saves_the_body_while_nothing_changed() -> None:
    """304 for a finished job permanently, though the log continues; a new one once it changes."""
    async with GatewayWorld() as world:
        job = await world.submit()
        await world.http.post(f"/v1/jobs/{job}:cancel")
        await world.in_state(job, "cancelled")
        tag = (await world.http.get(f"/v1/jobs/{job}")).headers["etag"]
        other = await world.submit()
        assert (await world.http.get(f"/v1/jobs/{job}", headers={"if-none-match": tag})).status_code == 304
        tag = (await world.http.get(f"/v1/jobs/{other}")).headers["etag"]
        await world.http.post(f"/v1/jobs/{other}:cancel")
        await world.in_state(other, "cancelled")
        assert (await world.http.get(f"/v1/jobs/{other}", headers={"if-none-match": tag})).status_code == 200


async def test_metrics_and_readiness() -> None:
    """Decisions are counted, the folded sequence and job states shown; readiness falls with the bus."""
    async with GatewayWorld() as world:
        await world.submit()
        text = (await world.http.get("/metrics")).text
        assert "fairlead_gateway_decision_seconds_count 1.0" in text
        assert 'fairlead_gateway_commands{service="queue",what="published"} 1.0' in text
        assert f"fairlead_gateway_folded_sequence {float(world.gateway.views.sequence)}" in text
        await eventually_async(lambda: world.gateway.readiness().ready)
        assert (await world.http.get("/readyz")).status_code == 200
        world.gateway.folding.bus_answers = False
        assert (await world.http.get("/readyz")).status_code == 503
        assert (await world.http.get("/healthz")).status_code == 200


async def test_a_restarted_gateway_shows_the_same() -> None:
    """From a snapshot and the tail, and from the log alone: equal views; posts wait until caught up."""
    async with GatewayWorld() as world:
        for _ in range(3):
            await world.submit()
        await world.gateway.folding.save()
        saved_at = world.gateway.views.sequence
        await world.submit()
        await eventually_async(lambda: len(world.gateway.views.waiting.refusals) == 1)
        before = world.gateway.views.snapshot()
        for with_snapshot in (True, False):
            await world.stop_gateway()
            if not with_snapshot:
                world.hub.objects[subjects.SNAPSHOT].clear()
            old = world.http
            await world.start_gateway()
            await old.aclose()
            assert (world.gateway.folding.views.sequence >= saved_at) or not with_snapshot
            await eventually_async(lambda: world.gateway.folding.caught_up)
            assert world.gateway.views.snapshot() == before
        world.gateway.folding.caught_up = False
        answer = await world.http.post("/v1/jobs", json={"command": ["true"]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_kept_translations_are_the_commands_that_resolve_makes() -> None:
    """The quick way's bytes equal the slow way's, with and without a key, first and later times."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    translator = JobTranslator()
    for body in (
        b'{"command":["true"]}',
        b'{"command":["a","\\"id\\":\\""],"name":"\\"id\\":\\""}',
        b'{"command":["x"],"resources":{"nvidia.com/gpu":8,"memory":"1Gi"},"array":"1-9","retries":{"max":2}}',
    ):
        for command_id in ("a-1", "a-2"):
            for key in ("", "f00d"):
                slow = resolve(decode_job(body), command_id=command_id, user="ada", key=key)
                assert translator.translate("ada", body).command(command_id, key) == encode(slow)
    assert msgspec.json.decode(translator.translate("bob", b'{"command":["true"]}').command("1"))["user"] == "bob"
    assert JobSpec(command=["true"]) == decode_job(b'{"command":["true"]}')


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


async def test_a_real_server_serves_streams_and_stops() -> None:
    """Over TCP: a submit, a watch that sees it, a stop that ends the watch, exit code 0."""
    async with GatewayWorld() as world:
        await world.stop_gateway()
        settings = world.settings._replace(http=HttpSettings(port=free_port()))
        gateway = await build(world.hub.connect(), settings)
        running = asyncio.create_task(gateway.run())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{settings.http.port}", timeout=5) as http:

            async def healthy() -> bool:
                try:
                    return (await http.get("/healthz")).status_code == 200
                except httpx.ConnectError:
                    return False

            while not await healthy():  # noqa: ASYNC110 -- the server is asked as a stranger would
                await asyncio.sleep(0.01)
            await eventually_async(lambda: gateway.folding.caught_up)
            async with http.stream("GET", "/v1/events?follow=1&from=1") as watch:
                assert (await http.post("/v1/jobs", json={"command": ["true"]})).status_code == 201
                async for line in watch.aiter_lines():
                    if "fairlead.job.submitted.v1" in line:
                        break
                await gateway.stop()
                assert await asyncio.wait_for(running, 60) == EXIT_OK


async def test_a_damaged_log_stops_the_gateway() -> None:
    """One flipped byte: exit 70, no guess."""
    hub = MemoryHub()
    await hub.connect().append(subjects.LOG, subjects.log("queue"), b'{"v":2,"torn', expected=0)
    gateway = await build(hub.connect(), GatewaySettings(http=HttpSettings(port=free_port())))
    assert await asyncio.wait_for(gateway.run(), 60) == EXIT_DAMAGED


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/nodes", "/v1/cluster", "/v1/queues", "/healthz"])
async def test_reads_answer_while_the_bus_is_away(path: str) -> None:
    """They never wait for it."""
    async with GatewayWorld() as world:
        world.bus.unlink()
        async with asyncio.timeout(1):
            assert (await world.http.get(path)).status_code == 200


def test_kept_translations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generations at most, however many distinct bodies come; large bodies are not kept at all."""
    monkeypatch.setattr(job_translator, "GENERATION", 10)
    translator = JobTranslator()
    for number in range(100):
        translator.translate("ada", b'{"command":["true"],"name":"%d"}' % number)
    assert len(translator._young) + len(translator._old) <= 20
    before = dict(translator._young)
    translator.translate("ada", b'{"command":["%b"]}' % (b"x" * 5000))
    assert translator._young == before
