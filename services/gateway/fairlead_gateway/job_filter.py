"""The filter of job lists: states, queues with everything below them, users; each one name or several joined by commas.

A name that does not exist is refused: an empty list would read as "there are no such jobs". Pure.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from fairlead_gateway.problems import Refused, bad_parameter, invalid
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow
from fairlead_schemas.units.ids import is_queue_path, is_token
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.lifecycle import STATES


class JobFilter(NamedTuple):
    """Conditions that all must hold; an empty one holds for every job."""

    states: frozenset[str]
    #: Paths, with every path below them that any job or queue has.
    queues: frozenset[str]
    users: frozenset[str]

    def matches(self, row: JobRow) -> bool:
        """Return True if the job meets every condition."""
        return (
            (not self.states or row.state in self.states)
            and (not self.queues or row.queue in self.queues)
            and (not self.users or row.user in self.users)
        )


def job_filter(views: Views, *, state: str, queue: str, user: str) -> JobFilter:
    """Read the query's texts. Raises Refused (422) naming the parameter, for a name that cannot be or is not there."""
    return JobFilter(_states(state), _queues(views, queue), _users(user))


def _states(text: str) -> frozenset[str]:
    wanted = _names(text)
    for name in sorted(wanted - STATES.keys()):
        raise bad_parameter("state", f'unknown state "{name[:40]}"; expected some of {", ".join(STATES)}')
    return wanted


def _queues(views: Views, text: str) -> frozenset[str]:
    wanted = _names(text)
    if not wanted:
        return wanted
    # Jobs that have ended may be of a queue that was removed since.
    known = {row.path for row in views.queues.existing()} | {row.queue for row in views.jobs.rows.values()}
    found = {path for path in known if any(path == name or path.startswith(f"{name}/") for name in wanted)}
    for name in sorted(wanted):
        if not any(path == name or path.startswith(f"{name}/") for path in found):
            raise _unknown_queue(name, known)
    return frozenset(found)


def _unknown_queue(name: str, known: Iterable[str]) -> Refused:
    if not is_queue_path(name):
        return bad_parameter("queue", f'expected names of a-z 0-9 _ - joined by "/", found "{name[:80]}"')
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else "GET /v1/queues lists them"
    return invalid([FieldError(field="queue", message=f"there is no queue {name[:80]}")], hint=hint)


def _users(text: str) -> frozenset[str]:
    wanted = _names(text)
    for name in sorted(wanted):
        if not is_token(name):
            raise bad_parameter("user", f'expected 1 to 63 of a-z 0-9 _ -, found "{name[:80]}"')
    return wanted


def _names(text: str) -> frozenset[str]:
    return frozenset(part for part in text.split(",") if part)
