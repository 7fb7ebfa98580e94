"""Places in files: the line of every field of a YAML or JSON text, and mistakes with their lines.

`Document` is the values of one document and remembers where they stand; a copy of it (`copy.copy`) does too. Lines are
sought only once there is a mistake. Start at `refusal`.
"""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fairlead.errors import InputRefused
from fairlead_schemas.units.validation import FieldError, joined, printable

#: Mistakes that are shown of one file.
SHOWN_MAX = 100


class Origin(NamedTuple):
    """Place of one document: the file's name and text, and the document's number in it (from 0)."""

    name: str
    text: str
    number: int = 0
    #: {field of a job file: the field of the document that it was made of}, where the two differ.
    renamed: Mapping[str, str] = {}


class Document(dict[str, Any]):
    """Values of one document, with their origin if they are of a file."""

    origin: Origin | None = None


def with_origin(values: Mapping[str, Any], origin: Origin) -> Document:
    """Return the values with their origin."""
    found = Document(values)
    found.origin = origin
    return found


def origin_of(values: object) -> Origin | None:
    """Return the origin of a document; None for plain values."""
    return values.origin if isinstance(values, Document) else None


def refusal(title: str, faulty: Sequence[tuple[object, Iterable[FieldError]]]) -> InputRefused:
    """Return the error with every mistake of (document, mistakes) pairs, each with its line where one is known."""
    lines: list[str] = []
    for values, errors in faulty:
        origin = origin_of(values)
        places = field_lines(origin) if origin else {}
        for error in errors:
            field = theirs(error.field, origin.renamed) if origin else error.field
            named = f"{printable(field)}: {error.message}" if field else error.message
            line = 0 if _is_option(error.field, field, values, places) else _line(field, places)
            lines.append(f"  {origin.name} line {line}: {named}" if origin and line else f"  {named}")
    if len(lines) > SHOWN_MAX:
        lines[SHOWN_MAX:] = [f"  and {len(lines) - SHOWN_MAX} more"]
    return InputRefused("\n".join([title, *lines]))


@contextmanager
def with_lines(documents: Sequence[object]) -> Generator[None]:
    """Give the mistakes that a server named in the documents (one, or a list with paths such as "[2].queue") their lines."""
    try:
        yield
    except InputRefused as error:
        named = error.problem.errors if error.problem else []
        if not named or not any(origin_of(each) for each in documents):
            raise
        hint = "" if error.hint.startswith("GET ") else error.hint  # a path of the API: the fields are named already
        faulty = [_named_by_server(documents, each.get("field", ""), each.get("message", "")) for each in named]
        raise InputRefused(
            str(refusal("the cluster refused the job", faulty)), hint=hint, problem=error.problem
        ) from error


def _named_by_server(documents: Sequence[object], field: str, message: str) -> tuple[object, list[FieldError]]:
    number, inside = 0, field
    if len(documents) > 1 and (match := re.match(r"\[(\d{1,6})\]\.?(.*)", field, re.DOTALL)):
        number, inside = int(match[1]), match[2]
    found = documents[number] if number < len(documents) else None
    return found, [FieldError(field=inside, message=printable(message))]


def theirs(field: str, renamed: Mapping[str, str]) -> str:
    """Return the document's own word for a field of a job file, by the longest known beginning."""
    for end in _ends(field):
        if end in renamed:
            return renamed[end] + field[len(end) :]
    return field


def _is_option(ours: str, field: str, values: object, places: Mapping[str, int]) -> bool:
    """Return True for a field that the document does not have, and the job has: it is of the command line."""
    top = re.split(r"[.\[]", ours, maxsplit=1)[0]
    return ours == field and top not in places and isinstance(values, Document) and top in values


def _line(field: str, places: Mapping[str, int]) -> int:
    """Return the line of a field, or of the nearest that contains it: a missing field has none."""
    return next((places[end] for end in _ends(field) if end in places), places.get("", 0))


def _ends(field: str) -> Iterable[str]:
    """Yield a path, and the paths above it, the longest first. Names contain dots, so that some of them do not exist."""
    yield field
    for at in range(len(field) - 1, 0, -1):
        if field[at] in ".[":
            yield field[:at]


def field_lines(origin: Origin) -> dict[str, int]:
    """Return {path: line} of a document, and under "" its first line. The text is known to be readable."""
    import yaml

    from fairlead.jobfile.yaml_text import Loader

    nodes = [node for node in yaml.compose_all(origin.text, Loader) if node.tag != "tag:yaml.org,2002:null"]
    if len(nodes) == 1 and isinstance(nodes[0], yaml.SequenceNode):
        nodes = nodes[0].value
    if origin.number >= len(nodes):
        return {}
    found = {"": nodes[origin.number].start_mark.line + 1}
    _collect(nodes[origin.number], "", found)
    return found


def _collect(node: Any, at: str, found: dict[str, int]) -> None:
    if isinstance(node.value, str):
        return
    for index, child in enumerate(node.value):
        key, value = child if isinstance(child, tuple) else (child, child)
        path = joined(at, printable(str(key.value))) if isinstance(child, tuple) else f"{at}[{index}]"
        found[path] = key.start_mark.line + 1
        _collect(value, path, found)
