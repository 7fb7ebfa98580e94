"""Read what people wrote field by field, noting every mistake at its path instead of stopping at the first.

`Reading.errors` holds what is wrong; a reading that has errors is refused as a whole, so what the readers give
for a bad value never counts. `decode_object` keeps track of keys that stand twice, which JSON allows and people
do not mean.

Mistakes in received data, each with the path of its field.

Job files, queue files and the bodies of HTTP requests are refused in this form. `field_error` converts a
decoder's error.

Decode bytes of strangers: whatever is wrong with them is one kind of error.

msgspec raises UnicodeDecodeError for broken text and RecursionError for deep nesting, which a
caller who expects MsgspecError would not catch: one such message would then stop a service for good.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Protocol, cast, get_args, get_origin

import msgspec

from fairlead_schemas.units.quantities import QuantityError


class FieldError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Mistake in received data, with the path of its field."""

    field: str  # path, such as "resources.cpu"; "" for the whole
    message: str


class InvalidJob(ValueError):
    """A job file was refused; `errors` names each field, what was expected and what was found."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.message}" if e.field else e.message for e in errors))
        self.errors = errors


def printable(text: str) -> str:
    """Return text with line breaks and other characters that are not printable spelled out, as in `a\\nb`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


_PATH = re.compile(r"^(.*?)(?: - at `(.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


def field_error(error: msgspec.MsgspecError, prefix: str = "", *, known: Sequence[str] = ()) -> FieldError:
    """The path and the words of a decoding error: `$.resources.cpu` becomes "resources.cpu".

    `known`: the fields of what was decoded, where that is no job file.
    """
    match = _PATH.match(str(error))
    message, path = (match[1], match[2] or "$") if match else (str(error), "$")
    path = path.removeprefix("$").removeprefix(".")
    unknown, missing = _UNKNOWN.match(message), _MISSING.match(message)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
        message = "required field is missing"
    if unknown:
        path = f"{path}.{unknown[1]}" if path else unknown[1]
        there = f"expected {', '.join(known)}" if known else "see GET /v1/schemas/job for the fields of a job file"
        message = f"unknown field; {there}"
    return FieldError(field=printable(_join(prefix, path)), message=message)


def _join(prefix: str, path: str) -> str:
    if not prefix or not path or path.startswith("["):
        return prefix + path
    return f"{prefix}.{path}"


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


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


class ErrorCollector:
    """State of reading one text. Every method notes mistakes and returns a value of the right type."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def wrong(self, at: str, message: str) -> None:
        """Note a mistake."""
        self.errors.append(FieldError(field=at, message=message))

    def has(self, at: str) -> bool:
        """Return True if a mistake was noted at this path."""
        return any(error.field == at for error in self.errors)

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
                    self.wrong(joined(at, name), "required field is missing")
        return found

    def _fits(self, value: Any, kind: Any, at: str) -> bool:
        if any(_is_map(each) for each in get_args(kind) or (kind,)) or get_origin(kind) is dict:
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

    def quantity(self, parse: Callable[[str], int], value: Any, at: str) -> int:
        """A quantity in its own words, by one of the parsers of `quantities`."""
        try:
            return parse(str(value) if isinstance(value, float) else _text(value))
        except QuantityError as error:
            self.wrong(at, str(error))
            return 0

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


def _is_map(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


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
