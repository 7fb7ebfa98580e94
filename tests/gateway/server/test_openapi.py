"""The OpenAPI document: valid, whole, true of the answers, and of use to a generator of clients."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_gateway.service import Gateway, GatewaySettings
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import GatewayWorld, gpus

ROOT = Path(__file__).parents[3]
GENERATOR = ROOT / ".venv-openapi"
#: {path of a list: (its operation, the type of its items)}
LISTS = {
    "/v1/jobs": ("jobs", "list_jobs", "Job"),
    "/v1/nodes": ("nodes", "list_nodes", "Node"),
    "/v1/queues": ("queues", "list_queues", "Queue"),
    "/v1/pools": ("queues", "list_pools", "Pool"),
    "/v1/services": ("services", "list_services", "ServiceInfo"),
    "/v1/services/{service}/keys": ("services", "list_service_keys", "ServiceKeyInfo"),
    "/v1/prices": ("usage", "list_prices", "Price"),
    "/v1/rollouts": ("nodes", "list_rollouts", "Rollout"),
    "/v1/maintenance": ("nodes", "list_maintenance", "Maintenance"),
    "/v1/events": ("events", "list_events", "CloudEventOut"),
    "/v1/changes": ("events", "list_changes", "CloudEventOut"),
    "/v1/access": ("access", "list_access", "AccessGrant"),
    "/v1/groups": ("access", "list_groups", "Group"),
    "/v1/people": ("access", "list_people", "Person"),
    "/v1/service-accounts": ("access", "list_service_accounts", "Person"),
    "/v1/tokens": ("access", "list_tokens", "TokenInfo"),
    "/v1/storage-classes": ("storage", "list_storage_classes", "StorageClassInfo"),
    "/v1/volumes": ("storage", "list_volumes", "VolumeInfo"),
    "/v1/datasets": ("storage", "list_datasets", "DatasetInfo"),
    "/v1/notifications": ("notifications", "list_notifications", "NotificationRule"),
}
#: {path of a list: query that it cannot be read without}
NEEDED = {"/v1/changes": {"from": "1"}}
#: {path of a list: what stands in it}
WITHIN = {"/v1/services/{service}/keys": {"service": "chat"}}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document as a gateway serves it."""
    bus = MemoryHub().connect()
    return json.loads(json.dumps(Gateway(bus, GatewaySettings(), LiveViews(bus)).api.openapi()))


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """(path, method, operation) of every operation."""
    return [(path, method, each) for path, methods in document["paths"].items() for method, each in methods.items()]


def schema_of(operation: dict[str, Any]) -> dict[str, Any]:
    """The schema of a JSON answer; empty where there is none."""
    return operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})


def test_it_is_valid_by_the_specification(document: dict[str, Any]) -> None:
    """OpenAPI 3.1, defaults included: a default is one of its schema's values."""
    from openapi_spec_validator import OpenAPIV31SpecValidator

    errors = OpenAPIV31SpecValidator(document).iter_errors()
    assert [(list(error.absolute_path), error.message[:200]) for error in errors] == []


def test_every_type_has_one_name(document: dict[str, Any]) -> None:
    """Two names of one type make generators drop both; a name with signs in it is no class's name."""
    schemas = document["components"]["schemas"]
    assert [name for name, schema in schemas.items() if "$ref" in schema or not re.fullmatch("[A-Za-z]+", name)] == []
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert schemas.keys() - used == set()


def test_every_list_has_pages(document: dict[str, Any]) -> None:
    """Clients page every list in one way, so each takes `limit` and `continue` and answers with a page."""
    pages = {path: each for path, _, each in operations(document) if schema_of(each).get("$ref", "").endswith("Page")}
    assert pages.keys() == LISTS.keys()
    for path, operation in pages.items():
        assert {"limit", "continue"} <= {each["name"] for each in operation["parameters"]}, path


async def test_windows_and_rollouts_are_read_page_by_page() -> None:
    """Two of each, one on a page, in order of name; the whole list in one page without a limit."""
    async with GatewayWorld() as world:
        await world.node("n1")
        starts = rfc3339(world.gateway.views.at_ns + 10**15)
        for name in ("b", "a"):
            window = {"name": name, "starts": starts, "duration": "1h", "nodes": ["n1"]}
            assert (await world.http.post("/v1/maintenance", json=window)).status_code == 200
            rollout = {"name": name, "budgetGpus": 8, "nodes": ["n1"]}
            assert (await world.http.post("/v1/rollouts", json=rollout)).status_code == 200
            assert (await world.http.post(f"/v1/rollouts/{name}:cancel")).status_code == 200
        for path in ("/v1/maintenance", "/v1/rollouts"):
            first = (await world.http.get(path, params={"limit": 1})).json()
            rest = (await world.http.get(path, params={"limit": 1000, "continue": first["next"]})).json()
            assert [row["name"] for row in (*first["items"], *rest["items"])] == ["a", "b"]
            assert rest["next"] is None
            whole = (await world.http.get(path)).json()
            assert (len(whole["items"]), whole["next"]) == (2, None)


