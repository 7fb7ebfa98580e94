"""`usage` and `audit usage`: who had how many GPU-hours, what they cost, and whether that is true."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead import render, usage_words
from fairlead.commands import audit
from fairlead.commands.options import Output, connect
from fairlead.errors import FairleadError, Refused, Unreachable
from fairlead.render import Format
from fairlead.stack import state
from fairlead_schemas.queries.telemetry import BYS, UsageStatement

if TYPE_CHECKING:
    from fairlead_replay.recount import Book


def usage(
    statement: Annotated[
        str, typer.Option("--statement", metavar="MONTH", help="A month, 2026-11.  [default: this one, so far]", show_default=False)
    ] = "",
    by: Annotated[
        str, typer.Option("--by", metavar="WORD", help=f"{', '.join(BYS)}.", autocompletion=lambda: [*BYS])
    ] = "user",
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values, whatever --output says.")] = False,
    output: Output = Format.table,
) -> None:  # fmt: skip
    """Show who had how many GPU-hours of which model in a month, and what they cost.

    fairlead usage

    fairlead usage --statement 2026-11 --by project -o json > statement.json

    Charged is the time from a job's placement to the end of its run, at what it asked for, to the nanosecond; docs/reference/usage.md has the
    rules, and how to write the price table. Months are those of UTC.
    """
    if by not in BYS:
        raise Refused(f'--by: expected one of {", ".join(BYS)}, found "{by}"')
    with connect() as client:
        answer = client.usage(statement, by)
    if csv:
        render.write(usage_words.comma_separated(answer))
    elif output in (Format.json, Format.yaml):
        render.write(render.document(answer, output))
    elif output is Format.names:
        render.write("".join(f"{line.key}\n" for line in answer.lines))
    else:
        render.write(usage_words.table(answer))


def audit_usage(
    statement: Annotated[
        Path, typer.Argument(metavar="STATEMENT", help="What `fairlead usage -o json` printed.", show_default=False)
    ],
    prices: Annotated[
        Path | None, typer.Option("--prices", help="The price table that it was made with.", show_default=False)
    ] = None,
    data: audit.Data = None,
    nats: audit.Nats = "",
) -> None:
    """Count a statement of GPU time again, from the log alone and by other code. Exit code 1 says where they differ.

    fairlead audit export ./export && fairlead audit usage statement.json --data ./export --prices prices.csv
    """
    from fairlead_replay import recount

    told = _statement(statement)
    table = _read(prices) if prices is not None else ""
    book = _book(told.sequence, (data or state.default_data()).absolute(), nats)
    found = recount.differences(msgspec.to_builtins(told), book, table)
    for difference in found:
        render.write(f"DIFFERS: {difference}\n")
    if found:
        raise typer.Exit(1)
    render.write(
        f"equal: {len(told.lines)} lines, {told.gpu_hours:.3f} GPU-hours of {told.month}, counted again from "
        f"{len(book.intervals)} placements up to sequence {book.sequence}\n"
    )


def _statement(path: Path) -> UsageStatement:
    try:
        return msgspec.json.decode(_read(path).encode(), type=UsageStatement)
    except msgspec.MsgspecError as error:
        raise Refused(f"{path}: no statement: {error}", hint="fairlead usage -o json > statement.json") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {error}") from error


def _book(upto: int, folder: Path, nats: str) -> "Book":
    """Return the book of the log up to a sequence: of a whole export, or of a bus."""
    from fairlead_bus.main import with_bus
    from fairlead_bus.port import Bus, BusError, LogDamaged
    from fairlead_replay import recount
    from fairlead_replay.audit import read_log, verify_export
    from fairlead_replay.export import LOG_FILE, encode_line

    def read(lines: Iterable[bytes]) -> recount.Book:
        try:
            return recount.read(lines, upto)
        except recount.NotCounted as error:
            raise FairleadError(str(error), hint="fairlead audit verify") from error

    if not nats and audit.is_export(folder):
        verdict = verify_export(folder)
        if not verdict.ok:
            raise FairleadError(f"DAMAGED: sequence {verdict.first_bad}: {verdict.what}", hint="fairlead audit verify")
        with (folder / LOG_FILE).open("rb") as file:
            return read(file)

    async def collect(bus: Bus) -> list[bytes]:
        return [encode_line(stored) async for stored in read_log(bus)]

    try:
        with audit.bus_url(folder, nats) as url:
            return read(with_bus(url, "audit", collect))
    except LogDamaged as error:
        raise FairleadError(f"DAMAGED: {error}") from error
    except BusError as error:
        raise Unreachable(str(error)) from error
