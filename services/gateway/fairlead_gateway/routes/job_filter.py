"""The filter of job lists: states, queues with everything below them, users, names, labels, projects, and how long ago they ended. Each is one
name or several joined by commas, of which one must fit.

A name that does not exist is refused: an empty list would read as "there are no such jobs". Pure.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from fairlead_gateway.access.caller import OPEN_CALLER
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError, bad_field, invalid
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_schemas.units.ids import is_queue_path, is_token
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.units.timestamps import parse_rfc3339
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.lifecycle import STATES


class _Labelled(msgspec.Struct):
    labels: dict[str, str] = {}


_labelled = msgspec.json.Decoder(_Labelled)


class JobQuery(NamedTuple):
    """Texts of a query, as a client sends them."""

    state: str = ""
    queue: str = ""
    user: str = ""
    name: str = ""
    label: str = ""
    project: str = ""
    since: str = ""
    #: False: arrays stand for their elements.
    elements: bool = True


class JobFilter(NamedTuple):
    """Conditions that all must hold; an empty one holds for every job."""

    states: frozenset[str]
    #: Paths, with every path below them that any job or queue has.
    queues: frozenset[str]
    users: frozenset[str]
    #: Login name of a principal, as users may also be named.
    name_of: Callable[[str], str]
    #: Patterns, where "*" stands for any characters.
    names: frozenset[str] = frozenset()
    #: All of them: {key: value}; None: any value.
    labels: dict[str, str | None] = {}
    projects: frozenset[str] = frozenset()
    #: Jobs that had ended before are left out (Unix ns; 0: none are).
    ended_ns: int = 0
    elements: bool = True
    #: Job file of a row.
    spec_of: Callable[[JobRow], bytes] | None = None

    def matches(self, row: JobRow) -> bool:
        """Return True if the job meets every condition."""
        return (
            (self.elements or not row.array_id)
            and (not self.states or self._is_in_state(row))
            and (not self.queues or row.queue in self.queues)
            and (not self.users or row.user in self.users or self.name_of(row.user) in self.users)
            and (not self.ended_ns or not row.ended_ns or row.ended_ns >= self.ended_ns)
            and (not self.projects or row.project in self.projects)
            and (not self.names or any(fnmatchcase(row.name, name) for name in self.names))
            and (not self.labels or self._has_labels(row))
        )

    def _is_in_state(self, row: JobRow) -> bool:
        """Return True for a job in one of the states; where arrays stand for their elements, also for one with such elements."""
        counts = {} if self.elements or row.elements is None else row.elements
        return row.state in self.states or any(counts.get(state) for state in self.states)

    def _has_labels(self, row: JobRow) -> bool:
        spec = self.spec_of(row) if self.spec_of is not None else b""
        if b'"labels"' not in spec:
            return False
        found = _labelled.decode(spec).labels
        return all(key in found and value in (None, found[key]) for key, value in self.labels.items())


def job_filter(views: Views, query: JobQuery, now_ns: int, sight: Sight | None = None) -> JobFilter:
    """Read the query's texts. Raise HttpError (422) naming the parameter, for a name that cannot be, is not there, or that the
    caller may not see. `now_ns`: Unix ns.
    """
    sight = sight or Sight(views, OPEN_CALLER)
    return JobFilter(
        _states(query.state),
        _queues(views, query.queue, sight),
        _users(views, query.user, sight),
        views.name_of,
        _names(query.name),
        _labels(query.label),
        _names(query.project),
        since_ns(query.since, now_ns),
        query.elements,
        views.jobs.spec_of,
    )


def since_ns(text: str, now_ns: int, field: str = "since") -> int:
    """Return the time of a parameter such as `since` (Unix ns; 0 for ""): an RFC 3339 time, or how long before now. Raise HttpError."""
    if not text:
        return 0
    try:
        if ":" not in text:  # "03:00" is a time of a day, and not three hours
            return max(1, now_ns - parse_duration(text))
    except QuantityError:
        pass
    try:
        # The "+" of a zone arrives as a blank if the client did not escape it.
        return parse_rfc3339(text.replace(" ", "+"))
    except ValueError:
        message = f'expected how long ago, such as "12h", or an RFC 3339 time with zone, found "{text[:40]}"'
        raise bad_field(field, message) from None


def _labels(text: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not key:
            raise bad_field("label", f'expected labels such as "team=vision" or "team", found "{part[:80]}"')
        found[key] = value if equals else None
    return found


def _states(text: str) -> frozenset[str]:
    wanted = _names(text)
    for name in sorted(wanted - STATES.keys()):
        raise bad_field("state", f'unknown state "{name[:40]}"; expected some of {", ".join(STATES)}')
    return wanted


def _queues(views: Views, text: str, sight: Sight) -> frozenset[str]:
    wanted = _names(text)
    if not wanted:
        return wanted
    # Jobs that have ended may be of a queue that was removed since.
    known = {row.path for row in views.queues.existing() if sight.queue(row.path)}
    known |= {row.queue for row in views.jobs.rows.values() if sight.job(row)}
    found = {path for path in known if any(path == name or path.startswith(f"{name}/") for name in wanted)}
    for name in sorted(wanted):
        if not any(path == name or path.startswith(f"{name}/") for path in found):
            raise _unknown_queue(name, known)
    return frozenset(found)


def _unknown_queue(name: str, known: Iterable[str]) -> HttpError:
    if not is_queue_path(name):
        return bad_field("queue", f'expected names of a-z 0-9 _ - joined by "/", found "{name[:80]}"')
    hint = did_you_mean(name, sorted(known)).removeprefix("; ") or "GET /v1/queues lists them"
    return invalid([FieldError(field="queue", message=f"there is no queue {name[:80]}")], hint=hint)


def _users(views: Views, text: str, sight: Sight) -> frozenset[str]:
    wanted = _names(text)
    if not wanted:
        return wanted
    for name in sorted(wanted):
        if not is_token(name):
            raise bad_field("user", f'expected 1 to 63 of a-z 0-9 _ -, found "{name[:80]}"')
    known = {row.user for row in views.jobs.rows.values() if sight.job(row)}
    known |= {views.name_of(user) for user in known}
    own = {sight.caller.user, views.name_of(sight.caller.user)}
    for name in sorted(wanted - known - own):
        close = get_close_matches(name, known, n=1)
        hint = (
            f"did you mean {close[0]}?" if close else "names are those of the jobs' users, as GET /v1/jobs shows them"
        )
        message = f"no job of a user {name} is known here"
        raise invalid([FieldError(field="user", message=message)], hint=hint)
    return wanted


def _names(text: str) -> frozenset[str]:
    return frozenset(part for part in text.split(",") if part)