async def test_answers_are_of_the_types_that_it_names(document: dict[str, Any]) -> None:
    """Text where there is text: metrics, output, and events that are watched."""
    async with GatewayWorld() as world:
        await world.node("n1")
        job = await world.submit(resources=gpus(1))
        world.gateway.feed.close()  # a watch ends once it has sent what is there
        for path, query in (
            ("/metrics", ""),
            ("/v1/jobs/{job}/logs", ""),
            ("/v1/events", ""),
            ("/v1/events", "?follow=1&from=1"),
            ("/v1/cluster", ""),
            ("/openapi.json", ""),
        ):
            answer = await world.http.get(path.format(job=job) + query)
            found = answer.headers["content-type"].partition(";")[0]
            assert answer.status_code == 200
            if path in document["paths"]:
                assert found in document["paths"][path]["get"]["responses"]["200"]["content"], path


def test_operations_are_sorted_and_named_for_people(document: dict[str, Any]) -> None:
    """Short ids, which become the names of functions; a declared tag for each; a summary."""
    tags = {tag["name"] for tag in document["tags"]}
    for path, method, each in operations(document):
        assert re.fullmatch(r"[a-z]+(_[a-z]+){0,2}", each["operationId"]), f"{method} {path}: {each['operationId']}"
        assert each["tags"] and set(each["tags"]) <= tags
        assert each["summary"]
    assert document["servers"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/jobs/1:cancel", "POST"),
        ("DELETE", "/v1/nodes/n1:declare-dead", "POST"),
        ("PUT", "/v1/rollouts/x:pause", "POST"),
        ("PUT", "/v1/queues:apply", "POST"),
        ("PUT", "/v1/jobs/1", "GET, PATCH"),
        ("DELETE", "/v1/jobs", "GET, POST"),
        ("DELETE", "/v1/jobs:dryrun", "POST"),
        ("PATCH", "/v1/queues/a/b", "DELETE, GET, PUT"),
        ("POST", "/openapi.json", "GET"),
        ("PUT", "/v1/sql", "POST"),
    ],
)
async def test_a_405_allows_the_methods_of_its_path_and_no_others(method: str, path: str, allowed: str) -> None:
    """A verb is a path of its own, not a job with a colon in its name."""
    async with GatewayWorld() as world:
        answer = await world.http.request(method, path)
        assert (answer.status_code, answer.headers.get("allow")) == (405, allowed)
        assert answer.headers["content-type"] == "application/problem+json"


async def test_its_bounds_are_those_that_are_enforced() -> None:
    """A request that the document allows is not refused for its form, and the reverse."""
    async with GatewayWorld() as world:
        job = await world.submit()
        for query, status in (("stream=stdout", 200), ("stream=", 200), ("stream=stdin", 422)):
            assert (await world.http.get(f"/v1/jobs/{job}/logs?{query}")).status_code == status
        for place, status in (("1", 200), ("1.0", 200), ("one", 422), ("1" * 19, 422)):
            assert (await world.http.get(f"/v1/events?from={place}")).status_code == status
        for headers, status in (
            ({"Idempotency-Key": "k"}, 201),
            ({"Idempotency-Key": ""}, 422),
            ({"Idempotency-Key": "k" * 257}, 422),
            ({"X-Fairlead-User": "ada"}, 201),
            ({"X-Fairlead-User": "-ada"}, 422),
            ({"X-Fairlead-User": ""}, 422),
        ):
            answer = await world.http.post("/v1/jobs", json={"command": ["true"]}, headers=headers)
            assert answer.status_code == status, headers
        for body, status in (([], 422), ([{"command": ["true"]}], 200)):
            assert (await world.http.post("/v1/jobs", json=body)).status_code == status


