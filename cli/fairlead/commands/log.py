"""`events` and `sql`: the record itself, as it happened and as tables."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from fairlead import render
from fairlead.commands.options import Output, complete_job, connect, pick
from fairlead.errors import Refused
from fairlead.render import Column, Format
from fairlead_schemas.cloudevents import CloudEventOut
from fairlead_schemas.quantities import SECOND_NS, format_duration

#: What is above is a time (2001 and later), what is below a duration (of at most 31 years).
SINCE_1970_LEAST_NS = 10**9 * SECOND_NS


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


#: Fields too long for a line; `-o wide` and `-o json` have them.
_LONG = frozenset({"spec", "request", "inventory", "parts", "cause", "type", "gpus", "digest", "key"})


def event_words(event: CloudEventOut, *, wide: bool = False) -> str:
    """`job.placed job=812 attempt=0 … <- 40213.1`: the type without its frame, its fields, its cause."""
    what = event.type.removeprefix("fairlead.").removesuffix(".v1")
    data: dict[str, Any] = event.data if isinstance(event.data, dict) else {"data": event.data}
    if wide:
        shown = data
    else:
        shown = {k.removesuffix("_ns"): _moment(k, v) for k, v in data.items() if k not in _LONG}
        if data.get("type") == "JobOffered":
            shown.pop("rank", None)  # a number that only compares; a gang's rank is another thing
    if not wide and isinstance(parts := data.get("parts"), list):
        shown["on"] = ",".join(str(part.get("node")) for part in parts)
    words = " ".join(f"{k}={_value(v)}" for k, v in shown.items())
    cause = event.cause or data.get("cause", "")
    return f"{what} {words}{f' <- {cause}' if cause else ''}"


def _moment(name: str, value: Any) -> Any:
    """Nanoseconds as people read them: a time of the calendar, or a duration."""
    if not name.endswith("_ns") or not isinstance(value, int) or not value:
        return value
    if value < SINCE_1970_LEAST_NS:
        return format_duration(value)
    return f"{datetime.fromtimestamp(value // SECOND_NS, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return msgspec.json.encode(text).decode() if " " in text or not text.isprintable() else text


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

        render.write(help_text())
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
