"""The OpenAPI document: FastAPI's paths with the types that the routers publish. Built once."""

import copy
import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fairlead_gateway.http_messages import JsonResponse
from fairlead_gateway.routes import grammar
from fairlead_gateway.routes.router import FORM_TYPE, PUBLIC, Router, json_content
from fairlead_schemas.http import cloudevents
from fairlead_schemas.http.api import Problem
from fairlead_schemas.http.json_schema import components

_TEMPLATE = "#/components/schemas/{name}"

#: {first part of a path behind /v1: the tag of its operations}; of the rest it is "service".
_TAGS = {
    "jobs": "jobs",
    "use": "jobs",
    "pieces": "jobs",
    "events": "events",
    "changes": "events",
    "ticks": "events",
    "nodes": "nodes",
    "rollouts": "nodes",
    "maintenance": "nodes",
    "breaker": "nodes",
    "queues": "queues",
    "pools": "queues",
    "idle": "idle",
    "cluster": "cluster",
    "map": "cluster",
    "status": "cluster",
    "usage": "usage",
    "prices": "usage",
    "estimates": "jobs",
    "sql": "usage",
    "whatif": "what-if",
    "access": "access",
    "audit": "access",
    "groups": "access",
    "people": "access",
    "service-accounts": "access",
    "tokens": "access",
    "token": "access",
    "notifications": "notifications",
    "storage-classes": "storage",
    "volumes": "storage",
    "services": "services",
    "datasets": "storage",
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


#: {status: what it says}, of the refusals that many operations have.
_REFUSALS = {
    400: "The moment cannot be or has not come; the form of a sign-in is not valid",
    401: "The credential is missing, unknown or has ended",
    403: "The caller has not the right",
    404: "There is no such thing, or the caller may not see it",
    410: "The log does not go back so far",
    409: "The present state does not allow it, or the Idempotency-Key was used for something else",
    412: "It has changed since the answer whose ETag If-Match names",
    413: "The body is too large",
    415: "The Content-Type, or a Content-Encoding, is not taken",
    422: "The request is not valid: each field, what was expected and what was found",
    429: "The caller sends too much; Retry-After says how long to wait",
    503: "Not now; Retry-After says when",
}
#: As RFC 6749 has it, for clients of sign-ins.
_OAUTH_ERROR = json_content(
    {"type": "object", "properties": {"error": {"type": "string"}, "error_description": {"type": "string"}}}
)
#: Without sign-on there are no credentials, and with it nobody states a name.
_SIGNED_ONLY, _OPEN_ONLY = "X-Fairlead-Act-As", "X-Fairlead-User"


def install(app: FastAPI, routers: list[Router], *, is_open: bool) -> Router:
    """Let `app.openapi()` build the document of all routers, with and without sign-on. Return the router that serves what counts here:
    `is_open` without sign-on.
    """

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            published = {name: kind for router in routers for name, kind in router.published.items()}
            app.openapi_schema = _document(app, published)
        return app.openapi_schema

    app.openapi = document

    router = Router()

    @router.read("/openapi.json", "OpenAPI document", right=PUBLIC, include_in_schema=False)
    async def openapi_json() -> JsonResponse:
        if not served:
            served.append(_served(document(), is_open=is_open))
        return JsonResponse(served[0])

    served: list[dict[str, Any]] = []
    return router


def _served(document: dict[str, Any], *, is_open: bool) -> dict[str, Any]:
    """Return the document of a gateway with or without sign-on: only what it looks at."""
    found = copy.deepcopy(document)
    absent = _SIGNED_ONLY if is_open else _OPEN_ONLY
    for operations in found["paths"].values():
        for operation in operations.values():
            operation["parameters"] = [each for each in operation.get("parameters", ()) if each["name"] != absent]
            if is_open:
                operation["security"] = []
    if is_open:
        del found["components"]["securitySchemes"]
    return found


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
    document["components"]["responses"] = {
        f"Refused{status}": {"description": words, "content": problem | _OAUTH_ERROR if status == 400 else problem}
        for status, words in _REFUSALS.items()
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["tags"] = [_TAGS.get(re.split("[/:]", path.removeprefix("/v1/"))[0], "service")]
            operation["responses"].pop("422", None)
            for status in _refusals(path, method, operation):
                operation["responses"].setdefault(str(status), {"$ref": f"#/components/responses/Refused{status}"})
            operation["responses"]["default"] = {"description": "A problem", "content": problem}
    return document


def _refusals(path: str, method: str, operation: dict[str, Any]) -> list[int]:
    """Return the statuses of refusals that an operation may answer, besides those that any may."""
    parameters = operation.get("parameters", ())
    found = [429, 503]
    if operation.get("security"):
        found += 401, 403
    if "{" in path:
        found.append(404)
    if method != "get":
        found += 409, 422
    if any(each["name"] == "If-Match" for each in parameters):
        found.append(412)
    if any(each["schema"].get("pattern") == grammar.MOMENT["pattern"] for each in parameters if "schema" in each):
        found += 400, 410
    if "requestBody" in operation:
        found += 413, 415
        if FORM_TYPE in operation["requestBody"]["content"]:
            found.append(400)
    if any(each["in"] == "query" for each in parameters):
        found.append(422)
    return sorted(set(found))


def _schemas(published: dict[str, Any]) -> dict[str, Any]:
    """Return the component schemas by the names that paths refer to.

    msgspec calls a generic type `Page_Job_`. A second component of ours that refers to it would make two names for one
    type, and client generators drop both; so the component itself is renamed, with every reference to it.
    """
    published = {name: kind for name, kind in published.items() if name not in _BY_HAND}
    references, schemas = components([*published.values()], _TEMPLATE)
    names = {reference["$ref"].rpartition("/")[2]: name for name, reference in zip(published, references, strict=True)}
    renamed = {names.get(name, name): _renamed(schema, names) for name, schema in schemas.items()}
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
