"""Mistakes in received data, each with the path of its field, and the collector that notes all of them.

Job files, queue files, policy files and the bodies of HTTP requests are refused in this form: a `FieldError` per
mistake, all of them in one `InvalidDocument`. `ErrorCollector` reads plain values field by field and does not stop
at the first mistake. Callers refuse a document with mistakes as a whole, so the value that it returns for a bad
field never counts. `field_error` converts the first error of a decoder, `type_errors.py` finds all of them. `misfit` and
`unknown_field` are the words of a mistake of type: expected, found, and what to write instead.

`decode` and `decode_object` decode bytes of strangers. msgspec raises UnicodeDecodeError for broken text and
RecursionError for deep nesting. A caller that expects MsgspecError would not catch these, and one such message
would stop a service for good.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Protocol, Union, cast, get_args, get_origin

import msgspec

from fairlead_schemas.units.quantities import QuantityError
from fairlead_schemas.units.suggestions import did_you_mean


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


def field_error(error: msgspec.MsgspecError, prefix: str = "", *, known: Sequence[str] = ()) -> FieldError:
    """Return a decoding error with its path: `$.resources.cpu` becomes "resources.cpu".

    `known`: the fields of the decoded type. Of a map the decoder names no key: "env[...]".
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
        message = unknown_field(unknown[1], known)
    return FieldError(field=printable(_join(prefix, path)), message=message)


def _join(prefix: str, path: str) -> str:
    if not prefix or not path or path.startswith("["):
        return prefix + path
    return f"{prefix}.{path}"


#: Characters of a wrong value that a message repeats.
SHOWN_CHARS_MAX = 60

_MAP = "a map of names and values"
_WORDS: dict[Any, str] = {str: "a word", int: "a whole number", float: "a number", bool: "true or false"}
#: {what people write for yes and no: what YAML 1.2 and JSON have}
_BOOLEANS = {
    "yes": "true",
    "on": "true",
    "1": "true",
    "true": "true",
    "no": "false",
    "off": "false",
    "0": "false",
    "false": "false",
}
#: Signs of a shell's line: it is no list of words that a program could be started with.
_SHELL = frozenset("|&;<>$`*'\"\\\n")


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
    if _is_as_encoded(payload):
        return []
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


def _is_as_encoded(payload: bytes) -> bool:
    """Return True for what the encoder makes of the payload's values, as most programs send it: it writes each key once."""
    try:
        return msgspec.json.encode(msgspec.json.decode(payload)) == payload
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        # The pass that names keys decides what this is.
        return False


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
        known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        found: dict[str, Any] = {}
        for key, one, path in self.entries(value, at):
            if key not in known:
                suggested = len(self.errors) < SUGGESTIONS_MAX
                self.wrong(path, unknown_field(key, tuple(known), elsewhere_of(kind)) if suggested else "unknown field")
            elif self._fits(one, known[key].type, path):
                found[key] = one
        if isinstance(value, dict):
            for name, field in known.items():
                if field.required and name not in value:
                    self.wrong(joined(at, name), missing_field(field.type))
        return found

    def _fits(self, value: Any, kind: Any, at: str) -> bool:
        if any(is_struct(each) for each in get_args(kind) or (kind,)) or get_origin(kind) is dict:
            return True  # looked into by its own reader
        if get_origin(kind) is list and isinstance(value, list):
            (inner,) = get_args(kind)
            fitting = [self._fits(one, inner, f"{at}[{index}]") for index, one in enumerate(cast(list[Any], value))]
            return all(fitting)
        try:
            msgspec.convert(value, kind, strict=True)
            return True
        except msgspec.ValidationError:
            self.wrong(at, misfit(value, kind))
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


# ---------------------------------------------------------------------------- mistakes of type in words


def is_struct(kind: Any) -> bool:
    """True for a struct type; False for unions, containers and instances."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union (of one type: itself), with aliases and annotations taken off, without None and UNSET."""
    plain = getattr(kind, "__value__", kind)
    if get_origin(plain) is Annotated:
        return members(get_args(plain)[0])
    if get_origin(plain) in (Union, UnionType):
        return tuple(each for one in get_args(plain) for each in members(one))
    return () if plain in (NoneType, msgspec.UnsetType) else (plain,)


