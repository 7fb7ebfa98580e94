"""YAML and JSON as people write job, queue and policy files, read without surprises. Pure.

Start at `read_yaml`. `Loader` is YAML's safe loader without aliases, tags and YAML 1.1's types.
"""

import re
from typing import Any

import yaml

from fairlead.errors import InputRefused

DOCUMENTS_MAX = 1000


def read_yaml(text: str, name: str) -> list[Any]:
    """Every document of a YAML (or JSON) text, by the safe loader below. Raises Refused."""
    try:
        documents = [document for document in yaml.load_all(text, Loader) if document is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: an escape that names no character
        raise InputRefused(f"{name}: expected YAML or JSON: {_what_is_wrong(error)}") from error
    if len(documents) > DOCUMENTS_MAX:
        raise InputRefused(f"{name}: expected at most {DOCUMENTS_MAX} documents, found {len(documents)}")
    return documents


def _what_is_wrong(error: Exception) -> str:
    """Return one line with the fault and its place in the text. YAML's excerpt is left out: it needs lines of its own."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark is not None:
        problem = f"{error.context}: {error.problem}" if error.context else error.problem
        return f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}: {problem}"
    return " ".join(str(error).replace('in "<unicode string>", ', "").split()) or "nested too deeply"


#: Characters of an integer: 20 digits and a sign.
INTEGER_CHARS_MAX = 21
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")


class Loader(yaml.SafeLoader):
    """YAML's safe loader without aliases (one line can grow to gigabytes) and without YAML 1.1's surprises.

    `2:00` stays text (not 120), `no` stays text (not False), times stay text, and `0.5` stays text,
    because quantities are read by our own parsers, exactly. A key given twice is refused.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        if problem := _unacceptable(event):
            raise yaml.MarkedYAMLError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int):
                raise yaml.MarkedYAMLError(None, None, "expected a plain word as a key", key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(None, None, f'the field "{key}" is given twice', key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _unacceptable(event: Any) -> str:
    """Return why a node is refused before it is read; "" if it is accepted."""
    if isinstance(event, yaml.AliasEvent):
        return "aliases (*name) are not accepted"
    if getattr(event, "tag", None) not in (None, "!", "tag:yaml.org,2002:str"):
        return f"tags such as {event.tag[-40:]} are not accepted: types follow from the field"
    if isinstance(event, yaml.ScalarEvent):
        if event.style is None and len(event.value) > INTEGER_CHARS_MAX and _INTEGER.match(event.value):
            return "expected a number of at most 64 bits"
        if any("\ud800" <= char <= "\udfff" for char in event.value):
            return "expected text, found half of a character (a lone surrogate)"
    return ""


def _resolve_plainly() -> None:
    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z"), list("tf"))
    Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
    Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|)\Z"), ["~", "n", ""])


_resolve_plainly()
