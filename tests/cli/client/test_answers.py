"""Answers of other versions of the gateway: fields that the client does not know are ignored, and the version is known."""

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import msgspec.inspect
import pytest

from fairlead.client import Client
from fairlead.client.answers import decode_page
from fairlead_schemas.http import access, accounts, api
from fairlead_schemas.http.api import Job
from fairlead_schemas.http.cloudevents import CloudEventOut
from fairlead_schemas.policies.idle import IdleEvidence
from fairlead_schemas.queries.cluster_map import ClusterMap, PoolPacking
from fairlead_schemas.queries.explainer import Defrag
from fairlead_schemas.queries.telemetry import JobMetrics, JobUses, UsageStatement
from fairlead_schemas.wire.conditions import Readiness
from tests.cli.gateway_stub import job_document, page

#: Also a part of an event, and those are read strictly.
OF_THE_LOG = IdleEvidence


def _answers() -> set[type[msgspec.Struct]]:
    """All documents of the API, and those that other answers of the client are made of."""
    roots: list[type] = [
        kind
        for module in (access, accounts, api)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
    ]
    roots += [ClusterMap, PoolPacking, CloudEventOut, JobMetrics, JobUses, UsageStatement, Defrag, Readiness]
    return {found for root in roots for found in _structs(msgspec.inspect.type_info(root))} - {OF_THE_LOG}


def _structs(info: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the struct types that a type is made of."""
    if isinstance(info, msgspec.inspect.StructType):
        yield info.cls
        for field in info.fields:
            yield from _structs(field.type)
    for inner in ("item_type", "key_type", "value_type", "types"):
        found = getattr(info, inner, ())
        for each in found if isinstance(found, tuple) else (found,):
            yield from _structs(each)


def _name(kind: type) -> str:
    return kind.__name__


@pytest.mark.parametrize("kind", sorted(_answers(), key=_name), ids=_name)
def test_no_answer_forbids_unknown_fields(kind: type[msgspec.Struct]) -> None:
    """/v1 only grows: a newer gateway may add a field to any document."""
    assert not kind.__struct_config__.forbid_unknown_fields


def _with_more(document: Any) -> Any:
    """The document with a field more in each of its objects."""
    if isinstance(document, dict):
        found = typing.cast("dict[str, Any]", document)
        return {**{name: _with_more(value) for name, value in found.items()}, "added_later": {"x": [1]}}
    return [_with_more(each) for each in typing.cast("list[Any]", document)] if isinstance(document, list) else document


def test_a_job_of_a_newer_gateway_is_a_job() -> None:
    """Also where the field is in a part of it."""
    job = job_document(gpus={}, attempts=[{"attempt": 1}])
    given = {**_with_more({**job, "gpus": None, "spec": None}), "gpus": {}, "spec": {"command": ["true"]}}
    found = decode_page(msgspec.json.encode({**page(given), "added_later": 1}), Job)
    assert found.items[0].reason is not None
    assert (found.items[0].id, found.items[0].reason.code) == ("812", "running")


def test_the_version_of_the_gateway_is_known_after_an_answer() -> None:
    """From a header of each answer; an older gateway sends none."""
    headers = iter([{}, {"X-Fairlead-Version": "0.9.1"}])
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=page(), headers=next(headers)))
    with Client("http://gateway.test", user="ada", transport=transport) as client:
        client.jobs()
        assert client.server_version == ""
        client.jobs()
        assert client.server_version == "0.9.1"
