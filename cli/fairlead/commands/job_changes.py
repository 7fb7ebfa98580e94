"""`update` and `requeue`: changes of jobs that wait or run."""

from typing import Annotated, Any

import typer

from fairlead.client import Client
from fairlead.commands.jobs import each
from fairlead.commands.options import Ids, IfMatch, Output
from fairlead.errors import InputRefused
from fairlead.render.terminal import Format
from fairlead_schemas.units import quantities


def update(
    ids: Ids,
    time: Annotated[
        str, typer.Option("--time", help='Longest run time, over all slices: "1h 30m", 7d, 2:00:00; "none": no limit.')
    ] = "",
    priority: Annotated[
        int | None, typer.Option("--priority", help="0 to 1000; higher goes first.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the job.", show_default=False)] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help='NAME=VALUE, or "NAME-" to remove it; repeatable.', show_default=False),
    ] = None,
    if_match: IfMatch = None,
    output: Output = Format.table,
) -> None:
    """Change the time limit, priority, name or labels of jobs that wait or run (an array with all its elements).

    fairlead update 812 --priority 80

    fairlead update last --time 8h --label team=vision

    The time limit of a job that has a place is only lowered: other jobs were promised its end. A queue-admin may raise it.
    """
    changes = changes_of(time=time, priority=priority, name=name, labels=label or [])
    each(ids, lambda client, job: client.update(job, changes, unchanged_since=if_match), "updated", output)


def requeue(ids: Ids, output: Output = Format.table) -> None:
    """End the present run of jobs and let them wait for another one, which uses up no retry.

    fairlead requeue last

    fairlead requeue 812_3 812_7

    A run with a checkpoint signal or command has its notice first. The job continues with the rest of its time limit.
    """
    each(ids, Client.requeue, "is being stopped, and queued again", output)


def changes_of(*, time: str, priority: int | None, name: str | None, labels: list[str]) -> dict[str, Any]:
    """Return the changed fields of a job file. Raises InputRefused for a value that cannot be read, and where there is no change."""
    changes: dict[str, Any] = {}
    if time:
        total = None if time == "none" else time
        if total is not None and quantities.parse_duration(total) <= 0:
            raise InputRefused(f'--time: expected more than 0, or "none" for no limit, found "{time}"')
        changes["time"] = {"total": total}
    if priority is not None:
        changes["priority"] = priority
    if name is not None:
        changes["name"] = name
    if labels:
        changes["labels"] = dict(map(_label, labels))
    if not changes:
        raise InputRefused(
            "expected at least one of --time, --priority, --name and --label, found none",
            hint="fairlead update last --priority 80",
        )
    return changes


def _label(word: str) -> tuple[str, str | None]:
    key, equals, value = word.partition("=")
    if equals and key:
        return key, value
    if len(word) > 1 and word.endswith("-"):
        return word[:-1], None
    raise InputRefused(f'--label: expected NAME=VALUE, or NAME- to remove a label, found "{word}"')