def elsewhere_of(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return {word of another system: what a struct has for it}: its class variable ELSEWHERE, where it has one."""
    return getattr(kind, "ELSEWHERE", {})


#: Unknown fields of one document for which the one that was meant is sought.
SUGGESTIONS_MAX = 100
#: Known fields that a message lists next to the one that was probably meant.
KNOWN_SHOWN_MAX = 16


def unknown_field(name: str, known: Sequence[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Return the message for a field that is not among the known ones."""
    there = (elsewhere or {}).get(name)
    meant = f"; here it is {there}" if there else did_you_mean(name, known)
    if not known or (meant and len(known) > KNOWN_SHOWN_MAX):
        return f"unknown field{meant}"
    return f"unknown field; expected {', '.join(known)}{meant}"


def missing_field(kind: Any) -> str:
    """Return the message for a field without which the rest means nothing."""
    return f"{_REQUIRED}; add it with {expected(kind)}"


def expected(kind: Any) -> str:
    """Return a type in words: "a word or a whole number"."""
    *others, last = dict.fromkeys(_expected(each) for each in members(kind)) or ["another kind of value"]
    return f"{', '.join(others)} or {last}" if others else last


def _expected(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin is list:
        literals = get_origin(inner[0]) is Literal
        return (
            f"a list of {_expected(inner[0])}" if literals else "a list" if is_struct(inner[0]) else "a list of words"
        )
    if origin is dict:
        return _MAP
    if is_struct(kind):
        return f"a map with {', '.join(field.encode_name for field in msgspec.structs.fields(kind))}"
    return _WORDS.get(kind, "another kind of value")


def misfit(value: Any, kind: Any) -> str:
    """Return the message for a value that is not of a type: what was expected, what was found, and what to write instead."""
    found = "nothing" if value is None else _text(value) if type(value) in (bool, int, float) else shown(value)
    then = _remedy(value, kind)
    return f"expected {expected(kind)}, found {found}{f'; {then}' if then else ''}"


def _remedy(value: object, kind: Any) -> str:
    """Return what to do with a value of a wrong type; "" where the expectation says it all."""
    if value is None:
        return "give it a value, or leave the field out"
    written, is_list, is_map = str(value), isinstance(value, list), isinstance(value, dict)
    for each in members(kind):
        origin = get_origin(each)
        if origin is Literal:
            choices = [str(choice) for choice in get_args(each)]
            return meant if (meant := did_you_mean(written, choices).removeprefix("; ")) else "take one of them"
        if origin is list and not is_list and not is_map:
            return f"write {_listed(value)}"
        if each is str and (type(value) in (int, float) or (type(value) is bool and len(members(kind)) == 1)):
            return f'put it in quotes: "{_text(value)}"'
        if each is bool and (word := _BOOLEANS.get(written.lower())):
            return f"write {word}"
        if each is int and isinstance(value, str) and value.isdecimal():
            return f"write it without quotes: {value[:40]}"
        if is_struct(each) and (field := _fitting(value, cast(type[msgspec.Struct], each))):
            return f"write {{{field}: {_text(value)}}}"
        if origin is dict and is_list:
            return "write NAME: VALUE, each on its own line without a dash"
    return ""


def _listed(value: Any) -> str:
    """Return a line of words as a list; a shell's line is given to a shell."""
    text = _text(value)
    if not isinstance(value, str) or not text.split():
        return f"[{text}]"
    if _SHELL & set(text):
        return f"[sh, -c, {json.dumps(text, ensure_ascii=False)}]"
    return f"[{', '.join(text.split())}]"


def _fitting(value: Any, kind: type[msgspec.Struct]) -> str:
    """Return the first field of a struct that could hold a value without any other; "" for none."""
    for field in msgspec.structs.fields(kind):
        try:
            msgspec.convert({field.encode_name: value}, kind)
        except msgspec.ValidationError:
            continue
        return field.encode_name
    return ""


class Decoder[T](Protocol):
    """Interface of msgspec.json.Decoder that is used here."""

    def decode(self, buf: bytes, /) -> T: ...


def decode[T](decoder: Decoder[T], payload: bytes) -> T:
    """`decoder.decode(payload)`. Raises msgspec.MsgspecError and nothing else, whatever the bytes are."""
    try:
        return decoder.decode(payload)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(f"expected JSON in UTF-8 of ordinary depth: {type(error).__name__}") from error
