"""Snapshots of cores as bytes, under a name that is derived from the types of their rows. Pure.

A snapshot of another version may decode successfully: missing fields get their defaults, and the service continues from
a state that the log does not give. The obvious remedy, a version number raised by hand, is forgotten in one change of
five. The name is therefore a hash over every field of every type: under another name, the log is folded instead.

A core writes its snapshot as one document of rows: plain structs, sorted, without anything that can be derived. Start at
`SnapshotCodec`.
"""

import hashlib
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import inspect

#: Characters of the hash in a name.
HASH_CHARS = 16


class SnapshotCodec[D: msgspec.Struct]:
    """Encoder and decoder of one kind of document. Equal documents have equal bytes.

    `keeps_order`: dicts keep the order of their keys, because answers are built in it: a restored state must give the same bytes as
    the one that was folded. The document must then hold no sets. Otherwise keys are sorted.
    """

    def __init__(self, document: type[D], meaning: int, *, keeps_order: bool = False) -> None:
        #: Name of the document's shape: bytes under another name must not be decoded.
        self.schema = schema_of(document, meaning)
        self._encoder = msgspec.json.Encoder(order=None if keeps_order else "deterministic")
        self._decoder = msgspec.json.Decoder(document)

    def encode(self, document: D) -> bytes:
        """Canonical bytes of a document."""
        return self._encoder.encode(document)

    def decode(self, data: bytes) -> D:
        """The document that was encoded. Raises msgspec.MsgspecError."""
        return self._decoder.decode(data)


def row_of[R: msgspec.Struct](kind: type[R], thing: object, **given: Any) -> R:
    """Return a row: the given fields, and all others from the attributes of the same name."""
    return kind(**given, **{name: getattr(thing, name) for name in kind.__struct_fields__ if name not in given})


def fill(thing: object, row: msgspec.Struct, without: Collection[str] = ()) -> None:
    """Set the attributes of a thing to a row's fields of the same name, except those in `without`."""
    for name in row.__struct_fields__:
        if name not in without:
            setattr(thing, name, getattr(row, name))


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
