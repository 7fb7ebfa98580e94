"""The OpenAPI document: FastAPI's paths, msgspec's schemas, and the hot routes by hand. Built once."""

import re
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fairlead_gateway.http_messages import DEFAULT_USER, KEY_CHARS_MAX
from fairlead_gateway.routes import request_bodies as wishes
from fairlead_gateway.routes.idle import ExtendRequest
from fairlead_gateway.routes.jobs import CancelRequest, EmptyRequest, MoveRequest, NodeRequest
from fairlead_gateway.routes.query import JsonResponse
from fairlead_gateway.routes.sql import SqlQueryRequest
from fairlead_gateway.routes.submit import LIST_JOBS_MAX
from fairlead_schemas.http import api, cloudevents
from fairlead_schemas.jobfile import job_spec
from fairlead_schemas.policies import idle_file
from fairlead_schemas.queries import cluster_map, explainer, telemetry
from fairlead_schemas.queries.explainer import COMMANDS_MAX
from fairlead_schemas.queuefile import parse, settings_format
from fairlead_schemas.wire import conditions

_TEMPLATE = "#/components/schemas/{name}"

#: {name of a component: what it is}. A generic type has here the only name that it is published under.
_PUBLISHED: dict[str, Any] = {
    "Breaker": api.Breaker, "CancelRequest": CancelRequest, "Cluster": api.Cluster, "ClusterMap": cluster_map.ClusterMap,
    "CommandOutcome": api.CommandOutcome, "Defrag": explainer.Defrag, "DryRun": api.DryRun, "EventPage": api.Page[cloudevents.CloudEventOut],
    "ExtendRequest": ExtendRequest, "GpuRequest": wishes.GpuRequest, "Idle": api.IdleOverview, "IdleApplied": api.IdleFileResult,
    "IdleFileWords": idle_file.IdleFileWords, "IdleScopeWords": idle_file.IdleScopeWords, "Job": api.Job, "JobMetrics": telemetry.JobMetrics,
    "JobPage": api.Page[api.Job], "JobSpec": job_spec.JobSpec, "JobUses": telemetry.JobUses, "Maintenance": api.Maintenance,
    "MaintenancePage": api.Page[api.Maintenance], "MaintenanceRequest": wishes.MaintenanceRequest, "MoveRequest": MoveRequest, "EmptyRequest": EmptyRequest,
    "Node": api.Node, "NodeNameRequest": wishes.NodeNameRequest, "NodePage": api.Page[api.Node], "NodeRequest": NodeRequest,
    "PoolPacking": cluster_map.PoolPacking, "PoolPage": api.Page[api.Pool], "Problem": api.Problem, "Queue": api.Queue,
    "QueueFileWords": parse.QueueFileWords, "QueuePage": api.Page[api.Queue], "QueueWords": settings_format.QueueWords,
    "QueuesApplied": api.QueueFileResult, "Readiness": conditions.Readiness, "ReasonRequest": wishes.ReasonRequest, "Rollout": api.Rollout, "RolloutPage": api.Page[api.Rollout],
    "RolloutRequest": wishes.RolloutRequest, "SqlQueryRequest": SqlQueryRequest, "SubmitResult": api.SubmitResult, "TaintRequest": wishes.TaintRequest,
    "UsageStatement": telemetry.UsageStatement, "Why": api.Why,
}  # fmt: skip

#: {first part of a path behind /v1: the tag of its operations}; of the rest it is "service".
_TAGS = {
    "jobs": "jobs",
    "use": "jobs",
    "events": "events",
    "nodes": "nodes",
    "rollouts": "nodes",
    "maintenance": "nodes",
    "breaker": "nodes",
    "queues": "queues",
    "pools": "queues",
    "idle": "idle",
    "cluster": "cluster",
    "map": "cluster",
    "usage": "usage",
    "sql": "usage",
    "commands": "service",
    "schemas": "service",
}
#: Operations that show a caller what is theirs; the others ask for no identity.
_WITH_IDENTITY = frozenset({"query_sql", "cancel_sql", "get_job_metrics", "get_use"})

#: POST paths that send a command, in addition to the paths on a single object.
_VERBS = ("/v1/queues:apply", "/v1/idle:apply", "/v1/rollouts", "/v1/maintenance", "/v1/breaker:reset")
#: Paths whose PUT or DELETE sends none.
_NO_COMMANDS = ("/v1/sql/{name}",)
_TEXT = {"type": "string", "minLength": 1}
#: By hand: its `data` is taken undecoded, which has no schema of its own.
_CLOUD_EVENT: dict[str, Any] = {
    "title": "CloudEventIn", "type": "object", "description": "A CloudEvent 1.0; source and id make the idempotency key.",
    "required": ["specversion", "type", "source", "id", "data"],
    "properties": {
        "specversion": {"const": cloudevents.SPECVERSION}, "type": {"enum": list(cloudevents.TYPES_IN)},
        "source": _TEXT, "id": _TEXT, "time": {"type": "string"}, "subject": {"type": "string"},
        "datacontenttype": {"type": "string"}, "data": {"description": 'A job file, or {"job": id}', "type": "object"},
    },
}  # fmt: skip


