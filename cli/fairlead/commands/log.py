"""`events` and `sql`: the record itself, as it happened and as tables."""

from typing import Annotated, Any

import msgspec
import typer

from fairlead import render
from fairlead.commands.options import Output, complete_job, connect, pick
from fairlead.errors import Refused
from fairlead.event_words import event_words
from fairlead.render import Column, Format
from fairlead_schemas.cloudevents import CloudEventOut


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
    """One event. JSON is one document per line, because a log has no end to close a list with."""
    if output is Format.json:
        return msgspec.json.encode(event).decode() + "\n"
    if output is Format.yaml:
        return "---\n" + render.document(event, output)
    if output is Format.names:
        return f"{event.id}\n"
    return f"[{event.time}] [{event.id}] {event_words(event, wide=output is Format.wide)}\n"


def sql(
    query: Annotated[str, typer.Argument(metavar='"SELECT …"', show_default=False)] = "",
    tables: Annotated[bool, typer.Option("--tables", help="List tables and columns, and what they mean.")] = False,
    output: Output = Format.table,
) -> None:
    """Ask the warehouse in SQL (DuckDB, read-only).

    fairlead sql "SELECT type, count(*) FROM events GROUP BY 1 ORDER BY 2 DESC"

    fairlead sql --tables
    """
    if tables:
        from fairlead_telemetry.schema import help_text
        from fairlead_telemetry.usage.relations import help_text as usage_help_text

        render.write(f"{help_text()}\n{usage_help_text()}")
        return
    if not query:
        raise Refused(
            "expected a query, found nothing", hint='fairlead sql "FROM jobs LIMIT 5", or fairlead sql --tables'
        )
    with connect() as client:
        answer = client.sql(query)
    if output in (Format.json, Format.yaml):
        render.write(render.document(answer, output))
        return
    heads, rows = rows_of(answer)
    columns = [
        Column(head, lambda row: row, right=all(isinstance(row[i], int | float) for row in rows))
        for i, head in enumerate(heads)
    ]
    texts = [
        ["" if cell is None else cell if isinstance(cell, str) else msgspec.json.encode(cell).decode() for cell in row]
        for row in rows
    ]
    render.write(render.table(texts, columns))


def rows_of(answer: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Heads and rows of an SQL answer; columns are names, or documents with a name and a type."""
    heads = [column["name"] if isinstance(column, dict) else str(column) for column in answer.get("columns", [])]
    rows = [[row.get(head) for head in heads] if isinstance(row, dict) else list(row) for row in answer.get("rows", [])]
    return heads, rows
