"""The OpenAPI document as a judge of requests and answers: docs/openapi.json, which the gateway's own tests hold to its routes.

`check_request` and `check_answer` raise AssertionError with what the document does not have. Start at `operation_of`.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import httpx
import msgspec
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

DOCUMENT: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
#: Parameters whose values contain slashes; OpenAPI has no way to write that.
_DEEP = {f"/v1/queues/{{path}}{verb}": "path" for verb in ("", ":hold", ":drain", ":release")}
_BASE = "urn:fairlead:openapi"
_REGISTRY: Registry[Any] = Registry().with_resource(_BASE, Resource(DOCUMENT, DRAFT202012))
_READS_JSON = re.compile(r"application/([\w.-]+\+)?json\b")


class Operation(NamedTuple):
    """One method of one path of the document."""

    name: str
    body: dict[str, Any]


def _template(path: str) -> re.Pattern[str]:
    deep = _DEEP.get(path, "")
    parts = re.split(r"(\{[^}]*\})", path)
    return re.compile(
        "".join((".+" if part == f"{{{deep}}}" else "[^/]+") if part[:1] == "{" else re.escape(part) for part in parts)
    )


#: The most literal first: "/v1/jobs/{job}:cancel" before "/v1/jobs/{job}".
_PATHS = sorted(
    ((path, _template(path)) for path in DOCUMENT["paths"]),
    key=lambda each: len(re.sub(r"\{[^}]*\}", "", each[0])),
    reverse=True,
)


@cache
def operation_of(method: str, path: str) -> Operation:
    """Return the operation of a request. Raises AssertionError where the document has none."""
    for template, pattern in _PATHS:
        if pattern.fullmatch(path):
            found = DOCUMENT["paths"][template].get(method.lower())
            assert found is not None, f"{method} {path}: expected {', '.join(DOCUMENT['paths'][template]).upper()}"
            return Operation(f"{method} {template}", found)
    raise AssertionError(f"{method} {path}: the OpenAPI document has no such path")


def check_request(request: httpx.Request) -> Operation:
    """Return the operation of a request whose parameters and body are as the document has them. Raises AssertionError."""
    operation = operation_of(request.method, unquote(request.url.path))
    parameters = operation.body.get("parameters", [])
    query = dict(parse_qsl(request.url.query.decode(), keep_blank_values=True))
    known = {each["name"]: each for each in parameters if each["in"] == "query"}
    assert query.keys() <= known.keys(), (
        f"{operation.name}: expected of query parameters {', '.join(known) or 'none'}, found {', '.join(query)}"
    )
    missing = [name for name, each in known.items() if each.get("required") and name not in query]
    assert not missing, f"{operation.name}: the query parameter {missing[0]} is missing"
    for name, text in query.items():
        _validate(known[name]["schema"], _typed(text), f"{operation.name}: query parameter {name}")
    for each in parameters:
        if each["in"] == "header" and each["name"] in request.headers:
            _validate(each["schema"], request.headers[each["name"]], f"{operation.name}: header {each['name']}")
    _check_body(operation, request)
    return operation


def _check_body(operation: Operation, request: httpx.Request) -> None:
    wanted = operation.body.get("requestBody")
    if wanted is None:
        assert not request.content, f"{operation.name}: expected no body, found {request.content[:200]!r}"
        return
    if not request.content:
        assert not wanted.get("required"), f"{operation.name}: expected a body, found none"
        return
    media_type = request.headers.get("content-type", "").partition(";")[0]
    assert media_type in wanted["content"], f"{operation.name}: expected {[*wanted['content']]}, found {media_type!r}"
    if media_type == "application/octet-stream":
        return
    _validate(wanted["content"][media_type]["schema"], msgspec.json.decode(request.content), f"{operation.name}: body")


def check_answer(operation: Operation, status: int, document: Any) -> None:
    """Hold a JSON answer to its schema. Raises AssertionError."""
    responses = operation.body["responses"]
    answer = responses.get(str(status)) or responses["default"]
    assert str(status) in responses or status >= 400, (
        f"{operation.name}: expected one of {[*responses]}, found {status}"
    )
    for media_type, content in answer.get("content", {}).items():
        if _READS_JSON.match(media_type):
            built = msgspec.json.decode(msgspec.json.encode(document))
            _validate(content["schema"], built, f"{operation.name}: answer {status}")


def _typed(text: str) -> Any:
    """A parameter's value as the gateway reads it."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _validate(schema: dict[str, Any], value: Any, where: str) -> None:
    if schema.get("type") == "string" and not isinstance(value, str):
        value = str(value)
    error = next(iter(_validator(json.dumps(schema)).iter_errors(value)), None)
    if error is not None:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
        raise AssertionError(f"{where}{path}: {error.message[:500]}")


@cache
def _validator(schema: str) -> Draft202012Validator:
    absolute = json.loads(schema.replace('"#/components/', f'"{_BASE}#/components/'))
    return Draft202012Validator(absolute, registry=_REGISTRY)
