"""Mistakes in received data, each with the path of its field, and the collector that notes all of them.

Job files, queue files, policy files and the bodies of HTTP requests are refused in this form: a `FieldError` per
mistake, all of them in one `InvalidDocument`. `ErrorCollector` reads plain values field by field and does not stop
at the first mistake. Callers refuse a document with mistakes as a whole, so the value that it returns for a bad
field never counts. `field_error` converts the first error of a decoder, `type_errors` finds all of them.

`decode` and `decode_object` decode bytes of strangers. msgspec raises UnicodeDecodeError for broken text and
RecursionError for deep nesting. A caller that expects MsgspecError would not catch these, and one such message
would stop a service for good.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from types import UnionType
from typing import Any, Protocol, Union, cast, get_args, get_origin

import msgspec

from fairlead_schemas.units.quantities import QuantityError

#: Errors of one document that `type_errors` returns.
TYPE_ERRORS_MAX = 100


class FieldError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Mistake in received data, with the path of its field."""

    field: str  # path, such as "resources.cpu"; "" for the whole
    message: str


class InvalidDocument(ValueError):
    """A document was refused as a whole; `errors` names each path in it, what was expected and what was found."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.message}" if e.field else e.message for e in errors))
        self.errors = errors


class InvalidJob(InvalidDocument):
    """A job file was refused."""


#: Characters of a name that an error shows.
NAME_SHOWN_MAX = 80


def printable(text: str) -> str:
    """Return text with line breaks and other characters that are not printable spelled out, as in `a\\nb`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown_name(name: str) -> str:
    """Return a name as an error shows it: printable, and its first NAME_SHOWN_MAX characters."""
    return printable(name[:NAME_SHOWN_MAX])


