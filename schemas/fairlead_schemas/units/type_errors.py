"""All mistakes of type in plain values (of JSON or YAML), and the rest of the values without them. Pure.

msgspec stops at the first mistake, and of a map it names no key. `read` walks the values along the type, so that every
mistake is named, and its `rest` can be converted: a caller checks the meaning of it as well, and reports all mistakes at once.
Paths of mistakes in `rest` are paths of the values by `TypeReading.path`. Start at `read`.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

import msgspec

from fairlead_schemas.units.suggestions import closest
from fairlead_schemas.units.validation import (
    FieldError,
    elsewhere_of,
    field_error,
    is_struct,
    joined,
    members,
    misfit,
    missing_field,
    printable,
    unknown_field,
)

#: Mistakes of one document that are named.
TYPE_ERRORS_MAX = 100

_WRONG: Any = object()
_PARTS = re.compile(r"\[\d+\]|[^\[]+|\[")


class TypeReading(NamedTuple):
    """Mistakes of type in one document, and what can be converted of it. `rest` is None where nothing can be."""

    errors: list[FieldError]
    rest: Any
    #: {path of a list: for each element of the rest its index in the document}
    kept: dict[str, list[int]]
    #: Paths that have a value in `rest` for want of one.
    samples: list[str]

    def path(self, in_rest: str) -> str:
        """Return a path of the document, from a path of `rest`: elements of lists that were left out count again."""
        at = ""
        for part in _PARTS.findall(in_rest):
            indexes = self.kept.get(at)
            at += f"[{indexes[int(part[1:-1])]}]" if indexes and part[1:-1].isdecimal() else part
        return at

    def is_wrong(self, path: str) -> bool:
        """Return True if a value at a path, or one above or below it, has a mistake already."""
        wrong = [*self.samples, *(error.field for error in self.errors)]
        return any(_within(path, each) or _within(each, path) for each in wrong)


def _within(path: str, above: str) -> bool:
    return path == above or path.startswith((f"{above}.", f"{above}["))


def type_errors(value: Any, kind: Any) -> list[FieldError]:
    """Return the mistakes of type in plain values; at most TYPE_ERRORS_MAX, none if they can be converted."""
    return read(value, kind).errors


def read(value: Any, kind: Any) -> TypeReading:
    """Read plain values that should be of a type."""
    reader = _Reader()
    rest = reader.read(value, kind, "")
    return TypeReading(reader.errors[:TYPE_ERRORS_MAX], None if rest is _WRONG else rest, reader.kept, reader.samples)


class _Reader:
    """Mistakes so far. Methods return what can be converted of a value, `_WRONG` for nothing."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.kept: dict[str, list[int]] = {}
        self.samples: list[str] = []

    def read(self, value: Any, kind: Any, at: str) -> Any:
        """Read a value of any type."""
        if len(self.errors) >= TYPE_ERRORS_MAX:
            return _WRONG
        kinds = members(kind)
        if isinstance(value, dict):
            if struct := next((each for each in kinds if is_struct(each)), None):
                return self._struct(cast(dict[Any, Any], value), struct, at)
            if mapping := next((each for each in kinds if get_origin(each) is dict), None):
                return self._map(cast(dict[Any, Any], value), mapping, at)
        if isinstance(value, list) and (sequence := next((each for each in kinds if get_origin(each) is list), None)):
            return self._list(cast(list[Any], value), get_args(sequence)[0], at)
        return self._leaf(value, kind, at)

    def _leaf(self, value: Any, kind: Any, at: str) -> Any:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            message = misfit(value, kind)
            if " - at" not in str(error) and _only_bounds(value, kind):
                message = field_error(error).message
            self.errors.append(FieldError(field=at, message=message))
            return _WRONG
        return value

    def _map(self, value: dict[Any, Any], kind: Any, at: str) -> dict[Any, Any]:
        key_kind, value_kind = get_args(kind)
        rest: dict[Any, Any] = {}
        for key, one in value.items():
            path = joined(at, printable(str(key)))
            known, found = self._leaf(key, key_kind, path), self.read(one, value_kind, path)
            if known is not _WRONG and found is not _WRONG:
                rest[key] = found
        return rest

    def _list(self, value: list[Any], kind: Any, at: str) -> list[Any]:
        found = [self.read(one, kind, f"{at}[{index}]") for index, one in enumerate(value)]
        if any(one is _WRONG for one in found):
            self.kept[at] = [index for index, one in enumerate(found) if one is not _WRONG]
        return [one for one in found if one is not _WRONG]

    def _struct(self, value: dict[Any, Any], kind: type[msgspec.Struct], at: str) -> Any:
        known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        rest: dict[str, Any] = {}
        meant: set[str] = set()
        for key, one in value.items():
            if len(self.errors) >= TYPE_ERRORS_MAX:  # a suggestion for each of thousands of fields would take seconds
                return _WRONG
            path = joined(at, printable(str(key)))
            if key not in known:
                meant.add(elsewhere_of(kind).get(str(key), "").partition(":")[0] or closest(str(key), known))
                self._unknown(str(key), tuple(known), kind, path)
            elif (found := self.read(one, known[key].type, path)) is not _WRONG:
                rest[key] = found
        for name, field in known.items():
            if name in rest or not (field.required or (field.default is None and name in value)):
                continue
            if name not in value and name not in meant:
                self.errors.append(FieldError(field=joined(at, name), message=missing_field(field.type)))
            if (sample := _sample(field.type)) is _WRONG:
                return _WRONG
            rest[name] = sample
            self.samples.append(joined(at, name))
        return rest

    def _unknown(self, key: str, known: Sequence[str], kind: type[msgspec.Struct], path: str) -> None:
        self.errors.append(FieldError(field=path, message=unknown_field(key, known, elsewhere_of(kind))))


def _only_bounds(value: Any, kind: Any) -> bool:
    """Return True if a value has the type itself, and is only out of its bounds: msgspec's message has them."""
    return any(isinstance(each, type) and type(value) is each for each in members(kind))


def _sample(kind: Any) -> Any:
    """Return a value in place of a wrong one that the rest depends on, so that its meaning can be checked."""
    for each in members(kind):
        if get_origin(each) is Literal:
            return get_args(each)[0]
        if get_origin(each) is list and str in members(get_args(each)[0]):
            return ["x"]
        if get_origin(each) is dict:
            return {}
        if each in (int, str):
            return each("1")
    return None if None.__class__ in get_args(kind) else _WRONG
