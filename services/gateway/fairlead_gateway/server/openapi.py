"""The OpenAPI document: FastAPI's paths with the types that the routers publish. Built once."""

import re
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.routes.router import PUBLIC, Router, json_content
from fairlead_schemas.http import cloudevents
from fairlead_schemas.http.api import Problem

_TEMPLATE = "#/components/schemas/{name}"

#: {first part of a path behind /v1: the tag of its operations}; of the rest it is "service".
_TAGS = {
    "jobs": "jobs",
    "use": "jobs",
    "pieces": "jobs",
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
    "access": "access",
    "audit": "access",
    "groups": "access",
    "people": "access",
    "service-accounts": "access",
    "tokens": "access",
    "token": "access",
    "notifications": "notifications",
    "whoami": "access",
    "sign-in": "access",
    "sign-out": "access",
    "device": "access",
    "commands": "service",
    "schemas": "service",
}
_TEXT = {"type": "string", "minLength": 1}
#: By hand: its `data` is taken undecoded, which has no schema of its own.
_BY_HAND: dict[str, dict[str, Any]] = {"CloudEventIn": {
    "title": "CloudEventIn", "type": "object", "description": "A CloudEvent 1.0; source and id make the idempotency key.",
    "required": ["specversion", "type", "source", "id", "data"],
    "properties": {
        "specversion": {"const": cloudevents.SPECVERSION}, "type": {"enum": list(cloudevents.TYPES_IN)},
        "source": _TEXT, "id": _TEXT, "time": {"type": "string"}, "subject": {"type": "string"},
        "datacontenttype": {"type": "string"}, "data": {"description": 'A job file, or {"job": id}', "type": "object"},
    },
}}  # fmt: skip


def install(app: FastAPI, routers: list[Router]) -> Router:
    """Let `app.openapi()` build the document of all routers. Return the router that serves it."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            published = {name: kind for router in routers for name, kind in router.published.items()}
            app.openapi_schema = _document(app, published)
        return app.openapi_schema

    app.openapi = document

    router = Router()

    @router.read("/openapi.json", "OpenAPI document", right=PUBLIC, include_in_schema=False)
    async def openapi_json() -> JsonResponse:
        return JsonResponse(document())

    return router


def _document(app: FastAPI, published: dict[str, Any]) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        routes=app.routes,
        servers=[{"url": "/", "description": "This gateway"}],
        tags=[{"name": name} for name in dict.fromkeys(_TAGS.values())],
        description="Submit jobs, ask why. Every answer states the log sequence that it is true for. "
        "With sign-on, every operation but the public ones takes a bearer token or a session, and `x-fairlead-right` is the right "
        "that it needs; without, X-Fairlead-User names the caller and is believed.",
    )
    document["components"] = {
        "schemas": _schemas(published | {"Problem": Problem}),
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "session": {"type": "apiKey", "in": "cookie", "name": "__Host-fairlead"},
        },
    }
    problem = json_content({"$ref": _TEMPLATE.format(name="Problem")}, "application/problem+json")
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["tags"] = [_TAGS.get(re.split("[/:]", path.removeprefix("/v1/"))[0], "service")]
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {"description": "A problem", "content": problem}
    return document


def _schemas(published: dict[str, Any]) -> dict[str, Any]:
    """Return the component schemas by the names that paths refer to.

    msgspec calls a generic type `Page_Job_`. A second component of ours that refers to it would make two names for one
    type, and client generators drop both; so the component itself is renamed, with every reference to it.
    """
    published = {name: kind for name, kind in published.items() if name not in _BY_HAND}
    references, components = msgspec.json.schema_components(published.values(), ref_template=_TEMPLATE)
    names = {reference["$ref"].rpartition("/")[2]: name for name, reference in zip(published, references, strict=True)}
    renamed = {names.get(name, name): _renamed(schema, names) for name, schema in components.items()}
    for name in names.values():
        renamed[name]["title"] = name
    return renamed | _BY_HAND


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
