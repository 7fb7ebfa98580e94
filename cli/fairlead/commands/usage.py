"""`usage` and `audit usage`: who had how many GPU-hours, what they cost, and whether that is true; and statements of GPU
time as people read them: a table with its totals, or comma-separated values.
"""

import csv
import time
from collections.abc import Iterable, Sequence
from datetime import UTC
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.commands import audit_options as audit
from fairlead.commands.options import Output, connect
from fairlead.errors import FairleadError, InputRefused, Unreachable
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead.stack import state
from fairlead_schemas.queries.telemetry import BYS, GPU_HOUR_MILLI_NS, UsageEstimate, UsageLine, UsageStatement
from fairlead_schemas.units.quantities import counted
from fairlead_schemas.units.timestamps import parse_moment, rfc3339, utc_day, utc_text

if TYPE_CHECKING:
    from fairlead_replay.recount import Book

#: Of the comma-separated values; amounts of GPU time are milli-GPU times nanoseconds.
CSV_HEADS = (
    "month",
    "by",
    "key",
    "model",
    "from",
    "runs",
    "gpu_hours",
    "charged",
    "held",
    "per_gpu_hour",
    "currency",
    "amount",
    "measured",
    "used",
)


def usage_table(statement: UsageStatement) -> str:
    """Lines, then what they come to, then what a reader must know of it."""
    heads = [statement.by.upper(), "MODEL", "RUNS", "GPU-HOURS", "PER HOUR", "AMOUNT", "TO NOW (ESTIMATE)"]
    columns = [TableColumn(head, str, right=at > 1) for at, head in enumerate(heads)]
    estimated = {
        (line.key, line.model, line.from_ns): line.gpu_hours
        for line in (statement.estimate.lines if statement.estimate else ())
    }
    rows = [_row(line, estimated.pop((line.key, line.model, line.from_ns), None)) for line in statement.lines]
    rows += [
        [
            key,
            model,
            "-",
            "-",
            "-",
            "-",
            f"{gpu_hours:.3f}",
        ]  # placed by the newest commit: the log has no time of it yet
        for (key, model, _), gpu_hours in estimated.items()
    ]
    dropped = [*([-1] if statement.estimate is None else []), *([1] if statement.by == "model" else [])]
    for at in dropped:
        del columns[at]
        for row in rows:
            del row[at]
    text = terminal.table(rows, columns) if rows else f"No GPU was held {_covered(statement, 'in ')}.\n"
    return text + "".join(f"{line}\n" for line in ["", *_remarks(statement)])


def _row(line: UsageLine, estimated: float | None) -> list[str]:
    price = f"{line.per_gpu_hour} {line.currency}" if line.per_gpu_hour is not None else "-"
    amount = f"{line.amount} {line.currency}" if line.amount is not None else "-"
    to_now = f"{estimated:.3f}" if estimated is not None else "-"
    return [line.name or line.key, line.model, str(line.runs), f"{line.gpu_hours:.3f}", price, amount, to_now]


def _remarks(statement: UsageStatement) -> Sequence[str]:
    totals = ", ".join(f"{amount} {currency}" for currency, amount in statement.totals.items())
    remarks = [
        f"total {_covered(statement, 'of ')}: {statement.gpu_hours:.3f} GPU-hours" + (f", {totals}" if totals else "")
    ]
    late = (statement.held - statement.charged) / GPU_HOUR_MILLI_NS
    if late >= 0.001:
        remarks.append(f"not charged: {late:.3f} GPU-hours between the ends of runs and their devices' return")
    if statement.measured and statement.used is not None and statement.held:
        share, use = 100 * statement.measured / statement.held, 100 * statement.used / statement.measured
        remarks.append(
            f"measured: {share:.1f} % of the GPU time that was held has samples, and of that {use:.1f} % was used"
        )
    elif statement.measured == 0:
        remarks.append("measured: there are no samples of it")
    if statement.unpriced:
        remarks.append(f"no price for: {', '.join(model or '(no model)' for model in statement.unpriced)}")
    if statement.estimate is not None:
        remarks.append(_estimate(statement.estimate))
    final = (
        "final" if statement.is_final else f"as of {utc_text(statement.as_of_ns)} UTC; what runs is counted up to there"
    )
    return [*remarks, f"{final} (log sequence {statement.sequence})"]


def _covered(statement: UsageStatement, month: str) -> str:
    """Return `in 2026-11` of a month, and both ends of another time; in UTC."""
    if "/" not in statement.month:
        return f"{month}{statement.month}"
    return f"from {utc_text(statement.begin_ns)} to {utc_text(statement.end_ns)} UTC"


def _estimate(estimate: UsageEstimate) -> str:
    totals = "".join(f", {amount} {currency}" for currency, amount in estimate.totals.items())
    return f"estimate up to {utc_text(estimate.at_ns)} UTC, if all running jobs continue: {estimate.gpu_hours:.3f} GPU-hours{totals}"


