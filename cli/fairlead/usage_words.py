"""Statements of GPU time as people read them: a table with its totals, or comma-separated values."""

import csv
from collections.abc import Sequence
from datetime import UTC, datetime
from io import StringIO

from fairlead import render
from fairlead.render import Column
from fairlead_schemas.queries.telemetry import GPU_HOUR_MILLI_NS, UsageEstimate, UsageLine, UsageStatement

#: Of the comma-separated values; amounts of GPU time are milli-GPU times nanoseconds.
CSV_HEADS = (
    "month", "by", "key", "model", "from", "runs", "gpu_hours", "charged", "held", "per_gpu_hour", "currency", "amount", "measured", "used",
)  # fmt: skip


def table(statement: UsageStatement) -> str:
    """Lines, then what they come to, then what a reader must know of it."""
    heads = [statement.by.upper(), "MODEL", "RUNS", "GPU-HOURS", "PER HOUR", "AMOUNT", "TO NOW (ESTIMATE)"]
    columns = [Column(head, str, right=at > 1) for at, head in enumerate(heads)]
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
    text = render.table(rows, columns) if rows else f"No GPU was held in {statement.month}.\n"
    return text + "".join(f"{line}\n" for line in ["", *_remarks(statement)])


def _row(line: UsageLine, estimated: float | None) -> list[str]:
    price = f"{line.per_gpu_hour} {line.currency}" if line.per_gpu_hour is not None else "-"
    amount = f"{line.amount} {line.currency}" if line.amount is not None else "-"
    to_now = f"{estimated:.3f}" if estimated is not None else "-"
    return [line.key, line.model, str(line.runs), f"{line.gpu_hours:.3f}", price, amount, to_now]


def _remarks(statement: UsageStatement) -> Sequence[str]:
    as_of = datetime.fromtimestamp(statement.as_of_ns // 10**9, UTC)
    totals = ", ".join(f"{amount} {currency}" for currency, amount in statement.totals.items())
    told = [f"total of {statement.month}: {statement.gpu_hours:.3f} GPU-hours" + (f", {totals}" if totals else "")]
    late = (statement.held - statement.charged) / GPU_HOUR_MILLI_NS
    if late >= 0.001:
        told.append(f"not charged: {late:.3f} GPU-hours between the ends of runs and their devices' return")
    if statement.measured and statement.used is not None and statement.held:
        share, use = 100 * statement.measured / statement.held, 100 * statement.used / statement.measured
        told.append(
            f"measured: {share:.1f} % of the GPU time that was held has samples, and of that {use:.1f} % was used"
        )
    elif statement.measured == 0:
        told.append("measured: there are no samples of it")
    if statement.unpriced:
        told.append(f"no price for: {', '.join(model or '(no model)' for model in statement.unpriced)}")
    if statement.estimate is not None:
        told.append(_estimate(statement.estimate))
    final = "final" if statement.is_final else f"as of {as_of:%Y-%m-%d %H:%M:%S} UTC; what runs is counted up to there"
    return [*told, f"{final} (log sequence {statement.sequence})"]


def _estimate(estimate: UsageEstimate) -> str:
    at = datetime.fromtimestamp(estimate.at_ns // 10**9, UTC)
    totals = "".join(f", {amount} {currency}" for currency, amount in estimate.totals.items())
    return f"estimate up to {at:%Y-%m-%d %H:%M:%S} UTC, if all that runs goes on: {estimate.gpu_hours:.3f} GPU-hours{totals}"


def comma_separated(statement: UsageStatement) -> str:
    """Return the statement as CSV: a head row, then one row per line of the statement."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_HEADS)
    for line in statement.lines:
        since = datetime.fromtimestamp(line.from_ns // 10**9, UTC)
        writer.writerow((
            statement.month, statement.by, line.key, line.model, f"{since:%Y-%m-%d}", line.runs, f"{line.gpu_hours:.6f}",
            line.charged, line.held, line.per_gpu_hour or "", line.currency, line.amount or "",
            "" if line.measured is None else line.measured, "" if line.used is None else line.used,
        ))  # fmt: skip
    return text.getvalue()
