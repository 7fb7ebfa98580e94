"""`events`: the record itself, as it happened (as tables: `sql.py`)."""

from typing import Annotated

import msgspec
import typer

from fairlead import render
from fairlead.commands.options import Output, complete_job, connect, pick
from fairlead.event_words import event_words
from fairlead.render import Format
from fairlead_schemas.http.cloudevents import CloudEventOut


def events(
    job: Annotated[str, typer.Option("--job", help="Only events about this job.", autocompletion=complete_job)] = "",
    start: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=1,
            help="Begin at this log sequence.  [default: 1; with --follow and no --job: now]",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    output: Output = Format.table,
) -> None:
    """Print events of the log: time, id, what, about whom, caused by what.

    fairlead events --job last

    fairlead events --from 40213 --follow -o json     (one CloudEvent per line)
    """
    with connect() as client:
        job_id = pick(client, [job])[0] if job else ""
        begin = start or (None if follow and not job else 1)
        for event in client.events(start=begin, follow=follow, job=job_id):
            render.write(_line(event, output))


def _line(event: CloudEventOut, output: Format) -> str:
    """Return the text of one event. JSON is one document per line, because a log has no end to close a list with."""
    if output is Format.json:
        return msgspec.json.encode(event).decode() + "\n"
    if output is Format.yaml:
        return "---\n" + render.document(event, output)
    if output is Format.names:
        return f"{event.id}\n"
    return f"[{event.time}] [{event.id}] {event_words(event, wide=output is Format.wide)}\n"
