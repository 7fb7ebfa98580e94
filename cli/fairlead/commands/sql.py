"""`sql`: the record as tables, in the form that is wanted."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from fairlead.client import Client
from fairlead.commands.options import connect
from fairlead.errors import InputRefused
from fairlead.jobfile.reader import read_script
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_schemas.units import quantities
from fairlead_schemas.units.timestamps import SECOND_NS

#: Of stdin: what is longer has more than the 64 Ki characters that the service takes, and is refused there.
QUERY_BYTES_MAX = 4 * 64 * 1024


class SqlOutput(StrEnum):
    """Output formats of `fairlead sql -o`."""

    table = "table"
    json = "json"
    yaml = "yaml"
    csv = "csv"
    arrow = "arrow"


def sql(
    query: Annotated[str, typer.Argument(metavar='"SELECT …"', help='"-" is stdin.', show_default=False)] = "",
    tables: Annotated[bool, typer.Option("--tables", help="List tables and columns, and what they mean.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, help="Rows at most (never more than 10,000).", show_default=False),
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", help='Give up after this long ("5s"); the service has a bound of its own.', show_default=False
        ),
    ] = "",
    output: Annotated[
        SqlOutput,
        typer.Option("--output", "-o", help="table, json, yaml, csv, or arrow (an IPC stream, for a file or a pipe)."),
    ] = SqlOutput.table,
) -> None:
    """Ask the warehouse in SQL (DuckDB, read-only). Ctrl-C cancels the query.

    fairlead sql "SELECT type, count(*) FROM events GROUP BY 1 ORDER BY 2 DESC"

    fairlead sql -o csv "FROM gpu_hours_by_user" > hours.csv

    fairlead sql - < query.sql

    fairlead sql --tables
    """
    if tables:
        from fairlead_telemetry.schema import help_text

        terminal.write(help_text())
        return
    if query == "-":
        query = read_script(Path(query), QUERY_BYTES_MAX)
    if not query.strip():
        raise InputRefused(
            "expected a query, found nothing", hint='fairlead sql "FROM jobs LIMIT 5", or fairlead sql --tables'
        )
    if output is SqlOutput.arrow and terminal.is_terminal():
        raise InputRefused("Arrow is no text for a terminal", hint='fairlead sql -o arrow "FROM jobs" > jobs.arrows')
    timeout_s = quantities.parse_duration(timeout) / SECOND_NS if timeout else None
    with connect() as client:
        fields = _print(client, query, output, limit, timeout_s)
    if cut := fields.get("cut"):
        terminal.note(f"not all rows: {cut}")
    if missing := fields.get("left_out"):
        terminal.note(f"left out: {missing}")


def _print(client: Client, query: str, output: SqlOutput, limit: int | None, timeout_s: float | None) -> dict[str, Any]:
    """Run a query, print its rows, and return the answer's other fields."""
    match output:
        case SqlOutput.csv | SqlOutput.arrow:
            form = "csv" if output is SqlOutput.csv else "arrow"
            body, fields = client.sql_bytes(query, form, limit=limit, timeout_s=timeout_s)
            sys.stdout.buffer.write(body)
            sys.stdout.buffer.flush()
            return fields
        case SqlOutput.json | SqlOutput.yaml:
            answer = client.sql(query, limit=limit, timeout_s=timeout_s)
            terminal.write(terminal.document(answer, Format(output.value)))
        case SqlOutput.table:
            answer = client.sql(query, limit=limit, timeout_s=timeout_s)
            terminal.write(_table(answer))
    return answer


def _table(answer: dict[str, Any]) -> str:
    heads, rows = rows_of(answer)
    columns = [
        TableColumn(head, lambda row: row, right=all(isinstance(row[i], int | float) for row in rows))
        for i, head in enumerate(heads)
    ]
    return terminal.table([[_text(cell) for cell in row] for row in rows], columns)


def _text(cell: Any) -> str:
    return "" if cell is None else cell if isinstance(cell, str) else msgspec.json.encode(cell).decode()


def rows_of(answer: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Heads and rows of an SQL answer; columns are names, or documents with a name and a type."""
    heads = [column["name"] if isinstance(column, dict) else str(column) for column in answer.get("columns", [])]
    rows = [[row.get(head) for head in heads] if isinstance(row, dict) else list(row) for row in answer.get("rows", [])]
    return heads, rows