def generate(document: dict[str, Any], folder: Path) -> None:
    """Make a client in `folder`/generated; a warning is a failure."""
    (folder / "openapi.json").write_text(json.dumps(document))
    # The generator knows no archives: to it they are bytes.
    (folder / "config.yaml").write_text("content_type_overrides: {application/x-tar: application/octet-stream}")
    env = {**os.environ, "PATH": f"{GENERATOR}/bin:{os.environ['PATH']}"}
    made = subprocess.run(
        [
            GENERATOR / "bin/openapi-python-client",
            "generate",
            "--path",
            "openapi.json",
            "--config",
            "config.yaml",
            "--meta",
            "none",
            "--output-path",
            "generated",
            "--fail-on-warning",
        ],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]


#: Runs with the generator's Python: reads each answer with the function of its list, and compares.
_READER = """
import httpx, importlib, json, sys
from generated.client import Client
for each in json.load(sys.stdin):
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=each["answer"]))
    client = Client(base_url="http://gateway").set_httpx_client(httpx.Client(transport=transport, base_url="http://gateway"))
    page = importlib.import_module(each["module"]).sync(client=client, **each["arguments"])
    kinds = {type(item).__name__ for item in page.items}
    assert kinds == {each["items"]}, (each["module"], kinds)
    assert page.to_dict() == each["answer"], (each["module"], page.to_dict())
"""


def read_by_client(answers: dict[str, Any], folder: Path) -> None:
    """Read {path of a list: its answer} with the client in `folder`. Raises AssertionError."""
    wanted = [
        {
            "module": f"generated.api.{tag}.{operation}",
            "items": items,
            "answer": answers[path],
            "arguments": {f"{name}_": value for name, value in NEEDED.get(path, {}).items()} | WITHIN.get(path, {}),
        }
        for path, (tag, operation, items) in LISTS.items()
    ]
    read = subprocess.run(
        [GENERATOR / "bin/python", "-c", _READER],
        input=json.dumps(wanted),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert read.returncode == 0, read.stderr[-3000:]


async def test_a_generated_client_has_types_for_every_list(document: dict[str, Any], tmp_path: Path) -> None:
    """It is generated without a warning, and reads real answers into pages of typed items, nothing lost."""
    if not (GENERATOR / ".set-up").exists():
        pytest.skip("client generator: not set up (make client-generator does it)")
    async with GatewayWorld() as world:
        await world.node("n1")
        await world.submit(resources=gpus(1))
        starts = rfc3339(world.gateway.views.at_ns + 10**15)
        await world.http.post(
            "/v1/maintenance", json={"name": "w", "starts": starts, "duration": "1h", "nodes": ["n1"]}
        )
        await world.http.post("/v1/rollouts", json={"name": "r", "budgetGpus": 8, "nodes": ["n1"]})
        await world.http.post("/v1/prices", json={"model": "*", "per_gpu_hour": 1, "currency": "EUR"})
        answers = {path: (await world.http.get(path, params=NEEDED.get(path))).json() for path in LISTS.keys() - WITHIN}
    async with AccountsWorld() as world:
        ada = await world.person("ada", viewer="cluster")
        _, session = await world.session(ada)
        hook = "https://hooks.example.org/ada"
        await world.ask("POST", "/v1/notifications", {"on": ["end"], "webhook": hook}, token=session, status=201)
        await world.token(session)
        await world.ask("POST", "/v1/service-accounts", {"login": "ci", "name": "CI"}, status=201)
        accounts = world.gateway.accounts
        await accounts.send(
            cmd.SyncGroup(id=accounts.new_command_id(None), group="group:ml", source="hand", added=(ada,))
        )
        of_access = [path for path, (tag, _, _) in LISTS.items() if tag == "access"]
        answers |= {path: await world.ask("GET", path) for path in of_access}
        answers["/v1/notifications"] = await world.ask("GET", "/v1/notifications", token=session)
    async with SignedWorld() as world:
        await world.volume("data", "user:owner")
        dataset = {
            "dataset": "set@1",
            "owner": "user:owner",
            "digest": f"sha256:{64 * '0'}",
            "size_bytes": 1,
            "files": 1,
        }
        await world.storage(cmd.AddDataset, **dataset)
        await world.service("chat")
        assert (await world.http.post("/v1/services/chat/keys", json={"name": "ci"})).status_code == 201
        of_both = [path for path, (tag, _, _) in LISTS.items() if tag in ("storage", "services")]
        answers |= {path: await world.get("owner", path.format(**WITHIN.get(path, {}))) for path in of_both}
    assert [path for path, answer in answers.items() if not answer["items"]] == []
    generate(document, tmp_path)
    read_by_client(answers, tmp_path)