def install(app: FastAPI) -> None:
    """Serve /openapi.json and let `app.openapi()` build it."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_json() -> JsonResponse:
        return JsonResponse(document())


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        routes=app.routes,
        servers=[{"url": "/", "description": "This gateway"}],
        tags=[{"name": name} for name in dict.fromkeys(_TAGS.values())],
        description="Submit jobs, ask why. Every answer states the log sequence that it is true for. "
        "X-Fairlead-User names the caller and is believed; FAIRLEAD_IDENTITIES may ask for tokens where rows are shown.",
    )
    document["components"] = {
        "schemas": _schemas(),
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    }
    document["paths"].setdefault("/v1/jobs", {})["post"] = _post_jobs()
    document["paths"].setdefault("/v1/jobs:dryrun", {})["post"] = _post_dryrun()
    document["paths"].setdefault("/v1/events", {})["post"] = _post_events()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if (method in ("put", "delete") and path not in _NO_COMMANDS) or (
                method == "post" and ("}:" in path or path in _VERBS)
            ):
                operation["parameters"] = [*operation.get("parameters", []), *_HEADERS]
                operation["responses"]["202"] = _results(200)["202"]
            if operation["operationId"] in _WITH_IDENTITY:
                operation["security"] = [{"token": []}, {}]
            operation["tags"] = [_TAGS.get(re.split("[/:]", path.removeprefix("/v1/"))[0], "service")]
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = _problem()
    return document


def _schemas() -> dict[str, Any]:
    """Return the component schemas by the names that paths refer to.

    msgspec calls a generic type `Page_Job_`. A second component of ours that refers to it would make two names for one
    type, and client generators drop both; so the component itself is renamed, with every reference to it.
    """
    references, components = msgspec.json.schema_components(_PUBLISHED.values(), ref_template=_TEMPLATE)
    names = {reference["$ref"].rpartition("/")[2]: name for name, reference in zip(_PUBLISHED, references, strict=True)}
    renamed = {names.get(name, name): _renamed(schema, names) for name, schema in components.items()}
    for name in names.values():
        renamed[name]["title"] = name
    return {**renamed, "CloudEventIn": _CLOUD_EVENT}


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Return a part of the document with its references renamed."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    if isinstance(reference := value.get("$ref"), str):
        name = reference.rpartition("/")[2]
        return {**value, "$ref": _TEMPLATE.format(name=names.get(name, name))}
    return {key: _renamed(each, names) for key, each in value.items()}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {media_type: {"schema": schema}}


def _problem() -> dict[str, Any]:
    return {"description": "A problem", "content": _json(_ref("Problem"), "application/problem+json")}


def _header(name: str, description: str, bounds: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "string", **bounds}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


_HEADERS = [
    _header(
        "Idempotency-Key",
        "Repeating a request under one key changes nothing more; bound to the user.",
        {"minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": r"^[!-~]([ -~]*[!-~])?$"},
    ),
    _header("X-Fairlead-User", f"Name of the caller; none: {DEFAULT_USER}.", {"pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"}),
]


def _one_or_list(schema: dict[str, Any], most: int) -> dict[str, Any]:
    return {"oneOf": [schema, {"type": "array", "items": schema, "minItems": 1, "maxItems": most}]}


def _results(one: int) -> dict[str, Any]:
    result = {"oneOf": [_ref("SubmitResult"), {"type": "array", "items": _ref("SubmitResult")}]}
    return {
        str(one): {"description": "Decided: the decision is in the log", "content": _json(_ref("SubmitResult"))},
        "200": {
            "description": "Decided: a list's results in order, or what an earlier request under the key led to",
            "content": _json(result),
        },
        "202": {
            "description": "Stored, not decided yet; GET /v1/commands/{id} shows the outcome",
            "content": _json(result),
        },
    }


def _post_jobs() -> dict[str, Any]:
    body = _one_or_list(_ref("JobSpec"), LIST_JOBS_MAX)
    return {
        "summary": "Submit one job or a list of jobs",
        "operationId": "submit_jobs",
        "parameters": _HEADERS,
        "requestBody": {"required": True, "content": _json(body)},
        "responses": _results(201),
    }


def _post_dryrun() -> dict[str, Any]:
    body = _one_or_list(_ref("JobSpec"), COMMANDS_MAX)
    result = {"oneOf": [_ref("DryRun"), {"type": "array", "items": _ref("DryRun")}]}
    told = "What would become of them; one that would be refused is a problem (of a list: its entry is not valid)"
    return {
        "summary": "Say what would become of one job or a list of jobs; nothing is sent",
        "operationId": "dryrun_job",
        "parameters": _HEADERS[1:],
        "requestBody": {"required": True, "content": _json(body)},
        "responses": {"200": {"description": told, "content": _json(result)}},
    }


def _post_events() -> dict[str, Any]:
    one = _ref("CloudEventIn")
    content = _json(one, "application/cloudevents+json") | _json(
        {"type": "array", "items": one, "minItems": 1, "maxItems": LIST_JOBS_MAX}, "application/cloudevents-batch+json"
    )
    return {
        "summary": "Send CloudEvents: " + ", ".join(cloudevents.TYPES_IN),
        "operationId": "send_events",
        "parameters": _HEADERS[1:],
        "requestBody": {"required": True, "content": content},
        "responses": _results(201),
    }