_PATH = re.compile(r"^(.*?)(?: - at `(.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_REQUIRED = "required field is missing"
_UNKNOWN_IN_JOB = "unknown field; see GET /v1/schemas/job for the fields of a job file"


def field_error(error: msgspec.MsgspecError, prefix: str = "", *, known: Sequence[str] = ()) -> FieldError:
    """Return a decoding error with its path: `$.resources.cpu` becomes "resources.cpu".

    `known`: the fields of the decoded type, unless it is a job file. Of a map the decoder names no key: "env[...]".
    """
    match = _PATH.match(str(error))
    message, path = (match[1], match[2] or "$") if match else (str(error), "$")
    path = path.removeprefix("$").removeprefix(".")
    unknown, missing = _UNKNOWN.match(message), _MISSING.match(message)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
        message = _REQUIRED
    if unknown:
        path = f"{path}.{unknown[1]}" if path else unknown[1]
        message = f"unknown field; expected {', '.join(known)}" if known else _UNKNOWN_IN_JOB
    return FieldError(field=printable(_join(prefix, path)), message=message)


def _join(prefix: str, path: str) -> str:
    if not prefix or not path or path.startswith("["):
        return prefix + path
    return f"{prefix}.{path}"


def type_errors(value: Any, kind: Any) -> list[FieldError]:
    """Return the errors of plain values that msgspec does not convert to the type of a job file, with keys of maps named.

    msgspec itself stops at the first one. At most TYPE_ERRORS_MAX; none if the value can be converted.
    """
    return list(islice(_type_errors(value, kind, ""), TYPE_ERRORS_MAX))


def _type_errors(value: Any, kind: Any, at: str) -> Iterator[FieldError]:
    match value:
        case dict() if struct := _member(kind, _is_struct):
            yield from _struct_errors(cast(dict[Any, Any], value), struct, at)
        case dict() if mapping := _member(kind, lambda each: get_origin(each) is dict):
            key_kind, value_kind = get_args(mapping)
            for key, one in cast(dict[Any, Any], value).items():
                path = joined(at, printable(str(key)))
                yield from _type_errors(key, key_kind, path)
                yield from _type_errors(one, value_kind, path)
        case list() if sequence := _member(kind, lambda each: get_origin(each) is list):
            for index, one in enumerate(cast(list[Any], value)):
                yield from _type_errors(one, get_args(sequence)[0], f"{at}[{index}]")
        case _:
            try:
                msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                yield field_error(error, at)


def _struct_errors(value: dict[Any, Any], struct: Any, at: str) -> Iterator[FieldError]:
    known = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for key, one in value.items():
        path = joined(at, printable(str(key)))
        if key in known:
            yield from _type_errors(one, known[key].type, path)
        else:
            yield FieldError(field=path, message=_UNKNOWN_IN_JOB)
    for name, field in known.items():
        if field.required and name not in value:
            yield FieldError(field=joined(at, name), message=_REQUIRED)


def _member(kind: Any, matches: Callable[[Any], bool]) -> Any:
    """Return the first member of a union (or the type itself) that matches, else None."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return next((each for each in members if matches(each)), None)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


#: Characters of a wrong value that a message repeats.
SHOWN_CHARS_MAX = 60

_MAP = "a map of names and values"
_WORDS: dict[Any, str] = {
    str: "a word",
    int: "a whole number",
    bool: "true or false",
    list[str]: "a list of names",
    str | int: "a word or a number",
    str | int | float: "a word or a number",
}


class Object(dict[str, Any]):
    """A JSON object, and the keys that stood in it more than once."""

    twice: tuple[str, ...] = ()


def decode_object(payload: bytes) -> Any:
    """JSON whose objects are `Object`. Raises msgspec.MsgspecError, whatever the bytes are."""
    try:
        msgspec.json.decode(payload)  # stricter than the other: no NaN, no comments, UTF-8 only
        return json.loads(payload, object_pairs_hook=_object)
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, msgspec.MsgspecError):
            raise
        raise msgspec.DecodeError(f"expected JSON in UTF-8 of ordinary depth: {type(error).__name__}") from error


def _object(pairs: list[tuple[str, Any]]) -> Object:
    found = Object(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        found.twice = tuple(key for key, _ in pairs if key in seen or seen.add(key))
    return found


def repeated_keys(payload: bytes) -> list[str]:
    """Return the paths of keys that stand more than once in their object; decoders silently take the last.

    `payload` is valid JSON. One pass for the usual document without any.
    """
    found: list[Object] = []

    def keep(pairs: list[tuple[str, Any]]) -> Any:
        plain = dict(pairs)
        if len(plain) == len(pairs):
            return plain
        made = _object(pairs)
        found.append(made)
        return made

    document = json.loads(payload, object_pairs_hook=keep)
    return list(_repeated("", document)) if found else []


def _repeated(at: str, value: Any) -> Iterator[str]:
    if isinstance(value, Object):
        yield from (joined(at, key) for key in dict.fromkeys(value.twice))
    if isinstance(value, dict):
        for key, inner in cast(dict[str, Any], value).items():
            yield from _repeated(joined(at, key), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(cast(list[Any], value)):
            yield from _repeated(f"{at}[{index}]", inner)


def joined(at: str, key: str) -> str:
    """The path of a key below a path."""
    return f"{at}.{key}" if at else key


def shown(value: Any) -> str:
    """A value as people wrote it, in quotes and cut."""
    return f'"{_text(value)}"'


def _full_text(value: Any) -> str:
    if isinstance(value, str) or type(value) in (int, float):  # a bool is encoded as JSON
        return str(value)
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except OverflowError:  # an integer beyond 64 bits inside of it
        return str(value)


def _text(value: Any) -> str:
    text = _full_text(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


#: Longer quantities are parsed each time, so that no client can fill the memory with them.
REMEMBERED_CHARS_MAX = 32


@lru_cache(4096)
def _remembered(parse: Callable[[str], int], text: str) -> int:
    """Parse a quantity. A cluster's jobs contain the same few, and parsing one costs as much as decoding a small job."""
    return parse(text)


class ErrorCollector:
    """State of reading one document. Every method notes mistakes and returns a value of the right type."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def wrong(self, at: str, message: str) -> None:
        """Note a mistake."""
        self.errors.append(FieldError(field=at, message=message))

    def add(self, *faults: FieldError) -> None:
        """Note mistakes that another check found, except at paths that have one already."""
        for fault in faults:
            if not self.has(fault.field):
                self.errors.append(fault)

    def has(self, at: str) -> bool:
        """Return True if a mistake was noted at this path."""
        return any(error.field == at for error in self.errors)

    def refuse(self, kind: type[InvalidDocument]) -> None:
        """Raise the exception with every mistake, if there is one."""
        if self.errors:
            raise kind(self.errors)

    def entries(self, value: Any, at: str) -> Iterator[tuple[str, Any, str]]:
        """(key, value, path) of a map, keys as text."""
        if not isinstance(value, dict):
            self.wrong(at, f"expected {_MAP}, found {shown(value)}")
            return
        for key in value.twice if isinstance(value, Object) else ():
            self.wrong(joined(at, key), "is given twice; keep one of them")
        for key, one in cast(Mapping[Any, Any], value).items():
            yield str(key), one, joined(at, str(key))

    def fields(self, value: Any, kind: type[msgspec.Struct], at: str) -> dict[str, Any]:
        """Return {field: value} for the fields that the struct has and whose values have the right type. Nested maps are
        not checked. Missing mandatory fields are noted.
        """
        known = {field.name: field for field in msgspec.structs.fields(kind)}
        found: dict[str, Any] = {}
        for key, one, path in self.entries(value, at):
            if key not in known:
                meant = get_close_matches(key, known, 1)
                self.wrong(
                    path, f"unknown field; expected {', '.join(known)}{f'; did you mean {meant[0]}?' if meant else ''}"
                )
            elif self._fits(one, known[key].type, path):
                found[key] = one
        if isinstance(value, dict):
            for name, field in known.items():
                if field.required and name not in value:
                    self.wrong(joined(at, name), _REQUIRED)
        return found

    def _fits(self, value: Any, kind: Any, at: str) -> bool:
        if any(_is_struct(each) for each in get_args(kind) or (kind,)) or get_origin(kind) is dict:
            return True  # looked into by its own reader
        try:
            msgspec.convert(value, kind, strict=True)
            return True
        except msgspec.ValidationError:
            self.wrong(at, f"expected {_expected(kind)}, found {shown(value)}")
            return False

    def whole(self, value: Any, at: str, least: int, most: int, hint: str = "") -> int:
        """A whole number within bounds, both included. `hint`: what to do instead."""
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        then = f"; {hint}" if hint else ""
        self.wrong(at, f"expected a whole number from {least} to {most}, found {shown(value)}{then}")
        return least

    def amount(self, parse: Callable[[str], int], value: Any, at: str, otherwise: int = 0) -> int:
        """Return a quantity in integers, read by a parser such as those of `quantities`; `otherwise` if it is unreadable."""
        text = value if isinstance(value, str) else _full_text(value)
        try:
            return _remembered(parse, text) if len(text) <= REMEMBERED_CHARS_MAX else parse(text)
        except QuantityError as error:
            long = len(text) > SHOWN_CHARS_MAX
            self.wrong(at, str(error).replace(text, _text(text)) if long else str(error))
            return otherwise

    def names(
        self, values: Sequence[str], at: str, *, valid: Callable[[str], bool], what: str, most: int
    ) -> tuple[str, ...]:
        """A list of at most so many names, each once."""
        seen: set[str] = set()
        for index, name in enumerate(values):
            if not valid(name):
                self.wrong(f"{at}[{index}]", f"expected {what}, found {shown(name)}")
            elif name in seen:
                self.wrong(f"{at}[{index}]", f"{shown(name)} is given twice; keep one of them")
            seen.add(name)
        if len(values) > most:
            self.wrong(at, f"expected at most {most} names, found {len(values)}")
        return tuple(values)


def _expected(kind: Any) -> str:
    plain = getattr(kind, "__value__", kind)  # the type behind an alias
    choices = get_args(plain)
    if choices and all(isinstance(choice, str) for choice in choices):
        return f"one of {', '.join(choices)}"
    return _WORDS.get(plain, "another kind of value")


class Decoder[T](Protocol):
    """Interface of msgspec.json.Decoder that is used here."""

    def decode(self, buf: bytes, /) -> T: ...


def decode[T](decoder: Decoder[T], payload: bytes) -> T:
    """`decoder.decode(payload)`. Raises msgspec.MsgspecError and nothing else, whatever the bytes are."""
    try:
        return decoder.decode(payload)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"expected JSON in UTF-8 of ordinary depth: {type(error).__name__}") from error
