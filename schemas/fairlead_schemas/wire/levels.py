"""Levels of the log's format: which events and fields a version of Fairlead knows, and which of them may be written.

Versions run next to each other while a cluster is upgraded process by process. A reader that meets an event which it does
not know has to stop. So what a new version adds is not written until a person has raised the log's level, after every
process knows it (`fairlead upgrade raise`). Each commit states the level at which it was written (`Commit.level`), so a
reader of an older version says "newer than I know" and not "damaged".

A change that adds an event or a field after a release adds a row to `SINCE` or `FIELDS_SINCE` with the next level, and increases
`LEVEL` if the last release had it. Start at `required`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from fairlead_schemas.wire.events import Event, LevelRaised

#: Level of a log whose level was never raised.
FIRST = 1
#: The highest level that this version reads and writes.
LEVEL = 2

#: {type of event: the level from which on it may be written}. Types that are not listed: FIRST.
SINCE: Mapping[str, int] = {"LevelRaised": 2}
#: {(type of event, field): the level from which on the field may have another value than its default}.
FIELDS_SINCE: Mapping[tuple[str, str], int] = {}


class NeededLevel(NamedTuple):
    """The level that events need, and the first event or field that needs it."""

    level: int
    what: str


class LevelTooLow(ValueError):
    """A decision has an event or a field that may not be written yet."""


def required(
    events: Iterable[Event],
    since: Mapping[str, int] = SINCE,
    fields_since: Mapping[tuple[str, str], int] = FIELDS_SINCE,
) -> NeededLevel:
    """Return the level that is needed to read these events."""
    found = NeededLevel(FIRST, "")
    dated: dict[str, list[tuple[str, int]]] = {}
    for (kind, field), level in fields_since.items():
        dated.setdefault(kind, []).append((field, level))
    for event in events:
        kind = type(event).__name__
        if (level := since.get(kind, FIRST)) > found.level:
            found = NeededLevel(level, kind)
        for field, level in dated.get(kind, ()):
            if level > found.level and not _has_default(event, field):
                found = NeededLevel(level, f"{kind}.{field}")
    return found


def _has_default(event: Event, name: str) -> bool:
    field = next(field for field in msgspec.structs.fields(type(event)) if field.name == name)
    default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    return getattr(event, name) == default


def level_after(level: int, events: Iterable[Event]) -> int:
    """Return the log's level after a commit with these events. Levels never fall."""
    return max(level, *(event.level for event in events if isinstance(event, LevelRaised)), FIRST)


def check_writable(level: int, events: Iterable[Event]) -> None:
    """Raise LevelTooLow if events need a higher level than the log has."""
    needed = required(events)
    if needed.level > level:
        raise LevelTooLow(
            f"{needed.what} needs level {needed.level} of the log's format, the log has level {level}: raise it with "
            f"`fairlead upgrade raise {needed.level}` once every process knows it (`fairlead upgrade plan`)"
        )
