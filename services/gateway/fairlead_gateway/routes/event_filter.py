"""The filter of events: their type, time, job, node, user and queue. Each but the times is one name or several joined by commas, of which
one must fit; "*" in a type stands for any characters. Pure.

A filter looks at events as their reader sees them: a field that is not shown to a caller cannot be found out by a filter of it.
"""

from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, get_args

import msgspec

from fairlead_gateway.errors import bad_field, invalid
from fairlead_gateway.routes.job_filter import since_ns
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.cloudevents import type_of
from fairlead_schemas.units.ids import is_job_id, is_queue_path, is_token
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.events import Event


class EventQuery(NamedTuple):
    """Texts of a query, as a client sends them."""

    job: str = ""
    since: str = ""
    until: str = ""
    type: str = ""
    node: str = ""
    user: str = ""
    queue: str = ""


class EventConditions(NamedTuple):
    """Conditions that all must hold; an empty one holds for every event."""

    #: A job, or an array with its elements.
    job: str = ""
    #: Names of the log: "JobPlaced".
    types: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    #: With everything below them.
    queues: frozenset[str] = frozenset()
    #: Unix ns; `until_ns` 0: no end.
    since_ns: int = 0
    until_ns: int = 0

    def may_match(self, event_type: str, job: str, at_ns: int) -> bool:
        """Return False for an event that cannot meet the conditions, by what is known of it undecoded."""
        return (
            (not self.job or job == self.job or job.startswith(f"{self.job}_"))
            and (not self.types or event_type in self.types)
            and at_ns >= self.since_ns
            and (not self.until_ns or at_ns <= self.until_ns)
        )

    def matches(self, event: bytes, views: Views) -> bool:
        """Return True if a CloudEvent that may match, as its reader sees it, meets the other conditions.

        User and queue of an event about a job are also those of the job, as long as the gateway lists it.
        """
        if not (self.nodes or self.users or self.queues):
            return True
        data = _decode(event).data
        row = views.jobs.rows.get(str(data.get("job", "")))
        if self.nodes and self.nodes.isdisjoint(_nodes(data)):
            return False
        if self.users:
            users = {data.get("user"), data.get("by"), row.user if row is not None else None} - {None, ""}
            if self.users.isdisjoint({*users, *map(views.name_of, users)}):
                return False
        paths = (data.get("queue"), data.get("path"), row.queue if row is not None else None)
        return not self.queues or any(
            isinstance(path, str) and (path == queue or path.startswith(f"{queue}/"))
            for path in paths
            for queue in self.queues
        )


EVERY_EVENT = EventConditions()


class _Shown(msgspec.Struct):
    data: dict[str, Any]


_decode = msgspec.json.Decoder(_Shown).decode


def _nodes(data: dict[str, Any]) -> set[str]:
    """Return the nodes that an event names: its own, those of its parts, and those of a list."""
    found = {data.get("node")}
    for field in ("parts", "nodes"):
        value = data.get(field)
        for each in value if isinstance(value, list) else ():
            found.add(each.get("node") if isinstance(each, dict) else each)
    return {node for node in found if isinstance(node, str) and node}


def event_conditions(query: EventQuery, now_ns: int) -> EventConditions:
    """Read the query's texts. Raise HttpError (422) naming the parameter. `now_ns`: Unix ns."""
    if query.job and not is_job_id(query.job):
        raise bad_field("job", f'expected a job id such as "812", found "{query.job[:40]}"')
    nodes, users, queues = (_names(text) for text in (query.node, query.user, query.queue))
    for field, names, is_name in (
        ("node", nodes, is_token),
        ("user", users, is_token),
        ("queue", queues, is_queue_path),
    ):
        for name in sorted(names):
            if not is_name(name):
                raise bad_field(field, f'expected the name of a {field}, found "{name[:80]}"')
    begin, end = since_ns(query.since, now_ns), since_ns(query.until, now_ns, "until")
    if end and begin > end:
        raise bad_field("until", "expected a time that is not before that of since")
    return EventConditions(query.job, _types(query.type), nodes, users, queues, begin, end)


def _types(text: str) -> frozenset[str]:
    found: set[str] = set()
    for word in _names(text):
        pattern = _plain(word)
        types = [name for name in _PLAIN if fnmatchcase(name, pattern)]
        if not types:
            close = get_close_matches(pattern, _PLAIN, n=1)
            hint = f"did you mean {_dotted(_PLAIN[close[0]])}?" if close else "GET /v1/schemas/events has them all"
            message = f'there is no type of events "{word[:80]}"; expected one such as job.placed, JobPlaced or node.*'
            raise invalid([FieldError(field="type", message=message)], hint=hint)
        found.update(_PLAIN[name] for name in types)
    return frozenset(found)


def _dotted(event_type: str) -> str:
    return type_of(event_type).removeprefix("fairlead.").removesuffix(".v1")


def _plain(word: str) -> str:
    """Return one spelling for "fairlead.job.stop_requested.v1", "job.stop_requested" and "JobStopRequested"."""
    return word.lower().removeprefix("fairlead.").removesuffix(".v1").replace(".", "").replace("_", "")


#: {plain spelling: name of the log}
_PLAIN = {_plain(kind.__name__): kind.__name__ for kind in get_args(Event)}


def _names(text: str) -> frozenset[str]:
    return frozenset(part for part in text.split(",") if part)
