"""Names of a log replaced: the same name by the same replacement everywhere, free text by nothing. Pure.

    names = NameBook()
    for commit in log: names.note(commit)
    plain = names.disguised(commit)

What is kept is listed (`KEPT`): numbers, closed words, hardware. Every other text is a name or free text, so that a new field of
an event is replaced until somebody decides otherwise. Replacements have the order of the names, since the cores break ties by
names: a disguised log is decided as the log itself was.
"""

import re
import typing
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec

from fairlead_replay.whatif.commands import CMD_PREFIX, NO_FILE
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.units.selectors import Requirement, SelectorError, parse
from fairlead_schemas.units.taints import parse_pattern
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

#: Fields whose texts are hardware, closed words or names of resources; they say nothing of people.
KEPT = frozenset(
    [
        "amounts",
        "borrowing",
        "code",
        "cpus",
        "currency",
        "gpu_fault",
        "guaranteed",
        "lending",
        "level",
        "maximum",
        "model",
        "nics",
        "packing",
        "prefer",
        "prices",
        "profile",
        "reasons",
        "require",
        "resource",
        "runtime",
        "score",
        "sequencer",
        "signal",
        "verb",
    ]
)
#: Fields of free text, and of secrets' names: nothing is left of them.
DROPPED = frozenset(["act_as", "digest", "evidence", "field", "image", "key", "message", "note", "reason", "via"])
#: Fields of addresses; every node has the same.
ADDRESSES = frozenset({"address", "master_address"})
#: Kinds of names, by field. A name that several kinds share has the replacement of the first.
KINDS: dict[str, str] = {
    **dict.fromkeys(("node", "nodes", "hostname", "released"), "node"),
    **dict.fromkeys(("queue", "path", "move_to"), "queue"),
    **dict.fromkeys(("user", "users", "by", "principal"), "user"),
    **dict.fromkeys(("project", "projects"), "project"),
    "pool": "pool",
    "command": "c",
    "name": "name",
}
_ORDER = ("node", "queue", "user", "project", "pool", "name", "c", "word")
#: Words that mean the same in every cluster.
_COMMON = frozenset({"", "*", DEFAULT_POOL, "global", "local", "person"})
_JOB = re.compile(r"\d{1,19}(_\d{1,9})?\Z")
_PLACE = re.compile(r"(clock|\d{1,19}\.\d{1,9})?\Z")
#: Fields of jobs' ids, which count from 1.
JOBS = frozenset(["about", "alike", "beneficiary", "guest_of", "holder", "job", "jobs", "waits_for", "windows"])
#: Labels whose values are hardware, too.
_HARDWARE = (
    "nvidia.com/",
    "fairlead/runtime",
    "fairlead/devices",
    "fairlead/simulated",
    "fairlead/gpu-",
    "fairlead/ecc",
    "fairlead/mig",
    "fairlead/numa",
    "fairlead/spot",
    "fairlead/unhealthy",
    "fairlead/system-cpus",
)
_REPORT = "report:"
_REPORT_CURSOR = "report."

type _Replace = Callable[[str, str], str]


class NameBook:
    """Names of a log, and their replacements."""

    def __init__(self) -> None:
        #: {name: its kinds}
        self._kinds: dict[str, set[str]] = {}
        self._replacements: dict[str, str] | None = None

    def note(self, commit: Commit) -> None:
        """Take note of a commit's names; all commits are noted before one is disguised."""
        self._walk(commit, self._note)

    def disguised(self, commit: Commit) -> Commit:
        """Return a commit with its names replaced. What people were granted is left out."""
        return self._walk(commit, self._replaced)

    def replacements(self) -> dict[str, str]:
        """Return {name: replacement}, for the owner of the log."""
        if self._replacements is None:
            self._replacements = {}
            by_kind: dict[str, list[str]] = {}
            for name, kinds in self._kinds.items():
                by_kind.setdefault(min(kinds, key=_ORDER.index), []).append(name)
            for kind, names in by_kind.items():
                digits = len(str(len(names)))
                for number, name in enumerate(sorted(names), start=1):
                    self._replacements[name] = f"{kind}-{number:0{digits}}"
        return self._replacements

    def _note(self, name: str, kind: str) -> str:
        if name not in _COMMON:
            self._kinds.setdefault(name, set()).add(kind)
        return name

    def _replaced(self, name: str, kind: str) -> str:
        return name if name in _COMMON else self.replacements()[name]

    def _walk(self, commit: Commit, replace: _Replace) -> Commit:
        cursors = {_cursor(name, replace): at for name, at in commit.cursors.items()}
        events = [] if commit.writer == "access" else [_event(event, replace) for event in commit.events]
        return msgspec.structs.replace(commit, cursors=cursors, events=events)


