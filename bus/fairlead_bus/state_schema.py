"""Names for the shapes of snapshots, derived from the types of which a snapshot is made. Pure.

A snapshot of another version may decode successfully: missing fields get their defaults, and the service continues from
a state that the log does not give. The obvious remedy, a version number raised by hand, is forgotten in one change of
five. The name is therefore a hash over every field of every type: under another name, the log is folded instead.
"""

import hashlib
from typing import Any

import msgspec
from msgspec import inspect

#: Characters of the hash in a name.
HASH_CHARS = 16


def schema_of(document: type, meaning: int) -> str:
    """Return the name of a document's shape: "<meaning>-<hash>". `meaning` is raised by hand where a field changes its meaning
    and keeps its type.
    """
    text = "\n".join(described(document))
    return f"{meaning}-{hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]}"


def described(document: type) -> list[str]:
    """The structured types that a document reaches, sorted: name and encoding, then a line for each field."""
    found: dict[type, list[str]] = {}
    _describe(inspect.type_info(document), found)
    return [line for lines in sorted(found.values()) for line in lines]


def _describe(kind: inspect.Type, found: dict[type, list[str]]) -> str:
    """A type in words; structured ones by their names, with a line each."""
    match kind:
        case inspect.StructType():
            encoding = f"array={kind.array_like} tag={kind.tag_field}:{kind.tag}"
            return _structured(kind.cls, kind.fields, encoding, found)
        case inspect.NamedTupleType() | inspect.TypedDictType() | inspect.DataclassType():
            return _structured(kind.cls, kind.fields, type(kind).__name__, found)
        case inspect.UnionType():
            return "|".join(sorted(_describe(each, found) for each in kind.types))
        case inspect.LiteralType():
            return f"literal{sorted(map(repr, kind.values))}"
        case inspect.EnumType():
            return f"enum{sorted(repr(each.value) for each in kind.cls)}"
        case inspect.DictType():
            return f"dict[{_describe(kind.key_type, found)},{_describe(kind.value_type, found)}]"
        case inspect.TupleType():
            return f"tuple[{','.join(_describe(each, found) for each in kind.item_types)}]"
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return f"{type(kind).__name__}[{_describe(kind.item_type, found)}]"
        case inspect.CustomType():
            return kind.cls.__name__
        case _:
            return type(kind).__name__


def _structured(cls: type, fields: tuple[inspect.Field, ...], encoding: str, found: dict[type, list[str]]) -> str:
    if cls not in found:
        lines = found[cls] = [f"{cls.__name__} {encoding}"]  # before its fields: types may refer to themselves
        lines += [f"  {each.encode_name}: {_describe(each.type, found)} = {_default(each)}" for each in fields]
    return cls.__name__


def _default(field: inspect.Field) -> str:
    """A field's default: what bytes without the field mean."""
    if field.required:
        return "required"
    value: Any = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return msgspec.json.encode(value, order="deterministic").decode()
