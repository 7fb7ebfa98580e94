"""The OpenAPI document: FastAPI's paths, msgspec's schemas, and the hot routes by hand. Built once."""

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fairlead_gateway import nodewishes as wishes
from fairlead_gateway.idleverbs import ExtendWish
from fairlead_gateway.reading import Json
from fairlead_gateway.sqlroute import SqlWish
from fairlead_gateway.verbs import CancelWish, MoveWish, NodeWish
from fairlead_schemas import (
    api,
    cloudevents,
    clustermap,
    defrag,
    idlefile,
    jobmetrics,
    jobspec,
    jobuse,
    poolpacking,
    queuefile,
    queuesettings,
    usage,
)

_TEMPLATE = "#/components/schemas/{name}"


_PUBLISHED = {
    "Job": api.Job, "Node": api.Node, "Queue": api.Queue, "JobPage": api.Page[api.Job], "NodePage": api.Page[api.Node],
    "QueuePage": api.Page[api.Queue], "PoolPage": api.Page[api.Pool], "QueuesApplied": api.QueuesApplied,
    "SubmitResult": api.SubmitResult, "Problem": api.Problem, "JobSpec": jobspec.JobSpec, "NodeWish": NodeWish, "CancelWish": CancelWish,
    "MoveWish": MoveWish, "QueueFileWords": queuefile.QueueFileWords, "QueueWords": queuesettings.QueueWords,
    "RolloutPage": api.Page[api.Rollout], "Rollout": api.Rollout, "MaintenancePage": api.Page[api.Maintenance],
    "Breaker": api.Breaker, "TaintWish": wishes.TaintWish, "ReasonWish": wishes.ReasonWish, "GpuWish": wishes.GpuWish,
    "NodeNameWish": wishes.NodeNameWish, "MaintenanceWish": wishes.MaintenanceWish, "RolloutWish": wishes.RolloutWish,
    "SqlWish": SqlWish, "ExtendWish": ExtendWish, "Idle": api.Idle, "IdleScopeWords": idlefile.IdleScopeWords, "IdleFileWords": idlefile.IdleFileWords, "IdleApplied": api.IdleApplied, "Why": api.Why, "DryRun": api.DryRun, "ClusterMap": clustermap.ClusterMap,
    "Defrag": defrag.Defrag, "PoolPacking": poolpacking.PoolPacking, "UsageStatement": usage.UsageStatement,
    "JobMetrics": jobmetrics.JobMetrics, "JobUses": jobuse.JobUses,
}  # fmt: skip


#: POST paths that send a command, besides those on one thing.
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
    async def openapi_json() -> Json:
        return Json(document())


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, routes=app.routes,
        description="Submit jobs, ask why. Every answer states the log sequence that it is true for. "
        "There is no authentication yet: X-Fairlead-User names who asks.",
    )  # fmt: skip
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_schemas())
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
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = _problem()
    return document


def _schemas() -> dict[str, Any]:
    """Component schemas by the names that paths refer to."""
    references, components = msgspec.json.schema_components(_PUBLISHED.values(), ref_template=_TEMPLATE)
    for name, reference in zip(_PUBLISHED, references, strict=True):
        if name not in components:
            components[name] = reference
    components["CloudEventIn"] = _CLOUD_EVENT
    return components


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {media_type: {"schema": schema}}


def _problem() -> dict[str, Any]:
    return {"description": "A problem", "content": _json(_ref("Problem"), "application/problem+json")}


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}


_HEADERS = [
    _header("Idempotency-Key", "Repeating a request under one key changes nothing more; bound to the user."),
    _header("X-Fairlead-User", "Who asks."),
]


def _results(one: int) -> dict[str, Any]:
    result = {"oneOf": [_ref("SubmitResult"), {"type": "array", "items": _ref("SubmitResult")}]}
    return {
        str(one): {"description": "Decided: the decision is in the log", "content": _json(_ref("SubmitResult"))},
        "200": {
            "description": "Decided: a list's results in order, or what an earlier request under the key led to",
            "content": _json(result),
        },
        "202": {"description": "Stored, not decided yet; GET /v1/commands/{id} tells later", "content": _json(result)},
    }


def _post_jobs() -> dict[str, Any]:
    body = {"oneOf": [_ref("JobSpec"), {"type": "array", "items": _ref("JobSpec")}]}
    return {
        "summary": "Submit one job or a list of jobs", "operationId": "submit_jobs", "parameters": _HEADERS,
        "requestBody": {"required": True, "content": _json(body)}, "responses": _results(201),
    }  # fmt: skip


def _post_dryrun() -> dict[str, Any]:
    body = {"oneOf": [_ref("JobSpec"), {"type": "array", "items": _ref("JobSpec")}]}
    result = {"oneOf": [_ref("DryRun"), {"type": "array", "items": _ref("DryRun")}]}
    told = "What would become of them; one that would be refused is a problem (of a list: its entry is not valid)"
    return {
        "summary": "Say what would become of one job or a list of jobs; nothing is sent", "operationId": "dryrun_job",
        "parameters": _HEADERS[1:], "requestBody": {"required": True, "content": _json(body)},
        "responses": {"200": {"description": told, "content": _json(result)}},
    }  # fmt: skip


def _post_events() -> dict[str, Any]:
    one = _ref("CloudEventIn")
    content = _json(one, "application/cloudevents+json") | _json(
        {"type": "array", "items": one}, "application/cloudevents-batch+json"
    )
    return {
        "summary": "Send CloudEvents: " + ", ".join(cloudevents.TYPES_IN), "operationId": "send_events",
        "parameters": _HEADERS[1:], "requestBody": {"required": True, "content": content}, "responses": _results(201),
    }  # fmt: skip
