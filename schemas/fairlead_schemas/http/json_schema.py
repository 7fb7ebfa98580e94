"""The contracts as JSON Schema (2020-12), for editors, other languages and the HTTP documents.

docs/schemas holds what this module makes. Descriptions are the types' own docstrings.
"""

from typing import Any, cast

import msgspec

from fairlead_schemas.http import api, cloudevents
from fairlead_schemas.jobfile import job_spec
from fairlead_schemas.queuefile import parse
from fairlead_schemas.wire import commands, commit, desired, events, reports, samples

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _retyped(kind: type[msgspec.Struct], types: dict[str, Any]) -> type[msgspec.Struct]:
    """A copy of a struct for description only, some fields' types replaced and their defaults left out of the
    schema: msgspec cannot describe a default that is `Raw`."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        retyped = field.name in types
        default = msgspec.field(default=None) if retyped and not field.required else _default(field)
        fields.append((field.encode_name, types.get(field.name, field.type), default))
    return msgspec.defstruct(kind.__name__, fields, namespace={"__doc__": kind.__doc__}, kw_only=True)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field() if field.required else msgspec.field(default=field.default)


RunOrder = _retyped(desired.RunOrder, {"spec": Any})
Desired = _retyped(desired.Desired, {"runs": list[RunOrder]})

#: {document name: what it describes}
DOCUMENTS: dict[str, Any] = {
    "job": job_spec.JobSpec,
    "queues": parse.QueueFileWords,
    "events": events.Event,
    "commit": commit.Commit,
    "commands": (
        commands.QueueCommand
        | commands.PlacerCommand
        | commands.TelemetryCommand
        | commands.AccessCommand
        | commands.StorageCommand
    ),
    "reports": reports.ReportBatch,
    "desired": Desired,
    "samples": samples.SampleColumns,
    "cloudevent-out": cloudevents.CloudEventOut,
    "problem": api.Problem,
}


def document(name: str) -> dict[str, Any]:
    """The JSON Schema of one of DOCUMENTS. Raises KeyError for another name."""
    return {"$schema": DIALECT, "title": f"Fairlead {name}"} | msgspec.json.schema(DOCUMENTS[name])


def components(kinds: list[Any], template: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """References to types, and {name: schema} of everything they need; `template` holds "{name}"."""
    references, schemas = msgspec.json.schema_components(kinds, ref_template=template)
    return list(references), {name: _plain_rows(schema) for name, schema in schemas.items()}


def _plain_rows(schema: Any) -> Any:
    """Return a schema whose fixed rows of one type are arrays of that type and length: generators of clients know no `prefixItems`."""
    if isinstance(schema, list):
        return [_plain_rows(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain_rows(each) for name, each in cast("dict[str, Any]", schema).items()}
    items = found.get("prefixItems")
    if items and found.get("items") is False and all(each == items[0] for each in items):
        del found["prefixItems"]
        found["items"] = items[0]
    return found
