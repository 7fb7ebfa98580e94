"""Changes of a resource by the operations of a PATCH (RFC 7644, section 3.5.2). Pure: a changed copy is returned.

Start at `patched`. Operations are applied in order to a copy, and the whole is read again as if a client had sent it, so
nothing of a PATCH is carried out unless all of it can be.
"""

from typing import Any

import msgspec

from fairlead_gateway.directories.scim_errors import ScimError, bad_value
from fairlead_gateway.directories.scim_filter import Filter, Place, parse_path
from fairlead_gateway.directories.scim_schema import (
    Attribute,
    Resource,
    ResourceShape,
    read,
    read_value,
    refuse_password,
)

PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
OPERATIONS_MAX = 1_000
#: Keys without a path that clients repeat from an answer.
_REPEATED = frozenset({"schemas", "id", "meta"})


class Operation(msgspec.Struct, frozen=True):
    """One operation, its verb in lower case."""

    op: str
    path: str = ""
    value: Any = None


def read_operations(body: Any) -> list[Operation]:
    """Return the operations of a PATCH. Raise ScimError (400)."""
    found = {str(key).lower(): value for key, value in body.items()} if isinstance(body, dict) else {}
    if not names_schema(found.get("schemas"), PATCH):
        raise ScimError(400, "invalidSyntax", f"schemas: expected {PATCH}")
    listed = found.get("operations")
    if not isinstance(listed, list) or not 0 < len(listed) <= OPERATIONS_MAX:
        raise ScimError(400, "invalidSyntax", f"Operations: expected a list of 1 to {OPERATIONS_MAX}")
    return [_operation(each) for each in listed]


def names_schema(schemas: Any, wanted: str) -> bool:
    """Return True if the value of a message's `schemas` names a schema, in a list or alone."""
    return wanted in schemas if isinstance(schemas, list | str) else False


def _operation(found: Any) -> Operation:
    fields = {str(key).lower(): value for key, value in found.items()} if isinstance(found, dict) else {}
    verb, path = str(fields.get("op", "")).lower(), fields.get("path") or ""
    if verb not in ("add", "replace", "remove") or not isinstance(path, str):
        raise ScimError(400, "invalidSyntax", f"op: expected add, replace or remove, found {verb[:40]!r}")
    if verb == "remove" and not path:
        raise ScimError(400, "noTarget", "remove: expected a path")
    return Operation(verb, path, fields.get("value"))


def patched(resource: Resource, operations: list[Operation], shape: ResourceShape) -> Resource:
    """Return the resource after all operations. Raise ScimError (400)."""
    # Values are replaced by others, never changed in place, but for the lists and objects copied here.
    changed = {key: _copy(value) for key, value in resource.items()}
    for operation in operations:
        if operation.path:
            refuse_password(operation.path, shape)
            place = parse_path(operation.path, shape)
            if place is not None:
                _apply(changed, operation, place)
            continue
        if not isinstance(operation.value, dict):
            raise bad_value(f"{operation.op} without a path: expected an object with attributes")
        _merge(changed, operation, shape)
    for attribute in shape.attributes:
        if attribute.required and not changed.get(attribute.name):
            raise ScimError(400, "mutability", f"{attribute.name} is required")
    return read(changed, shape)


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [dict(each) if isinstance(each, dict) else each for each in value]
    return dict(value) if isinstance(value, dict) else value


def _merge(changed: Resource, operation: Operation, shape: ResourceShape) -> None:
    """Apply an operation without a path: each attribute of its value is a place of its own. Those not kept are passed by."""
    for name, value in operation.value.items():
        if str(name).lower() in _REPEATED or (str(name).startswith("urn:") and isinstance(value, dict)):
            continue
        refuse_password(str(name), shape)
        place = parse_path(str(name), shape)
        if place is not None and place.attribute.mutability != "readOnly":
            _apply(changed, Operation(operation.op, str(name), value), place)


def _apply(changed: Resource, operation: Operation, place: Place) -> None:
    attribute, chosen, sub = place
    if "readOnly" in (attribute.mutability, sub.mutability if sub else ""):
        raise ScimError(400, "mutability", f"{operation.path[:80]} is read-only")
    if chosen is not None:
        _apply_to_chosen(changed, operation, place, chosen)
    elif sub is not None:
        _apply_to_sub(changed, operation, attribute, sub)
    elif operation.op == "remove":
        _remove(changed, operation, attribute)
    elif operation.value is None or operation.value == []:
        if operation.op == "replace":
            changed.pop(attribute.name, None)
    else:
        _set(changed, operation.op, attribute, read_value(operation.value, attribute, attribute.name))


def _set(changed: Resource, verb: str, attribute: Attribute, value: Any) -> None:
    held = changed.get(attribute.name)
    if attribute.is_many and verb == "add" and held:
        known = {_identity(each) for each in held}
        changed[attribute.name] = [*held, *(each for each in value if _identity(each) not in known)]
    elif attribute.subs and not attribute.is_many and held:
        changed[attribute.name] = held | value
    else:
        changed[attribute.name] = value


def _identity(value: Any) -> Any:
    """Return the facts by which two values of an attribute are the same one."""
    if not isinstance(value, dict):
        return value
    return value.get("value"), value.get("type"), value.get("primary")


def _remove(changed: Resource, operation: Operation, attribute: Attribute) -> None:
    """Remove an attribute, or only the values that are named, which is how Entra ID takes members out of a group."""
    held = changed.get(attribute.name)
    if not attribute.is_many or operation.value in (None, []) or held is None:
        changed.pop(attribute.name, None)
        return
    named = {each.get("value") for each in read_value(operation.value, attribute, attribute.name)}
    changed[attribute.name] = [each for each in held if each.get("value") not in named]


def _apply_to_sub(changed: Resource, operation: Operation, attribute: Attribute, sub: Attribute) -> None:
    held = changed.get(attribute.name)
    if operation.op == "remove":
        for each in [] if held is None else held if attribute.is_many else [held]:
            each.pop(sub.name, None)
        return
    value = read_value(operation.value, sub, f"{attribute.name}.{sub.name}")
    if not held:
        changed[attribute.name] = [{sub.name: value}] if attribute.is_many else {sub.name: value}
        return
    for each in held if attribute.is_many else [held]:
        each[sub.name] = value


def _apply_to_chosen(changed: Resource, operation: Operation, place: Place, chosen: Filter) -> None:
    attribute, _, sub = place
    held: list[Any] = changed.get(attribute.name, [])
    hits = [each for each in held if chosen.test(each)]
    if operation.op == "remove":
        if sub is None:
            changed[attribute.name] = [each for each in held if not chosen.test(each)]
            return
        for each in hits:
            each.pop(sub.name, None)
        return
    if not hits:
        if operation.op == "replace" or chosen.equals is None:
            raise ScimError(400, "noTarget", f"no value of {attribute.name} is selected by {operation.path[:80]}")
        hits = [{chosen.equals[0]: chosen.equals[1]}]
        changed[attribute.name] = [*held, hits[0]]
    for each in hits:
        if sub is None:
            each.update(read_value([operation.value], attribute, attribute.name)[0])
        else:
            each[sub.name] = read_value(operation.value, sub, f"{attribute.name}.{sub.name}")