def _cursor(name: str, replace: _Replace) -> str:
    node = name.removeprefix(_REPORT_CURSOR)
    return f"{_REPORT_CURSOR}{replace(node, 'node')}" if node != name else name


def _event(event: ev.Event, replace: _Replace) -> ev.Event:
    found = _struct(event, replace)
    return msgspec.structs.replace(found, cause=_cause(event.cause, replace), authority=None)


def _cause(cause: str, replace: _Replace) -> str:
    if cause.startswith(CMD_PREFIX):
        return CMD_PREFIX + replace(cause.removeprefix(CMD_PREFIX), "c")
    if cause.startswith(_REPORT):
        node, _, number = cause.removeprefix(_REPORT).rpartition(":")
        return f"{_REPORT}{replace(node, 'node')}:{number if number.isdecimal() else 0}"
    return cause if _PLACE.match(cause) else replace(cause, "word")


def _struct(value: Any, replace: _Replace) -> Any:
    closed = _closed(type(value))
    changed = {
        field: _value(field, getattr(value, field), replace)
        for field in value.__struct_fields__
        if field not in closed and field not in ("cause", "authority")
    }
    return msgspec.structs.replace(value, **changed)


@cache
def _closed(kind: type) -> frozenset[str]:
    """Return the fields of a struct whose texts are of a closed list."""
    return frozenset(
        name for name, hint in typing.get_type_hints(kind).items() if not any(map(_is_open, _leaves(hint)))
    )


def _is_open(hint: Any) -> bool:
    return hint is str or hint is msgspec.Raw or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))


def _leaves(hint: Any) -> Iterator[Any]:
    if isinstance(hint, typing.TypeAliasType):
        yield from _leaves(hint.__value__)
    elif typing.get_origin(hint) is not typing.Literal:
        below = [
            each
            for each in typing.get_args(hint)
            if isinstance(each, type | typing.TypeAliasType) or typing.get_origin(each)
        ]
        for each in below:
            yield from _leaves(each)
        if not below:
            yield hint


def _value(field: str, value: Any, replace: _Replace) -> Any:
    match value:
        case str():
            return _text(field, value, replace)
        case msgspec.Raw():
            return NO_FILE
        case msgspec.Struct():
            return _struct(value, replace)
        case dict() if field == "labels":
            return dict(_labels(value, replace))
        case dict() if field in KEPT:
            return value
        case dict():
            below = "amounts" if field == "users" else ""
            return {_text(field, key, replace): _value(below, each, replace) for key, each in value.items()}
        case tuple() if field in ("selector", "tolerations", "want"):
            return tuple(sorted(_value(field, each, replace) for each in value))
        case tuple():
            return () if field in DROPPED else tuple([_value(field, each, replace) for each in value])
        case _:
            return value


def _text(field: str, text: str, replace: _Replace) -> str:
    if not text or field in KEPT or (field in JOBS and _JOB.match(text)):
        return text
    if field in DROPPED:
        return ""
    if field in ADDRESSES:
        return "127.0.0.1"
    if field in ("queue", "path", "move_to"):
        return "/".join(replace(part, "queue") for part in text.split("/"))
    if field in ("scope", "subject"):
        kind, colon, name = text.partition(":")
        return (
            f"{kind}:{'/'.join(replace(part, KINDS.get(kind, 'word')) for part in name.split('/'))}"
            if colon
            else replace(text, "word")
        )
    if field in ("selector", "want"):
        return _requirement(text, replace)
    if field in ("taint", "taints", "tolerations"):
        return _taint(text, replace)
    return replace(text, KINDS.get(field, "word"))


def _labels(labels: dict[str, str], replace: _Replace) -> Iterator[tuple[str, str]]:
    for key, value in labels.items():
        yield _key(key, replace), value if key.startswith(_HARDWARE) else replace(value, "word")


def _key(key: str, replace: _Replace) -> str:
    return key if key.startswith(("nvidia.com/", "fairlead/")) else replace(key, "word")


def _requirement(text: str, replace: _Replace) -> str:
    try:
        found = parse(text)
    except SelectorError:
        return replace(text, "word")
    kept = found.key.startswith(_HARDWARE) or found.operator in ("<", "<=", ">", ">=")
    values = found.values if kept else tuple([replace(each, "word") for each in found.values])
    return Requirement(_key(found.key, replace), found.operator, values).text


def _taint(text: str, replace: _Replace) -> str:
    found = parse_pattern(text)
    value = found.value and replace(found.value, "word")
    replaced = found._replace(key=found.key and _key(found.key, replace), value=value)
    head = f"{replaced.key}={replaced.value}" if replaced.value else replaced.key
    return f"{head}:{replaced.effect}" if ":" in text else head