def usage_csv(statement: UsageStatement) -> str:
    """Return the statement as CSV: a head row, then one row per line of the statement."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADS)
    for line in statement.lines:
        writer.writerow(
            (
                statement.month,
                statement.by,
                line.key,
                line.model,
                utc_day(line.from_ns),
                line.runs,
                f"{line.gpu_hours:.6f}",
                line.charged,
                line.held,
                line.per_gpu_hour or "",
                line.currency,
                line.amount or "",
                "" if line.measured is None else line.measured,
                "" if line.used is None else line.used,
            )
        )
    return text.getvalue()


def usage(
    statement: Annotated[
        str,
        typer.Option(
            "--statement", metavar="MONTH", help="A month, 2026-11.  [default: this one, so far]", show_default=False
        ),
    ] = "",
    by: Annotated[
        str, typer.Option("--by", metavar="WORD", help=f"{', '.join(BYS)}.", autocompletion=lambda: [*BYS])
    ] = "user",
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="From the begin of this day, or from this time, in UTC.", show_default=False
        ),
    ] = "",
    end: Annotated[
        str,
        typer.Option("--to", metavar="TIME", help="Up to the begin of this day.  [default: now]", show_default=False),
    ] = "",
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values; overrides --output.")] = False,
    output: Output = Format.table,
) -> None:
    """Show who had how many GPU-hours of which model in a month or between two times, and what they cost.

    fairlead usage

    fairlead usage --from 2026-11-02 --to 2026-11-09 --by queue     (a week; the end is not included)

    fairlead usage --statement 2026-11 --by project -o json > statement.json

    Charged is the time from a job's placement to the end of its run, at what it asked for, to the nanosecond; docs/reference/usage.md has the
    rules, and how to write the price table. Months are those of UTC.
    """
    if by not in BYS:
        raise InputRefused(f'--by: expected one of {", ".join(BYS)}, found "{by}"')
    if statement and (begin or end):
        raise InputRefused("expected --statement or --from and --to, found both")
    if end and not begin:
        raise InputRefused("--to: expected --from with it", hint="fairlead usage --from 2026-11-02 --to 2026-11-09")
    times = {"begin": _utc_time("--from", begin), "end": _utc_time("--to", end)}
    with connect() as client:
        answer = client.usage(statement, by, **times)
    if csv:
        terminal.write(usage_csv(answer))
    elif output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))
    elif output is Format.names:
        terminal.write("".join(f"{line.name or line.key}\n" for line in answer.lines))
    else:
        terminal.write(usage_table(answer))


prices_app = typer.Typer(invoke_without_command=True)

_PRICES = (
    TableColumn("MODEL", lambda price: price.model),
    TableColumn("PER GPU-HOUR", lambda price: f"{price.per_gpu_hour} {price.currency}", right=True),
    TableColumn("FROM", lambda price: price.valid_from),
    TableColumn("BY", lambda price: price.by),
)


@prices_app.callback()
def prices(ctx: typer.Context, output: Output = Format.table) -> None:
    """List the prices of GPUs, or set one from a moment on.

    fairlead prices set NVIDIA-H100-80GB-HBM3 2.49 EUR
    """
    if ctx.invoked_subcommand is not None:
        return
    with connect() as client:
        page = client.prices()
    terminal.write(
        terminal.page(page, _PRICES, lambda price: f"price/{price.model}", output, empty="no prices were set")
    )


@prices_app.command("set")
def set_price(
    model: Annotated[
        str,
        typer.Argument(help="As `usage --by model` names it; * is every model without a price.", show_default=False),
    ],
    price: Annotated[str, typer.Argument(help="Of an hour of one whole GPU, such as 2.49.", show_default=False)],
    currency: Annotated[str, typer.Argument(help="Three capitals, such as EUR.", show_default=False)],
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="From the begin of this day, or this time, in UTC.  [default: now]"
        ),
    ] = "",
    output: Output = Format.table,
) -> None:
    """Set what an hour of a GPU costs from a moment on, until the model's next price.

    fairlead prices set NVIDIA-H100-80GB-HBM3 2.19 EUR --from 2026-12-01

    The log keeps it: `fairlead usage` and the SQL view costs count each hour at the price that held then.
    """
    time_ = _utc_time("--from", begin)
    with connect() as client:
        answer = client.set_price(model, price, currency, begin=time_)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))
    elif output is Format.names:
        terminal.write(f"price/{answer.model}\n")
    else:
        terminal.write(f"{answer.model} costs {answer.per_gpu_hour} {answer.currency} from {answer.valid_from} on\n")


def _utc_time(option: str, text: str) -> str:
    """Return a time of the command line as RFC 3339, "" for none: days and hours without a zone are those of UTC. Raise InputRefused."""
    if not text:
        return ""
    try:
        return rfc3339(parse_moment(text, time.time_ns(), UTC))
    except (ValueError, OverflowError):
        raise InputRefused(
            f'{option}: expected a day such as "2026-11-02", "yesterday", or a time such as "2026-11-02 08:00", found "{text}"'
        ) from None


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

    claimed = _statement(statement)
    table = _read(prices) if prices is not None else ""
    book = _book(claimed.sequence, (data or state.default_data()).absolute(), nats)
    found = recount.differences(msgspec.to_builtins(claimed), book, table)
    for difference in found:
        terminal.write(f"DIFFERS: {difference}\n")
    if found:
        raise typer.Exit(1)
    terminal.write(
        f"equal: {counted(len(claimed.lines), 'line')}, {claimed.gpu_hours:.3f} GPU-hours of {claimed.month}, counted again from "
        f"{counted(len(book.intervals), 'placement')} up to sequence {book.sequence}\n"
    )


def _statement(path: Path) -> UsageStatement:
    try:
        return msgspec.json.decode(_read(path).encode(), type=UsageStatement)
    except msgspec.MsgspecError as error:
        raise InputRefused(f"{path}: no statement: {error}", hint="fairlead usage -o json > statement.json") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputRefused(f"{path}: {error}") from error


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
