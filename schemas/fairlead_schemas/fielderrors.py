"""Mistakes in received data, each with the path of its field.

Job files, queue files and the bodies of HTTP requests are refused in this form. `field_error` converts a
decoder's error.
"""

import re
from collections.abc import Sequence

import msgspec


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
